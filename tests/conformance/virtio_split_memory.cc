// Split ring, device side, by raw bytes: what is written into the used ring (SPL-11), and which
// addresses are taken (SPL-15 to SPL-17).
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "support/device_end.h"
#include "support/fake_guest.h"
#include "support/random.h"
#include "support/raw_split.h"
#include "virtio/split_device.h"

namespace sluice::test {
namespace {

using SplitDevice = virtio::SplitDeviceRing<virtio::Order::kAny>;

// The whole used area of a ring of 4, as hex: flags, idx, four entries of id and len.
TEST(VirtioSplitUsed, SPL_11_UsedEntriesAreThePictureOfTheSpecification) {
  FakeGuest guest;
  const RawSplitRing ring(guest, 4);
  DeviceEnd<SplitDevice> device(guest, ring.config());
  const std::uint64_t buffer = guest.allocate(4096);
  ring.set_descriptor(2, {buffer, 64, kWrite, 0});
  ring.set_descriptor(1, {buffer, 64, kNext, 3});
  ring.set_descriptor(3, {buffer, 0x1234, kWrite, 0});
  ring.publish(2);
  ring.publish(1);
  ring.poison_used(0xEE);
  auto chains = device.take();
  ASSERT_EQ(chains.size(), 2U);
  chains[0].written = 60;
  chains[1].written = 0x1234;
  device.ring.give_back(chains, false);
  const std::array<std::uint8_t, 36> picture = {
      0x00, 0x00, 0x02, 0x00,                          // flags 0, idx 2
      0x02, 0x00, 0x00, 0x00, 0x3c, 0x00, 0x00, 0x00,  // id 2, len 60
      0x01, 0x00, 0x00, 0x00, 0x34, 0x12, 0x00, 0x00,  // id 1, len 0x1234
      0xee, 0xee, 0xee, 0xee, 0xee, 0xee, 0xee, 0xee,  // untouched
      0xee, 0xee, 0xee, 0xee, 0xee, 0xee, 0xee, 0xee,  // untouched
  };
  const auto bytes = guest.get(ring.used(), picture.size());
  for (std::size_t i = 0; i < picture.size(); ++i) {
    EXPECT_EQ(bytes[i], std::byte{picture[i]}) << "byte " << i;
  }
  EXPECT_TRUE(ring.canaries_intact());
}

TEST(VirtioSplitUsed, SPL_11_NothingIsVisibleBeforeItIsGivenBack) {
  FakeGuest guest;
  const RawSplitRing ring(guest, 4);
  DeviceEnd<SplitDevice> device(guest, ring.config());
  ring.set_descriptor(0, {guest.allocate(64), 64, kWrite, 0});
  ring.publish(0);
  ring.poison_used(0xEE);
  const auto before = guest.get(ring.used(), 36);
  const auto chains = device.take();
  EXPECT_EQ(guest.get(ring.used(), 36), before);
  device.ring.untake(chains);
  EXPECT_EQ(guest.get(ring.used(), 36), before);
}

// Every (address, length) around every edge of the table: two regions that touch, a hole, a third.
class VirtioSplitAddresses : public testing::Test {
 protected:
  static constexpr std::uint64_t kPage = 4096;
  static constexpr std::uint64_t kRings = 1U << 20;  // First region: rings, then buffers.
  static constexpr std::uint64_t kSecond = FakeGuest::kBase + kRings;
  static constexpr std::uint64_t kThird = kSecond + 3 * kPage;

