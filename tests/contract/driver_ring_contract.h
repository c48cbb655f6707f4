// The contract of DriverRing (virtio/ring.h) for every ring: offering and collecting.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "support/driver_bench.h"
#include "support/ring_kinds.h"

namespace sluice::test {

template <class Kind>
class DriverRingContract : public testing::Test {};
TYPED_TEST_SUITE_P(DriverRingContract);

TYPED_TEST_P(DriverRingContract, ANewRingIsEmptyAndAllFree) {
  DriverBench<TypeParam> bench(8);
  EXPECT_EQ(bench.driver.free_slots(), 8U);
  EXPECT_EQ(bench.driver.outstanding(), 0U);
  EXPECT_FALSE(bench.driver.has_used());
  EXPECT_TRUE(bench.collect().empty());
  EXPECT_EQ(bench.device.take(), std::nullopt);
  EXPECT_EQ(bench.driver.error(), std::nullopt);
}

TYPED_TEST_P(DriverRingContract, TheDeviceSeesEachBufferOnceAndInOrder) {
  DriverBench<TypeParam> bench(8);
  for (std::uint32_t lap = 0; lap < 60; ++lap) {
    const std::vector<std::vector<virtio::OfferSegment>> buffers = {
        {{bench.buffer(100), 100, false}},
        {{bench.buffer(12), 12, false}, {bench.buffer(50), 50, true}},
        {{bench.buffer(1), 1, false}, {bench.buffer(2), 2, true}, {bench.buffer(3), 3, true}}};
    std::vector<virtio::Offer> offers;
    for (const auto& segments : buffers) {
      offers.push_back({segments, 100 * lap + static_cast<std::uint32_t>(offers.size())});
    }
    ASSERT_EQ(bench.driver.offer(offers), 3U);
    EXPECT_EQ(bench.driver.outstanding(), 3U);
    EXPECT_EQ(bench.driver.free_slots(), 2U);
    for (const auto& segments : buffers) {
      const auto chain = bench.device.take();
      ASSERT_TRUE(chain.has_value());
      ASSERT_EQ(chain->pieces.size(), segments.size());
      for (std::size_t i = 0; i < segments.size(); ++i) {
        EXPECT_EQ(chain->pieces[i].address, segments[i].address);
        EXPECT_EQ(chain->pieces[i].length, segments[i].length);
        EXPECT_EQ(chain->pieces[i].writable, segments[i].writable);
      }
      bench.device.give_back(*chain, 0);
    }
    EXPECT_EQ(bench.device.take(), std::nullopt);
    const auto back = bench.collect();
    ASSERT_EQ(back.size(), 3U);
    for (std::uint32_t i = 0; i < 3; ++i) EXPECT_EQ(back[i].token, 100 * lap + i);
    EXPECT_EQ(bench.driver.free_slots(), 8U);
  }
  EXPECT_FALSE(bench.device.broken());
  EXPECT_TRUE(bench.ring.canaries_intact());
}

TYPED_TEST_P(DriverRingContract, OffersAsManyAsFitAndSaysHowMany) {
  DriverBench<TypeParam> bench(8);
  std::vector<virtio::OfferSegment> three(3, {bench.buffer(10), 10, true});
  const std::vector<virtio::Offer> offers(5, {three, 1});
  EXPECT_EQ(bench.driver.offer(offers), 2U) << "3 + 3 slots of 8";
  EXPECT_EQ(bench.driver.free_slots(), 2U);
  EXPECT_FALSE(bench.offer(three, 2));
  EXPECT_TRUE(bench.offer(60, true, 3));
  EXPECT_TRUE(bench.offer(60, true, 4));
  EXPECT_FALSE(bench.offer(60, true, 5)) << "full";
  EXPECT_EQ(bench.driver.free_slots(), 0U);
  EXPECT_EQ(bench.driver.outstanding(), 4U);
  EXPECT_EQ(bench.use(10, 5), 4U);
  EXPECT_EQ(bench.collect().size(), 4U);
  EXPECT_EQ(bench.driver.free_slots(), 8U);
}

TYPED_TEST_P(DriverRingContract, PlainBuffersGoOutInBurstsAsManyAsFit) {
  DriverBench<TypeParam> bench(8);
  for (std::uint32_t lap = 0; lap < 40; ++lap) {
    const bool writable = lap % 2 == 1;
    const std::uint64_t base = bench.buffer(1000);
    const auto make = [&](std::size_t i) {
      return virtio::PlainOffer{base + 100 * i, static_cast<std::uint32_t>(60 + i),
                                static_cast<std::uint32_t>(10 * lap + i)};
    };
    const std::size_t wanted = lap % 4 == 3 ? 9 : lap % 4 + 2;
    const std::size_t offered =
        writable ? bench.driver.template offer_plain<virtio::DeviceUse::kWrites>(wanted, make)
                 : bench.driver.template offer_plain<virtio::DeviceUse::kReads>(wanted, make);
    ASSERT_EQ(offered, std::min<std::size_t>(wanted, 8));
    EXPECT_EQ(bench.driver.outstanding(), offered);
    EXPECT_EQ(bench.driver.free_slots(), 8 - offered);
    for (std::size_t i = 0; i < offered; ++i) {
      const auto chain = bench.device.take();
      ASSERT_TRUE(chain.has_value());
      ASSERT_EQ(chain->pieces.size(), 1U);
      EXPECT_EQ(chain->pieces[0].address, base + 100 * i);
      EXPECT_EQ(chain->pieces[0].length, 60 + i);
      EXPECT_EQ(chain->pieces[0].writable, writable);
      bench.device.give_back(*chain, 60);
    }
    EXPECT_EQ(bench.device.take(), std::nullopt);
    const auto back = bench.collect();
    ASSERT_EQ(back.size(), offered);
    for (std::uint32_t i = 0; i < offered; ++i) {
      EXPECT_EQ(back[i].token, 10 * lap + i);
      EXPECT_EQ(back[i].written, writable ? 60U : 0U);
    }
  }
  EXPECT_EQ(bench.driver.error(), std::nullopt);
  EXPECT_FALSE(bench.device.broken());
  EXPECT_TRUE(bench.ring.canaries_intact());
}

TYPED_TEST_P(DriverRingContract, ABufferWithoutSegmentsOrLongerThanTheRingIsNotOffered) {
  DriverBench<TypeParam> bench(4);
  EXPECT_FALSE(bench.offer(std::span<const virtio::OfferSegment>{}, 1));
  const std::vector<virtio::OfferSegment> five(5, {bench.buffer(10), 10, true});
  EXPECT_FALSE(bench.offer(five, 2));
  EXPECT_EQ(bench.device.take(), std::nullopt);
  EXPECT_TRUE(bench.offer(std::span(five).first(4), 3));
  EXPECT_EQ(bench.use(1, 10), 1U);
  EXPECT_EQ(bench.collect().at(0).token, 3U);
}

TYPED_TEST_P(DriverRingContract, CollectsNoMoreThanAskedForAndKeepsTheRest) {
  DriverBench<TypeParam> bench(16);
  for (std::uint32_t i = 0; i < 10; ++i) bench.offer(60, true, i);
  EXPECT_EQ(bench.use(10, 60), 10U);
  std::uint32_t next = 0;
  for (const std::size_t portion : {0U, 1U, 3U, 2U}) {
    const auto back = bench.collect(portion);
    ASSERT_EQ(back.size(), portion);
    for (const auto& one : back) EXPECT_EQ(one.token, next++);
    EXPECT_TRUE(bench.driver.has_used());
  }
  EXPECT_EQ(bench.driver.outstanding(), 4U);
  EXPECT_EQ(bench.collect().size(), 4U);
  EXPECT_FALSE(bench.driver.has_used());
}

// SPL-12, SPL-13: the length reported never exceeds what the device could write.
TYPED_TEST_P(DriverRingContract, SPL_12_SPL_13_WrittenIsClampedToWhatWasPostedWritable) {
  DriverBench<TypeParam> bench(8);
  struct Case {
    std::vector<virtio::OfferSegment> segments;
    std::uint32_t reported;
    std::uint32_t expected;
  };
  const std::uint64_t at = bench.buffer(1000);
  const std::vector<Case> cases = {
      {{{at, 100, true}}, 40, 40},
      {{{at, 100, true}}, 100, 100},
      {{{at, 100, true}}, 101, 100},
      {{{at, 100, true}}, 0xffff'ffff, 100},
      {{{at, 100, false}, {at, 30, true}, {at, 20, true}}, 51, 50},
      {{{at, 100, false}, {at, 30, true}}, 130, 30},
      {{{at, 100, false}}, 77, 0},
      {{{at, 100, true}}, 0, 0},
  };
  for (const Case& c : cases) {
    ASSERT_TRUE(bench.offer(c.segments, 9));
    ASSERT_EQ(bench.use(1, c.reported), 1U);
    const auto back = bench.collect();
    ASSERT_EQ(back.size(), 1U);
    EXPECT_EQ(back[0].written, c.expected) << c.reported;
    EXPECT_EQ(bench.driver.error(), std::nullopt);
  }
}

TYPED_TEST_P(DriverRingContract, KicksWhenTheDeviceWantsItAndNotElse) {
  for (const bool event_idx : {false, true}) {
    DriverBench<TypeParam> bench(8, event_idx);
    for (std::uint32_t round = 0; round < 100; ++round) {
      bench.device.want_kicks(true);
      bench.offer(60, false, round);
      EXPECT_TRUE(bench.driver.should_notify()) << event_idx << " round " << round;
      if (event_idx) {
        bench.offer(60, false, round);
        EXPECT_FALSE(bench.driver.should_notify()) << "the event was passed already";
      }
      bench.device.want_kicks(false);
      bench.offer(60, false, round);
      EXPECT_FALSE(bench.driver.should_notify()) << event_idx << " round " << round;
      bench.use(10, 0);
      bench.collect();
    }
  }
}

TYPED_TEST_P(DriverRingContract, InterruptsAreAskedForAndTurnedOff) {
  for (const bool event_idx : {false, true}) {
    DriverBench<TypeParam> bench(8, event_idx);
    bench.device.interrupt_due();
    for (std::uint32_t round = 0; round < 100; ++round) {
      bench.driver.set_interrupts(true);
      EXPECT_FALSE(bench.driver.has_used());
      bench.offer(60, true, round);
      bench.use(1, 0);
      EXPECT_TRUE(bench.device.interrupt_due()) << event_idx << " round " << round;
      EXPECT_TRUE(bench.driver.has_used());
      bench.collect();
      bench.driver.set_interrupts(false);
      bench.offer(60, true, round);
      bench.offer(60, true, round);
      bench.use(2, 0);
      EXPECT_FALSE(bench.device.interrupt_due()) << event_idx << " round " << round;
      bench.collect();
    }
    EXPECT_TRUE(bench.ring.canaries_intact());
  }
}

// PKD-20: one buffer at a time is enough for progress, whatever the size of the ring.
TYPED_TEST_P(DriverRingContract, PKD_20_OneBufferAtATimeMakesProgressOnEverySize) {
  const std::vector<std::uint32_t> packed = {1, 2, 3, 5, 255, 1025};
  const std::vector<std::uint32_t> split = {1, 2, 4, 256, 1024};
  for (const std::uint32_t size : TypeParam::kPacked ? packed : split) {
    DriverBench<TypeParam> bench(size);
    for (std::uint32_t i = 0; i < 4 * size + 3; ++i) {
      ASSERT_TRUE(bench.offer(60, true, i));
      ASSERT_EQ(bench.use(1, i % 61), 1U);
      const auto back = bench.collect();
      ASSERT_EQ(back.size(), 1U) << "size " << size;
      ASSERT_EQ(back[0].token, i);
      ASSERT_EQ(back[0].written, i % 61);
    }
  }
}

// RST-06: after a reset every outstanding buffer is the driver's again, none twice, none forgotten.
// In order they come as they were offered (DPDK's lesson of 2018: freed by the in-order method).
TYPED_TEST_P(DriverRingContract, RST_06_RecallGivesEachOutstandingBufferOnce) {
  constexpr std::uint32_t kSize = 8;
  for (std::uint32_t used = 0; used < 3 * kSize; ++used) {
    for (const std::uint32_t outstanding : {0U, 1U, kSize - 1, kSize}) {
      DriverBench<TypeParam> bench(kSize);
      std::uint32_t token = 100;
      for (std::uint32_t i = 0; i < used; ++i) {
        ASSERT_TRUE(bench.offer(60, true, token++));
        ASSERT_EQ(bench.use(1, 60), 1U);
        ASSERT_EQ(bench.collect().size(), 1U);
      }
      std::vector<std::uint32_t> expected;
      for (std::uint32_t i = 0; i < outstanding; ++i) {
        expected.push_back(token);
        ASSERT_TRUE(bench.offer(60, i % 2 == 0, token++));
      }
      // Some of them were used by the device, and one was collected: that one is not given again.
      if (bench.use(outstanding / 2, 0) != 0) {
        ASSERT_EQ(bench.collect(1).size(), 1U);
        expected.erase(expected.begin());
      }
      std::vector<std::uint32_t> back;
      bench.driver.recall([&](std::uint32_t one) { back.push_back(one); });
      if (!TypeParam::kInOrder) std::ranges::sort(back);
      EXPECT_EQ(back, expected) << used << " used before, " << outstanding << " outstanding";
      EXPECT_EQ(bench.driver.outstanding(), 0U);
      EXPECT_EQ(bench.driver.free_slots(), kSize);
      bench.driver.recall([&](std::uint32_t one) { ADD_FAILURE() << one << " came twice"; });
      EXPECT_FALSE(bench.offer(60, true, 1)) << "a ring that was reset takes nothing";
      EXPECT_TRUE(bench.collect().empty());
    }
  }
}

// A buffer of several descriptors is one buffer.
TYPED_TEST_P(DriverRingContract, RST_06_RecallKnowsBuffersOfSeveralDescriptors) {
  DriverBench<TypeParam> bench(8);
  const std::vector<virtio::OfferSegment> three(3, {bench.buffer(10), 10, true});
  ASSERT_TRUE(bench.offer(three, 7));
  ASSERT_TRUE(bench.offer(60, false, 8));
  ASSERT_TRUE(bench.offer(three, 9));
  std::vector<std::uint32_t> back;
  bench.driver.recall([&](std::uint32_t one) { back.push_back(one); });
  std::ranges::sort(back);
  EXPECT_EQ(back, (std::vector<std::uint32_t>{7, 8, 9}));
}

REGISTER_TYPED_TEST_SUITE_P(DriverRingContract, ANewRingIsEmptyAndAllFree,
                            TheDeviceSeesEachBufferOnceAndInOrder, OffersAsManyAsFitAndSaysHowMany,
                            PlainBuffersGoOutInBurstsAsManyAsFit,
                            ABufferWithoutSegmentsOrLongerThanTheRingIsNotOffered,
                            CollectsNoMoreThanAskedForAndKeepsTheRest,
                            SPL_12_SPL_13_WrittenIsClampedToWhatWasPostedWritable,
                            KicksWhenTheDeviceWantsItAndNotElse, InterruptsAreAskedForAndTurnedOff,
                            PKD_20_OneBufferAtATimeMakesProgressOnEverySize,
                            RST_06_RecallGivesEachOutstandingBufferOnce,
                            RST_06_RecallKnowsBuffersOfSeveralDescriptors);

}  // namespace sluice::test
