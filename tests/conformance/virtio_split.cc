// Split ring, device side, by raw bytes (virtio 1.3, 2.7; requirements SPL-02 to SPL-08, SPL-14).
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "support/device_end.h"
#include "support/fake_guest.h"
#include "support/raw_split.h"
#include "virtio/split_device.h"

namespace sluice::test {
namespace {

using SplitDevice = virtio::SplitDeviceRing<virtio::Order::kAny>;

class VirtioSplit : public testing::Test {
 protected:
  static constexpr std::uint32_t kSize = 8;

  // A fresh ring and a device on it, for tests that break one after the other.
  struct Case {
    explicit Case(FakeGuest& guest, std::uint32_t size = kSize)
        : ring(guest, size), buffer(guest.allocate(4096)), device(guest, ring.config()) {}
    // A good chain of one descriptor at `index`.
    void publish_good(std::uint16_t index) const {
      ring.set_descriptor(index, {buffer, 64});
      ring.publish(index);
    }
    RawSplitRing ring;
    std::uint64_t buffer;
    DeviceEnd<SplitDevice> device;
  };

  // Publishes a good chain, then the head; expects the good one, then the error.
  static void expect_stop(Case& c, std::uint16_t head, ErrorCode code) {
    c.publish_good(7);
    c.ring.publish(head);
    c.publish_good(6);
    c.ring.poison_used(0xEE);
    const auto before = c.ring.guest().get(c.ring.used(), 4 + 8 * c.ring.size());
    const auto chains = c.device.take();
    ASSERT_EQ(chains.size(), 1U) << "the good chain before the bad one, nothing after";
    EXPECT_EQ(chains[0].id, 7);
    EXPECT_EQ(c.device.error_code(), code);
    EXPECT_TRUE(c.device.take().empty());
    EXPECT_EQ(c.ring.guest().get(c.ring.used(), 4 + 8 * c.ring.size()), before);
  }