  bool taken(std::uint64_t address, std::uint32_t length) {
    const RawSplitRing ring(guest_, 2);
    guest_.allocate_from(FakeGuest::kBase);  // Each case reuses the same bytes.
    DeviceEnd<SplitDevice> device(guest_, ring.config());
    ring.set_descriptor(0, {address, length});
    ring.publish(0);
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

TEST_F(VirtioSplitAddresses, SPL_17_SEC_01_SEC_50_OnlyRangesWhollyInSharedMemoryAreTaken) {
  const std::uint64_t edges[] = {FakeGuest::kBase, kSecond, kSecond + kPage, kThird,
                                 kThird + kPage};
  for (const std::uint64_t edge : edges) {
    for (int offset = -3; offset <= 3; ++offset) {
      const std::uint64_t address = edge + static_cast<std::uint64_t>(offset);
      for (const std::uint32_t length : {0U, 1U, 2U, 3U, 4U, 5U, 4095U, 4096U, 4097U, 8191U, 8192U,
                                         8193U, 0x7fff'ffffU, 0xffff'ffffU}) {
        EXPECT_EQ(taken(address, length), guest_.contains(address, length))
            << std::hex << address << " + " << length;
      }
    }
  }
}

TEST_F(VirtioSplitAddresses, SPL_15_ZeroLengthNeedsAnAddressInsideToo) {
  EXPECT_FALSE(taken(0, 0));
  EXPECT_FALSE(taken(~std::uint64_t{0}, 0));
  EXPECT_FALSE(taken(kThird + kPage, 0));
  EXPECT_TRUE(taken(kThird + kPage - 1, 0));
  EXPECT_TRUE(taken(kThird, 0));
}

TEST_F(VirtioSplitAddresses, SPL_17_ARangeThatWrapsTheAddressSpaceIsRefused) {
  EXPECT_FALSE(taken(~std::uint64_t{0}, 1));
  EXPECT_FALSE(taken(~std::uint64_t{0} - 3, 8));
  EXPECT_FALSE(taken(~std::uint64_t{0} - 0x7fff, 0xffff'ffff));
}

// In a chain each descriptor is checked, wherever it stands.
TEST_F(VirtioSplitAddresses, SPL_17_ABadBufferAtAnyPlaceOfAChainStopsTheRing) {
  for (std::uint16_t bad = 0; bad < 4; ++bad) {
    const RawSplitRing ring(guest_, 8);
    guest_.allocate_from(FakeGuest::kBase);
    DeviceEnd<SplitDevice> device(guest_, ring.config());
    for (std::uint16_t i = 0; i < 4; ++i) {
      const std::uint64_t address = i == bad ? kSecond + kPage - 1 : kSecond;
      ring.set_descriptor(
          i, {address, 2, i == 3 ? std::uint16_t{0} : kNext, static_cast<std::uint16_t>(i + 1)});
    }
    ring.publish(0);
    EXPECT_TRUE(device.take().empty());
    EXPECT_EQ(device.error_code(), ErrorCode::kBadAddress) << bad;
  }
}

// SPL-16, SEC-08: a second thread rewrites descriptors between good and bad all the time. Whatever
// is taken must lie in guest memory: what was checked is what is used.
TEST(VirtioSplitFlipper, SPL_16_SEC_08_WhatIsTakenWasCheckedWhoeverWritesMeanwhile) {
  FakeGuest guest{{FakeGuest::kBase, 1U << 16}};
  const std::byte* const first = guest.device_view(FakeGuest::kBase);
  const std::byte* const last = first + (1U << 16);
  RawSplitRing ring(guest, 4);
  const std::uint64_t buffer = guest.allocate(4096);
  std::atomic<bool> stop{false};
  std::thread flipper([&] {
    const std::array<std::uint64_t, 3> addresses = {buffer, FakeGuest::kBase + 0xffff,
                                                    ~std::uint64_t{0}};
    const std::array<std::uint32_t, 3> lengths = {1, 4096, 0xffff'ffff};
    for (std::size_t i = 0; !stop.load(std::memory_order_relaxed); ++i) {
      guest.write(ring.table(), addresses[i % 3]);
      guest.write(ring.table() + 8, lengths[(i / 3) % 3]);
      guest.write<std::uint16_t>(ring.table() + 12, i % 5 == 0 ? kNext : 0);
      guest.write<std::uint16_t>(ring.table() + 14, static_cast<std::uint16_t>(i % 7));
    }
  });
  ring.set_descriptor(1, {buffer, 64});
  std::uint32_t good = 0;
  for (int round = 0; round < 50'000; ++round) {
    virtio::RingConfig config = ring.config();
    const std::uint16_t index = ring.avail_index();
    config.position = {index, index};
    DeviceEnd<SplitDevice> device(guest, config);
    ring.publish(0);
    for (const virtio::Chain& chain : device.take()) {
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
