// FeatureSet as a set, and the dependency table of virtio 1.3, 5.1.3.1, written a second time here.
#include "virtio/features.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace sluice::virtio {
namespace {

using F = Feature;

std::vector<Feature> all_features() {
  std::vector<Feature> all;
  for (int number = 0; number < 128; ++number) {
    const auto feature = static_cast<Feature>(number);
    if (!name_of(feature).empty()) all.push_back(feature);
  }
  return all;
}

FeatureSet everything() {
  FeatureSet set;
  for (const Feature feature : all_features()) set.add(feature);
  return set;
}

// The table in another form: each row is one feature, and the groups of which it needs one each.
struct Row {
  Feature feature;
  std::vector<std::vector<Feature>> needs;
};
const std::vector<Row>& table() {
  static const std::vector<Row> rows = {
      {F::kGuestTso4, {{F::kGuestCsum}}},
      {F::kGuestTso6, {{F::kGuestCsum}}},
      {F::kGuestUfo, {{F::kGuestCsum}}},
      {F::kGuestUso4, {{F::kGuestCsum}}},
      {F::kGuestUso6, {{F::kGuestCsum}}},
      {F::kGuestEcn, {{F::kGuestTso4, F::kGuestTso6}}},
      {F::kHostTso4, {{F::kCsum}}},
      {F::kHostTso6, {{F::kCsum}}},
      {F::kHostUfo, {{F::kCsum}}},
      {F::kHostUso, {{F::kCsum}}},
      {F::kHostEcn, {{F::kHostTso4, F::kHostTso6}}},
      {F::kCtrlRx, {{F::kCtrlVq}}},
      {F::kCtrlVlan, {{F::kCtrlVq}}},
      {F::kGuestAnnounce, {{F::kCtrlVq}}},
      {F::kMq, {{F::kCtrlVq}}},
      {F::kCtrlMacAddr, {{F::kCtrlVq}}},
      {F::kRss, {{F::kCtrlVq}}},
      {F::kNotfCoal, {{F::kCtrlVq}}},
      {F::kVqNotfCoal, {{F::kCtrlVq}}},
      {F::kCtrlGuestOffloads, {{F::kCtrlVq}}},
      {F::kHashTunnel, {{F::kCtrlVq}, {F::kRss, F::kHashReport}}},
      {F::kRscExt, {{F::kHostTso4, F::kHostTso6}}},
      {F::kGuestUdpTunnelGso, {{F::kGuestTso4, F::kGuestTso6, F::kGuestUso4, F::kGuestUso6}}},
      {F::kGuestUdpTunnelGsoCsum, {{F::kGuestUdpTunnelGso}}},
      {F::kHostUdpTunnelGso, {{F::kHostTso4, F::kHostTso6, F::kHostUso}}},
      {F::kHostUdpTunnelGsoCsum, {{F::kHostUdpTunnelGso}}},
  };
  return rows;
}

bool satisfied(const FeatureSet& set) {
  for (const Row& row : table()) {
    if (!set.has(row.feature)) continue;
    for (const auto& group : row.needs) {
      bool any = false;
      for (const Feature feature : group) any = any || set.has(feature);
      if (!any) return false;
    }
  }
  return true;
}

TEST(FeatureSet, HoldsAllHundredAndTwentyEightBits) {
  for (int number = 0; number < 128; ++number) {
    const auto feature = static_cast<Feature>(number);
    FeatureSet set;
    EXPECT_TRUE(set.empty());
    set.add(feature);
    for (int other = 0; other < 128; ++other) {
      EXPECT_EQ(set.has(static_cast<Feature>(other)), other == number);
    }
    EXPECT_EQ(set.low(), number < 64 ? std::uint64_t{1} << number : 0U);
    EXPECT_FALSE(set.empty());
    set.remove(feature);
    EXPECT_TRUE(set.empty());
  }
}

TEST(FeatureSet, IsASet) {
  const FeatureSet a{F::kCsum, F::kMq, F::kIpsec};
  const FeatureSet b{F::kMq, F::kIpsec, F::kVersion1};
  EXPECT_EQ(a & b, (FeatureSet{F::kMq, F::kIpsec}));
  EXPECT_EQ(a | b, (FeatureSet{F::kCsum, F::kMq, F::kIpsec, F::kVersion1}));
  EXPECT_EQ(a - b, FeatureSet{F::kCsum});
  EXPECT_TRUE((a | b).contains(a));
  EXPECT_FALSE(a.contains(b));
  EXPECT_EQ(FeatureSet::from_low(a.low()), a - FeatureSet{F::kIpsec});
}

TEST(Features, EveryNameIsKnownOnceAndListedInOrderOfNumber) {
  const std::vector<std::string_view> names = names_of(everything());
  const std::vector<Feature> all = all_features();
  ASSERT_EQ(names.size(), all.size());
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(names[i], name_of(all[i]));
  EXPECT_EQ(name_of(F::kMrgRxbuf), "MRG_RXBUF");
  EXPECT_EQ(name_of(static_cast<Feature>(127)), "");
}

// INI-03: all single removals from the full set.
TEST(Features, INI_03_RemovingOneFeatureDropsAllThatLeanOnIt) {
  EXPECT_EQ(without_broken_dependencies(everything()), everything());
  for (const Feature missing : all_features()) {
    FeatureSet set = everything();
    set.remove(missing);
    EXPECT_EQ(broken_dependency(set).has_value(), !satisfied(set)) << name_of(missing);
    const FeatureSet cleaned = without_broken_dependencies(set);
    EXPECT_TRUE(satisfied(cleaned)) << name_of(missing);
    EXPECT_TRUE(set.contains(cleaned));
    EXPECT_EQ(broken_dependency(cleaned), std::nullopt);
  }
}

// INI-03: all pairs, alone and removed from the full set.
TEST(Features, INI_03_EveryPairAgreesWithTheTable) {
  for (const Feature first : all_features()) {
    for (const Feature second : all_features()) {
      const FeatureSet pair{first, second};
      EXPECT_EQ(broken_dependency(pair).has_value(), !satisfied(pair))
          << name_of(first) << " " << name_of(second);
      const FeatureSet rest = everything() - pair;
      EXPECT_EQ(broken_dependency(rest).has_value(), !satisfied(rest))
          << "without " << name_of(first) << " and " << name_of(second);
      EXPECT_TRUE(satisfied(without_broken_dependencies(rest)));
    }
  }
}

TEST(Features, INI_03_DroppingRemovesNothingThatCouldStay) {
  for (std::uint64_t seed = 1; seed < 2000; ++seed) {
    FeatureSet set = FeatureSet::from_low(seed * 0x9E3779B97F4A7C15U) & everything();
    if (seed % 2 == 0) set.add(F::kGuestUdpTunnelGso);
    const FeatureSet cleaned = without_broken_dependencies(set);
    ASSERT_TRUE(satisfied(cleaned));
    for (const Feature dropped : all_features()) {
      if (!set.has(dropped) || cleaned.has(dropped)) continue;
      FeatureSet again = cleaned;
      again.add(dropped);
      EXPECT_FALSE(satisfied(again)) << name_of(dropped) << " was dropped without need";
    }
  }
}

// INI-16: numbers that nobody knows yet pass through; they are neither named nor judged.
TEST(Features, INI_16_UnknownBitsAreNoError) {
  for (int number = 0; number < 128; ++number) {
    const auto feature = static_cast<Feature>(number);
    if (!name_of(feature).empty()) continue;
    const FeatureSet set{feature};
    EXPECT_EQ(broken_dependency(set), std::nullopt);
    EXPECT_TRUE(names_of(set).empty());
    EXPECT_EQ(without_broken_dependencies(set), set);
  }
}

}  // namespace
}  // namespace sluice::virtio
