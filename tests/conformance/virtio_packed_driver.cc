// Packed ring, driver side, by raw bytes: what our driver writes (PKD-03, PKD-04, PKD-06, PKD-13),
// and a hostile device's used descriptors (PKD-18, SPL-12, H25).
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "support/driver_bench.h"
#include "support/fake_guest.h"
#include "support/raw_packed.h"
#include "support/ring_kinds.h"

namespace sluice::test {
namespace {

template <class Kind>
class VirtioPackedDriver : public testing::Test {};
using Packeds = testing::Types<PackedAny, PackedInOrder>;
TYPED_TEST_SUITE(VirtioPackedDriver, Packeds, KindNames);

TYPED_TEST(VirtioPackedDriver, PKD_02_PKD_03_PKD_04_AvailBitsFollowTheWrapCounterOnEverySize) {
  for (const std::uint32_t size : {1U, 2U, 3U, 5U, 255U, 1025U}) {
    DriverBench<TypeParam> bench(size);
    for (std::uint32_t lap = 0; lap < 4; ++lap) {
      const std::uint16_t expected = lap % 2 == 0 ? kAvailBit : kUsedBit;
      for (std::uint32_t slot = 0; slot < size; ++slot) {
        ASSERT_TRUE(bench.offer(60, slot % 2 == 0, slot));
        const std::uint16_t flags = bench.ring.flags(slot);
        ASSERT_EQ(flags, expected | (slot % 2 == 0 ? kWrite : 0)) << "size " << size;
        ASSERT_EQ(bench.use(1, 60), 1U);
        ASSERT_EQ(bench.collect().size(), 1U);
      }
    }
    EXPECT_TRUE(bench.ring.canaries_intact());
  }
}

TYPED_TEST(VirtioPackedDriver, PKD_07_PKD_09_AListLiesInConsecutiveSlotsWithItsIdInTheLast) {
  DriverBench<TypeParam> bench(5);
  PackedPlace place;
  for (std::uint32_t round = 0; round < 60; ++round) {
    const std::uint32_t slots = 1 + round % 4;
    std::vector<virtio::OfferSegment> segments;
    for (std::uint32_t i = 0; i < slots; ++i) {
      segments.push_back({bench.buffer(20), 10 + i, i + 1 == slots});
    }
    ASSERT_TRUE(bench.offer(segments, round));
    std::uint16_t id = 0;
    for (std::uint32_t i = 0; i < slots; ++i, place.advance(1, 5)) {
      const PackedDescriptor found = bench.ring.descriptor(place.slot);
      ASSERT_EQ(found.addr, segments[i].address);
      ASSERT_EQ(found.len, segments[i].length);
      const bool last = i + 1 == slots;
      ASSERT_EQ(found.flags, available(place.wrap) | (last ? kWrite : kNext));
      id = found.id;
    }
    ASSERT_LT(id, 5);
    const auto chain = bench.device.take();
    ASSERT_TRUE(chain.has_value());
    ASSERT_EQ(chain->id, id);
    bench.device.give_back(*chain, 1);
    ASSERT_EQ(bench.collect().at(0).token, round);
  }
}

// PKD-13: descriptors of outstanding buffers are left alone, whatever else is offered.
TYPED_TEST(VirtioPackedDriver, PKD_13_OutstandingDescriptorsAreNotTouched) {
  DriverBench<TypeParam> bench(8);
  const std::vector<virtio::OfferSegment> three(3, {bench.buffer(60), 60, true});
  ASSERT_TRUE(bench.offer(three, 1));
  const auto before = bench.guest.get(bench.ring.ring(), 3 * 16);
  for (std::uint32_t i = 0; i < 10; ++i) bench.offer(60, true, i);
  EXPECT_EQ(bench.guest.get(bench.ring.ring(), 3 * 16), before);
  EXPECT_EQ(bench.driver.free_slots(), 0U);
}

// PKD-18, H25, SEC-30: ids out of range, not outstanding, or returned twice.
TYPED_TEST(VirtioPackedDriver, PKD_18_H25_SEC_30_AnIdThatIsNotOutstandingStopsTheRing) {
  for (std::uint32_t id = 0; id < 0x10000; id = id < 20 ? id + 1 : 2 * id + 1) {
    DriverBench<TypeParam> bench(8);
    bench.offer(60, true, 1);
    bench.offer(60, true, 2);
    const std::uint16_t own[] = {bench.ring.descriptor(0).id, bench.ring.descriptor(1).id};
    if (id == own[0] || id == own[1]) continue;
    bench.ring.set_descriptor(
        0, {0, 10, static_cast<std::uint16_t>(id), static_cast<std::uint16_t>(used_on(true))});
    EXPECT_TRUE(bench.collect().empty()) << id;
    ASSERT_TRUE(bench.driver.error().has_value());
    EXPECT_EQ(bench.driver.error()->code, ErrorCode::kRingCorrupt);
    EXPECT_EQ(bench.driver.outstanding(), 2U);
    EXPECT_EQ(bench.driver.free_slots(), 6U);
    EXPECT_FALSE(bench.driver.has_used());
    EXPECT_FALSE(bench.offer(60, true, 3));
  }
}

TYPED_TEST(VirtioPackedDriver, PKD_18_H25_TheSameIdTwiceStopsTheRing) {
  DriverBench<TypeParam> bench(8);
  for (std::uint32_t i = 0; i < 3; ++i) bench.offer(60, true, i);
  const std::uint16_t id = bench.ring.descriptor(0).id;
  for (std::uint32_t slot = 0; slot < 2; ++slot) {
    bench.ring.set_descriptor(slot,
                              {0, 10, id, static_cast<std::uint16_t>(used_on(true) | kWrite)});
  }
  ASSERT_EQ(bench.collect().size(), 1U);
  EXPECT_TRUE(bench.driver.error().has_value());
  EXPECT_EQ(bench.driver.outstanding(), 2U);
}

// PKD-10, SPL-12: without WRITE the length means nothing; with it, it is clamped.
TYPED_TEST(VirtioPackedDriver, PKD_10_SPL_12_LengthCountsOnlyWithWriteAndOnlyAsFarAsPosted) {
  struct Case {
    std::uint16_t flags;
    std::uint32_t length;
    std::uint32_t expected;
  };
  for (const Case& c : {Case{0, 50, 0}, Case{kWrite, 50, 50}, Case{kWrite, 61, 60},
                        Case{kWrite, 0xffff'ffff, 60}, Case{kWrite, 0, 0}}) {
    DriverBench<TypeParam> bench(4);
    bench.offer(60, true, 1);
    const std::uint16_t id = bench.ring.descriptor(0).id;
    bench.ring.set_descriptor(
        0, {0, c.length, id, static_cast<std::uint16_t>(used_on(true) | c.flags)});
    const auto back = bench.collect();
    ASSERT_EQ(back.size(), 1U);
    EXPECT_EQ(back[0].written, c.expected);
  }
}

// PKD-05: of the four states of the two bits exactly one is used, and it depends on the lap.
TYPED_TEST(VirtioPackedDriver, PKD_05_OnlyBothBitsEqualToTheWrapAreUsed) {
  for (const bool second_lap : {false, true}) {
    for (const std::uint16_t bits : Words{0, kAvailBit, kUsedBit, kAvailBit | kUsedBit}) {
      DriverBench<TypeParam> bench(2);
      for (std::uint32_t i = 0; second_lap && i < 2; ++i) {
        bench.offer(60, true, i);
        bench.use(1, 0);
        bench.collect();
      }
      bench.offer(60, true, 7);
      const std::uint16_t id = bench.ring.descriptor(0).id;
      bench.ring.set_descriptor(0, {0, 10, id, bits});
      const bool used = bits == used_on(!second_lap);
      EXPECT_EQ(bench.driver.has_used(), used) << second_lap << " " << bits;
      EXPECT_EQ(bench.collect().size(), used ? 1U : 0U) << second_lap << " " << bits;
    }
  }
}

// SEC-56: the driver never reads back what it wrote.
TYPED_TEST(VirtioPackedDriver, SEC_56_WhatTheDeviceWritesIntoTheRingChangesNothingElse) {
  DriverBench<TypeParam> bench(4);
  PackedPlace place;
  for (std::uint32_t round = 0; round < 50; ++round) {
    const std::vector<virtio::OfferSegment> pair(2, {bench.buffer(60), 60, true});
    ASSERT_TRUE(bench.offer(pair, round));
    PackedPlace last = place;
    last.advance(1, 4);
    const std::uint16_t id = bench.ring.descriptor(last.slot).id;
    // All of the list but what makes it used is overwritten.
    bench.guest.fill(bench.ring.ring() + 16 * std::uint64_t{last.slot}, 14, 0xff);
    const auto flags = static_cast<std::uint16_t>(used_on(place.wrap) | kWrite);
    bench.ring.set_descriptor(place.slot, {~std::uint64_t{0}, 0xffff'ffff, id, flags});
    const auto back = bench.collect();
    ASSERT_EQ(back.size(), 1U) << round;
    EXPECT_EQ(back[0].token, round);
    EXPECT_EQ(back[0].written, 120U);
    EXPECT_EQ(bench.driver.free_slots(), 4U);
    place.advance(2, 4);
  }
}

// In a used descriptor the address means nothing (2.8.5): a device may write zeroes there, so the
// next lap has to write it again even if it is the same.
TYPED_TEST(VirtioPackedDriver, PKD_13_AnAddressThatTheDeviceOverwroteIsWrittenAgain) {
  DriverBench<TypeParam> bench(2);
  const virtio::OfferSegment segment{bench.buffer(60), 60, true};
  for (std::uint32_t round = 0; round < 10; ++round) {
    ASSERT_TRUE(bench.offer(std::span(&segment, 1), round));
    const auto chain = bench.device.take();
    ASSERT_TRUE(chain.has_value()) << round;
    EXPECT_EQ(chain->pieces.at(0).address, segment.address);
    bench.guest.fill(bench.ring.ring() + 16 * (round % 2), 8, 0);
    bench.device.give_back(*chain, 1);
    ASSERT_EQ(bench.collect().size(), 1U);
  }
}

// A device that writes used bits into a ring with nothing outstanding is not believed.
TYPED_TEST(VirtioPackedDriver, PKD_18_UsedBitsWithoutOutstandingBuffersAreNothing) {
  DriverBench<TypeParam> bench(4);
  for (std::uint32_t slot = 0; slot < 4; ++slot) bench.ring.set_flags(slot, used_on(true));
  EXPECT_FALSE(bench.driver.has_used());
  EXPECT_TRUE(bench.collect().empty());
  EXPECT_EQ(bench.driver.error(), std::nullopt);
  EXPECT_EQ(bench.driver.free_slots(), 4U);
}

}  // namespace
}  // namespace sluice::test
