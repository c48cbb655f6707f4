// The contract of DeviceRing (virtio/ring.h) for every ring: taking, putting back, giving back.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "support/device_bench.h"
#include "support/ring_kinds.h"

namespace sluice::test {

template <class Kind>
class DeviceRingContract : public testing::Test {
 protected:
  using Bench = DeviceBench<Kind>;
};
TYPED_TEST_SUITE_P(DeviceRingContract);

TYPED_TEST_P(DeviceRingContract, AnEmptyRingYieldsNothing) {
  DeviceBench<TypeParam> bench;
  EXPECT_FALSE(bench.device.has_work());
  EXPECT_TRUE(bench.take().empty());
  EXPECT_EQ(bench.device.held(), 0U);
  EXPECT_EQ(bench.device.error(), std::nullopt);
  EXPECT_EQ(bench.device.position(), bench.driver.expected_position());
}

TYPED_TEST_P(DeviceRingContract, TakesWhatWasPostedInOrderAndOnlyOnce) {
  DeviceBench<TypeParam> bench({.size = 8});
  std::vector<std::uint16_t> ids;
  for (std::uint32_t i = 0; i < 5; ++i) ids.push_back(*bench.post(100 + i));
  EXPECT_TRUE(bench.device.has_work());
  const auto chains = bench.take();
  ASSERT_EQ(chains.size(), 5U);
  for (std::uint32_t i = 0; i < 5; ++i) {
    EXPECT_EQ(chains[i].id, ids[i]);
    EXPECT_EQ(chains[i].segment_count, 1);
    EXPECT_EQ(chains[i].readable_count, 1);
    EXPECT_EQ(chains[i].length, 100 + i);
    EXPECT_EQ(chains[i].slots, 1);
    EXPECT_EQ(chains[i].written, 0U);
  }
  EXPECT_FALSE(bench.device.has_work());
  EXPECT_TRUE(bench.take().empty());
  EXPECT_EQ(bench.device.held(), 5U);
}

TYPED_TEST_P(DeviceRingContract, TakesNoMoreThanAskedForAndLeavesTheRest) {
  DeviceBench<TypeParam> bench({.size = 128});
  for (int i = 0; i < 100; ++i) bench.post(60);
  EXPECT_EQ(bench.take(0).size(), 0U);
  EXPECT_EQ(bench.take(1).size(), 1U);
  EXPECT_EQ(bench.take(7).size(), 7U);
  EXPECT_TRUE(bench.device.has_work());
  EXPECT_EQ(bench.take().size(), virtio::kTakeMax);
  EXPECT_EQ(bench.take().size(), 100 - 8 - virtio::kTakeMax);
  EXPECT_FALSE(bench.device.has_work());
}

TYPED_TEST_P(DeviceRingContract, AskedForMoreThanTakeMaxItStopsThere) {
  DeviceBench<TypeParam> bench({.size = 128});
  for (int i = 0; i < 100; ++i) bench.post(60);
  EXPECT_EQ(bench.take(100).size(), virtio::kTakeMax);
}

TYPED_TEST_P(DeviceRingContract, WhatIsPutBackIsTakenAgainAsIfNeverTaken) {
  DeviceBench<TypeParam> bench({.size = 8});
  for (std::uint32_t lap = 0; lap < 40; ++lap) {
    const std::vector<Piece> pieces = {{bench.buffer(20), 20}, {bench.buffer(30), 30}};
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(bench.driver.post(pieces).has_value());
    const auto before = bench.device.position();
    const auto first = bench.take();
    ASSERT_EQ(first.size(), 3U);
    bench.device.untake(first);
    EXPECT_EQ(bench.device.position(), before);
    EXPECT_EQ(bench.device.held(), 0U);
    EXPECT_TRUE(bench.device.has_work());
    const auto second = bench.take();
    ASSERT_EQ(second.size(), 3U);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(second[i].id, first[i].id);
    // Only the tail back; the head is given back, and the tail once more.
    bench.device.untake(std::span(second).subspan(1));
    EXPECT_EQ(bench.device.held(), 1U);
    bench.give_back(std::span(second).first(1));
    EXPECT_EQ(bench.device.held(), 0U);
    const auto third = bench.take();
    ASSERT_EQ(third.size(), 2U);
    EXPECT_EQ(third[0].id, second[1].id);
    bench.give_back(third);
    EXPECT_EQ(bench.driver.reap().size(), 3U);
    EXPECT_EQ(bench.device.position(), bench.driver.expected_position()) << "lap " << lap;
  }
  EXPECT_EQ(bench.driver.complaint(), "");
}

TYPED_TEST_P(DeviceRingContract, GivingBackInPortionsReturnsEachBufferWithItsLength) {
  DeviceBench<TypeParam> bench({.size = 16});
  for (std::uint32_t lap = 0; lap < 50; ++lap) {
    std::vector<std::uint16_t> ids;
    for (int i = 0; i < 11; ++i) ids.push_back(*bench.post(500, true));
    auto chains = bench.take();
    ASSERT_EQ(chains.size(), ids.size());
    for (std::uint32_t i = 0; i < chains.size(); ++i) chains[i].written = 100 * lap + i;
    bench.give_back(std::span(chains).first(4));
    EXPECT_EQ(bench.device.held(), 7U);
    auto back = bench.driver.reap();
    EXPECT_EQ(back.size(), 4U);
    bench.give_back(std::span(chains).subspan(4));
    EXPECT_EQ(bench.device.held(), 0U);
    for (const Returned& one : bench.driver.reap()) back.push_back(one);
    ASSERT_EQ(back.size(), ids.size());
    for (std::uint32_t i = 0; i < back.size(); ++i) {
      EXPECT_EQ(back[i].id, ids[i]);
      EXPECT_EQ(back[i].length, 100 * lap + i);
    }
  }
  EXPECT_EQ(bench.driver.complaint(), "");
  EXPECT_TRUE(bench.driver.canaries_intact());
}

TYPED_TEST_P(DeviceRingContract, GivingBackNothingChangesNothing) {
  DeviceBench<TypeParam> bench;
  bench.post(60);
  const auto chains = bench.take();
  const auto before = bench.device.position();
  bench.give_back({});
  bench.give_back({}, true);
  EXPECT_EQ(bench.device.position(), before);
  EXPECT_TRUE(bench.driver.reap().empty());
  EXPECT_EQ(bench.device.held(), chains.size());
}

TYPED_TEST_P(DeviceRingContract, SegmentsAreTheBuffersOfTheChainInOrder) {
  DeviceBench<TypeParam> bench({.size = 8});
  const std::vector<Piece> pieces = {{bench.buffer(10), 10},
                                     {bench.buffer(0), 0},
                                     {bench.buffer(2000), 2000},
                                     {bench.buffer(7), 7, true},
                                     {bench.buffer(900), 900, true}};
  for (const Shape shape : {Shape::kChained, Shape::kTable}) {
    ASSERT_TRUE(bench.driver.post(pieces, shape).has_value());
    auto chains = bench.take();
    ASSERT_EQ(chains.size(), 1U);
    const auto segments = bench.segments(chains[0]);
    ASSERT_EQ(segments.size(), 4U) << "the empty piece is left out";
    EXPECT_EQ(chains[0].readable_count, 2);
    const ReferenceChain whole{.pieces = pieces};
    EXPECT_TRUE(same_segments(segments, expected_segments(bench.guest, whole)));
    EXPECT_EQ(chains[0].data, segments[0].data);
    EXPECT_EQ(chains[0].length, segments[0].length);
    bench.give_back(chains);
    EXPECT_EQ(bench.driver.reap().size(), 1U);
  }
}

TYPED_TEST_P(DeviceRingContract, ABufferOverTwoAdjacentRegionsBecomesTwoSegments) {
  constexpr std::uint64_t kHalf = 1U << 20;
  FakeGuest guest{{FakeGuest::kBase, kHalf}, {FakeGuest::kBase + kHalf, kHalf}};
  typename TypeParam::RawDriver driver(guest, {.size = 8, .in_order = TypeParam::kInOrder});
  typename TypeParam::Device device(driver.config());
  virtio::SegmentArena arena;
  arena.clear();
  driver.post({.address = FakeGuest::kBase + kHalf - 100, .length = 300});
  std::vector<virtio::Chain> chains(4);
  ASSERT_EQ(device.take(guest.memory(), chains, arena), 1U);
  const auto segments = segments_of(chains[0], arena);
  ASSERT_EQ(segments.size(), 2U);
  EXPECT_EQ(segments[0].data, guest.device_view(FakeGuest::kBase + kHalf - 100));
  EXPECT_EQ(segments[0].length, 100U);
  EXPECT_EQ(segments[1].data, guest.device_view(FakeGuest::kBase + kHalf));
  EXPECT_EQ(segments[1].length, 200U);
  EXPECT_EQ(chains[0].readable_count, 2);
}

TYPED_TEST_P(DeviceRingContract, AChainOfEmptyBuffersHasNoSegments) {
  DeviceBench<TypeParam> bench;
  const std::vector<Piece> pieces = {{bench.buffer(1), 0}, {bench.buffer(1), 0, true}};
  bench.driver.post(pieces);
  bench.driver.post({.address = bench.buffer(1), .length = 0});
  const auto chains = bench.take();
  ASSERT_EQ(chains.size(), 2U);
  for (const virtio::Chain& chain : chains) {
    EXPECT_EQ(chain.segment_count, 0);
    EXPECT_EQ(chain.readable_count, 0);
    EXPECT_EQ(chain.length, 0U);
    EXPECT_EQ(chain.written, 0U);
  }
  bench.give_back(chains);
  const auto back = bench.driver.reap();
  ASSERT_EQ(back.size(), 2U);
  EXPECT_EQ(back[0].length, 0U);
}

TYPED_TEST_P(DeviceRingContract, AFullArenaYieldsFewerChainsAndTheRestLater) {
  constexpr std::uint32_t kChains = 64;
  DeviceBench<TypeParam> bench({.size = kChains});
  std::vector<Piece> pieces;
  for (int i = 0; i < 60; ++i) pieces.push_back({bench.buffer(1), 1});
  for (std::uint32_t i = 0; i < kChains; ++i) {
    ASSERT_TRUE(bench.driver.post(pieces, Shape::kTable).has_value());
  }
  std::size_t total = 0;
  for (int round = 0; round < 4 && total < kChains; ++round) {
    const auto chains = bench.take();
    ASSERT_FALSE(chains.empty());
    ASSERT_LE(chains.size() * pieces.size(), virtio::SegmentArena::kSize);
    for (const virtio::Chain& chain : chains) EXPECT_EQ(bench.segments(chain).size(), 60U);
    if (round == 0) {
      EXPECT_LT(chains.size(), kChains);
      EXPECT_TRUE(bench.device.has_work());
    }
    total += chains.size();
    bench.give_back(chains);
  }
  EXPECT_EQ(total, kChains);
  EXPECT_EQ(bench.driver.reap().size(), kChains);
  EXPECT_EQ(bench.device.error(), std::nullopt);
}

TYPED_TEST_P(DeviceRingContract, ARingGoesOnFromThePositionOfAnother) {
  DeviceBench<TypeParam> bench({.size = 8});
  for (int round = 0; round < 50; ++round) {
    for (int i = 0; i < 3; ++i) bench.post(60);
    // Stopped with nothing held, as the vhost-user back-end stops it.
    auto chains = bench.take(2);
    bench.give_back(chains);
    virtio::RingConfig config = bench.driver.config();
    config.position = {bench.device.position().avail, bench.device.position().used};
    bench.device = typename TypeParam::Device(config);
    EXPECT_TRUE(bench.device.has_work());
    EXPECT_EQ(bench.pass(), 1U);
    EXPECT_EQ(bench.driver.reap().size(), 3U);
    EXPECT_EQ(bench.device.position(), bench.driver.expected_position());
  }
  EXPECT_EQ(bench.driver.complaint(), "");
}

TYPED_TEST_P(DeviceRingContract, ABrokenChainStopsTheRingBehindTheGoodOnes) {
  DeviceBench<TypeParam> bench({.size = 8});
  bench.post(60);
  bench.post(70);
  bench.driver.post({.address = 0x1000, .length = 64});  // Nothing is there.
  bench.post(80);
  const auto chains = bench.take();
  ASSERT_EQ(chains.size(), 2U);
  EXPECT_EQ(chains[1].length, 70U);
  ASSERT_TRUE(bench.device.error().has_value());
  EXPECT_EQ(bench.device.error()->code, ErrorCode::kBadAddress);
  EXPECT_NE(bench.device.error()->text, nullptr);
  EXPECT_FALSE(bench.device.has_work()) << "a broken ring has no work";
  EXPECT_TRUE(bench.take().empty());
  EXPECT_EQ(bench.device.held(), 2U);
  // What was good can still be given back; nothing more is ever taken.
  bench.give_back(chains);
  EXPECT_EQ(bench.driver.reap().size(), 2U);
  bench.post(90);
  EXPECT_TRUE(bench.take().empty());
  EXPECT_EQ(bench.driver.outstanding(), 3U);
}

// REGISTER_TYPED_TEST_SUITE_P checks that no test is missing here.
REGISTER_TYPED_TEST_SUITE_P(
    DeviceRingContract, AnEmptyRingYieldsNothing, TakesWhatWasPostedInOrderAndOnlyOnce,
    TakesNoMoreThanAskedForAndLeavesTheRest, AskedForMoreThanTakeMaxItStopsThere,
    WhatIsPutBackIsTakenAgainAsIfNeverTaken, GivingBackInPortionsReturnsEachBufferWithItsLength,
    GivingBackNothingChangesNothing, SegmentsAreTheBuffersOfTheChainInOrder,
    ABufferOverTwoAdjacentRegionsBecomesTwoSegments, AChainOfEmptyBuffersHasNoSegments,
    AFullArenaYieldsFewerChainsAndTheRestLater, ARingGoesOnFromThePositionOfAnother,
    ABrokenChainStopsTheRingBehindTheGoodOnes);

}  // namespace sluice::test
