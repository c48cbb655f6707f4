// Split ring, driver side, by raw bytes: what our driver writes (SPL-09, ORD-01), and a hostile
// device's used ring (SPL-12, SPL-13, H25).
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "support/driver_bench.h"
#include "support/fake_guest.h"
#include "support/raw_split.h"
#include "support/ring_kinds.h"

namespace sluice::test {
namespace {

TEST(VirtioSplitDriver, SPL_07_TheFirstChainIsThePictureOfTheSpecification) {
  DriverBench<SplitAny> bench(4);
  const std::uint64_t at = bench.buffer(100);
  const std::vector<virtio::OfferSegment> segments = {{at, 12, false}, {at + 12, 40, true}};
  ASSERT_TRUE(bench.offer(segments, 77));
  EXPECT_EQ(bench.ring.avail_flags(), 0);
  EXPECT_EQ(bench.ring.avail_index(), 1);
  const std::uint16_t head = bench.ring.avail_entry(0);
  ASSERT_LT(head, 4);
  const SplitDescriptor first = bench.ring.descriptor(head);
  EXPECT_EQ(first.addr, at);
  EXPECT_EQ(first.len, 12U);
  EXPECT_EQ(first.flags, kNext);
  ASSERT_LT(first.next, 4);
  const SplitDescriptor second = bench.ring.descriptor(first.next);
  EXPECT_EQ(second.addr, at + 12);
  EXPECT_EQ(second.len, 40U);
  EXPECT_EQ(second.flags, kWrite);
  EXPECT_TRUE(bench.ring.canaries_intact());
}

// SPL-13, H25: ids out of range, not outstanding, or returned twice.
template <class Kind>
class HostileSplitDevice : public testing::Test {
 protected:
  static void expect_refusal(DriverBench<Kind>& bench, std::uint32_t id, std::uint32_t length) {
    bench.ring.set_used_entry(0, {id, length});
    bench.ring.set_used_index(1);
    EXPECT_TRUE(bench.collect().empty()) << id;
    ASSERT_TRUE(bench.driver.error().has_value()) << id;
    EXPECT_EQ(bench.driver.error()->code, ErrorCode::kRingCorrupt);
    // Stopped for good, and nothing was freed that the device may still write to.
    EXPECT_EQ(bench.driver.outstanding(), 2U);
    EXPECT_EQ(bench.driver.free_slots(), 5U);
    EXPECT_FALSE(bench.driver.has_used());
    EXPECT_FALSE(bench.offer(60, true, 3));
    bench.ring.set_used_entry(0, {0, 10});
    EXPECT_TRUE(bench.collect().empty());
  }
};
using Splits = testing::Types<SplitAny, SplitInOrder>;
TYPED_TEST_SUITE(HostileSplitDevice, Splits, KindNames);

TYPED_TEST(HostileSplitDevice, SPL_13_H25_AnIdOutOfRangeOrNotOutstandingStopsTheRing) {
  // Descriptors 0 and 1-2 are in use; 2 is no head.
  for (const std::uint32_t id : {2U, 3U, 7U, 8U, 0xffffU, 0x10000U, 0x10001U, 0xffff'ffffU}) {
    DriverBench<TypeParam> bench(8);
    ASSERT_TRUE(bench.offer(60, true, 1));
    const std::vector<virtio::OfferSegment> pair(2, {bench.buffer(60), 60, true});
    ASSERT_TRUE(bench.offer(pair, 2));
    ASSERT_EQ(bench.ring.avail_entry(0), 0);
    ASSERT_EQ(bench.ring.avail_entry(1), 1);
    this->expect_refusal(bench, id, 10);
  }
}

TYPED_TEST(HostileSplitDevice, SPL_13_H25_TheSameIdTwiceStopsTheRing) {
  DriverBench<TypeParam> bench(8);
  for (std::uint32_t i = 0; i < 3; ++i) bench.offer(60, true, i);
  bench.ring.set_used_entry(0, {bench.ring.avail_entry(0), 10});
  bench.ring.set_used_entry(1, {bench.ring.avail_entry(0), 10});
  bench.ring.set_used_index(2);
  const auto back = bench.collect();
  ASSERT_EQ(back.size(), 1U);
  EXPECT_EQ(back[0].token, 0U);
  EXPECT_TRUE(bench.driver.error().has_value());
  EXPECT_EQ(bench.driver.outstanding(), 2U);
}

TYPED_TEST(HostileSplitDevice, SPL_13_AUsedIndexBeyondWhatWasOfferedStopsTheRing) {
  for (const std::uint16_t index : Words{3, 8, 9, 0x7fff, 0x8000, 0xffff}) {
    DriverBench<TypeParam> bench(8);
    bench.offer(60, true, 1);
    bench.offer(60, true, 2);
    bench.ring.set_used_entry(0, {bench.ring.avail_entry(0), 10});
    bench.ring.set_used_index(index);
    EXPECT_TRUE(bench.collect().empty()) << index;
    ASSERT_TRUE(bench.driver.error().has_value());
    EXPECT_EQ(bench.driver.error()->code, ErrorCode::kRingCorrupt);
    EXPECT_EQ(bench.driver.outstanding(), 2U);
  }
}

TYPED_TEST(HostileSplitDevice, SPL_13_AUsedIndexThatGoesBackStopsTheRing) {
  DriverBench<TypeParam> bench(8);
  for (std::uint32_t i = 0; i < 4; ++i) bench.offer(60, true, i);
  bench.use(2, 10);
  EXPECT_EQ(bench.collect().size(), 2U);
  bench.ring.set_used_index(1);
  EXPECT_TRUE(bench.collect().empty());
  EXPECT_TRUE(bench.driver.error().has_value());
}

// SEC-56: the driver never reads back what it wrote: a device that rewrites the shared ring
// changes neither lengths, nor tokens, nor what is free.
TYPED_TEST(HostileSplitDevice, SEC_56_WhatTheDeviceWritesIntoOurAreasChangesNothing) {
  DriverBench<TypeParam> bench(8);
  for (std::uint32_t round = 0; round < 50; ++round) {
    const std::vector<virtio::OfferSegment> pair(2, {bench.buffer(60), 60, true});
    ASSERT_TRUE(bench.offer(pair, round));
    ASSERT_TRUE(bench.offer(60, false, round + 1000));
    const std::uint16_t first = bench.ring.avail_entry((2 * round) % 8);
    const std::uint16_t second = bench.ring.avail_entry((2 * round + 1) % 8);
    const auto table = bench.guest.get(bench.ring.table(), 8 * 16);
    bench.guest.fill(bench.ring.table(), 8 * 16, 0xff);
    bench.ring.set_used_entry((2 * round) % 8, {first, 0xffff'ffff});
    bench.ring.set_used_entry((2 * round + 1) % 8, {second, 0xffff'ffff});
    bench.ring.set_used_index(static_cast<std::uint16_t>(2 * round + 2));
    const auto back = bench.collect();
    ASSERT_EQ(back.size(), 2U);
    EXPECT_EQ(back[0].token, round);
    EXPECT_EQ(back[0].written, 120U);
    EXPECT_EQ(back[1].token, round + 1000);
    EXPECT_EQ(back[1].written, 0U);
    EXPECT_EQ(bench.driver.free_slots(), 8U);
    bench.guest.put(bench.ring.table(), table);
  }
}

// ORD-01: descriptor x links to x + 1, the last one to 0, and heads follow in that order.
TEST(VirtioSplitDriver, ORD_01_InOrderDescriptorsAreMadeAvailableInRingOrder) {
  DriverBench<SplitInOrder> bench(8);
  std::uint32_t expected_head = 0;
  for (std::uint32_t i = 0; i < 200; ++i) {
    const std::uint32_t slots = 1 + i % 5;
    const std::vector<virtio::OfferSegment> segments(slots, {bench.buffer(60), 60, true});
    ASSERT_TRUE(bench.offer(segments, i));
    ASSERT_EQ(bench.ring.avail_entry(i % 8), expected_head);
    std::uint32_t at = expected_head;
    for (std::uint32_t k = 0; k < slots; ++k) {
      const SplitDescriptor descriptor = bench.ring.descriptor(at);
      ASSERT_EQ((descriptor.flags & kNext) != 0, k + 1 < slots);
      if (k + 1 < slots) {
        ASSERT_EQ(descriptor.next, (at + 1) % 8);
      }
      at = (at + 1) % 8;
    }
    expected_head = at;
    ASSERT_EQ(bench.use(1, 60), 1U);
    ASSERT_EQ(bench.collect().size(), 1U);
  }
}

}  // namespace
}  // namespace sluice::test
