// Packed ring, device side, by raw bytes (virtio 1.3, 2.8; PKD-02 to PKD-12, PKD-15, PKD-19).
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <vector>

#include "support/device_end.h"
#include "support/fake_guest.h"
#include "support/raw_packed.h"
#include "virtio/packed_device.h"

namespace sluice::test {
namespace {

using PackedDevice = virtio::PackedDeviceRing<virtio::Order::kAny>;

class VirtioPacked : public testing::Test {
 protected:
  struct Case {
    explicit Case(FakeGuest& guest, std::uint32_t size = 8, PackedPlace start = {})
        : ring(guest, size),
          buffer(guest.allocate(4096)),
          place(start),
          device(guest, start_at(ring, start)) {}
    static virtio::RingConfig start_at(const RawPackedRing& ring, PackedPlace start) {
      virtio::RingConfig config = ring.config();
      config.position = {start.encoded(), start.encoded()};
      return config;
    }
    // One descriptor in the next slot, available.
    void publish(std::uint16_t id, std::uint32_t length, std::uint16_t flags = 0) {
      const auto all = static_cast<std::uint16_t>(available(place.wrap) | flags);
      ring.set_descriptor(place.slot, {buffer, length, id, all});
      place.advance(1, ring.size());
    }
    RawPackedRing ring;
    std::uint64_t buffer;
    PackedPlace place;
    DeviceEnd<PackedDevice> device;
  };

