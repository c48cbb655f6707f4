// QueueConfig::layout: sizes, alignments, addresses and positions it takes and refuses.
#include "virtio/queue_config.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>

#include "support/fake_guest.h"
#include "virtio/spec.h"

namespace sluice::virtio {
namespace {

using test::FakeGuest;

const FeatureSet kSplit{Feature::kVersion1};
const FeatureSet kPacked{Feature::kVersion1, Feature::kRingPacked};

class QueueConfigTest : public testing::Test {
 protected:
  static QueueConfig config_at(std::uint64_t address, std::uint32_t size,
                               const FeatureSet& features) {
    const auto bytes = QueueConfig::area_sizes(size, features);
    const auto up = [](std::uint64_t value) { return (value + 15) / 16 * 16; };
    QueueConfig config;
    config.size = size;
    config.descriptors = FakeGuest::user(address);
    config.driver_area = FakeGuest::user(up(address + bytes.descriptors));
    config.device_area = FakeGuest::user(up(up(address + bytes.descriptors) + bytes.driver_area));
    return config;
  }
  ErrorCode refusal(const QueueConfig& config, const FeatureSet& features) {
    const auto ring = config.layout(guest_.memory(), features);
    EXPECT_FALSE(ring.has_value());
    return ring.has_value() ? ErrorCode::kClosed : ring.error().code;
  }
  static memory::UserAddress moved(memory::UserAddress address, std::int64_t by) {
    return memory::UserAddress(address.raw() + static_cast<std::uint64_t>(by));
  }

