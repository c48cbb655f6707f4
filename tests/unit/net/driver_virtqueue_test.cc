// DriverVirtqueue on all four rings, with and without indirect tables: what the device sees, what
// comes back, what is refused.
#include "net/driver_virtqueue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "support/fake_guest.h"
#include "support/virtqueue_bench.h"

namespace sluice::net {
namespace {

using memory::GuestAddress;
using test::pattern;
using test::QueueKind;
using test::VirtqueueBench;
using Bytes = std::span<std::byte>;
using ConstBytes = std::span<const std::byte>;

class DriverVirtqueueTest : public ::testing::TestWithParam<QueueKind> {
 protected:
  static ErrorCode code(const Status& status) {
    EXPECT_FALSE(status.has_value());
    return status ? ErrorCode::kParse : status.error().code;
  }
  static void fill(Bytes bytes, std::uint32_t seed) {
    std::ranges::copy(pattern(bytes.size(), seed), bytes.begin());
  }
  static std::vector<std::byte> joined(std::initializer_list<ConstBytes> parts) {
    std::vector<std::byte> all;
    for (const ConstBytes part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
  }
};
INSTANTIATE_TEST_SUITE_P(Rings, DriverVirtqueueTest, ::testing::ValuesIn(QueueKind::all()),
                         [](const auto& kind) { return kind.param.name(); });

TEST_P(DriverVirtqueueTest, TheDeviceReadsPremappedOrdinaryAndOwnBuffersInOneRing) {
  VirtqueueBench bench(GetParam(), 16);
  fill(bench.umem, 1);
  fill(bench.heap, 2);
  fill(bench.start().buffers, 3);
  const Bytes heap = bench.heap;
  const std::array premapped = {bench.in_umem(0, 12), bench.in_umem(5000, 700)};
  ASSERT_TRUE(bench.queue.add_outbuf_premapped(~0ULL, premapped));
  const std::array<ConstBytes, 2> ordinary = {heap.subspan(100, 12), bench.umem.subspan(9000, 60)};
  ASSERT_TRUE(bench.queue.add_outbuf(1, ordinary));
  const std::array<ConstBytes, 1> own = {bench.start().buffers.subspan(64, 72)};
  ASSERT_TRUE(bench.queue.add_outbuf(2, own));
  const std::array own_premapped = {
      DmaSegment{GuestAddress(bench.start().buffers_guest_address + 128), 10}, bench.in_heap(7, 9)};
  ASSERT_TRUE(bench.queue.memory().sync_for_device(own_premapped[1].address, 9));
  ASSERT_TRUE(bench.queue.add_outbuf_premapped(3, own_premapped));
  EXPECT_EQ(bench.queue.outstanding(), 4U);
  EXPECT_EQ(bench.queue.free_slots(), GetParam().indirect ? 12U : 9U);
  ASSERT_EQ(bench.take(), 4U);
  EXPECT_EQ(bench.held[0].read(), joined({bench.umem.first(12), bench.umem.subspan(5000, 700)}));
  EXPECT_EQ(bench.held[1].read(), joined({ordinary[0], ordinary[1]}));
  EXPECT_EQ(bench.held[2].read(), joined({own[0]}));
  EXPECT_EQ(bench.held[3].read(),
            joined({bench.start().buffers.subspan(128, 10), heap.subspan(7, 9)}));
  bench.give_back(4);
  const auto back = bench.collect();
  ASSERT_EQ(back.size(), 4U);
  EXPECT_EQ(back[0].token, ~0ULL);
  for (std::uint64_t i = 1; i < 4; ++i) EXPECT_EQ(back[i].token, i);
  for (const ReturnedBuffer& one : back) EXPECT_EQ(one.written, 0U);
  EXPECT_EQ(bench.queue.free_slots(), 16U);
  EXPECT_FALSE(bench.device_error() || bench.queue.error());
}

TEST_P(DriverVirtqueueTest, WhatTheDeviceWritesIsSeenWithAndWithoutBounceArea) {
  VirtqueueBench bench(GetParam(), 8);
  const std::array premapped = {bench.in_umem(100, 50), bench.in_umem(4000, 50)};
  ASSERT_TRUE(bench.queue.add_inbuf_premapped(10, premapped));
  const std::array<Bytes, 1> ordinary = {Bytes(bench.heap).subspan(50, 200)};
  ASSERT_TRUE(bench.queue.add_inbuf(11, ordinary));
  const std::array bounced = {bench.in_heap(1000, 80), bench.in_heap(3000, 80)};
  ASSERT_TRUE(bench.queue.add_inbuf_premapped(12, bounced));
  ASSERT_EQ(bench.take(), 3U);
  const auto data = pattern(120, 5);
  bench.held[0].write(std::span(data).first(70));
  bench.held[1].write(data);
  bench.held[2].write(data);
  bench.give_back(3);
  const auto back = bench.collect();
  ASSERT_EQ(back.size(), 3U);
  EXPECT_EQ(back[0].written, 70U);
  EXPECT_EQ(back[1].written, 120U);
  EXPECT_TRUE(std::ranges::equal(bench.umem.subspan(100, 50), std::span(data).first(50)));
  EXPECT_TRUE(std::ranges::equal(bench.umem.subspan(4000, 20), std::span(data).subspan(50, 20)));
  EXPECT_TRUE(std::ranges::equal(Bytes(bench.heap).subspan(50, 120), data));
  EXPECT_EQ(bench.heap[170], std::byte{0}) << "what was not written was not copied";
  EXPECT_EQ(bench.heap[1000], std::byte{0}) << "premapped: the owner says when";
  ASSERT_TRUE(bench.queue.memory().needs_sync(bounced[0].address));
  ASSERT_FALSE(bench.queue.memory().needs_sync(premapped[0].address));
  ASSERT_TRUE(bench.queue.memory().sync_for_cpu(bounced[0].address, 80));
  ASSERT_TRUE(bench.queue.memory().sync_for_cpu(bounced[1].address, 40));
  EXPECT_TRUE(std::ranges::equal(Bytes(bench.heap).subspan(1000, 80), std::span(data).first(80)));
  EXPECT_TRUE(std::ranges::equal(Bytes(bench.heap).subspan(3000, 40), std::span(data).subspan(80)));
}

TEST_P(DriverVirtqueueTest, SeveralSegmentsTakeOneSlotWithTablesAndOneEachWithout) {
  for (const bool wanted : {false, true}) {
    VirtqueueBench bench(GetParam(), 64, {.indirect = wanted});
    const std::vector segments(21, bench.in_umem(0, 10));
    const bool tables = wanted && GetParam().indirect;
    std::size_t free = 64;
    for (const std::size_t count : {1U, 2U, 20U, 21U}) {
      ASSERT_TRUE(bench.queue.add_outbuf_premapped(count, std::span(segments).first(count)));
      free -= tables && count <= 20 ? 1 : count;
      EXPECT_EQ(bench.queue.free_slots(), free);
    }
    ASSERT_EQ(bench.take(), 4U);
    EXPECT_EQ(bench.held[3].segments.size(), 21U);
    bench.give_back(4);
    EXPECT_EQ(bench.collect().size(), 4U);
    EXPECT_EQ(bench.queue.free_slots(), 64U);
  }
}

TEST_P(DriverVirtqueueTest, BuffersOutsideEveryMappingAreRefusedAndTheRingGoesOn) {
  VirtqueueBench bench(GetParam(), 8);
  std::vector<std::byte> foreign(100);
  const std::uint64_t end = VirtqueueBench::kUmemSize;
  const GuestAddress top(std::numeric_limits<std::uint64_t>::max());
  for (const DmaSegment& bad :
       {bench.in_umem(end, 1), bench.in_umem(end - 10, 11), bench.in_umem(0, 0xffff'ffff),
        bench.in_umem(-1ULL, 1), DmaSegment{GuestAddress(0), 1}, DmaSegment{top, 1},
        DmaSegment{top, 0xffff'ffff},
        DmaSegment{GuestAddress(DriverMemory::kGuestBase), 64} /* the ring itself */}) {
    EXPECT_EQ(code(bench.queue.add_outbuf_premapped(1, std::span(&bad, 1))),
              ErrorCode::kBadAddress);
    const std::array second = {bench.in_umem(0, 10), bad};
    EXPECT_EQ(code(bench.queue.add_inbuf_premapped(1, second)), ErrorCode::kBadAddress);
  }
  // One that nobody mapped, and one that reaches a byte beyond.
  for (const Bytes bad : {Bytes(foreign), Bytes(bench.umem.data() + end - 5, 6)}) {
    const std::array<ConstBytes, 1> out = {bad};
    EXPECT_EQ(code(bench.queue.add_outbuf(1, out)), ErrorCode::kBadAddress);
    const std::array<Bytes, 1> in = {bad};
    EXPECT_EQ(code(bench.queue.add_inbuf(1, in)), ErrorCode::kBadAddress);
  }
  EXPECT_EQ(bench.queue.outstanding(), 0U);
  EXPECT_EQ(bench.queue.free_slots(), 8U);
  EXPECT_EQ(bench.take(), 0U);
  const auto good = bench.in_umem(end - 10, 10);
  EXPECT_TRUE(bench.queue.add_outbuf_premapped(2, std::span(&good, 1)));
  EXPECT_EQ(bench.take(), 1U);
}

TEST_P(DriverVirtqueueTest, EmptyHugeAndTooLongBuffersAreRefused) {
  VirtqueueBench bench(GetParam(), 8);
  EXPECT_EQ(code(bench.queue.add_outbuf_premapped(1, {})), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(bench.queue.add_inbuf(1, {})), ErrorCode::kInvalidArgument);
  const std::array empty = {bench.in_umem(0, 10), bench.in_umem(10, 0)};
  EXPECT_EQ(code(bench.queue.add_outbuf_premapped(1, empty)), ErrorCode::kInvalidArgument);
  const std::array<ConstBytes, 1> none = {ConstBytes(bench.umem).first(0)};
  EXPECT_EQ(code(bench.queue.add_outbuf(1, none)), ErrorCode::kInvalidArgument);
  const std::vector nine(9, bench.in_umem(0, 10));
  EXPECT_EQ(code(bench.queue.add_outbuf_premapped(1, nine)), ErrorCode::kOutOfRange);
  const std::array<Bytes, 2> bounced = {Bytes(bench.heap).first(10), Bytes(bench.heap).last(10)};
  EXPECT_EQ(code(bench.queue.add_inbuf(1, bounced)), ErrorCode::kUnsupported);
  EXPECT_EQ(bench.queue.free_slots(), 8U);
  EXPECT_EQ(bench.take(), 0U);
}

TEST_P(DriverVirtqueueTest, ABufferOfFourGibibytesIsRefused) {
  constexpr std::uint64_t kLarge = 64U << 20;
  auto file = memory::Mapping::create_shared("large", kLarge);
  ASSERT_TRUE(file.has_value());
  VirtqueueBench bench(GetParam(), 128);
  const auto mapping = bench.map->map_shared(file->mapping.bytes(), file->fd.get(), 0);
  ASSERT_TRUE(mapping.has_value());
  std::vector<DmaSegment> all(64, {mapping->device, std::uint32_t{kLarge}});
  EXPECT_EQ(code(bench.queue.add_outbuf_premapped(1, all)), ErrorCode::kInvalidArgument);
  all.back().length -= 1;
  EXPECT_TRUE(bench.queue.add_outbuf_premapped(1, all));
}

TEST_P(DriverVirtqueueTest, AFullRingSaysSoAndTakesMoreWhenBuffersCameBack) {
  VirtqueueBench bench(GetParam(), 4);
  const std::array one = {bench.in_umem(0, 60)};
  const std::array two = {bench.in_umem(0, 60), bench.in_umem(100, 60)};
  const int fit = GetParam().indirect ? 4 : 2;
  for (int i = 0; i < fit; ++i) ASSERT_TRUE(bench.queue.add_outbuf_premapped(1, two));
  EXPECT_EQ(code(bench.queue.add_outbuf_premapped(2, one)), ErrorCode::kWrongState);
  EXPECT_EQ(code(bench.queue.add_outbuf_premapped(2, two)), ErrorCode::kWrongState);
  bench.take();
  bench.give_back(1);
  EXPECT_EQ(code(bench.queue.add_outbuf_premapped(2, two)), ErrorCode::kWrongState);
  EXPECT_EQ(bench.collect().size(), 1U);
  EXPECT_TRUE(bench.queue.add_outbuf_premapped(2, two));
}

TEST_P(DriverVirtqueueTest, ABurstStopsBeforeTheFirstBufferThatCannotBeAdded) {
  VirtqueueBench bench(GetParam(), 256);
  std::vector<DmaSegment> segments;
  for (std::uint32_t i = 0; i < 200; ++i) segments.push_back(bench.in_umem(100 * i, 60));
  std::vector<PremappedBuffer> burst;
  for (std::size_t i = 0; i < 200; ++i) burst.push_back({i, std::span(segments).subspan(i, 1)});
  const DmaSegment bad = {GuestAddress(1), 60};
  burst[150].segments = std::span(&bad, 1);
  EXPECT_EQ(bench.queue.add_inbufs_premapped(burst), 150U);
  EXPECT_EQ(bench.queue.add_inbufs_premapped(std::span(burst).subspan(150)), 0U);
  EXPECT_EQ(code(bench.queue.add_inbuf_premapped(150, burst[150].segments)),
            ErrorCode::kBadAddress);
  EXPECT_EQ(bench.queue.add_inbufs_premapped(std::span(burst).subspan(151)), 49U);
  // Now as many as fit: 57 slots are left.
  EXPECT_EQ(bench.queue.add_outbufs_premapped(std::span(burst).first(100)), 57U);
  EXPECT_EQ(bench.queue.add_outbufs_premapped(std::span(burst).first(100)), 0U);
  ASSERT_EQ(bench.take(), 256U);
  for (int i = 0; i < 4; ++i) bench.give_back(64, GetParam().in_order);
  const auto back = bench.collect(300);
  ASSERT_EQ(back.size(), 256U);
  EXPECT_EQ(back[149].token, 149U);
  EXPECT_EQ(back[150].token, 151U);
  EXPECT_EQ(back[199].token, 0U);
  EXPECT_EQ(bench.queue.free_slots(), 256U);
}

TEST_P(DriverVirtqueueTest, OrdinaryBurstsMixPiecesAndBounceAreas) {
  VirtqueueBench bench(GetParam(), 64);
  fill(bench.heap, 9);
  const std::array<ConstBytes, 2> two = {Bytes(bench.heap).first(12),
                                         Bytes(bench.heap).subspan(64, 100)};
  const std::array<ConstBytes, 1> one = {bench.umem.first(60)};
  const std::array<OutBuffer, 3> out = {OutBuffer{1, one}, OutBuffer{2, two}, OutBuffer{3, one}};
  EXPECT_EQ(bench.queue.add_outbufs(out), 3U);
  const std::array<Bytes, 1> in_piece = {Bytes(bench.heap).subspan(500, 100)};
  const std::array<InBuffer, 2> in = {InBuffer{4, in_piece}, InBuffer{5, in_piece}};
  EXPECT_EQ(bench.queue.add_inbufs(in), 2U);
  ASSERT_EQ(bench.take(), 5U);
  EXPECT_EQ(bench.held[1].read(), joined({two[0], two[1]}));
  EXPECT_EQ(bench.held[3].segments.at(0).length, 100U);
}

TEST_P(DriverVirtqueueTest, RST_06_RecallGivesEachTokenOnceAndLetsGoOfTheMappings) {
  VirtqueueBench bench(GetParam(), 8);
  for (std::uint64_t i = 0; i < 4; ++i) {
    const std::array segments = {bench.in_umem(100 * i, 50), bench.in_heap(100 * i, 50)};
    ASSERT_TRUE(bench.queue.add_outbuf_premapped(1000 + i, segments));
  }
  bench.take();
  bench.give_back(2);
  ASSERT_EQ(bench.collect(1).size(), 1U);
  EXPECT_EQ(code(bench.map->retire(bench.umem_mapping.id)), ErrorCode::kWrongState);
  EXPECT_EQ(bench.map->retire(bench.heap_mapping.id).error().detail, 3);
  std::vector<std::uint64_t> back;
  bench.queue.recall([&](std::uint64_t token) { back.push_back(token); });
  std::ranges::sort(back);
  EXPECT_EQ(back, (std::vector<std::uint64_t>{1001, 1002, 1003}));
  EXPECT_EQ(bench.queue.outstanding(), 0U);
  EXPECT_EQ(code(bench.queue.add_outbuf_premapped(1, std::array{bench.in_umem(0, 1)})),
            ErrorCode::kClosed);
  EXPECT_TRUE(bench.map->retire(bench.umem_mapping.id));
  EXPECT_TRUE(bench.map->retire(bench.heap_mapping.id));
}

TEST_P(DriverVirtqueueTest, MappingsComeAndGoWhileTheQueueLives) {
  VirtqueueBench bench(GetParam(), 8);
  std::vector<std::byte> late(1000);
  const std::array<ConstBytes, 1> piece = {Bytes(late).first(60)};
  EXPECT_EQ(code(bench.queue.add_outbuf(1, piece)), ErrorCode::kBadAddress);
  const auto mapping = bench.map->map_bounced(late);
  ASSERT_TRUE(mapping.has_value());
  bench.share();
  fill(late, 4);
  ASSERT_TRUE(bench.queue.add_outbuf(1, piece));
  EXPECT_EQ(code(bench.map->retire(mapping->id)), ErrorCode::kWrongState);
  ASSERT_EQ(bench.take(), 1U);
  EXPECT_EQ(bench.held[0].read(), joined({piece[0]}));
  bench.give_back(1);
  EXPECT_EQ(code(bench.map->retire(mapping->id)), ErrorCode::kWrongState) << "not collected";
  ASSERT_EQ(bench.collect().size(), 1U);
  ASSERT_TRUE(bench.map->retire(mapping->id));
  bench.map->settle();
  bench.share();
  EXPECT_EQ(code(bench.queue.add_outbuf(1, piece)), ErrorCode::kBadAddress);
  EXPECT_EQ(code(bench.queue.add_outbuf_premapped(1, std::array{DmaSegment{mapping->device, 1}})),
            ErrorCode::kBadAddress);
  EXPECT_EQ(code(bench.queue.memory().sync_for_cpu(mapping->device, 1)), ErrorCode::kBadAddress);
  EXPECT_TRUE(bench.queue.add_outbuf_premapped(1, std::array{bench.in_umem(0, 1)}));
}

TEST_P(DriverVirtqueueTest, KicksOnlyADeviceThatWantsIt) {
  VirtqueueBench bench(GetParam(), 8);
  const std::array one = {bench.in_umem(0, 60)};
  bench.want_kicks(true);
  ASSERT_TRUE(bench.queue.add_outbuf_premapped(1, one));
  bench.queue.kick();
  EXPECT_EQ(bench.queue.kicks(), 1U);
  EXPECT_TRUE(bench.start().kick->drain());
  bench.want_kicks(false);
  ASSERT_TRUE(bench.queue.add_outbuf_premapped(1, one));
  bench.queue.kick();
  EXPECT_EQ(bench.queue.kicks(), 1U);
  EXPECT_FALSE(bench.start().kick->drain());
}

}  // namespace
}  // namespace sluice::net
