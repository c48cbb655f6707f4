// H14, SEC-06, SEC-31: one bad buffer among good ones, on both packet paths of every ring. The good
// ones before it are served, the ring stops with a named error, and other rings go on.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "support/path_bench.h"

namespace sluice::test {
namespace {

using net::DropCause;
using virtio::Feature;

constexpr std::uint64_t kEnd = FakeGuest::kBase + FakeGuest::kDefaultSize;

// The ways to be bad that H14 names: outside, past the end, empty and outside, wrapping.
const std::vector<Piece>& bad_pieces() {
  static const std::vector<Piece> pieces = {
      {0x1000, 2000}, {kEnd - 100, 2000}, {kEnd, 0}, {~std::uint64_t{0} - 10, 2000}};
  return pieces;
}

class NetBadBuffers : public testing::TestWithParam<PathKind> {
 protected:
  // A port of its own, to see that it does not care.
  static void expect_neighbour_works(PathKind kind) {
    TransmitBench neighbour(kind);
    neighbour.send(with_header({}, plain_frame(60)));
    EXPECT_EQ(neighbour.pass().size(), 1U);
  }
};
INSTANTIATE_TEST_SUITE_P(All, NetBadBuffers, testing::ValuesIn(kAllPathKinds), kind_name);

TEST_P(NetBadBuffers, H14_SEC_06_ABadTransmitBufferStopsTheRingBehindTheGoodOnes) {
  for (const Piece& bad : bad_pieces()) {
    for (std::uint32_t place = 0; place < 4; ++place) {
      TransmitBench bench(GetParam());
      for (std::uint32_t i = 0; i < 4; ++i) {
        if (i == place) {
          bench.driver->post(bad);
        } else {
          bench.send(with_header({}, plain_frame(60 + i, i)));
        }
      }
      const auto frames = bench.pass();
      ASSERT_EQ(frames.size(), place);
      for (std::uint32_t i = 0; i < place; ++i) EXPECT_EQ(frames[i].bytes, plain_frame(60 + i, i));
      ASSERT_TRUE(bench.path.error().has_value());
      EXPECT_EQ(bench.path.error()->code, ErrorCode::kBadAddress);
      EXPECT_FALSE(bench.path.has_work());
      EXPECT_EQ(bench.driver->reap().size(), place);
      EXPECT_TRUE(bench.pass().empty());
      EXPECT_TRUE(bench.driver->reap().empty()) << "nothing is touched any more";
    }
  }
  expect_neighbour_works(GetParam());
}

TEST_P(NetBadBuffers, H14_SEC_06_ABadReceiveBufferStopsTheRingBehindTheGoodOnes) {
  for (const Piece& bad : bad_pieces()) {
    for (std::uint32_t place = 0; place < 4; ++place) {
      ReceiveBench bench(GetParam(), {Feature::kMrgRxbuf});
      std::vector<OffloadedFrame> frames;
      for (std::uint32_t i = 0; i < 4; ++i) {
        frames.push_back({plain_frame(60 + i, i), {}});
        if (i == place) {
          bench.driver->post({bad.address, bad.length, true});
        } else {
          bench.post({2000});
        }
      }
      EXPECT_EQ(bench.deliver(frames), place);
      const auto got = bench.packets();
      ASSERT_EQ(got.size(), place);
      for (std::uint32_t i = 0; i < place; ++i) {
        EXPECT_TRUE(
            std::equal(frames[i].bytes.begin(), frames[i].bytes.end(), got[i].begin() + 12));
      }
      ASSERT_TRUE(bench.path.error().has_value());
      EXPECT_EQ(bench.path.error()->code, ErrorCode::kBadAddress);
      EXPECT_FALSE(bench.path.has_buffers());
      EXPECT_EQ(bench.drops(DropCause::kRingBroken), 4 - place) << "each packet is accounted for";
      EXPECT_EQ(bench.deliver(frames), 0U);
      EXPECT_EQ(bench.drops(DropCause::kRingBroken), 8 - place);
      EXPECT_TRUE(bench.received().empty());
    }
  }
  expect_neighbour_works(GetParam());
}

// A packet over several buffers, of which a later one is bad: nothing of the packet is published.
TEST_P(NetBadBuffers, H14_SEC_39_ABadBufferInsideAMergedPacketPublishesNothingOfIt) {
  ReceiveBench bench(GetParam(), {Feature::kMrgRxbuf});
  bench.post({1526});
  bench.post({1526});
  bench.driver->post({0x1000, 1526, true});
  EXPECT_EQ(bench.deliver(plain_frame(4000)), 0U);
  EXPECT_TRUE(bench.received().empty());
  EXPECT_TRUE(bench.path.error().has_value());
  EXPECT_EQ(bench.drops(DropCause::kRingBroken), 1U);
}

// The ring breaks while the burst is half served; what came before is published all the same.
TEST_P(NetBadBuffers, SEC_31_ALoopBehindGoodBuffersStopsTheRingAndKeepsThem) {
  ReceiveBench bench(GetParam(), {}, 4);
  bench.post({2000});
  const std::vector<Piece> wrong_order = {{bench.buffer(100), 100, true},
                                          {bench.buffer(100), 100, false}};
  bench.driver->post(wrong_order);
  std::vector<OffloadedFrame> frames(3, {plain_frame(60), {}});
  EXPECT_EQ(bench.deliver(frames), 1U);
  EXPECT_EQ(bench.packets().size(), 1U);
  ASSERT_TRUE(bench.path.error().has_value());
  EXPECT_EQ(bench.path.error()->code, ErrorCode::kRingCorrupt);
  EXPECT_EQ(bench.drops(DropCause::kRingBroken), 2U);
  EXPECT_GT(bench.call->count(), 0U);
}

// Buffers without a single byte, alone and among others (a null pointer must not be looked at).
TEST_P(NetBadBuffers, H14_SPL_15_EmptyBuffersAreHarmlessOnBothPaths) {
  ReceiveBench receive(GetParam(), {Feature::kMrgRxbuf});
  for (int i = 0; i < 3; ++i) receive.post({0});
  receive.post({2000});
  receive.post({0, 0});
  receive.post({0});
  receive.post({2000});
  std::vector<OffloadedFrame> frames(8, {plain_frame(60), {}});
  std::size_t delivered = 0;
  for (int i = 0; i < 3; ++i) delivered += receive.deliver(frames);
  EXPECT_EQ(delivered, 2U);
  EXPECT_EQ(receive.received().size(), 7U);
  EXPECT_EQ(receive.path.error(), std::nullopt);

  TransmitBench transmit(GetParam());
  const std::uint64_t address = transmit.buffer(1);
  for (int i = 0; i < 3; ++i) transmit.driver->post({address, 0});
  transmit.send(with_header({}, plain_frame(60)));
  EXPECT_EQ(transmit.pass().size(), 1U);
  EXPECT_EQ(transmit.drops(DropCause::kShortChain), 3U);
  EXPECT_EQ(transmit.driver->reap().size(), 4U);
}

// SEC-48: with the dirty log on, a packet over as many pieces as there may be is logged piece by
// piece, without a table of its own that could overflow.
TEST_P(NetBadBuffers, SEC_48_LoggingAPacketInManyPiecesMarksEachOfThem) {
  ReceiveBench bench(GetParam(), {Feature::kMrgRxbuf, Feature::kLogAll}, 256);
  auto bitmap = memory::Mapping::create_shared("log", 1U << 20);
  ASSERT_TRUE(bitmap.has_value());
  // Bit n is page n from guest address 0, so this log covers 32 GiB.
  auto log = memory::DirtyLog::map(bitmap->fd.get(), 0, 1U << 20);
  ASSERT_TRUE(log.has_value());
  net::QueueStart start = bench.start();
  start.log = std::make_shared<memory::DirtyLog>(std::move(*log));
  start.ring.log = start.log.get();
  start.ring.memory = start.memory.get();
  bench.path = net::ReceivePath::make(start, {}, bench.counters);
  std::vector<std::uint64_t> pages;
  std::vector<Piece> pieces;
  for (std::uint32_t i = 0; i < 200; ++i) {
    const std::uint64_t address = bench.buffer(4096);
    pieces.push_back({address, 50, true});
    pages.push_back(address / 4096);
  }
  bench.driver->post(pieces);
  ASSERT_EQ(bench.deliver(plain_frame(9000)), 1U);
  const auto bits = bitmap->mapping.bytes();
  const auto marked = [&](std::uint64_t page) {
    return (std::to_integer<unsigned>(bits[page / 8]) >> (page % 8) & 1) != 0;
  };
  std::size_t at = 0;
  for (std::size_t i = 0; i < pages.size(); ++i, at += 50) {
    EXPECT_EQ(marked(pages[i]), at < 9012) << "piece " << i;
  }
}

}  // namespace
}  // namespace sluice::test
