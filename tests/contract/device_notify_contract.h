// The contract of DeviceRing about notifications: should_notify() and set_kicks().
#pragma once

#include <gtest/gtest.h>

#include <cstdint>

#include "support/device_bench.h"
#include "support/ring_kinds.h"

namespace sluice::test {

template <class Kind>
class DeviceNotifyContract : public testing::Test {
 protected:
  // Passes `count` buffers and says whether the driver must be interrupted.
  static bool pass_and_ask(DeviceBench<Kind>& bench, int count) {
    for (int i = 0; i < count; ++i) bench.post(60);
    bench.pass();
    const bool interrupt = bench.device.should_notify();
    bench.driver.reap();
    return interrupt;
  }
};
TYPED_TEST_SUITE_P(DeviceNotifyContract);

TYPED_TEST_P(DeviceNotifyContract, InterruptsUnlessTheDriverSaidNo) {
  DeviceBench<TypeParam> bench;
  EXPECT_TRUE(this->pass_and_ask(bench, 1));
  EXPECT_TRUE(this->pass_and_ask(bench, 3));
  bench.driver.want_interrupts(false);
  EXPECT_FALSE(this->pass_and_ask(bench, 1));
  EXPECT_FALSE(this->pass_and_ask(bench, 2));
  bench.driver.want_interrupts(true);
  EXPECT_TRUE(this->pass_and_ask(bench, 1));
}

TYPED_TEST_P(DeviceNotifyContract, EVI_03_InterruptsExactlyWhenTheEventIsPassed) {
  DeviceBench<TypeParam> bench({.size = 16, .event_idx = true});
  this->pass_and_ask(bench, 1);  // The first question after a start may say yes for safety.
  for (int round = 0; round < 300; ++round) {
    bench.driver.want_interrupt_after(3);  // When the fourth from here has come back.
    EXPECT_FALSE(this->pass_and_ask(bench, 3)) << "round " << round;
    bench.driver.want_interrupt_after(0);
    EXPECT_TRUE(this->pass_and_ask(bench, 1)) << "round " << round;
    bench.driver.want_interrupt_after(2);
    EXPECT_TRUE(this->pass_and_ask(bench, 5)) << "round " << round;
    EXPECT_FALSE(this->pass_and_ask(bench, 5)) << "passed once is passed; round " << round;
  }
}

// EVI-08: the state behind the answer is new after a restart, so the first interrupt is not lost.
TYPED_TEST_P(DeviceNotifyContract, EVI_08_TheFirstInterruptAfterARestartIsNotLost) {
  DeviceBench<TypeParam> bench({.size = 8, .event_idx = true});
  for (int round = 0; round < 40; ++round) {
    bench.driver.want_interrupt_after(0);
    EXPECT_TRUE(this->pass_and_ask(bench, 1)) << "round " << round;
    virtio::RingConfig config = bench.driver.config();
    config.position = bench.device.position();
    bench.device = typename TypeParam::Device(config);
  }
}

TYPED_TEST_P(DeviceNotifyContract, KicksAreAskedForAndTurnedOff) {
  DeviceBench<TypeParam> bench({.size = 8});
  bench.device.set_kicks(true);
  bench.post(60);
  EXPECT_TRUE(bench.driver.kick_due());
  bench.device.set_kicks(false);
  bench.post(60);
  EXPECT_FALSE(bench.driver.kick_due());
  bench.device.set_kicks(true);
  bench.pass();
  bench.driver.reap();
  bench.post(60);
  EXPECT_TRUE(bench.driver.kick_due());
}

// H23: with EVENT_IDX, each post in the idle state brings a kick, for longer than an index lasts.
TYPED_TEST_P(DeviceNotifyContract, H23_EveryPostToASleepingDeviceBringsAKick) {
  DeviceBench<TypeParam> bench({.size = 8, .event_idx = true});
  const int rounds = 70000;
  for (int round = 0; round < rounds; ++round) {
    bench.device.set_kicks(true);
    ASSERT_FALSE(bench.device.has_work());
    ASSERT_TRUE(bench.post(60).has_value());
    ASSERT_TRUE(bench.driver.kick_due()) << "round " << round;
    ASSERT_EQ(bench.pass(), 1U);
    ASSERT_EQ(bench.driver.reap().size(), 1U);
  }
}

TYPED_TEST_P(DeviceNotifyContract, H23_WithKicksOffOnePostInALapBringsAtMostOneKick) {
  DeviceBench<TypeParam> bench({.size = 8, .event_idx = true});
  bench.device.set_kicks(true);
  bench.device.set_kicks(false);
  int kicks = 0;
  for (int round = 0; round < 20000; ++round) {
    bench.post(60);
    kicks += bench.driver.kick_due() ? 1 : 0;
    bench.pass();
    bench.driver.reap();
  }
  EXPECT_LE(kicks, 1);
}

// EVI-05: a post between "arm" and "sleep" brings no kick, so the second look must see it.
TYPED_TEST_P(DeviceNotifyContract, EVI_05_H21_ASecondLookSeesWhatCameBeforeTheArming) {
  for (const bool event_idx : {false, true}) {
    DeviceBench<TypeParam> bench({.size = 8, .event_idx = event_idx});
    for (int round = 0; round < 100; ++round) {
      bench.device.set_kicks(false);
      ASSERT_TRUE(bench.take().empty());
      bench.post(60);
      const bool kicked = bench.driver.kick_due();
      bench.device.set_kicks(true);
      EXPECT_TRUE(kicked || bench.device.has_work());
      EXPECT_TRUE(bench.device.has_work());
      bench.pass();
      bench.driver.reap();
    }
  }
}

// H22: the device took fewer buffers than it needs and puts them back. Whenever it then sleeps
// (armed, and no work seen), the next post must wake it.
TYPED_TEST_P(DeviceNotifyContract, H22_AnArmedRingWithBuffersPutBackIsNeverForgotten) {
  for (const bool event_idx : {false, true}) {
    DeviceBench<TypeParam> bench({.size = 16, .event_idx = event_idx});
    for (int round = 0; round < 100; ++round) {
      for (int posted = 0; posted < 4; ++posted) {
        bench.device.set_kicks(true);
        const bool sleeps = !bench.device.has_work();
        bench.post(60, true);
        EXPECT_TRUE(!sleeps || bench.driver.kick_due()) << "round " << round << " " << posted;
        const auto few = bench.take();
        EXPECT_EQ(few.size(), static_cast<std::size_t>(posted) + 1);
        bench.device.untake(few);
      }
      EXPECT_EQ(bench.pass(), 4U);
      bench.driver.reap();
      bench.driver.kick_due();
    }
  }
}

// EVI-06, EVI-07: notifications are hints. Taking on every one of a storm of them is harmless.
TYPED_TEST_P(DeviceNotifyContract, EVI_06_EVI_07_SpuriousNotificationsAreHarmless) {
  DeviceBench<TypeParam> bench({.size = 8, .event_idx = true});
  for (int i = 0; i < 1000; ++i) {
    EXPECT_TRUE(bench.take().empty());
    bench.device.should_notify();
    bench.device.set_kicks(i % 2 == 0);
  }
  bench.post(60);
  EXPECT_EQ(bench.pass(), 1U);
  EXPECT_EQ(bench.driver.reap().size(), 1U);
  EXPECT_EQ(bench.device.error(), std::nullopt);
  EXPECT_TRUE(bench.driver.canaries_intact());
}

REGISTER_TYPED_TEST_SUITE_P(DeviceNotifyContract, InterruptsUnlessTheDriverSaidNo,
                            EVI_03_InterruptsExactlyWhenTheEventIsPassed,
                            EVI_08_TheFirstInterruptAfterARestartIsNotLost,
                            KicksAreAskedForAndTurnedOff, H23_EveryPostToASleepingDeviceBringsAKick,
                            H23_WithKicksOffOnePostInALapBringsAtMostOneKick,
                            EVI_05_H21_ASecondLookSeesWhatCameBeforeTheArming,
                            H22_AnArmedRingWithBuffersPutBackIsNeverForgotten,
                            EVI_06_EVI_07_SpuriousNotificationsAreHarmless);

}  // namespace sluice::test
