// Feature offer, configuration space and receive filter of a virtio-net device.
#include "net/net_device.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "net/receive_filter.h"

namespace sluice::net {
namespace {

using virtio::Feature;
using virtio::FeatureSet;

TEST(OfferedFeatures, HoldTheirOwnDependenciesForEveryCombinationOfOptions) {
  for (unsigned bits = 0; bits < 512; ++bits) {
    const DeviceOptions options{
        .queue_pairs = static_cast<std::uint16_t>((bits & 1) != 0 ? 4 : 1),
        .mac = (bits & 2) != 0 ? std::optional<PackedMac>(0x02) : std::nullopt,
        .mtu = static_cast<std::uint16_t>((bits & 4) != 0 ? 9000 : 65535),
        .offloads = (bits & 8) != 0,
        .packed = (bits & 16) != 0,
        .in_order = (bits & 32) != 0,
        .mrg_rxbuf = (bits & 64) != 0,
        .ring_reset = (bits & 128) != 0,
        .control_queue = (bits & 256) != 0};
    const FeatureSet offered = offered_features(options);
    EXPECT_FALSE(virtio::broken_dependency(offered).has_value()) << bits;
    EXPECT_TRUE(offered.has(Feature::kVersion1));
    EXPECT_EQ(offered.has(Feature::kMac), options.mac.has_value());
    EXPECT_EQ(offered.has(Feature::kMtu), options.mtu < kMtuMax);
    EXPECT_EQ(offered.has(Feature::kRingPacked), options.packed);
    EXPECT_EQ(offered.has(Feature::kInOrder), options.in_order);
    EXPECT_EQ(offered.has(Feature::kMrgRxbuf), options.mrg_rxbuf);
    EXPECT_EQ(offered.has(Feature::kRingReset), options.ring_reset);
    EXPECT_EQ(offered.has(Feature::kCsum), options.offloads);
    EXPECT_EQ(offered.has(Feature::kGuestUso6), options.offloads);
    EXPECT_EQ(offered.has(Feature::kCtrlVq), options.control_queue);
    EXPECT_EQ(offered.has(Feature::kMq), options.queue_pairs > 1 && options.control_queue);
  }
}

TEST(OfferedFeatures, LeaveOutWhatIsNotDone) {
  const FeatureSet offered = offered_features({.queue_pairs = 8, .ring_reset = true});
  for (const Feature feature :
       {Feature::kGuestEcn, Feature::kHostEcn, Feature::kGuestUfo, Feature::kHostUfo,
        Feature::kCtrlVlan, Feature::kCtrlRxExtra, Feature::kRss, Feature::kHashReport,
        Feature::kAccessPlatform, Feature::kNotificationData, Feature::kNotfCoal,
        Feature::kVqNotfCoal, Feature::kStandby, Feature::kSpeedDuplex, Feature::kGuestHdrlen,
        Feature::kHashTunnel, Feature::kOutNetHeader, Feature::kIpsec, Feature::kNotifyOnEmpty}) {
    EXPECT_FALSE(offered.has(feature)) << static_cast<int>(feature);
  }
}

TEST(OfferedFeatures, APortWithAnAddressDoesNotLetItsDriverChangeIt) {
  EXPECT_TRUE(offered_features({}).has(Feature::kCtrlMacAddr));
  EXPECT_FALSE(offered_features({.mac = 0x02}).has(Feature::kCtrlMacAddr));
}

TEST(ControlQueueIndex, LiesBehindAllPairsOnlyIfMqWasNegotiated) {
  EXPECT_EQ(control_queue_index(4, {Feature::kMq}).raw(), 8);
  EXPECT_EQ(control_queue_index(4, {}).raw(), 2);
  EXPECT_EQ(control_queue_index(1, {Feature::kMq}).raw(), 2);
  EXPECT_EQ(control_queue_index(127, {Feature::kMq}).raw(), 254);
}

TEST(ConfigSpace, HasItsFieldsAtTheOffsetsOfTheSpecification) {
  ConfigSpace space({.queue_pairs = 3, .mac = 0x0605'0403'0202, .mtu = 9000});
  const auto bytes = space.bytes();
  ASSERT_EQ(bytes.size(), 24U);
  const std::vector<int> expected = {0x02, 0x02, 0x03, 0x04, 0x05, 0x06,  // mac
                                     1,    0,                             // status: link up
                                     3,    0,                             // max_virtqueue_pairs
                                     0x28, 0x23,                          // mtu 9000
                                     0xff, 0xff, 0xff, 0xff,              // speed unknown
                                     0xff};                               // duplex unknown
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(std::to_integer<int>(bytes[i]), expected[i]) << "offset " << i;
  }
  space.set_announce(true);
  EXPECT_EQ(std::to_integer<int>(bytes[6]), 3);
  space.set_announce(false);
  EXPECT_EQ(std::to_integer<int>(bytes[6]), 1);
}

TEST(ConfigSpace, RefusesEveryWrite) {
  const ConfigSpace space({});
  const std::vector<std::byte> data(24);
  EXPECT_EQ(space.write(0, data).error().code, ErrorCode::kPermission);
  EXPECT_EQ(space.write(1, data).error().code, ErrorCode::kOutOfRange);
  EXPECT_EQ(space.write(0xffff'ffff, data).error().code, ErrorCode::kOutOfRange);
}

constexpr PackedMac kOwn = 0x0a'00'00'00'00'02;
constexpr PackedMac kOther = 0x0b'00'00'00'00'02;
constexpr PackedMac kGroup = 0x05'00'00'5e'00'01;

TEST(ReceiveFilter, WantsEverythingUntilTheDriverSaysOtherwise) {
  const ReceiveFilter filter;
  EXPECT_TRUE(filter.wants(kOther));
  EXPECT_TRUE(filter.wants(kGroup));
}

TEST(ReceiveFilter, WithoutPromiscuityWantsItsAddressesAndBroadcast) {
  ReceiveFilter filter;
  filter.set_promiscuous(false);
  EXPECT_TRUE(filter.wants(kOther)) << "its own address is not known yet";
  filter.set_address(kOwn);
  EXPECT_TRUE(filter.wants(kOwn));
  EXPECT_FALSE(filter.wants(kOther));
  EXPECT_FALSE(filter.wants(kGroup));
  EXPECT_TRUE(filter.wants(kBroadcastMac));
  filter.set_tables(std::vector{kOther}, std::vector{kGroup});
  EXPECT_TRUE(filter.wants(kOther));
  EXPECT_TRUE(filter.wants(kGroup));
  filter.set_tables({}, {});
  EXPECT_FALSE(filter.wants(kGroup));
  filter.set_all_multicast(true);
  EXPECT_TRUE(filter.wants(kGroup));
  EXPECT_FALSE(filter.wants(kOther));
  filter.reset();
  EXPECT_TRUE(filter.wants(kOther));
}

TEST(ReceiveFilter, ATableThatIsTooLongMeansAllOfItsKind) {
  ReceiveFilter filter;
  filter.set_promiscuous(false);
  filter.set_address(kOwn);
  filter.set_tables({}, std::vector<PackedMac>(ReceiveFilter::kTableMax + 1, kGroup));
  EXPECT_TRUE(filter.wants(0x77'00'00'5e'00'01));
  EXPECT_FALSE(filter.wants(kOther));
}

}  // namespace
}  // namespace sluice::net
