// virtio-net, mergeable receive buffers by raw bytes on every ring (virtio 1.3, 5.1.6.4; NET-03,
// NET-04, NET-06, H16, SEC-38): filling, num_buffers, and what a driver sees meanwhile.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "support/path_bench.h"
#include "support/random.h"

namespace sluice::test {
namespace {

using net::DropCause;
using virtio::Feature;
using virtio::FeatureSet;

const FeatureSet kMerge{Feature::kMrgRxbuf};

std::uint16_t num_buffers(const Bytes& buffer) {
  std::uint16_t number = 0;
  std::memcpy(&number, buffer.data() + 10, sizeof number);
  return number;
}

class VirtioNetMerge : public testing::TestWithParam<PathKind> {};
INSTANTIATE_TEST_SUITE_P(All, VirtioNetMerge, testing::ValuesIn(kAllPathKinds), kind_name);

TEST_P(VirtioNetMerge, NET_06_EveryBufferButTheLastIsFilledCompletely) {
  for (const std::size_t size : {60U, 1514U, 1515U, 3040U, 3041U, 9014U, 65'550U, 65'593U}) {
    ReceiveBench bench(GetParam(), kMerge, 64);
    const std::size_t needed = (12 + size + 1525) / 1526;
    for (std::size_t i = 0; i < needed; ++i) bench.post({1526});
    const Bytes frame = plain_frame(size);
    ASSERT_EQ(bench.deliver(frame), 1U) << size;
    const auto got = bench.received();
    ASSERT_EQ(got.size(), needed) << "exactly as many as were posted";
    EXPECT_EQ(num_buffers(got[0].bytes), needed);
    Bytes joined;
    for (std::size_t i = 0; i < needed; ++i) {
      if (i + 1 < needed) {
        EXPECT_EQ(got[i].length, 1526U) << "buffer " << i << " of " << needed;
      }
      joined.insert(joined.end(), got[i].bytes.begin(),
                    got[i].bytes.begin() + static_cast<std::ptrdiff_t>(got[i].length));
    }
    ASSERT_EQ(joined.size(), 12 + size);
    EXPECT_TRUE(std::equal(frame.begin(), frame.end(), joined.begin() + 12));
  }
}

// H16: with one buffer too few nothing is published and nothing is lost.
TEST_P(VirtioNetMerge, H16_NET_06_OneBufferTooFewPublishesNothingAndLosesNothing) {
  ReceiveBench bench(GetParam(), kMerge, 64);
  const Bytes frame = plain_frame(9014);
  for (int round = 0; round < 30; ++round) {
    for (int i = 0; i < 5; ++i) bench.post({1526});
    EXPECT_EQ(bench.deliver(frame), 0U);
    EXPECT_TRUE(bench.received().empty());
    EXPECT_EQ(bench.drops(DropCause::kNoBuffers), static_cast<std::uint64_t>(round) + 1);
    bench.post({1526});
    ASSERT_EQ(bench.deliver(frame), 1U);
    const auto packets = bench.packets();
    ASSERT_EQ(packets.size(), 1U);
    EXPECT_TRUE(std::equal(frame.begin(), frame.end(), packets[0].begin() + 12));
    EXPECT_EQ(bench.driver->outstanding(), 0U);
  }
}

// H16's variant: the first buffer is in pieces shorter than the header.
TEST_P(VirtioNetMerge, H16_SEC_38_TheCountIsRightWhereTheHeaderLiesInPieces) {
  ReceiveBench bench(GetParam(), kMerge, 64);
  const Bytes frame = plain_frame(200);
  bench.post({6, 6, 20});
  bench.post({7, 60});
  bench.post({200});
  ASSERT_EQ(bench.deliver(frame), 1U);
  const auto got = bench.received();
  ASSERT_EQ(got.size(), 3U);
  EXPECT_EQ(num_buffers(got[0].bytes), 3);
  EXPECT_EQ(got[0].length, 32U);
  EXPECT_EQ(got[1].length, 67U);
  EXPECT_EQ(got[2].length, 113U);
}

TEST_P(VirtioNetMerge, NET_03_BuffersOfExactlyTheHeadersSizeHoldNoFrameBytes) {
  ReceiveBench bench(GetParam(), kMerge, 64);
  bench.post({12});
  bench.post({100});
  const Bytes frame = plain_frame(60);
  ASSERT_EQ(bench.deliver(frame), 1U);
  const auto got = bench.received();
  ASSERT_EQ(got.size(), 2U);
  EXPECT_EQ(got[0].length, 12U);
  EXPECT_EQ(num_buffers(got[0].bytes), 2);
  EXPECT_EQ(got[1].length, 60U);
  EXPECT_TRUE(std::equal(frame.begin(), frame.end(), got[1].bytes.begin()));
}

// Later buffers may be of any size, even empty; the count stays right.
TEST_P(VirtioNetMerge, NET_06_BuffersOfAllSizesMergeAndAddUp) {
  ReceiveBench bench(GetParam(), kMerge, 256);
  Random random(6);
  for (int round = 0; round < 200; ++round) {
    const Bytes frame = plain_frame(14 + random.below(3000), static_cast<std::uint32_t>(round));
    std::size_t room = 0;
    std::size_t posted = 0;
    while (room < 12 + frame.size()) {
      const std::uint32_t size = posted == 0 ? 12 + random.below(50) : random.below(400);
      ASSERT_TRUE(bench.post({size / 2, size - size / 2}).has_value());
      room += size;
      ++posted;
    }
    if (posted > 64) {
      // More buffers than a packet may have: dropped; then take them away in small frames.
      EXPECT_EQ(bench.deliver(frame), 0U);
      break;
    }
    ASSERT_EQ(bench.deliver(frame), 1U) << "round " << round;
    const auto packets = bench.packets();
    ASSERT_EQ(packets.size(), 1U);
    ASSERT_TRUE(std::equal(frame.begin(), frame.end(), packets[0].begin() + 12));
    EXPECT_EQ(bench.driver->outstanding(), 0U);
  }
}

// A packet that would need more than 64 buffers is dropped, and the buffers stay.
TEST_P(VirtioNetMerge, NET_06_APacketIntoTooManyTinyBuffersIsDroppedAndTheBuffersStay) {
  ReceiveBench bench(GetParam(), kMerge, 256);
  for (int i = 0; i < 200; ++i) bench.post({16});
  EXPECT_EQ(bench.deliver(plain_frame(1514)), 0U);
  EXPECT_EQ(bench.drops(DropCause::kBufferTooSmall), 1U);
  EXPECT_TRUE(bench.received().empty());
  const Bytes small = plain_frame(64 * 16 - 12);
  ASSERT_EQ(bench.deliver(small), 1U);
  const auto packets = bench.packets();
  ASSERT_EQ(packets.size(), 1U);
  EXPECT_TRUE(std::equal(small.begin(), small.end(), packets[0].begin() + 12));
}

// NET-06, PKD-15, H16, SEC-38: a driver thread looks all the time. Whenever it sees the first
// buffer of a packet used, all of the packet's buffers are, and num_buffers says so: in bursts
// whose packets take few buffers, and in ones that take more than are published at once.
TEST_P(VirtioNetMerge, NET_06_PKD_15_H16_SEC_38_APacketIsVisibleWholeOrNotAtAll) {
  for (const std::size_t size : {2000U, 9014U}) {
    ReceiveBench bench(GetParam(), kMerge, 256);
    const auto buffers = static_cast<std::uint16_t>((12 + size + 1525) / 1526);
    std::vector<OffloadedFrame> frames;
    for (std::uint32_t i = 0; i < 20; ++i) frames.push_back({plain_frame(size, i), {}});
    std::atomic<std::uint32_t> round_begun{0};
    std::atomic<std::uint32_t> round_done{0};
    constexpr std::uint32_t kRounds = 100;
    std::uint64_t torn = 0;
    std::uint64_t looks = 0;
    // The device delivers; this thread is the driver, which reaps the buffers one look at a time.
    std::thread device([&] {
      for (std::uint32_t round = 1; round <= kRounds; ++round) {
        while (round_begun.load(std::memory_order_acquire) < round) std::this_thread::yield();
        bench.deliver(frames);
        round_done.store(round, std::memory_order_release);
      }
    });
    for (std::uint32_t round = 1; round <= kRounds; ++round) {
      for (std::size_t i = 0; i < frames.size() * buffers; ++i) bench.post({1526});
      round_begun.store(round, std::memory_order_release);
      std::size_t seen = 0;
      while (seen < frames.size() * buffers) {
        const bool over = round_done.load(std::memory_order_acquire) == round;
        const std::size_t now = bench.driver->reap().size();
        seen += now;
        ++looks;
        if (seen % buffers != 0) ++torn;
        if (over && now == 0) break;
      }
      ASSERT_EQ(seen, frames.size() * buffers);
    }
    device.join();
    EXPECT_EQ(torn, 0U) << "of " << looks << " looks, packets of " << buffers << " buffers";
    EXPECT_EQ(bench.driver->complaint(), "");
  }
}

}  // namespace
}  // namespace sluice::test
