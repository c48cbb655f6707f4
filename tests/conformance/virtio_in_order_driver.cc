// VIRTIO_F_IN_ORDER by raw bytes, driver side of both formats: devices that batch, devices that
// write each entry, and devices that lie about it (ORD-02, ORD-06, ORD-07, SEC-30).
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "support/driver_bench.h"
#include "support/ring_kinds.h"

namespace sluice::test {
namespace {

template <class Kind>
class VirtioInOrderDriver : public testing::Test {
 protected:
  // Offers lists of 1 to 3 slots until the ring is full; returns how many.
  static std::uint32_t fill(DriverBench<Kind>& bench, std::uint32_t& token) {
    std::uint32_t count = 0;
    while (true) {
      const std::uint32_t slots = 1 + token % 3;
      const std::vector<virtio::OfferSegment> segments(slots, {bench.buffer(50), 50, true});
      if (!bench.offer(segments, token)) return count;
      ++token;
      ++count;
    }
  }
};
using Kinds = testing::Types<SplitInOrder, PackedInOrder>;
TYPED_TEST_SUITE(VirtioInOrderDriver, Kinds, KindNames);

// ORD-07: skipped buffers were written completely: their recorded length is reported.
TYPED_TEST(VirtioInOrderDriver, ORD_06_ORD_07_ABatchReturnsEachBufferWithItsPostedLength) {
  DriverBench<TypeParam> bench(8);
  std::uint32_t token = 0;
  std::uint32_t next = 0;
  for (std::size_t round = 0; round < 200; ++round) {
    this->fill(bench, token);
    std::vector<ReferenceChain> batch;
    for (std::size_t i = 0; i <= round % 5; ++i) {
      auto chain = bench.device.take();
      if (!chain) break;
      batch.push_back(*chain);
    }
    bench.device.give_back_batch(batch, 7);
    // Collected in portions: the batch is remembered between calls.
    std::vector<virtio::Collected> back;
    while (true) {
      const auto some = bench.collect(1 + round % 2);
      if (some.empty()) break;
      back.insert(back.end(), some.begin(), some.end());
    }
    ASSERT_EQ(back.size(), batch.size()) << "round " << round;
    for (std::size_t i = 0; i < back.size(); ++i) {
      EXPECT_EQ(back[i].token, next);
      const bool last = i + 1 == back.size();
      EXPECT_EQ(back[i].written, last ? 7U : 50 * (1 + next % 3));
      ++next;
    }
  }
  EXPECT_EQ(bench.driver.error(), std::nullopt);
}

TYPED_TEST(VirtioInOrderDriver, ORD_07_DevicesMayMixBatchesAndSingleEntries) {
  DriverBench<TypeParam> bench(8);
  std::uint32_t token = 0;
  std::uint32_t next = 0;
  for (std::uint32_t round = 0; round < 200; ++round) {
    this->fill(bench, token);
    auto first = bench.device.take();
    ASSERT_TRUE(first.has_value());
    bench.device.give_back(*first, 5);
    std::vector<ReferenceChain> batch;
    while (auto chain = bench.device.take()) batch.push_back(*chain);
    if (!batch.empty()) bench.device.give_back_batch(batch, 9);
    const auto back = bench.collect();
    ASSERT_EQ(back.size(), 1 + batch.size());
    EXPECT_EQ(back[0].written, 5U);
    for (const virtio::Collected& one : back) EXPECT_EQ(one.token, next++);
  }
  EXPECT_EQ(bench.driver.free_slots(), 8U);
}

// In order, a caller that needs no lengths counts only.
TYPED_TEST(VirtioInOrderDriver, ORD_06_CountingReturnsAsManyAsCollecting) {
  DriverBench<TypeParam> bench(8);
  std::uint32_t token = 0;
  for (std::uint32_t round = 0; round < 200; ++round) {
    const std::uint32_t outstanding = this->fill(bench, token);
    std::vector<ReferenceChain> batch;
    while (auto chain = bench.device.take()) batch.push_back(*chain);
    ASSERT_EQ(batch.size(), outstanding);
    bench.device.give_back_batch(batch, 0);
    EXPECT_EQ(bench.driver.collect_count(1), 1U);
    EXPECT_EQ(bench.driver.collect_count(100), outstanding - 1);
    EXPECT_EQ(bench.driver.free_slots(), 8U);
    EXPECT_EQ(bench.driver.collect_count(100), 0U);
  }
  EXPECT_EQ(bench.driver.error(), std::nullopt);
}

// ORD-06, SEC-30: an id that is not outstanding must neither free a buffer nor be searched for
// ever.
TYPED_TEST(VirtioInOrderDriver, ORD_06_SEC_30_AHostileIdEndsTheWalk) {
  for (std::uint32_t id = 0; id < 0x10000; id = id < 16 ? id + 1 : id * 2 + 1) {
    DriverBench<TypeParam> bench(8);
    // Heads 0, 1 and 3 are outstanding, 4 to 7 free.
    bench.offer(50, true, 0);
    const std::vector<virtio::OfferSegment> pair(2, {bench.buffer(50), 50, true});
    bench.offer(pair, 1);
    bench.offer(50, true, 2);
    if constexpr (TypeParam::kPacked) {
      const auto flags = static_cast<std::uint16_t>(kWrite | used_on(true));
      bench.ring.set_descriptor(0, {0, 10, static_cast<std::uint16_t>(id), flags});
    } else {
      bench.ring.set_used_entry(0, {id, 10});
      bench.ring.set_used_index(3);
    }
    const auto back = bench.collect();
    const bool outstanding = id == 0 || id == 1 || id == 3;
    EXPECT_EQ(back.empty(), !outstanding) << id;
    EXPECT_LE(back.size(), 3U);
    if (!outstanding) {
      ASSERT_TRUE(bench.driver.error().has_value()) << id;
      EXPECT_EQ(bench.driver.error()->code, ErrorCode::kRingCorrupt);
      EXPECT_EQ(bench.driver.outstanding(), 3U);
    }
  }
}

// Split: the batch may not reach beyond the used index, or buffers the device holds would be freed.
TEST(VirtioInOrderDriverSplit, ORD_02_ORD_06_ABatchThatEndsBeyondTheUsedIndexStopsTheRing) {
  DriverBench<SplitInOrder> bench(8);
  for (std::uint32_t i = 0; i < 4; ++i) bench.offer(50, true, i);
  bench.ring.set_used_entry(0, {2, 10});  // "All up to the third",
  bench.ring.set_used_index(2);           // but only two are used.
  EXPECT_TRUE(bench.collect().empty());
  ASSERT_TRUE(bench.driver.error().has_value());
  EXPECT_EQ(bench.driver.outstanding(), 4U);
}

// The same id is outstanding once only: after a batch it cannot end another one.
TYPED_TEST(VirtioInOrderDriver, ORD_06_AnIdOfABufferAlreadyReturnedStopsTheRing) {
  DriverBench<TypeParam> bench(8);
  for (std::uint32_t i = 0; i < 4; ++i) bench.offer(50, true, i);
  std::vector<ReferenceChain> batch;
  for (int i = 0; i < 2; ++i) batch.push_back(*bench.device.take());
  bench.device.give_back_batch(batch, 1);
  ASSERT_EQ(bench.collect().size(), 2U);
  if constexpr (TypeParam::kPacked) {
    bench.ring.set_descriptor(2, {0, 10, 1, static_cast<std::uint16_t>(kWrite | used_on(true))});
  } else {
    bench.ring.set_used_entry(2, {1, 10});
    bench.ring.set_used_index(3);
  }
  EXPECT_TRUE(bench.collect().empty());
  EXPECT_TRUE(bench.driver.error().has_value());
  EXPECT_EQ(bench.driver.outstanding(), 2U);
}

}  // namespace
}  // namespace sluice::test
