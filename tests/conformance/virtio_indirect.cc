// Indirect descriptors on the device side of both formats, by raw bytes (virtio 1.3, 2.7.5.3,
// 2.8.7; IND-01 to IND-06, PKD-11, PKD-12).
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "support/device_end.h"
#include "support/fake_guest.h"
#include "support/raw_packed.h"
#include "support/raw_split.h"
#include "virtio/packed_device.h"
#include "virtio/split_device.h"

namespace sluice::test {
namespace {

using SplitDevice = virtio::SplitDeviceRing<virtio::Order::kAny>;
using PackedDevice = virtio::PackedDeviceRing<virtio::Order::kAny>;

virtio::RingConfig with_indirect(virtio::RingConfig config, bool negotiated = true) {
  config.indirect = negotiated;
  return config;
}

class VirtioIndirectSplit : public testing::Test {
 protected:
  VirtioIndirectSplit() : ring_(guest_, 8), device_(guest_, with_indirect(ring_.config())) {}

  // A table of `entries` one-byte buffers linked 1, 2, 3 ... at a fresh place.
  std::uint64_t make_table(std::uint32_t entries) {
    const std::uint64_t table = guest_.allocate(16 * std::uint64_t{entries});
    for (std::uint32_t i = 0; i < entries; ++i) {
      const bool last = i + 1 == entries;
      ring_.put_descriptor(
          table + 16 * std::uint64_t{i},
          {buffer_ + i, 1, last ? std::uint16_t{0} : kNext, static_cast<std::uint16_t>(i + 1)});
    }
    return table;
  }
  // Publishes descriptor 0 as a table and returns its segments, or the error's code.
  std::optional<std::size_t> segments_of_table(std::uint64_t table, std::uint32_t bytes,
                                               std::uint16_t flags = kIndirect) {
    ring_.set_descriptor(0, {table, bytes, flags, 0});
    ring_.publish(0);
    const auto chains = device_.take(1);
    if (chains.empty()) return std::nullopt;
    device_.ring.give_back(chains, false);
    return device_.segments(chains[0]).size();
  }

