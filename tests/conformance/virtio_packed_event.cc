// The event suppression structures of packed rings by raw bytes, both sides (virtio 1.3, 2.8.14;
// PKD-16, PKD-17, EVI-08, H23).
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "support/device_end.h"
#include "support/driver_bench.h"
#include "support/fake_guest.h"
#include "support/raw_packed.h"
#include "support/ring_kinds.h"
#include "virtio/packed_device.h"

namespace sluice::test {
namespace {

using PackedDevice = virtio::PackedDeviceRing<virtio::Order::kAny>;
using Event = RawPackedRing::Event;
constexpr std::uint32_t kSize = 5;

class VirtioPackedEvent : public testing::Test {
 protected:
  struct Case {
    Case(FakeGuest& guest, bool event_idx, PackedPlace start = {})
        : ring(guest, kSize, event_idx),
          buffer(guest.allocate(64)),
          place(start),
          device(guest, start_at(ring, start)) {}
    static virtio::RingConfig start_at(const RawPackedRing& ring, PackedPlace start) {
      virtio::RingConfig config = ring.config();
      config.position = {start.encoded(), start.encoded()};
      return config;
    }
    bool use_and_ask(std::uint32_t count) {
      for (std::uint32_t i = 0; i < count; ++i) {
        ring.set_descriptor(place.slot, {buffer, 60, 0, available(place.wrap)});
        place.advance(1, kSize);
        EXPECT_TRUE(device.use());
      }
      return device.ring.should_notify();
    }
    RawPackedRing ring;
    std::uint64_t buffer;
    PackedPlace place;
    DeviceEnd<PackedDevice> device;
  };
  // Every place of two laps.
  static std::vector<PackedPlace> places() {
    std::vector<PackedPlace> all;
    PackedPlace place;
    for (std::uint32_t i = 0; i < 2 * kSize; ++i, place.advance(1, kSize)) all.push_back(place);
    return all;
  }
  FakeGuest guest_;
};

TEST_F(VirtioPackedEvent, PKD_16_EnableAndDisableDecideWithoutEventIdx) {
  Case c(guest_, false);
  EXPECT_TRUE(c.use_and_ask(1));
  c.ring.set_driver_event({0, 1});
  EXPECT_FALSE(c.use_and_ask(2));
  c.ring.set_driver_event({0, 0});
  EXPECT_TRUE(c.use_and_ask(1));
}

// Values that nobody may write here: better a notification too many than one too few (EVI-06).
TEST_F(VirtioPackedEvent, PKD_16_ReservedFlagsNotify) {
  for (const std::uint16_t flags : Words{2, 3, 4, 0xffff}) {
    Case c(guest_, false);
    c.use_and_ask(1);
    c.ring.set_driver_event({c.place.encoded(), flags});
    EXPECT_TRUE(c.use_and_ask(1)) << flags;
  }
  Case c(guest_, true);
  c.use_and_ask(1);
  c.ring.set_driver_event({0, 3});
  EXPECT_TRUE(c.use_and_ask(1));
}

// All (old, new, event, wrap) of a ring of five.
TEST_F(VirtioPackedEvent, PKD_16_TheInterruptComesExactlyWhenTheNamedPlaceIsPassed) {
  for (const PackedPlace start : places()) {
    for (std::uint32_t burst = 1; burst <= kSize; ++burst) {
      for (const PackedPlace event : places()) {
        Case c(guest_, true, start);
        c.use_and_ask(1);  // The first answer after a start may be one too many (EVI-08).
        PackedPlace walk = c.place;
        bool passed = false;
        for (std::uint32_t i = 0; i < burst; ++i, walk.advance(1, kSize)) {
          passed = passed || walk == event;
        }
        c.ring.set_driver_event({event.encoded(), 2});
        ASSERT_EQ(c.use_and_ask(burst), passed)
            << "from " << c.place.encoded() << " burst " << burst << " event " << event.encoded();
      }
    }
  }
}

// A list skips places: the event is passed when any of its slots is.
TEST_F(VirtioPackedEvent, PKD_16_AnEventInsideAListIsPassedWithIt) {
  for (std::uint32_t inside = 0; inside < 3; ++inside) {
    Case c(guest_, true, {.slot = 3, .wrap = true});
    c.use_and_ask(1);
    PackedPlace event = c.place;
    event.advance(inside, kSize);
    c.ring.set_driver_event({event.encoded(), 2});
    PackedPlace at = c.place;
    at.advance(2, kSize);
    for (int i = 2; i >= 0; --i) {
      const auto next = i < 2 ? kNext : std::uint16_t{0};
      const PackedPlace here{.slot = static_cast<std::uint32_t>((4 + i) % 5), .wrap = i == 0};
      c.ring.set_descriptor(
          here.slot, {c.buffer, 1, 0, static_cast<std::uint16_t>(available(here.wrap) | next)});
    }
    ASSERT_TRUE(c.device.use());
    EXPECT_TRUE(c.device.ring.should_notify()) << inside;
  }
}

TEST_F(VirtioPackedEvent, EVI_08_TheFirstAnswerAfterAStartIsYes) {
  for (const PackedPlace start : places()) {
    Case c(guest_, true, start);
    c.ring.set_driver_event({start.encoded(), 2});
    EXPECT_TRUE(c.use_and_ask(1));
  }
  Case c(guest_, true);
  c.ring.set_driver_event({0, 1});
  EXPECT_FALSE(c.use_and_ask(1)) << "but a driver that wants none gets none";
}

TEST_F(VirtioPackedEvent, H23_PKD_17_TheDeviceWritesItsOwnStructureOnly) {
  for (const bool event_idx : {false, true}) {
    Case c(guest_, event_idx);
    c.ring.set_driver_event({0x1234, 0});
    for (int i = 0; i < 30; ++i) {
      c.device.ring.set_kicks(true);
      const auto on = static_cast<std::uint16_t>(event_idx ? 2 : 0);
      EXPECT_EQ(c.ring.device_event().flags, on);
      if (event_idx) {
        EXPECT_EQ(c.ring.device_event().desc, c.place.encoded()) << "the next place";
      }
      c.device.ring.set_kicks(false);
      EXPECT_EQ(c.ring.device_event().flags, 1);
      c.use_and_ask(1);
    }
    EXPECT_EQ(c.ring.driver_event(), (Event{0x1234, 0}));
    EXPECT_TRUE(c.ring.canaries_intact());
  }
}

TEST(VirtioPackedEventDriver, PKD_16_TheDriverKicksExactlyWhenTheNamedPlaceIsPassed) {
  PackedPlace start;
  for (std::uint32_t s = 0; s < 2 * kSize; ++s, start.advance(1, kSize)) {
    for (std::uint32_t burst = 1; burst <= kSize - 1; ++burst) {
      PackedPlace event;
      for (std::uint32_t e = 0; e < 2 * kSize; ++e, event.advance(1, kSize)) {
        DriverBench<PackedAny> bench(kSize, true);
        for (std::uint32_t i = 0; i <= s; ++i) {
          bench.offer(60, false, i);
          bench.use(1, 0);
          bench.collect();
        }
        bench.driver.should_notify();
        PackedPlace walk = start;
        walk.advance(1, kSize);
        bool passed = false;
        for (std::uint32_t i = 0; i < burst; ++i, walk.advance(1, kSize)) {
          passed = passed || walk == event;
        }
        bench.ring.set_device_event({event.encoded(), 2});
        for (std::uint32_t i = 0; i < burst; ++i) ASSERT_TRUE(bench.offer(60, false, i));
        ASSERT_EQ(bench.driver.should_notify(), passed) << s << " " << burst << " " << e;
      }
    }
  }
}

TEST(VirtioPackedEventDriver, PKD_16_TheDriverObeysDisableAndDoubtsReservedFlags) {
  DriverBench<PackedAny> bench(kSize);
  const auto offer_and_ask = [&] {
    bench.offer(60, false, 0);
    const bool kick = bench.driver.should_notify();
    bench.use(1, 0);
    bench.collect();
    return kick;
  };
  EXPECT_TRUE(offer_and_ask());
  bench.ring.set_device_event({0, 1});
  EXPECT_FALSE(offer_and_ask());
  bench.ring.set_device_event({0, 2});
  EXPECT_TRUE(offer_and_ask()) << "DESC without EVENT_IDX";
  bench.ring.set_device_event({0, 3});
  EXPECT_TRUE(offer_and_ask());
}

TEST(VirtioPackedEventDriver, PKD_17_TheDriverWritesItsOwnStructureOnly) {
  for (const bool event_idx : {false, true}) {
    DriverBench<PackedAny> bench(kSize, event_idx);
    bench.ring.set_device_event({0x4321, 0});
    PackedPlace place;
    for (std::uint32_t i = 0; i < 30; ++i, place.advance(1, kSize)) {
      bench.driver.set_interrupts(true);
      EXPECT_EQ(bench.ring.driver_event().flags, event_idx ? 2 : 0);
      if (event_idx) {
        EXPECT_EQ(bench.ring.driver_event().desc, place.encoded());
      }
      bench.driver.set_interrupts(false);
      EXPECT_EQ(bench.ring.driver_event().flags, 1);
      bench.offer(60, true, i);
      bench.use(1, 0);
      bench.collect();
    }
    EXPECT_EQ(bench.ring.device_event(), (Event{0x4321, 0}));
    EXPECT_TRUE(bench.ring.canaries_intact());
  }
}

}  // namespace
}  // namespace sluice::test
