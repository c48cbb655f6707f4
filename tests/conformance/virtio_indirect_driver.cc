// Indirect tables by raw bytes, driver side of both formats: what our driver writes (virtio 1.3,
// 2.7.5.3, 2.7.9, 2.8.7; IND-01, IND-02, IND-07, PKD-11, PKD-12, ORD-11).
#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <vector>

#include "support/driver_bench.h"
#include "support/ring_kinds.h"

namespace sluice::test {
namespace {

using Segments = std::vector<virtio::OfferSegment>;

template <class Kind>
class VirtioIndirectDriver : public testing::Test {
 protected:
  // `readable` + `writable` segments of 10, 11, 12 ... bytes.
  static Segments segments(DriverBench<Kind>& bench, std::uint32_t readable,
                           std::uint32_t writable) {
    Segments made;
    for (std::uint32_t i = 0; i < readable + writable; ++i) {
      made.push_back({bench.buffer(10 + i), 10 + i, i >= readable});
    }
    return made;
  }
};
using EveryKind = testing::Types<SplitAny, SplitInOrder, PackedAny, PackedInOrder>;
TYPED_TEST_SUITE(VirtioIndirectDriver, EveryKind, KindNames);

TYPED_TEST(VirtioIndirectDriver, IND_01_NoTablesUnlessNegotiated) {
  DriverBench<TypeParam> bench(8);
  virtio::RingConfig config = with_tables(bench.guest, bench.ring.config());
  config.indirect = false;
  typename TypeParam::Driver driver(config);
  const Segments three = this->segments(bench, 1, 2);
  const virtio::Offer offer{three, 1};
  ASSERT_EQ(driver.offer(std::span(&offer, 1)), 1U);
  EXPECT_EQ(driver.free_slots(), 5U);
  for (std::uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(bench.ring.descriptor(i).flags & kIndirect, 0);
  }
}

// IND-02, PKD-12: the descriptor that refers to a table has no NEXT, and a table holds no INDIRECT.
// IND-07: links run 1, 2, 3. PKD-11: flags of a packed table are WRITE or nothing, ids are zero.
TYPED_TEST(VirtioIndirectDriver, IND_02_IND_07_PKD_11_PKD_12_TheTableIsWhatTheSpecificationPrints) {
  DriverBench<TypeParam> bench(8, false, true);
  PackedPlace place;
  for (std::uint32_t round = 0; round < 40; ++round, place.advance(1, 8)) {
    const std::uint32_t readable = round % 3;
    const Segments wanted = this->segments(bench, readable, 5 - readable);
    ASSERT_TRUE(bench.offer(wanted, round));
    std::uint64_t table = 0;
    if constexpr (TypeParam::kPacked) {
      const PackedDescriptor outer = bench.ring.descriptor(place.slot);
      ASSERT_EQ(outer.flags, available(place.wrap) | kIndirect);
      ASSERT_EQ(outer.len, 5U * 16);
      table = outer.addr;
    } else {
      const SplitDescriptor outer = bench.ring.descriptor(bench.ring.avail_entry(round % 8));
      ASSERT_EQ(outer.flags, kIndirect);
      ASSERT_EQ(outer.len, 5U * 16);
      table = outer.addr;
    }
    ASSERT_EQ(table % 16, 0U);
    for (std::uint32_t i = 0; i < 5; ++i) {
      const std::uint64_t entry = table + 16 * std::uint64_t{i};
      const std::uint16_t write = i >= readable ? kWrite : 0;
      ASSERT_EQ(bench.guest.template read<std::uint64_t>(entry), wanted[i].address);
      ASSERT_EQ(bench.guest.template read<std::uint32_t>(entry + 8), wanted[i].length);
      const auto third = bench.guest.template read<std::uint16_t>(entry + 12);
      const auto fourth = bench.guest.template read<std::uint16_t>(entry + 14);
      if (TypeParam::kPacked) {
        ASSERT_EQ(third, 0) << "the id is reserved";
        ASSERT_EQ(fourth, write);
      } else {
        ASSERT_EQ(third, write | (i < 4 ? kNext : 0));
        ASSERT_EQ(fourth, i < 4 ? i + 1 : 0);
      }
    }
    ASSERT_EQ(bench.use(1, 0), 1U);
    ASSERT_EQ(bench.collect().size(), 1U);
  }
  EXPECT_FALSE(bench.device.broken());
}

TYPED_TEST(VirtioIndirectDriver, IND_01_OneSlotForABufferOfSeveralSegmentsUpToATable) {
  DriverBench<TypeParam> bench(64, false, true);
  std::size_t free = 64;
  for (const std::uint32_t count : {1U, 2U, 19U, 20U}) {
    ASSERT_TRUE(bench.offer(this->segments(bench, count, 0), count));
    EXPECT_EQ(bench.driver.free_slots(), --free) << count;
  }
  ASSERT_TRUE(bench.offer(this->segments(bench, 21, 0), 21)) << "a chain, then";
  EXPECT_EQ(bench.driver.free_slots(), free - 21);
  for (const std::size_t count : {1U, 2U, 19U, 20U, 21U}) {
    const auto chain = bench.device.take();
    ASSERT_TRUE(chain.has_value());
    EXPECT_EQ(chain->pieces.size(), count);
    bench.device.give_back(*chain, 0);
  }
  EXPECT_EQ(bench.collect().size(), 5U);
  EXPECT_EQ(bench.driver.free_slots(), 64U);
}

// No buffer is longer than the queue, in a table or not (2.7.5.3.1).
TYPED_TEST(VirtioIndirectDriver, IND_05_ATableIsNoLongerThanTheQueue) {
  DriverBench<TypeParam> bench(4, false, true);
  EXPECT_FALSE(bench.offer(this->segments(bench, 5, 0), 1));
  EXPECT_EQ(bench.driver.free_slots(), 4U);
  EXPECT_TRUE(bench.offer(this->segments(bench, 4, 0), 1));
  EXPECT_EQ(bench.driver.free_slots(), 3U);
}

// The id written back is the buffer's, whatever the slot was; nothing is lost in many laps.
TYPED_TEST(VirtioIndirectDriver, ORD_11_TenLapsOfTablesLoseNoBuffer) {
  const std::uint32_t size = TypeParam::kPacked ? 7 : 8;
  DriverBench<TypeParam> bench(size, false, true);
  std::deque<std::uint32_t> posted;
  std::uint32_t token = 0;
  for (std::uint32_t done = 0; done < 10 * size;) {
    while (bench.driver.free_slots() > 0) {
      const bool plain = token % 3 == 0;
      ASSERT_TRUE(plain ? bench.offer(60, true, token)
                        : bench.offer(this->segments(bench, 1, 2), token));
      posted.push_back(token++);
    }
    EXPECT_EQ(bench.driver.outstanding(), size) << "one slot each";
    std::vector<ReferenceChain> batch;
    for (std::uint32_t i = 0; i < 1 + done % 5; ++i) {
      auto chain = bench.device.take();
      ASSERT_TRUE(chain.has_value());
      batch.push_back(*chain);
    }
    if (TypeParam::kInOrder && done % 2 == 0) {
      bench.device.give_back_batch(batch, 3);
    } else {
      for (const ReferenceChain& chain : batch) bench.device.give_back(chain, 3);
    }
    for (const virtio::Collected& one : bench.collect()) {
      ASSERT_EQ(one.token, posted.front());
      posted.pop_front();
      ++done;
    }
  }
  EXPECT_EQ(bench.driver.error(), std::nullopt);
  while (auto chain = bench.device.take()) bench.device.give_back(*chain, 0);
  EXPECT_EQ(bench.collect().size(), posted.size());
  EXPECT_EQ(bench.driver.free_slots(), size);
}

TYPED_TEST(VirtioIndirectDriver, SPL_12_WrittenIsClampedToTheWritablePartOfTheTable) {
  DriverBench<TypeParam> bench(8, false, true);
  const Segments wanted = this->segments(bench, 1, 2);  // 10 for reading, 11 + 12 for writing.
  for (const std::uint32_t reported : {0U, 23U, 24U, 33U, 0xffff'ffffU}) {
    ASSERT_TRUE(bench.offer(wanted, 1));
    ASSERT_EQ(bench.use(1, reported), 1U);
    const auto back = bench.collect();
    ASSERT_EQ(back.size(), 1U);
    EXPECT_EQ(back[0].written, std::min(reported, 23U));
  }
}

// RST-06: buffers in tables come back by recall like all others.
TYPED_TEST(VirtioIndirectDriver, RST_06_RecallKnowsBuffersInTables) {
  DriverBench<TypeParam> bench(8, false, true);
  for (std::uint32_t i = 0; i < 5; ++i)
    ASSERT_TRUE(bench.offer(this->segments(bench, 1, 1 + i), i));
  ASSERT_EQ(bench.use(2, 0), 2U);
  ASSERT_EQ(bench.collect(1).size(), 1U);
  std::vector<std::uint32_t> back;
  bench.driver.recall([&](std::uint32_t one) { back.push_back(one); });
  std::ranges::sort(back);
  EXPECT_EQ(back, (std::vector<std::uint32_t>{1, 2, 3, 4}));
  EXPECT_EQ(bench.driver.free_slots(), 8U);
}

// What the device writes into a table changes nothing for the driver.
TYPED_TEST(VirtioIndirectDriver, SEC_30_ATableThatTheDeviceSpoilsIsWrittenAnew) {
  DriverBench<TypeParam> bench(2, false, true);
  const std::uint64_t area = bench.config.indirect_area.address;
  for (std::uint32_t i = 0; i < 20; ++i) {
    bench.guest.fill(area, virtio::IndirectTables::area_size(2), 0xff);
    const Segments wanted = this->segments(bench, 1, 1);
    ASSERT_TRUE(bench.offer(wanted, i));
    const auto chain = bench.device.take();
    ASSERT_TRUE(chain.has_value());
    ASSERT_EQ(chain->pieces.size(), 2U);
    EXPECT_EQ(chain->pieces[1].address, wanted[1].address);
    bench.guest.fill(area, virtio::IndirectTables::area_size(2), 0xff);
    bench.device.give_back(*chain, 100);
    const auto back = bench.collect();
    ASSERT_EQ(back.size(), 1U);
    EXPECT_EQ(back[0].token, i);
    EXPECT_EQ(back[0].written, 11U);
  }
}

}  // namespace
}  // namespace sluice::test