  FakeGuest guest_;
};

TEST_F(VirtioSplit, SPL_02_SEC_52_AChainLongerThan4GiBStopsTheRing) {
  constexpr std::uint64_t kHigh = 0x1'0000'0000;
  FakeGuest big{{FakeGuest::kBase, 1U << 20}, {kHigh, kHigh + 4096}};
  {
    Case c(big);
    c.ring.set_descriptor(0, {kHigh, 0xffff'ffff, kNext, 1});
    c.ring.set_descriptor(1, {kHigh, 0xffff'ffff, 0, 0});
    expect_stop(c, 0, ErrorCode::kRingCorrupt);
  }
  {
    Case c(big);  // Three lengths whose 32-bit sum is small.
    c.ring.set_descriptor(0, {kHigh, 0x8000'0000, kNext, 1});
    c.ring.set_descriptor(1, {kHigh, 0x8000'0000, kNext, 2});
    c.ring.set_descriptor(2, {kHigh, 64, 0, 0});
    expect_stop(c, 0, ErrorCode::kRingCorrupt);
  }
  Case c(big);
  c.ring.set_descriptor(0, {kHigh, 0x8000'0000, kNext, 1});
  c.ring.set_descriptor(1, {kHigh, 0x7fff'ffff, 0, 0});
  c.ring.publish(0);
  const auto chains = c.device.take();
  ASSERT_EQ(chains.size(), 1U) << "2^32 - 1 bytes are legal";
  EXPECT_EQ(bytes_of(c.device.segments(chains[0])), 0xffff'ffffU);
}

TEST_F(VirtioSplit, SPL_03_SEC_31_EveryLoopStopsTheRing) {
  for (std::uint16_t length = 1; length <= kSize; ++length) {
    // Descriptors 0 to length - 1 in a circle; entered at the start, and from outside it.
    Case c(guest_);
    for (std::uint16_t i = 0; i < length; ++i) {
      c.ring.set_descriptor(i, {c.buffer, 1, kNext, static_cast<std::uint16_t>((i + 1) % length)});
    }
    c.ring.publish(0);
    EXPECT_TRUE(c.device.take().empty()) << length;
    EXPECT_EQ(c.device.error_code(), ErrorCode::kRingCorrupt);
  }
  Case c(guest_);
  c.ring.set_descriptor(0, {c.buffer, 1, kNext, 1});
  c.ring.set_descriptor(1, {c.buffer, 1, kNext, 2});
  c.ring.set_descriptor(2, {c.buffer, 1, kNext, 1});
  expect_stop(c, 0, ErrorCode::kRingCorrupt);
}

TEST_F(VirtioSplit, SPL_03_AChainAsLongAsTheQueueIsAccepted) {
  for (const std::uint32_t size : {1U, 2U, 8U, 1024U}) {
    Case c(guest_, size);
    for (std::uint32_t i = 0; i < size; ++i) {
      const auto next = static_cast<std::uint16_t>(i == 0 ? size - 1 : i - 1);
      c.ring.set_descriptor(
          i, {c.buffer + i, 1, i == 1 || size == 1 ? std::uint16_t{0} : kNext, next});
    }
    c.ring.publish(0);
    const auto chains = c.device.take();
    ASSERT_EQ(chains.size(), 1U) << size;
    EXPECT_EQ(c.device.segments(chains[0]).size(), size);
  }
}

TEST_F(VirtioSplit, SPL_03_AChainOfMoreThan1024SegmentsStopsTheRing) {
  Case c(guest_, 2048);
  for (std::uint16_t i = 0; i < 1025; ++i) {
    c.ring.set_descriptor(
        i, {c.buffer, 1, i == 1024 ? std::uint16_t{0} : kNext, static_cast<std::uint16_t>(i + 1)});
  }
  c.ring.publish(0);
  EXPECT_TRUE(c.device.take().empty());
  EXPECT_EQ(c.device.error_code(), ErrorCode::kRingCorrupt);
}

TEST_F(VirtioSplit, SPL_04_AReadableDescriptorAfterAWritableOneStopsTheRing) {
  Case c(guest_);
  c.ring.set_descriptor(0, {c.buffer, 10, kNext, 1});
  c.ring.set_descriptor(1, {c.buffer, 10, kNext | kWrite, 2});
  c.ring.set_descriptor(2, {c.buffer, 10, 0, 0});
  expect_stop(c, 0, ErrorCode::kRingCorrupt);
  Case empty(guest_);  // Also when the one that follows is empty.
  empty.ring.set_descriptor(0, {empty.buffer, 10, kNext | kWrite, 1});
  empty.ring.set_descriptor(1, {empty.buffer, 0, 0, 0});
  expect_stop(empty, 0, ErrorCode::kRingCorrupt);
}

TEST_F(VirtioSplit, SPL_04_ReadableThenWritableIsTakenApartThere) {
  Case c(guest_);
  c.ring.set_descriptor(3, {c.buffer, 10, kNext, 5});
  c.ring.set_descriptor(5, {c.buffer + 100, 20, kNext | kWrite, 0});
  c.ring.set_descriptor(0, {c.buffer + 200, 30, kWrite, 0xdead});
  c.ring.publish(3);
  const auto chains = c.device.take();
  ASSERT_EQ(chains.size(), 1U);
  EXPECT_EQ(chains[0].id, 3);
  EXPECT_EQ(chains[0].readable_count, 1);
  const auto segments = c.device.segments(chains[0]);
  ASSERT_EQ(segments.size(), 3U);
  EXPECT_EQ(segments[0].data, guest_.device_view(c.buffer));
  EXPECT_EQ(segments[1].data, guest_.device_view(c.buffer + 100));
  EXPECT_EQ(segments[2].data, guest_.device_view(c.buffer + 200));
  EXPECT_EQ(segments[2].length, 30U);
}

// The descriptor table's pages are read-only for the device: a write would end the process.
TEST_F(VirtioSplit, SPL_06_TheDeviceNeverWritesTheDescriptorTable) {
  guest_.allocate(1, 4096);
  guest_.allocate(4095, 1);
  Case c(guest_, 256);
  ASSERT_EQ(c.ring.table() % 4096, 0U);
  guest_.protect_device_view(c.ring.table(), 4096, true);
  for (std::uint16_t lap = 0; lap < 600; ++lap) {
    const auto head = static_cast<std::uint16_t>(lap % 255);
    c.ring.set_descriptor(head, {c.buffer, 1, kNext, static_cast<std::uint16_t>(head + 1)});
    c.ring.set_descriptor(head + 1U, {c.buffer, 1, kWrite, 0});
    c.ring.publish(head);
    ASSERT_TRUE(c.device.use(1));
  }
  guest_.protect_device_view(c.ring.table(), 4096, false);
  EXPECT_TRUE(c.ring.canaries_intact());
}

// SPL-07, H19: the index is free-running and wraps; progress must not end at 65535.
TEST_F(VirtioSplit, SPL_07_H19_SEC_16_200000ChainsPassEachOnceThroughEverySize) {
  for (const std::uint32_t size : {1U, 2U, 256U, 32768U}) {
    Case c(guest_, size);
    std::uint32_t published = 0;
    std::uint32_t used = 0;
    for (std::uint32_t i = 0; i < size; ++i) c.ring.set_descriptor(i, {c.buffer, 1 + i % 61});
    while (used < 200'000) {
      const std::uint32_t burst = 1 + published % std::min(size, 61U);
      for (std::uint32_t i = 0; i < burst; ++i, ++published) {
        c.ring.publish(static_cast<std::uint16_t>(published % size));
      }
      auto chains = c.device.take();
      ASSERT_EQ(chains.size(), burst) << "size " << size << " after " << used;
      for (auto& chain : chains) {
        ASSERT_EQ(chain.id, used % size);
        chain.written = used++;
      }
      c.device.ring.give_back(chains, false);
      ASSERT_EQ(c.ring.used_index(), static_cast<std::uint16_t>(used));
      ASSERT_EQ(c.ring.used_entry((used - 1) % size),
                (RawSplitRing::UsedElement{(used - 1) % size, used - 1}));
    }
  }
}

TEST_F(VirtioSplit, SPL_08_H19_SEC_51_AnAvailIndexJumpBeyondTheSizeStopsTheRing) {
  for (const std::uint16_t start : Words{0, 5, 0x7fff, 0xfffa}) {
    for (const int jump : {9, 10, 0x7fff, 0x8000, 0x8001, 0xfffe, 0xffff}) {
      Case c(guest_);
      virtio::RingConfig config = c.ring.config();
      config.position = {start, start};
      DeviceEnd<SplitDevice> device(guest_, config);
      c.ring.set_avail_index(static_cast<std::uint16_t>(start + jump));
      EXPECT_TRUE(device.take().empty()) << start << " + " << jump;
      EXPECT_EQ(device.error_code(), ErrorCode::kRingCorrupt);
      EXPECT_FALSE(device.ring.has_work());
      EXPECT_EQ(device.ring.position(), config.position);
    }
    // A full ring is not a jump.
    Case c(guest_);
    virtio::RingConfig config = c.ring.config();
    config.position = {start, start};
    DeviceEnd<SplitDevice> device(guest_, config);
    for (std::uint16_t i = 0; i < kSize; ++i) {
      c.ring.set_descriptor(i, {c.buffer, 1});
      c.ring.set_avail_entry(static_cast<std::uint16_t>(start + i) % kSize, i);
    }
    c.ring.set_avail_index(static_cast<std::uint16_t>(start + kSize));
    EXPECT_EQ(device.take().size(), kSize);
    EXPECT_EQ(device.ring.error(), std::nullopt);
  }
}

// SPL-07, SPL-08: chains that were taken can neither be withdrawn nor doubled.
TEST_F(VirtioSplit, SPL_07_SPL_08_SEC_37_AnIndexThatGoesBackOrBeyondWhatIsHeldStopsTheRing) {
  for (const std::uint16_t index : Words{2, 0, 12, 0xffff}) {
    Case c(guest_);
    for (std::uint16_t i = 0; i < 3; ++i) c.publish_good(i);
    ASSERT_EQ(c.device.take().size(), 3U);  // Held: 0, 1, 2.
    c.ring.set_avail_index(index);
    EXPECT_TRUE(c.device.take().empty()) << index;
    EXPECT_EQ(c.device.error_code(), ErrorCode::kRingCorrupt);
    EXPECT_EQ(c.device.ring.held(), 3U);
  }
}

TEST_F(VirtioSplit, SPL_14_AHeadOutsideTheTableStopsTheRing) {
  for (const std::uint16_t head : Words{8, 9, 0x7fff, 0x8000, 0xffff}) {
    Case c(guest_);
    expect_stop(c, head, ErrorCode::kRingCorrupt);
  }
}

// H18: an index out of range is an error, not an index modulo the size.
TEST_F(VirtioSplit, SPL_14_H18_ANextOutsideTheTableStopsTheRing) {
  for (const std::uint16_t next : Words{8, 9, 0x8001, 0xffff}) {
    Case c(guest_);
    c.ring.set_descriptor(0, {c.buffer, 10, kNext, next});
    c.ring.set_descriptor(1, {c.buffer, 10, 0, 0});
    expect_stop(c, 0, ErrorCode::kRingCorrupt);
  }
}

}  // namespace
}  // namespace sluice::test
