// VIRTIO_F_IN_ORDER by raw bytes, device side of both formats (virtio 1.3, 2.7.9, 2.8.18; ORD-02 to
// ORD-05, ORD-09, ORD-11). Used rings are filled with a sentinel first: one slot may change.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "support/device_bench.h"
#include "support/device_end.h"
#include "support/fake_guest.h"
#include "support/raw_packed.h"
#include "support/raw_split.h"
#include "support/ring_kinds.h"
#include "virtio/packed_device.h"
#include "virtio/split_device.h"

namespace sluice::test {
namespace {

using SplitInOrderDevice = virtio::SplitDeviceRing<virtio::Order::kInOrder>;
using PackedInOrderDevice = virtio::PackedDeviceRing<virtio::Order::kInOrder>;

TEST(VirtioInOrderSplit, ORD_03_ABatchWritesOneEntryInTheFirstSlotWithTheLastId) {
  for (std::uint16_t batch = 1; batch <= 8; ++batch) {
    for (const std::uint16_t start : Words{0, 3, 7, 0xfffd}) {
      FakeGuest guest;
      const RawSplitRing ring(guest, 8);
      virtio::RingConfig config = ring.config();
      config.position = {start, start};
      DeviceEnd<SplitInOrderDevice> device(guest, config);
      ring.set_avail_index(start);
      ring.set_used_index(start);
      for (std::uint16_t i = 0; i < batch; ++i) {
        const auto head = static_cast<std::uint16_t>((start + i) % 8);
        ring.set_descriptor(head, {guest.allocate(64), 64});
        ring.publish(head);
      }
      ring.poison_used(0xEE);
      const auto chains = device.take();
      ASSERT_EQ(chains.size(), batch);
      device.ring.give_back(chains, true);
      EXPECT_EQ(ring.used_index(), static_cast<std::uint16_t>(start + batch));
      for (std::uint32_t slot = 0; slot < 8; ++slot) {
        const RawSplitRing::UsedElement untouched{0xEEEE'EEEE, 0xEEEE'EEEE};
        const RawSplitRing::UsedElement last{(start + batch - 1U) % 8, 0};
        EXPECT_EQ(ring.used_entry(slot), slot == start % 8 ? last : untouched)
            << "batch " << batch << " slot " << slot;
      }
      EXPECT_EQ(device.ring.held(), 0U);
    }
  }
}

TEST(VirtioInOrderSplit, ORD_03_WithoutTheOptionEachBufferHasItsEntry) {
  FakeGuest guest;
  const RawSplitRing ring(guest, 8);
  DeviceEnd<SplitInOrderDevice> device(guest, ring.config());
  for (std::uint16_t i = 0; i < 5; ++i) {
    ring.set_descriptor(i, {guest.allocate(64), 64, kWrite, 0});
    ring.publish(i);
  }
  auto chains = device.take();
  for (std::uint32_t i = 0; i < 5; ++i) chains[i].written = 10 + i;
  device.ring.give_back(chains, false);
  for (std::uint32_t i = 0; i < 5; ++i) {
    EXPECT_EQ(ring.used_entry(i), (RawSplitRing::UsedElement{i, 10 + i}));
  }
}

// A ring that was not negotiated in order must never batch, whatever it is asked.
TEST(VirtioInOrderSplit, ORD_03_NoBatchWithoutNegotiation) {
  FakeGuest guest;
  const RawSplitRing ring(guest, 8);
  DeviceEnd<virtio::SplitDeviceRing<virtio::Order::kAny>> device(guest, ring.config());
  for (std::uint16_t i = 0; i < 3; ++i) {
    ring.set_descriptor(7U - i, {guest.allocate(64), 64});
    ring.publish(static_cast<std::uint16_t>(7 - i));
  }
  device.ring.give_back(device.take(), true);
  for (std::uint32_t i = 0; i < 3; ++i) EXPECT_EQ(ring.used_entry(i).id, 7 - i);
}

TEST(VirtioInOrderPacked, ORD_04_ABatchWritesOneDescriptorAtTheFirstPlaceAndSkipsTheRest) {
  constexpr std::uint32_t kSize = 7;
  for (std::uint32_t first = 0; first < 2 * kSize; ++first) {
    // Lists of 1, 2, 1 slots, beginning at each place of two laps.
    FakeGuest guest;
    const RawPackedRing ring(guest, kSize);
    PackedPlace place{.slot = first % kSize, .wrap = first < kSize};
    virtio::RingConfig config = ring.config();
    config.position = {place.encoded(), place.encoded()};
    DeviceEnd<PackedInOrderDevice> device(guest, config);
    const PackedPlace begin = place;
    const std::uint16_t ids[] = {40, 41, 41, 42};
    for (std::uint32_t i = 0; i < 4; ++i) {
      const auto flags = static_cast<std::uint16_t>(available(place.wrap) | (i == 1 ? kNext : 0));
      ring.set_descriptor(place.slot, {guest.allocate(64), 64, ids[i], flags});
      place.advance(1, kSize);
    }
    std::vector<PackedDescriptor> before;
    for (std::uint32_t slot = 0; slot < kSize; ++slot) before.push_back(ring.descriptor(slot));
    const auto chains = device.take();
    ASSERT_EQ(chains.size(), 3U);
    device.ring.give_back(chains, true);
    for (std::uint32_t slot = 0; slot < kSize; ++slot) {
      const PackedDescriptor now = ring.descriptor(slot);
      if (slot != begin.slot) {
        EXPECT_EQ(now, before[slot]) << "slot " << slot;
        continue;
      }
      EXPECT_EQ(now.id, 42) << "the last buffer's id";
      EXPECT_EQ(now.flags, used_on(begin.wrap)) << "the first place's lap";
    }
    EXPECT_EQ(device.ring.position().used, place.encoded()) << "past all of the batch";
    EXPECT_EQ(device.ring.position().avail, place.encoded());
  }
}

TEST(VirtioInOrderPacked, ORD_04_NoBatchWithoutNegotiation) {
  FakeGuest guest;
  const RawPackedRing ring(guest, 4);
  DeviceEnd<virtio::PackedDeviceRing<virtio::Order::kAny>> device(guest, ring.config());
  for (std::uint16_t i = 0; i < 3; ++i) {
    ring.set_descriptor(i, {guest.allocate(64), 64, static_cast<std::uint16_t>(9 - i), kAvailBit});
  }
  device.ring.give_back(device.take(), true);
  for (std::uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(ring.descriptor(i).id, 9 - i);
    EXPECT_EQ(ring.flags(i), used_on(true));
  }
}

// The matrix of ORD-03: device {each entry, batch} opposite a driver that understands both, on
// chains, tables and batches that cross the end of the ring. All ids, lengths and slots come back.
template <class Kind>
class VirtioInOrder : public testing::Test {};
using Kinds = testing::Types<SplitInOrder, PackedInOrder>;
TYPED_TEST_SUITE(VirtioInOrder, Kinds, KindNames);

TYPED_TEST(VirtioInOrder, ORD_02_ORD_03_ORD_04_SEC_44_BatchesOfEverySizeCrossTheRingsEnd) {
  for (const bool batch : {false, true}) {
    for (std::size_t portion = 1; portion <= 8; ++portion) {
      DeviceBench<TypeParam> bench({.size = 8});
      std::vector<std::uint16_t> expected;
      std::vector<std::uint16_t> got;
      for (int round = 0; round < 200; ++round) {
        for (std::uint32_t slots = 1; slots <= 3; ++slots) {
          const std::vector<Piece> pieces(slots, {bench.buffer(8), 8});
          const auto id = bench.driver.post(pieces);
          if (id) expected.push_back(*id);
        }
        const auto chains = bench.take(portion);
        bench.give_back(chains, batch);
        const auto back = bench.driver.reap();
        ASSERT_EQ(back.size(), chains.size());
        for (const Returned& one : back) got.push_back(one.id);
      }
      bench.pass(batch);
      for (const Returned& one : bench.driver.reap()) got.push_back(one.id);
      EXPECT_EQ(got, expected);
      EXPECT_EQ(bench.driver.outstanding(), 0U);
      EXPECT_EQ(bench.driver.complaint(), "");
      EXPECT_EQ(bench.device.position(), bench.driver.expected_position());
    }
  }
}

// ORD-05: in a batch the skipped buffers count as used completely; the last one has its length.
TYPED_TEST(VirtioInOrder, ORD_05_TheLengthInABatchIsTheLastBuffers) {
  DeviceBench<TypeParam> bench({.size = 8});
  for (int i = 0; i < 4; ++i) bench.post(100, true);
  auto chains = bench.take();
  for (auto& chain : chains) chain.written = 100;
  chains.back().written = 33;
  bench.give_back(chains, true);
  const auto back = bench.driver.reap();
  ASSERT_EQ(back.size(), 4U);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(back[i].skipped);
  EXPECT_FALSE(back[3].skipped);
  EXPECT_EQ(back[3].length, 33U);
}

// ORD-09, SEC-49: backpressure puts chains back; the next ones taken are the same, in order.
TYPED_TEST(VirtioInOrder, ORD_09_SEC_49_RewindingKeepsTheOrderAcrossTheRingsEnd) {
  DeviceBench<TypeParam> bench({.size = 8});
  std::vector<std::uint16_t> expected;
  std::vector<std::uint16_t> got;
  for (std::size_t round = 0; round < 300; ++round) {
    const std::vector<Piece> pieces(1 + round % 3, {bench.buffer(8), 8});
    while (const auto id = bench.driver.post(pieces)) expected.push_back(*id);
    const auto chains = bench.take();
    ASSERT_FALSE(chains.empty());
    const std::size_t kept = round % (chains.size() + 1);
    bench.device.untake(std::span(chains).subspan(kept));
    bench.give_back(std::span(chains).first(kept), round % 2 == 0);
    for (const Returned& one : bench.driver.reap()) got.push_back(one.id);
  }
  bench.pass();
  for (const Returned& one : bench.driver.reap()) got.push_back(one.id);
  EXPECT_EQ(got, expected);
}

// ORD-11: with tables the id that goes back is the buffer's, never a slot number.
TYPED_TEST(VirtioInOrder, ORD_11_TablesInOrderComeBackForTenRingSizes) {
  DeviceBench<TypeParam> bench({.size = 16});
  const std::vector<Piece> pieces(5, {bench.buffer(8), 8});
  for (int packet = 0; packet < 160; ++packet) {
    const auto id = bench.driver.post(pieces, Shape::kTable);
    ASSERT_TRUE(id.has_value());
    ASSERT_EQ(bench.pass(packet % 2 == 0), 1U);
    const auto back = bench.driver.reap();
    ASSERT_EQ(back.size(), 1U);
    EXPECT_EQ(back[0].id, *id);
  }
  std::size_t room = 0;
  while (bench.driver.stage(pieces, Shape::kTable)) ++room;
  EXPECT_EQ(room, 16U) << "nothing leaked";
}

}  // namespace
}  // namespace sluice::test