  FakeGuest guest_;
};

// PKD-02, PKD-03: three laps of every kind of size, one buffer at a time and a full ring at a time.
TEST_F(VirtioPacked, PKD_02_PKD_03_PKD_05_WrapCountersStartAtOneAndTurnWithEachLap) {
  for (const std::uint32_t size : {1U, 2U, 3U, 5U, 255U, 1025U, 32767U, 32768U}) {
    FakeGuest guest;
    Case c(guest, size);
    for (std::uint32_t lap = 0; lap < 4; ++lap) {
      const bool wrap = lap % 2 == 0;
      for (std::uint32_t slot = 0; slot < size; ++slot) {
        ASSERT_EQ(c.device.ring.position().avail, slot | (wrap ? 0x8000U : 0U));
        const auto flags = wrap ? kAvailBit : kUsedBit;
        c.ring.set_descriptor(slot, {c.buffer, 60, static_cast<std::uint16_t>(slot), flags});
        ASSERT_TRUE(c.device.use()) << "size " << size << " lap " << lap << " slot " << slot;
        const auto state = static_cast<std::uint16_t>(wrap ? kAvailBit | kUsedBit : 0);
        ASSERT_EQ(c.ring.flags(slot), state);
      }
    }
    EXPECT_TRUE(c.ring.canaries_intact());
    EXPECT_EQ(c.device.ring.error(), std::nullopt);
  }
}

// PKD-04: of the four states of the two bits exactly one is available, and it depends on the lap.
TEST_F(VirtioPacked, PKD_04_OnlyAvailEqualToTheWrapAndUsedDifferentIsAvailable) {
  for (const bool wrap : {true, false}) {
    for (const bool avail : {false, true}) {
      for (const bool used : {false, true}) {
        Case c(guest_, 4, {.slot = 2, .wrap = wrap});
        const auto flags =
            static_cast<std::uint16_t>((avail ? kAvailBit : 0) | (used ? kUsedBit : 0));
        c.ring.set_descriptor(2, {c.buffer, 60, 1, flags});
        const bool expected = avail == wrap && used != wrap;
        EXPECT_EQ(c.device.ring.has_work(), expected) << wrap << avail << used;
        EXPECT_EQ(c.device.take().size(), expected ? 1U : 0U) << wrap << avail << used;
      }
    }
  }
}

// The 32 bytes of two used descriptors after a list of two and a single one, one written to.
TEST_F(VirtioPacked, PKD_05_PKD_08_PKD_10_UsedDescriptorsAreThePictureOfTheSpecification) {
  Case c(guest_, 4);
  c.publish(0x0707, 12, kNext);
  c.publish(0x0001, 64);
  c.publish(0x0102, 1500, kWrite);
  auto chains = c.device.take();
  ASSERT_EQ(chains.size(), 2U);
  chains[1].written = 0x4c;
  const auto before = guest_.get(c.ring.ring(), 64);
  c.device.ring.give_back(chains, false);
  const auto after = guest_.get(c.ring.ring(), 64);
  // len, id, flags; the address and every other slot are as the driver left them.
  const std::array<std::uint8_t, 8> first = {0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x80, 0x80};
  const std::array<std::uint8_t, 8> third = {0x4c, 0x00, 0x00, 0x00, 0x02, 0x01, 0x82, 0x80};
  for (std::size_t i = 0; i < 64; ++i) {
    std::byte expected = before[i];
    if (i >= 8 && i < 16) expected = std::byte{first[i - 8]};
    if (i >= 40 && i < 48) expected = std::byte{third[i - 40]};
    EXPECT_EQ(after[i], expected) << "byte " << i;
  }
}

TEST_F(VirtioPacked, PKD_07_TheIdIsReadFromTheLastDescriptorOfTheList) {
  Case c(guest_);
  c.publish(100, 10, kNext);
  c.publish(200, 10, kNext);
  c.publish(300, 10);
  ASSERT_TRUE(c.device.use());
  EXPECT_EQ(c.ring.descriptor(0).id, 300);
  EXPECT_EQ(c.ring.flags(0), used_on(true));
}

TEST_F(VirtioPacked, PKD_08_H17_ListsOfEveryLengthSkipTheirSlotsAcrossTheEnd) {
  for (const std::uint32_t size : {5U, 8U, 256U}) {
    Case c(guest_, size);
    for (std::uint32_t round = 0; round < 6 * size; ++round) {
      const std::uint32_t slots = 1 + round % 5;
      const PackedPlace start = c.place;
      for (std::uint32_t i = 0; i < slots; ++i) {
        c.publish(static_cast<std::uint16_t>(round), 10 + i, i + 1 < slots ? kNext : 0);
      }
      const auto chains = c.device.take();
      ASSERT_EQ(chains.size(), 1U) << "size " << size << " round " << round;
      ASSERT_EQ(chains[0].slots, slots);
      const auto segments = c.device.segments(chains[0]);
      ASSERT_EQ(segments.size(), slots);
      for (std::uint32_t i = 0; i < slots; ++i) EXPECT_EQ(segments[i].length, 10 + i) << "PKD-09";
      c.device.ring.give_back(chains, false);
      EXPECT_EQ(c.ring.flags(start.slot), used_on(start.wrap)) << "the list's first place";
      EXPECT_EQ(c.device.ring.position().used, c.place.encoded());
    }
  }
}

TEST_F(VirtioPacked, PKD_09_PiecesOfAListAreUsedInRingOrder) {
  Case c(guest_, 4, {.slot = 3, .wrap = true});
  const std::uint64_t a = guest_.allocate(64);
  const std::uint64_t b = guest_.allocate(64);
  const std::uint64_t d = guest_.allocate(64);
  c.ring.set_descriptor(0, {b, 20, 0, static_cast<std::uint16_t>(available(false) | kNext)});
  c.ring.set_descriptor(1, {d, 30, 5, static_cast<std::uint16_t>(available(false) | kWrite)});
  c.ring.set_descriptor(3, {a, 10, 0, static_cast<std::uint16_t>(available(true) | kNext)});
  const auto chains = c.device.take();
  ASSERT_EQ(chains.size(), 1U);
  const auto segments = c.device.segments(chains[0]);
  ASSERT_EQ(segments.size(), 3U);
  EXPECT_EQ(segments[0].data, guest_.device_view(a));
  EXPECT_EQ(segments[1].data, guest_.device_view(b));
  EXPECT_EQ(segments[2].data, guest_.device_view(d));
  EXPECT_EQ(chains[0].readable_count, 2);
  EXPECT_EQ(chains[0].id, 5);
}

// PKD-10: WRITE in the used descriptor says that len means something; NEXT and INDIRECT are clear.
TEST_F(VirtioPacked, PKD_10_WriteTellsWhetherTheLengthMeansSomething) {
  Case c(guest_);
  c.publish(1, 10);
  c.publish(2, 10, kWrite);
  c.publish(3, 10, kNext);
  c.publish(3, 10, kWrite);
  auto chains = c.device.take();
  ASSERT_EQ(chains.size(), 3U);
  chains[1].written = 4;
  chains[2].written = 5;
  c.device.ring.give_back(chains, false);
  EXPECT_EQ(c.ring.flags(0), used_on(true));
  EXPECT_EQ(c.ring.flags(1), used_on(true) | kWrite);
  EXPECT_EQ(c.ring.descriptor(1).len, 4U);
  EXPECT_EQ(c.ring.flags(2), used_on(true) | kWrite);
  EXPECT_EQ(c.ring.descriptor(2).len, 5U);
}

TEST_F(VirtioPacked, PKD_19_SEC_32_EveryIdOf16BitsComesBackAsItWas) {
  Case c(guest_, 3);
  for (std::uint32_t id = 0; id < 0x10000; ++id) {
    const std::uint32_t slot = c.place.slot;
    c.publish(static_cast<std::uint16_t>(id), 10);
    ASSERT_TRUE(c.device.use());
    ASSERT_EQ(c.ring.descriptor(slot).id, id);
  }
  // Nor need ids differ.
  for (int i = 0; i < 3; ++i) c.publish(77, 10);
  EXPECT_EQ(c.device.take().size(), 3U);
}

TEST_F(VirtioPacked, PKD_15_SeveralBuffersAreVisibleToADriverThatWaitsForTheFirst) {
  // All but the first used flags are there when the first one is: see the threads in the contract
  // tests. Here: nothing is visible before give_back(), everything after it.
  Case c(guest_);
  for (std::uint16_t i = 0; i < 4; ++i) c.publish(i, 10, kWrite);
  auto chains = c.device.take();
  for (std::uint32_t i = 0; i < 4; ++i) EXPECT_EQ(c.ring.flags(i), kAvailBit | kWrite);
  c.device.ring.give_back(chains, false);
  for (std::uint32_t i = 0; i < 4; ++i) EXPECT_EQ(c.ring.flags(i), used_on(true) | kWrite);
}

// A driver that makes more available than the ring has places.
TEST_F(VirtioPacked, SEC_37_MoreDescriptorsThanTheRingHasStopTheRing) {
  Case c(guest_, 4);
  for (std::uint16_t i = 0; i < 4; ++i) c.publish(i, 10);
  ASSERT_EQ(c.device.take().size(), 4U);
  EXPECT_FALSE(c.device.ring.has_work());
  c.publish(9, 10);  // Overwrites the first one, which the device holds.
  EXPECT_TRUE(c.device.take().empty());
  EXPECT_EQ(c.device.error_code(), ErrorCode::kRingCorrupt);
}

TEST_F(VirtioPacked, SEC_31_AListLongerThanTheRingStopsTheRing) {
  for (const std::uint32_t size : {1U, 3U, 8U}) {
    Case c(guest_, size);
    for (std::uint32_t i = 0; i < size; ++i) c.publish(1, 1, kNext);
    EXPECT_TRUE(c.device.take().empty()) << size;
    EXPECT_EQ(c.device.error_code(), ErrorCode::kRingCorrupt);
  }
  // Also where part of the ring is held: the list must end before it.
  Case c(guest_, 4);
  c.publish(1, 10);
  ASSERT_EQ(c.device.take().size(), 1U);
  for (int i = 0; i < 3; ++i) c.publish(2, 10, kNext);
  EXPECT_TRUE(c.device.take().empty());
  EXPECT_EQ(c.device.error_code(), ErrorCode::kRingCorrupt);
}

TEST_F(VirtioPacked, PKD_08_AListAsLongAsTheRingIsAccepted) {
  for (const std::uint32_t size : {1U, 3U, 8U, 1024U}) {
    Case c(guest_, size);
    for (int lap = 0; lap < 4; ++lap) {
      for (std::uint32_t i = 0; i < size; ++i) c.publish(1, 1, i + 1 < size ? kNext : 0);
      const auto chains = c.device.take();
      ASSERT_EQ(chains.size(), 1U) << size;
      EXPECT_EQ(chains[0].slots, size);
      c.device.ring.give_back(chains, false);
      EXPECT_EQ(c.device.ring.position().used, c.place.encoded());
    }
  }
}

}  // namespace
}  // namespace sluice::test
