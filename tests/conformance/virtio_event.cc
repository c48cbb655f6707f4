// Notification suppression on split rings by raw bytes, both sides (virtio 1.3, 2.7.7, 2.7.10;
// EVI-01 to EVI-03, EVI-08, H23). The packed event structures are in virtio_packed_event.cc.
#include <gtest/gtest.h>

#include <cstdint>

#include "support/device_end.h"
#include "support/driver_bench.h"
#include "support/fake_guest.h"
#include "support/raw_split.h"
#include "support/ring_kinds.h"
#include "virtio/split_device.h"

namespace sluice::test {
namespace {

using SplitDevice = virtio::SplitDeviceRing<virtio::Order::kAny>;

class VirtioEvent : public testing::Test {
 protected:
  struct Case {
    Case(FakeGuest& guest, bool event_idx, std::uint16_t start = 0)
        : ring(guest, 8, event_idx), device(guest, start_at(ring, start)) {
      for (std::uint16_t i = 0; i < 8; ++i) ring.set_descriptor(i, {guest.allocate(16), 16});
      ring.set_avail_index(start);
    }
    static virtio::RingConfig start_at(const RawSplitRing& ring, std::uint16_t start) {
      virtio::RingConfig config = ring.config();
      config.position = {start, start};
      return config;
    }
    // Uses `count` buffers and asks once.
    bool use_and_ask(int count) {
      for (int i = 0; i < count; ++i) {
        ring.publish(static_cast<std::uint16_t>(ring.avail_index() % 8));
        EXPECT_TRUE(device.use());
      }
      return device.ring.should_notify();
    }
    RawSplitRing ring;
    DeviceEnd<SplitDevice> device;
  };
  FakeGuest guest_;
};

TEST_F(VirtioEvent, EVI_01_WithoutEventIdxAvailFlagsDecide) {
  Case c(guest_, false);
  EXPECT_TRUE(c.use_and_ask(1));
  c.ring.set_avail_flags(1);
  EXPECT_FALSE(c.use_and_ask(3));
  c.ring.set_avail_flags(0);
  EXPECT_TRUE(c.use_and_ask(1));
  c.ring.set_avail_flags(0xfffe);  // Other bits are reserved and mean nothing.
  EXPECT_TRUE(c.use_and_ask(1));
}

TEST_F(VirtioEvent, EVI_01_WithEventIdxAvailFlagsAreIgnored) {
  Case c(guest_, true);
  c.use_and_ask(1);
  c.ring.set_avail_flags(1);
  for (int round = 0; round < 20; ++round) {
    c.ring.set_used_event(c.ring.used_index());
    EXPECT_TRUE(c.use_and_ask(1));
  }
}

// EVI-03: the event is an entry's number, free-running; interrupts exactly when that one is passed.
TEST_F(VirtioEvent, EVI_03_UsedEventIsComparedAcrossTheWrapOfTheIndex) {
  for (const std::uint16_t start : Words{0, 7, 0x7ffd, 0xfffb, 0xffff}) {
    for (int burst = 1; burst <= 5; ++burst) {
      for (int event = -3; event < 8; ++event) {
        Case c(guest_, true, start);
        c.ring.set_used_event(start);
        c.use_and_ask(1);  // The first answer after a start may be one too many.
        const auto from = static_cast<std::uint16_t>(start + 1);
        c.ring.set_used_event(static_cast<std::uint16_t>(from + event));
        EXPECT_EQ(c.use_and_ask(burst), event >= 0 && event < burst)
            << "start " << start << " burst " << burst << " event " << event;
      }
    }
  }
}

// However long the driver wanted no interrupt, the one it asks for then comes: 65,536 buffers in
// between are a whole turn of the index.
TEST_F(VirtioEvent, EVI_03_AnEventAfterAWholeTurnOfSilenceIsNotMissed) {
  for (const int silent : {65534, 65535, 65536, 65537}) {
    Case c(guest_, true);
    c.use_and_ask(1);
    for (int i = 0; i < silent; ++i) {
      c.ring.set_used_event(static_cast<std::uint16_t>(c.ring.used_index() - 1));
      ASSERT_FALSE(c.use_and_ask(1)) << i;
    }
    c.ring.set_used_event(c.ring.used_index());
    EXPECT_TRUE(c.use_and_ask(1)) << silent;
  }
}

TEST_F(VirtioEvent, EVI_08_TheFirstAnswerAfterAStartIsYes) {
  for (const std::uint16_t start : Words{0, 1, 0x8000, 0xffff}) {
    Case c(guest_, true, start);
    c.ring.set_used_event(start);
    EXPECT_TRUE(c.use_and_ask(1)) << start;
  }
}

// H23: what the device writes in order to be kicked, and that it writes nothing else.
TEST_F(VirtioEvent, H23_WithoutEventIdxOnlyUsedFlagsAreWritten) {
  Case c(guest_, false);
  c.device.ring.set_kicks(false);
  EXPECT_EQ(c.ring.used_flags(), 1);
  c.device.ring.set_kicks(true);
  EXPECT_EQ(c.ring.used_flags(), 0);
  for (int i = 0; i < 100; ++i) {
    c.use_and_ask(1);
    c.device.ring.set_kicks(i % 2 == 0);
  }
  EXPECT_TRUE(c.ring.canaries_intact()) << "no event field without EVENT_IDX";
}

TEST_F(VirtioEvent, EVI_02_H23_WithEventIdxOnlyAvailEventIsWrittenAndFlagsStayZero) {
  Case c(guest_, true, 0xfffe);
  for (int i = 0; i < 20; ++i) {
    c.device.ring.set_kicks(true);
    EXPECT_EQ(c.ring.avail_event(), c.ring.avail_index()) << "asleep: the index last seen";
    EXPECT_EQ(c.ring.used_flags(), 0);
    c.device.ring.set_kicks(false);
    EXPECT_EQ(c.ring.used_flags(), 0);
    c.use_and_ask(1);
  }
  EXPECT_TRUE(c.ring.canaries_intact());
}

TEST(VirtioEventDriver, EVI_02_WithoutEventIdxTheDriverObeysUsedFlags) {
  DriverBench<SplitAny> bench(8);
  bench.offer(60, false, 1);
  EXPECT_TRUE(bench.driver.should_notify());
  bench.ring.set_used_flags(1);
  bench.offer(60, false, 2);
  EXPECT_FALSE(bench.driver.should_notify());
  bench.ring.set_used_flags(0xfffe);
  bench.offer(60, false, 3);
  EXPECT_TRUE(bench.driver.should_notify());
}

TEST(VirtioEventDriver, EVI_02_WithEventIdxTheDriverIgnoresUsedFlags) {
  DriverBench<SplitAny> bench(8, true);
  bench.ring.set_used_flags(1);
  for (std::uint32_t i = 0; i < 40; ++i) {
    bench.ring.set_avail_event(bench.ring.avail_index());
    bench.offer(60, false, i);
    EXPECT_TRUE(bench.driver.should_notify()) << i;
    bench.offer(60, false, i);
    EXPECT_FALSE(bench.driver.should_notify()) << i;
    bench.use(2, 0);
    bench.collect();
  }
}

TEST(VirtioEventDriver, EVI_01_TheDriverWritesFlagsOrUsedEventAndNothingElse) {
  DriverBench<SplitAny> plain(8, false);
  plain.driver.set_interrupts(false);
  EXPECT_EQ(plain.ring.avail_flags(), 1);
  plain.driver.set_interrupts(true);
  EXPECT_EQ(plain.ring.avail_flags(), 0);
  EXPECT_TRUE(plain.ring.canaries_intact());

  DriverBench<SplitAny> event(8, true);
  for (std::uint32_t i = 0; i < 20; ++i) {
    event.driver.set_interrupts(true);
    EXPECT_EQ(event.ring.used_event(), event.ring.used_index());
    EXPECT_EQ(event.ring.avail_flags(), 0) << "must be 0 with EVENT_IDX (2.7.7.1)";
    event.driver.set_interrupts(false);
    EXPECT_EQ(event.ring.avail_flags(), 0);
    event.offer(60, true, i);
    event.use(1, 0);
    event.collect();
  }
  EXPECT_TRUE(event.ring.canaries_intact());
}

}  // namespace
}  // namespace sluice::test
