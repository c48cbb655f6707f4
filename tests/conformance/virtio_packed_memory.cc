// Packed ring, device side, by raw bytes: addresses (SPL-15 to SPL-17 hold here too), indirect
// tables (PKD-11, PKD-12), and memory that changes under the device (PKD-14).
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

#include "support/device_end.h"
#include "support/fake_guest.h"
#include "support/raw_packed.h"
#include "virtio/packed_device.h"

namespace sluice::test {
namespace {

using PackedDevice = virtio::PackedDeviceRing<virtio::Order::kAny>;

virtio::RingConfig with_indirect(virtio::RingConfig config) {
  config.indirect = true;
  return config;
}

class VirtioPackedAddresses : public testing::Test {
 protected:
  static constexpr std::uint64_t kPage = 4096;
  static constexpr std::uint64_t kRings = 1U << 20;
  static constexpr std::uint64_t kSecond = FakeGuest::kBase + kRings;  // Touches the first region.
  static constexpr std::uint64_t kThird = kSecond + 3 * kPage;

  bool taken(std::uint64_t address, std::uint32_t length) {
    const RawPackedRing ring(guest_, 3);
    guest_.allocate_from(FakeGuest::kBase);
    DeviceEnd<PackedDevice> device(guest_, ring.config());
    ring.set_descriptor(0, {address, length, 0, kAvailBit});
    const auto chains = device.take();
    if (chains.empty()) {
      EXPECT_EQ(device.error_code(), ErrorCode::kBadAddress);
      return false;
    }
    EXPECT_EQ(bytes_of(device.segments(chains[0])), length);
    return true;
  }
  FakeGuest guest_{{FakeGuest::kBase, kRings}, {kSecond, kPage}, {kThird, kPage}};
};

TEST_F(VirtioPackedAddresses, SPL_17_SEC_01_SEC_50_OnlyRangesWhollyInSharedMemoryAreTaken) {
  for (const std::uint64_t edge :
       {FakeGuest::kBase, kSecond, kSecond + kPage, kThird, kThird + kPage}) {
    for (int offset = -3; offset <= 3; ++offset) {
      const std::uint64_t address = edge + static_cast<std::uint64_t>(offset);
      for (const std::uint32_t length : {0U, 1U, 2U, 3U, 4U, 5U, 4095U, 4096U, 4097U, 8191U, 8192U,
                                         8193U, 0x7fff'ffffU, 0xffff'ffffU}) {
        EXPECT_EQ(taken(address, length), guest_.contains(address, length))
            << std::hex << address << " + " << length;
      }
    }
  }
  EXPECT_FALSE(taken(~std::uint64_t{0}, 0));
  EXPECT_FALSE(taken(~std::uint64_t{0} - 3, 8));
}

// H14, SEC-06: the bad one of a batch of four, at each place, in each of the ways to be bad.
TEST_F(VirtioPackedAddresses, H14_SEC_06_OneBadBufferInABatchIsFoundAtEveryPlace) {
  const std::array<PackedDescriptor, 5> bad = {{
      {0x1000, 64, 0, kAvailBit},                  // outside every region
      {kSecond + kPage - 10, 64, 0, kAvailBit},    // runs past its region
      {kThird + kPage, 0, 0, kAvailBit},           // empty and outside
      {~std::uint64_t{0} - 10, 64, 0, kAvailBit},  // address plus length wraps
      {0x1000, 64, 0, kAvailBit | kWrite},         // outside, writable
  }};
  for (const PackedDescriptor& wrong : bad) {
    for (std::uint32_t place = 0; place < 4; ++place) {
      guest_.allocate_from(FakeGuest::kBase);
      const RawPackedRing ring(guest_, 8);
      DeviceEnd<PackedDevice> device(guest_, ring.config());
      for (std::uint32_t i = 0; i < 4; ++i) {
        ring.set_descriptor(i, {kSecond + 64 * i, 64, static_cast<std::uint16_t>(i), kAvailBit});
      }
      ring.set_descriptor(place, wrong);
      EXPECT_EQ(device.take().size(), place);
      EXPECT_EQ(device.error_code(), ErrorCode::kBadAddress);
      EXPECT_TRUE(device.take().empty());
      for (std::uint32_t i = 0; i < 4; ++i) {
        EXPECT_EQ(ring.flags(i) & kUsedBit, 0) << "nothing was touched";
      }
    }
  }
}

TEST_F(VirtioPackedAddresses, SPL_04_AReadableDescriptorAfterAWritableOneStopsTheRing) {
  const RawPackedRing ring(guest_, 4);
  DeviceEnd<PackedDevice> device(guest_, ring.config());
  ring.set_descriptor(1, {kSecond, 10, 0, kAvailBit});
  ring.set_descriptor(0, {kSecond, 10, 0, kAvailBit | kNext | kWrite});
  EXPECT_TRUE(device.take().empty());
  EXPECT_EQ(device.error_code(), ErrorCode::kRingCorrupt);
}

class VirtioPackedIndirect : public testing::Test {
 protected:
  struct Case {
    explicit Case(FakeGuest& guest)
        : ring(guest, 4),
          buffer(guest.allocate(4096)),
          device(guest, with_indirect(ring.config())) {}
    // A table of one-byte buffers with the flags and ids given, rubbish by default.
    std::uint64_t make_table(std::uint32_t entries, std::uint16_t flags = 0) const {
      const std::uint64_t table = ring.guest().allocate(16 * std::uint64_t{entries});
      for (std::uint32_t i = 0; i < entries; ++i) {
        ring.put_descriptor(table + 16 * std::uint64_t{i},
                            {buffer + i, 1, static_cast<std::uint16_t>(i * 7919), flags});
      }
      return table;
    }
    std::optional<std::size_t> segments_of_table(std::uint64_t table, std::uint32_t bytes) {
      ring.set_descriptor(0, {table, bytes, 3, kAvailBit | kIndirect});
      const auto chains = device.take();
      if (chains.empty()) return std::nullopt;
      EXPECT_EQ(chains[0].id, 3);
      EXPECT_EQ(chains[0].slots, 1);
      return device.segments(chains[0]).size();
    }
    RawPackedRing ring;
    std::uint64_t buffer;
    DeviceEnd<PackedDevice> device;
  };
  FakeGuest guest_;
};

// PKD-11, H17: the length alone delimits a table. NEXT, INDIRECT, AVAIL, USED and ids are reserved.
TEST_F(VirtioPackedIndirect, PKD_11_H17_StrayFlagsAndIdsInATableAreIgnored) {
  for (const std::uint16_t stray : Words{kNext, kIndirect, kAvailBit, kUsedBit, 0xfffd}) {
    Case c(guest_);
    const std::uint64_t table = c.make_table(2, stray);
    EXPECT_EQ(c.segments_of_table(table, 32), 2U) << stray;
    EXPECT_EQ(c.device.ring.error(), std::nullopt);
  }
}

TEST_F(VirtioPackedIndirect, PKD_11_WriteInATableSeparatesTheParts) {
  Case c(guest_);
  const std::uint64_t table = c.make_table(4);
  c.ring.put_descriptor(table + 32, {c.buffer, 1, 0, kWrite});
  c.ring.put_descriptor(table + 48, {c.buffer, 1, 0, kWrite});
  c.ring.set_descriptor(0, {table, 64, 3, kAvailBit | kIndirect | kWrite});
  const auto chains = c.device.take();
  ASSERT_EQ(chains.size(), 1U);
  EXPECT_EQ(chains[0].readable_count, 2);
}

// DPDK's driver leaves stale WRITE flags in the tables of its transmitqs.
TEST_F(VirtioPackedIndirect, PKD_11_OnATransmitQueueStaleWriteFlagsInATableMeanNothing) {
  Case c(guest_);
  virtio::RingConfig config = with_indirect(c.ring.config());
  config.readable_only = true;
  DeviceEnd<PackedDevice> device(guest_, config);
  const std::uint64_t table = c.make_table(3);
  c.ring.put_descriptor(table, {c.buffer, 12, 0, kWrite});
  c.ring.set_descriptor(0, {table, 48, 3, kAvailBit | kIndirect});
  const auto chains = device.take();
  ASSERT_EQ(chains.size(), 1U);
  EXPECT_EQ(chains[0].readable_count, 3);
}

TEST_F(VirtioPackedIndirect, PKD_12_ATableInAListStopsTheRing) {
  {
    Case c(guest_);  // normal (NEXT) + INDIRECT
    c.ring.set_descriptor(1, {c.make_table(2), 32, 3, kAvailBit | kIndirect});
    c.ring.set_descriptor(0, {c.buffer, 10, 3, kAvailBit | kNext});
    EXPECT_TRUE(c.device.take().empty());
    EXPECT_EQ(c.device.error_code(), ErrorCode::kRingCorrupt);
  }
  Case c(guest_);  // INDIRECT with NEXT
  c.ring.set_descriptor(1, {c.buffer, 10, 3, kAvailBit});
  c.ring.set_descriptor(0, {c.make_table(2), 32, 3, kAvailBit | kNext | kIndirect});
  EXPECT_TRUE(c.device.take().empty());
  EXPECT_EQ(c.device.error_code(), ErrorCode::kRingCorrupt);
}

TEST_F(VirtioPackedIndirect, IND_05_H17_TableLengthsAreChecked) {
  for (const std::uint32_t bytes :
       {0U, 1U, 8U, 15U, 17U, 31U, 1025U * 16, 1U << 24, 0xffff'ffffU}) {
    Case c(guest_);
    EXPECT_EQ(c.segments_of_table(c.make_table(2), bytes), std::nullopt) << bytes;
    EXPECT_EQ(c.device.error_code(), ErrorCode::kRingCorrupt);
  }
  for (const std::uint32_t entries : {1U, 4U, 5U, 1000U, 1024U}) {
    Case c(guest_);
    EXPECT_EQ(c.segments_of_table(c.make_table(entries), entries * 16), entries);
  }
}

TEST_F(VirtioPackedIndirect, IND_05_SEC_45_ATableOutsideMemoryStopsTheRing) {
  const std::uint64_t end = FakeGuest::kBase + FakeGuest::kDefaultSize;
  for (const std::uint64_t table :
       {std::uint64_t{0}, end - 16, end - 31, end, ~std::uint64_t{0} - 15}) {
    Case c(guest_);
    c.ring.put_descriptor(end - 16, {c.buffer, 1, 0, 0});
    EXPECT_EQ(c.segments_of_table(table, 32), std::nullopt) << std::hex << table;
    EXPECT_EQ(c.device.error_code(), ErrorCode::kBadAddress);
  }
}

TEST(VirtioPackedRegions, IND_05_SEC_01_ATableMayStraddleTwoRegions) {
  constexpr std::uint64_t kBorder = FakeGuest::kBase + (1U << 20);
  FakeGuest guest{{FakeGuest::kBase, 1U << 20}, {kBorder, 1U << 20}};
  for (std::uint64_t before = 0; before <= 48; ++before) {
    guest.allocate_from(FakeGuest::kBase);
    const RawPackedRing ring(guest, 4);
    DeviceEnd<PackedDevice> device(guest, with_indirect(ring.config()));
    const std::uint64_t table = kBorder - before;
    // Written byte by byte: an entry on the border has no aligned word of its own.
    for (std::uint64_t i = 0; i < 3; ++i) {
      const std::uint64_t address = FakeGuest::kBase + 100 * i;
      const auto length = static_cast<std::uint32_t>(50 + i);
      guest.put(table + 16 * i, std::as_bytes(std::span(&address, 1)));
      guest.put(table + 16 * i + 8, std::as_bytes(std::span(&length, 1)));
      guest.put(table + 16 * i + 12, std::vector<std::byte>(4));
    }
    ring.set_descriptor(0, {table, 48, 9, kAvailBit | kIndirect});
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

TEST_F(VirtioPackedIndirect, IND_01_SEC_34_WithoutNegotiationItIsReadAndCounted) {
  Case c(guest_);
  DeviceEnd<PackedDevice> device(guest_, c.ring.config());
  c.ring.set_descriptor(0, {c.make_table(2), 32, 3, kAvailBit | kIndirect});
  EXPECT_EQ(device.take().size(), 1U);
  EXPECT_EQ(device.ring.oddities().indirect_not_negotiated, 1U);
  EXPECT_EQ(device.ring.error(), std::nullopt);
}

// SPL-16, SEC-08: a thread rewrites address and length all the time; what is taken was checked.
TEST(VirtioPackedFlipper, SPL_16_SEC_08_PKD_14_WhatIsTakenWasCheckedWhoeverWritesMeanwhile) {
  FakeGuest guest{{FakeGuest::kBase, 1U << 16}};
  const std::byte* const first = guest.device_view(FakeGuest::kBase);
  const std::byte* const last = first + (1U << 16);
  const RawPackedRing ring(guest, 4);
  const std::uint64_t buffer = guest.allocate(4096);
  std::atomic<bool> stop{false};
  std::thread flipper([&] {
    const std::array<std::uint64_t, 3> addresses = {buffer, FakeGuest::kBase + 0xffff,
                                                    ~std::uint64_t{0}};
    const std::array<std::uint32_t, 3> lengths = {1, 4096, 0xffff'ffff};
    for (std::size_t i = 0; !stop.load(std::memory_order_relaxed); ++i) {
      for (std::uint64_t slot = 0; slot < 2; ++slot) {
        guest.write(ring.ring() + 16 * slot, addresses[(i + slot) % 3]);
        guest.write(ring.ring() + 16 * slot + 8, lengths[(i / 3) % 3]);
        const bool next = i % 5 == 0;
        guest.write<std::uint16_t>(ring.ring() + 16 * slot + 14,
                                   static_cast<std::uint16_t>(kAvailBit | (next ? kNext : 0)));
      }
    }
  });
  std::uint32_t good = 0;
  for (int round = 0; round < 50'000; ++round) {
    DeviceEnd<PackedDevice> device(guest, ring.config());
    for (const virtio::Chain& chain : device.take()) {
      ASSERT_LE(chain.slots, 4);
      for (const virtio::Segment& segment : device.segments(chain)) {
        ASSERT_GE(segment.data, first);
        ASSERT_LE(segment.data + segment.length, last);
        ++good;
      }
    }
  }
  stop = true;
  flipper.join();
  EXPECT_GT(good, 0U);
}

}  // namespace
}  // namespace sluice::test