  FakeGuest guest_;
  RawSplitRing ring_;
  std::uint64_t buffer_ = guest_.allocate(4096);
  DeviceEnd<SplitDevice> device_;
};

TEST_F(VirtioIndirectSplit, IND_01_SEC_34_WithoutNegotiationItIsReadAndCounted) {
  DeviceEnd<SplitDevice> device(guest_, with_indirect(ring_.config(), false));
  for (std::uint64_t i = 1; i <= 3; ++i) {
    ring_.set_descriptor(0, {make_table(2), 32, kIndirect, 0});
    ring_.publish(0);
    const auto chains = device.take();
    ASSERT_EQ(chains.size(), 1U);
    EXPECT_EQ(device.segments(chains[0]).size(), 2U);
    EXPECT_EQ(device.ring.oddities().indirect_not_negotiated, i);
    device.ring.give_back(chains, false);
  }
  EXPECT_EQ(device.ring.error(), std::nullopt);
  EXPECT_EQ(segments_of_table(make_table(2), 32), 2U);
  EXPECT_EQ(device_.ring.oddities().indirect_not_negotiated, 0U) << "negotiated is no oddity";
}

TEST_F(VirtioIndirectSplit, IND_02_IndirectTogetherWithNextStopsTheRing) {
  EXPECT_EQ(segments_of_table(make_table(2), 32, kIndirect | kNext), std::nullopt);
  EXPECT_EQ(device_.error_code(), ErrorCode::kRingCorrupt);
}

TEST_F(VirtioIndirectSplit, IND_02_H18_ATableInATableStopsTheRing) {
  const std::uint64_t table = make_table(2);
  ring_.put_descriptor(table + 16, {make_table(1), 16, kIndirect, 0});
  EXPECT_EQ(segments_of_table(table, 32), std::nullopt);
  EXPECT_EQ(device_.error_code(), ErrorCode::kRingCorrupt);
}

TEST_F(VirtioIndirectSplit, IND_03_WriteOnTheOuterDescriptorMeansNothing) {
  const std::uint64_t table = make_table(3);
  EXPECT_EQ(segments_of_table(table, 48, kIndirect | kWrite), 3U);
  ring_.put_descriptor(table + 32, {buffer_, 1, kWrite, 0});
  ring_.set_descriptor(0, {table, 48, kIndirect | kWrite, 0});
  ring_.publish(0);
  const auto chains = device_.take();
  ASSERT_EQ(chains.size(), 1U);
  EXPECT_EQ(chains[0].readable_count, 2) << "the entries' own flags count";
}

TEST_F(VirtioIndirectSplit, IND_04_ATableAfterNormalDescriptorsContinuesTheChain) {
  ring_.set_descriptor(4, {buffer_, 10, kNext, 2});
  ring_.set_descriptor(2, {buffer_ + 10, 20, kNext, 6});
  ring_.set_descriptor(6, {make_table(3), 48, kIndirect, 0});
  ring_.publish(4);
  const auto chains = device_.take();
  ASSERT_EQ(chains.size(), 1U);
  EXPECT_EQ(chains[0].id, 4);
  const auto segments = device_.segments(chains[0]);
  ASSERT_EQ(segments.size(), 5U);
  EXPECT_EQ(segments[1].length, 20U);
  EXPECT_EQ(segments[4].data, guest_.device_view(buffer_ + 2));
}

// The rule about readable and writable parts holds across the border too (SPL-04).
TEST_F(VirtioIndirectSplit, IND_04_AReadableEntryAfterAWritableNormalDescriptorStopsTheRing) {
  ring_.set_descriptor(4, {buffer_, 10, kNext | kWrite, 2});
  ring_.set_descriptor(2, {make_table(1), 16, kIndirect, 0});
  ring_.publish(4);
  EXPECT_TRUE(device_.take().empty());
  EXPECT_EQ(device_.error_code(), ErrorCode::kRingCorrupt);
}

TEST_F(VirtioIndirectSplit, IND_05_TableLengthsThatAreNotMultiplesOf16StopTheRing) {
  for (const std::uint32_t bytes : {0U, 1U, 8U, 15U, 17U, 31U, 33U, 0xffff'ffffU}) {
    DeviceEnd<SplitDevice> device(guest_, with_indirect(ring_.config()));
    ring_.set_avail_index(0);
    ring_.set_descriptor(0, {make_table(2), bytes, kIndirect, 0});
    ring_.publish(0);
    EXPECT_TRUE(device.take().empty()) << bytes;
    EXPECT_EQ(device.error_code(), ErrorCode::kRingCorrupt);
  }
}

// H18: a table may be longer than the queue, up to 1024 entries; the outer limit stays as it was.
TEST_F(VirtioIndirectSplit, IND_05_H18_TablesUpTo1024EntriesAndNoMore) {
  EXPECT_EQ(segments_of_table(make_table(8), 8 * 16), 8U);
  EXPECT_EQ(segments_of_table(make_table(1000), 1000 * 16), 1000U);
  EXPECT_EQ(segments_of_table(make_table(1024), 1024 * 16), 1024U);
  // A direct chain of 8 after them is judged by the queue size again.
  for (std::uint16_t i = 0; i < 8; ++i) {
    ring_.set_descriptor(
        i, {buffer_, 1, i == 7 ? std::uint16_t{0} : kNext, static_cast<std::uint16_t>(i + 1)});
  }
  ring_.publish(0);
  ASSERT_TRUE(device_.use());
  EXPECT_EQ(segments_of_table(make_table(1025), 1025 * 16), std::nullopt);
  EXPECT_EQ(device_.error_code(), ErrorCode::kRingCorrupt);
}

TEST_F(VirtioIndirectSplit, IND_05_AHugeTableStopsTheRingWithoutReadingIt) {
  EXPECT_EQ(segments_of_table(make_table(2), 1U << 24), std::nullopt);
  EXPECT_EQ(device_.error_code(), ErrorCode::kRingCorrupt);
}

TEST_F(VirtioIndirectSplit, IND_05_SEC_45_ATableOutsideMemoryStopsTheRing) {
  const std::uint64_t end = FakeGuest::kBase + FakeGuest::kDefaultSize;
  for (const std::uint64_t table :
       {std::uint64_t{0}, end - 16, end - 8, end, ~std::uint64_t{0} - 15, ~std::uint64_t{0} - 40}) {
    RawSplitRing ring(guest_, 8);
    DeviceEnd<SplitDevice> device(guest_, with_indirect(ring.config()));
    // The last entry inside, if one is, asks for the one outside.
    if (table == end - 16) ring.put_descriptor(table, {buffer_, 1, kNext, 1});
    ring.set_descriptor(0, {table, 32, kIndirect, 0});
    ring.publish(0);
    EXPECT_TRUE(device.take().empty()) << std::hex << table;
    EXPECT_EQ(device.error_code(), ErrorCode::kBadAddress) << std::hex << table;
  }
}

// IND-05, SEC-45, SEC-01: a table whose entries, and one entry itself, lie on both sides of a
// border.
TEST(VirtioIndirectRegions, IND_05_SEC_01_SEC_45_ATableMayStraddleTwoRegions) {
  constexpr std::uint64_t kBorder = FakeGuest::kBase + (1U << 20);
  FakeGuest guest{{FakeGuest::kBase, 1U << 20}, {kBorder, 1U << 20}};
  for (std::uint64_t before = 0; before <= 48; before += 1) {
    guest.allocate_from(FakeGuest::kBase);
    RawSplitRing ring(guest, 8);
    DeviceEnd<SplitDevice> device(guest, with_indirect(ring.config()));
    const std::uint64_t table = kBorder - before;
    for (std::uint16_t i = 0; i < 3; ++i) {
      ring.put_descriptor(table + 16U * i,
                          {FakeGuest::kBase + 100U * i, 50U + i, i == 2 ? std::uint16_t{0} : kNext,
                           static_cast<std::uint16_t>(i + 1)});
    }
    ring.set_descriptor(0, {table, 48, kIndirect, 0});
    ring.publish(0);
    const auto chains = device.take();
    ASSERT_EQ(chains.size(), 1U) << before;
    const auto segments = device.segments(chains[0]);
    ASSERT_EQ(segments.size(), 3U);
    for (std::uint32_t i = 0; i < 3; ++i) {
      EXPECT_EQ(segments[i].data, guest.device_view(FakeGuest::kBase + 100U * i));
      EXPECT_EQ(segments[i].length, 50 + i);
    }
  }
}

TEST_F(VirtioIndirectSplit, IND_06_SEC_31_ALoopInsideTheTableStopsTheRing) {
  for (const std::uint16_t target : Words{0, 1, 2}) {
    RawSplitRing ring(guest_, 8);
    DeviceEnd<SplitDevice> device(guest_, with_indirect(ring.config()));
    const std::uint64_t table = make_table(3);
    ring.put_descriptor(table + 32, {buffer_, 1, kNext, target});
    ring.set_descriptor(0, {table, 48, kIndirect, 0});
    ring.publish(0);
    EXPECT_TRUE(device.take().empty());
    EXPECT_EQ(device.error_code(), ErrorCode::kRingCorrupt);
  }
}

TEST_F(VirtioIndirectSplit, IND_06_ALinkOutOfTheTableStopsTheRing) {
  for (const std::uint16_t target : Words{3, 4, 0x8000, 0xffff}) {
    RawSplitRing ring(guest_, 8);
    DeviceEnd<SplitDevice> device(guest_, with_indirect(ring.config()));
    const std::uint64_t table = make_table(4);  // One more than the length says.
    ring.put_descriptor(table + 32, {buffer_, 1, kNext, target});
    ring.set_descriptor(0, {table, 48, kIndirect, 0});
    ring.publish(0);
    EXPECT_TRUE(device.take().empty());
    EXPECT_EQ(device.error_code(), ErrorCode::kRingCorrupt);
  }
}

// Entries may be linked in any order, and not all need be used.
TEST_F(VirtioIndirectSplit, IND_06_LinksInsideTheTableAreFollowed) {
  const std::uint64_t table = make_table(4);
  ring_.put_descriptor(table, {buffer_, 10, kNext, 3});
  ring_.put_descriptor(table + 48, {buffer_, 30, kNext, 1});
  ring_.put_descriptor(table + 16, {buffer_, 20, 0, 2});
  ring_.set_descriptor(0, {table, 64, kIndirect, 0});
  ring_.publish(0);
  const auto chains = device_.take();
  ASSERT_EQ(chains.size(), 1U);
  const auto segments = device_.segments(chains[0]);
  ASSERT_EQ(segments.size(), 3U);
  EXPECT_EQ(segments[0].length, 10U);
  EXPECT_EQ(segments[1].length, 30U);
  EXPECT_EQ(segments[2].length, 20U);
}

}  // namespace
}  // namespace sluice::test