  FakeGuest guest_;
};

TEST_F(QueueConfigTest, SPL_01_EverySizeIsAcceptedOnlyIfAPowerOfTwoUpTo32768) {
  for (std::uint32_t size = 0; size <= 32800; ++size) {
    const QueueConfig config = config_at(FakeGuest::kBase, size, kSplit);
    const bool legal = size != 0 && (size & (size - 1)) == 0 && size <= 32768;
    ASSERT_EQ(config.layout(guest_.memory(), kSplit).has_value(), legal) << size;
  }
  for (const std::uint32_t size : {65536U, 0x8000'0000U, 0xffff'ffffU}) {
    EXPECT_EQ(refusal(config_at(FakeGuest::kBase, size, kSplit), kSplit),
              ErrorCode::kInvalidArgument);
  }
}

TEST_F(QueueConfigTest, PKD_02_EverySizeFrom1To32768IsAccepted) {
  for (std::uint32_t size = 0; size <= 32800; ++size) {
    const QueueConfig config = config_at(FakeGuest::kBase, size, kPacked);
    ASSERT_EQ(config.layout(guest_.memory(), kPacked).has_value(), size != 0 && size <= 32768)
        << size;
  }
  EXPECT_EQ(refusal(config_at(FakeGuest::kBase, 65536, kPacked), kPacked),
            ErrorCode::kInvalidArgument);
}

// SEC-53, SEC-63: what a division or a mask would choke on is refused by name.
TEST_F(QueueConfigTest, SEC_53_SEC_63_SizeZeroAndHugeSizesAreRefusedInBothFormats) {
  for (const FeatureSet& features : {kSplit, kPacked}) {
    for (const std::uint32_t size : {0U, 32769U, 65535U, 65536U}) {
      EXPECT_EQ(refusal(config_at(FakeGuest::kBase, size, features), features),
                ErrorCode::kInvalidArgument);
    }
  }
}

TEST_F(QueueConfigTest, SPL_01_AreasHaveTheSizesOfTheSpecification) {
  const auto split = QueueConfig::area_sizes(256, kSplit);
  EXPECT_EQ(split.descriptors, 16U * 256);
  EXPECT_EQ(split.driver_area, 6U + 2 * 256);
  EXPECT_EQ(split.device_area, 6U + 8 * 256);
  const auto packed = QueueConfig::area_sizes(255, kPacked);
  EXPECT_EQ(packed.descriptors, 16U * 255);
  EXPECT_EQ(packed.driver_area, 4U);
  EXPECT_EQ(packed.device_area, 4U);
}

// SPL-01, PKD-01, SEC-64: each of the three addresses, each offset below its alignment.
TEST_F(QueueConfigTest, SPL_01_PKD_01_SEC_64_MisalignedAddressesAreRefusedAtStart) {
  struct Case {
    const FeatureSet* features;
    std::int64_t descriptors, driver, device;
  };
  for (const Case& c : {Case{&kSplit, 16, 2, 4}, Case{&kPacked, 16, 4, 4}}) {
    const QueueConfig good = config_at(FakeGuest::kBase, 64, *c.features);
    for (std::int64_t by = 0; by < 16; ++by) {
      QueueConfig config = good;
      config.descriptors = moved(good.descriptors, by);
      EXPECT_EQ(config.layout(guest_.memory(), *c.features).has_value(), by % c.descriptors == 0);
      config = good;
      config.driver_area = moved(good.driver_area, by);
      EXPECT_EQ(config.layout(guest_.memory(), *c.features).has_value(), by % c.driver == 0);
      config = good;
      config.device_area = moved(good.device_area, by);
      EXPECT_EQ(config.layout(guest_.memory(), *c.features).has_value(), by % c.device == 0);
    }
  }
}

// SEC-01: every area, moved until its last byte leaves the region, and to where nothing is.
TEST_F(QueueConfigTest, SEC_01_AnAreaMustLieWhollyInSharedMemory) {
  const std::uint64_t end = FakeGuest::kBase + FakeGuest::kDefaultSize;
  for (const FeatureSet* features : {&kSplit, &kPacked}) {
    const auto bytes = QueueConfig::area_sizes(64, *features);
    const auto try_area = [&](auto member, std::uint64_t size) {
      const auto last = (end - size) / 16 * 16;  // The last place that fits.
      for (const std::uint64_t address : {last, last + 16, end, end - 16, FakeGuest::kBase - 16,
                                          std::uint64_t{0}, ~std::uint64_t{0} - 15}) {
        QueueConfig config = config_at(FakeGuest::kBase, 64, *features);
        config.*member = FakeGuest::user(address);
        const bool inside = address >= FakeGuest::kBase && address < end && size <= end - address;
        const auto ring = config.layout(guest_.memory(), *features);
        ASSERT_EQ(ring.has_value(), inside) << std::hex << address;
        if (!inside) {
          EXPECT_EQ(ring.error().code, ErrorCode::kBadAddress);
        }
      }
    };
    try_area(&QueueConfig::descriptors, bytes.descriptors);
    try_area(&QueueConfig::driver_area, bytes.driver_area);
    try_area(&QueueConfig::device_area, bytes.device_area);
  }
}

// A guest-physical address is no user address, even where one would fit the other's range.
TEST_F(QueueConfigTest, GuestAddressesAreNotTakenForUserAddresses) {
  QueueConfig config = config_at(FakeGuest::kBase, 64, kSplit);
  config.descriptors = memory::UserAddress(FakeGuest::kBase);
  EXPECT_EQ(refusal(config, kSplit), ErrorCode::kBadAddress);
}

TEST_F(QueueConfigTest, SEC_01_AnAreaMayNotStraddleTwoRegions) {
  constexpr std::uint64_t kHalf = 1U << 16;
  const FakeGuest two{{FakeGuest::kBase, kHalf}, {FakeGuest::kBase + kHalf, kHalf}};
  QueueConfig config = config_at(FakeGuest::kBase + kHalf, 256, kSplit);
  EXPECT_TRUE(config.layout(two.memory(), kSplit).has_value());
  config.descriptors = FakeGuest::user(FakeGuest::kBase + kHalf - 64);
  EXPECT_EQ(config.layout(two.memory(), kSplit).error().code, ErrorCode::kBadAddress);
}

TEST_F(QueueConfigTest, PackedPositionsMustLieInTheRingAndSplitOnesMayBeAnything) {
  QueueConfig packed = config_at(FakeGuest::kBase, 5, kPacked);
  for (std::uint32_t raw = 0; raw < 0x10000; ++raw) {
    const auto position = static_cast<std::uint16_t>(raw);
    packed.position = {position, kPackedStart};
    ASSERT_EQ(packed.layout(guest_.memory(), kPacked).has_value(), (raw & 0x7fff) < 5) << raw;
    packed.position = {kPackedStart, position};
    ASSERT_EQ(packed.layout(guest_.memory(), kPacked).has_value(), (raw & 0x7fff) < 5) << raw;
  }
  QueueConfig split = config_at(FakeGuest::kBase, 8, kSplit);
  split.position = {0xffff, 0xfffe};
  const auto ring = split.layout(guest_.memory(), kSplit);
  ASSERT_TRUE(ring.has_value());
  EXPECT_EQ(ring->position, (RingPosition{0xffff, 0xfffe}));
}

TEST_F(QueueConfigTest, YieldsPointersIntoTheDevicesViewAndTheFlagsThatWereNegotiated) {
  const FeatureSet features{Feature::kVersion1, Feature::kEventIdx, Feature::kIndirectDesc};
  const auto ring =
      config_at(FakeGuest::kBase + 0x1000, 64, features).layout(guest_.memory(), features);
  ASSERT_TRUE(ring.has_value());
  EXPECT_EQ(ring->size, 64U);
  EXPECT_EQ(ring->descriptors, guest_.device_view(FakeGuest::kBase + 0x1000));
  EXPECT_TRUE(ring->event_idx);
  EXPECT_TRUE(ring->indirect);
  const auto bare = config_at(FakeGuest::kBase, 64, kSplit).layout(guest_.memory(), kSplit);
  ASSERT_TRUE(bare.has_value());
  EXPECT_FALSE(bare->event_idx);
  EXPECT_FALSE(bare->indirect);
  EXPECT_EQ(bare->used_record, nullptr);
  EXPECT_EQ(bare->log, nullptr);
}

}  // namespace
}  // namespace sluice::virtio
