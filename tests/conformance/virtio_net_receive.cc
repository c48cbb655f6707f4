// virtio-net, the device's receive side, by raw bytes on every ring (virtio 1.3, 5.1.6.3, 5.1.6.4):
// buffers without merging, the header, and framing (NET-01 to NET-04, H24, H26, SEC-27).
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#include "support/path_bench.h"
#include "support/random.h"

namespace sluice::test {
namespace {

using net::DropCause;
using virtio::Feature;
using virtio::FeatureSet;

class VirtioNetReceive : public testing::TestWithParam<PathKind> {
 protected:
  // The header of a frame without marks in one buffer: zeroes, and num_buffers 1.
  static Bytes plain_header() {
    Bytes header(12);
    header[10] = std::byte{1};
    return header;
  }
  static void expect_whole(const ReceiveBench::Received& got, const Bytes& frame) {
    ASSERT_EQ(got.length, 12 + frame.size()) << "used length is header and frame";
    EXPECT_EQ(Bytes(got.bytes.begin(), got.bytes.begin() + 12), plain_header());
    EXPECT_TRUE(std::equal(frame.begin(), frame.end(), got.bytes.begin() + 12));
    for (std::size_t i = got.length; i < got.bytes.size(); ++i) {
      ASSERT_EQ(got.bytes[i], std::byte{0xEE}) << "written beyond the used length";
    }
  }
};
INSTANTIATE_TEST_SUITE_P(All, VirtioNetReceive, testing::ValuesIn(kAllPathKinds), kind_name);

// NET-04, SEC-27: by the short way and by the long one, in every position of a burst.
TEST_P(VirtioNetReceive, NET_04_SEC_27_NumBuffersIsOneAndTheHeaderIsWholeOnEveryWay) {
  for (const bool merge : {false, true}) {
    ReceiveBench bench(GetParam(), merge ? FeatureSet{Feature::kMrgRxbuf} : FeatureSet{});
    std::vector<OffloadedFrame> frames;
    for (std::uint32_t i = 0; i < 12; ++i) {
      frames.push_back({plain_frame(14 + 13 * i, i), {}});
      if (i % 3 == 0) {
        bench.post({2000});
      } else if (i % 3 == 1) {
        bench.post({12, 1600});
      } else {
        bench.post({5, 2, 700, 1000});
      }
    }
    for (const std::size_t parts : {1U, 3U}) {
      if (parts == 3) {
        for (int i = 0; i < 12; ++i) bench.post({2000});
      }
      ASSERT_EQ(bench.deliver(frames, parts), 12U);
      const auto got = bench.received();
      ASSERT_EQ(got.size(), 12U);
      for (std::size_t i = 0; i < 12; ++i) expect_whole(got[i], frames[i].bytes);
    }
    EXPECT_EQ(bench.all_drops(), 0U);
  }
}

// H24: the layouts that drivers use, and one byte more than fits.
TEST_P(VirtioNetReceive, H24_NET_02_TheChainsLayoutDoesNotMatterAndTooLongFramesAreDroppedWhole) {
  const std::vector<std::vector<std::uint32_t>> layouts = {
      {12, 1514}, {12 + 1514}, {4, 8, 1000, 514}, {0, 12, 0, 1514, 0}, {11, 1515}, {13, 1513}};
  ReceiveBench bench(GetParam(), {Feature::kIndirectDesc});
  for (const Shape shape : {Shape::kChained, Shape::kTable}) {
    for (const auto& layout : layouts) {
      for (const std::size_t size : {14U, 60U, 1513U, 1514U}) {
        const auto id = bench.post(layout, shape);
        const std::uint64_t dropped = bench.drops(DropCause::kBufferTooSmall);
        EXPECT_EQ(bench.deliver(plain_frame(1515)), 0U) << "one byte more than the chain";
        EXPECT_EQ(bench.drops(DropCause::kBufferTooSmall), dropped + 1);
        EXPECT_TRUE(bench.received().empty()) << "the chain stays for the next frame";
        const Bytes frame = plain_frame(size, 7);
        ASSERT_EQ(bench.deliver(frame), 1U);
        const auto got = bench.received();
        ASSERT_EQ(got.size(), 1U);
        EXPECT_EQ(got[0].id, id);
        expect_whole(got[0], frame);
      }
    }
  }
}

TEST_P(VirtioNetReceive, NET_01_HeadersOfOtherSizesAreZeroBehindNumBuffers) {
  struct Case {
    FeatureSet features;
    std::size_t header;
  };
  for (const Case& c : {Case{{Feature::kHashReport}, 20}, Case{{Feature::kGuestUdpTunnelGso}, 24},
                        Case{{Feature::kOutNetHeader}, 32}}) {
    ReceiveBench bench(GetParam(), c.features);
    const Bytes frame = plain_frame(100);
    for (const std::uint32_t first : {2000U, 7U}) {
      bench.post({first, 2000});
      ASSERT_EQ(bench.deliver(frame), 1U);
      const auto got = bench.received();
      ASSERT_EQ(got.size(), 1U);
      ASSERT_EQ(got[0].length, c.header + frame.size());
      Bytes header(c.header);
      header[10] = std::byte{1};
      EXPECT_TRUE(std::equal(header.begin(), header.end(), got[0].bytes.begin()));
      EXPECT_EQ(Bytes(got[0].bytes.begin() + static_cast<std::ptrdiff_t>(c.header),
                      got[0].bytes.begin() + static_cast<std::ptrdiff_t>(got[0].length)),
                frame);
    }
  }
}

// What an unmarked frame's sender left in the other fields of its header is no business of ours.
TEST_P(VirtioNetReceive, NET_10_FieldsWithoutAFlagAreZeroOnEveryWay) {
  const packet::Offload rubbish{
      .hdr_len = 0x1111, .gso_size = 0x2222, .csum_start = 0x3333, .csum_offset = 0x4444};
  for (const bool merge : {false, true}) {
    ReceiveBench bench(GetParam(), merge ? FeatureSet{Feature::kMrgRxbuf} : FeatureSet{});
    const OffloadedFrame frame{plain_frame(100), rubbish};
    for (const std::size_t parts : {1U, 2U}) {
      bench.post({2000});
      ASSERT_EQ(bench.deliver(std::span(&frame, 1), parts), 1U);
      const auto got = bench.received();
      ASSERT_EQ(got.size(), 1U);
      expect_whole(got[0], frame.bytes);
    }
  }
}

// NET-02: without merging each frame is judged by the buffer at hand; nothing is ever cut.
TEST_P(VirtioNetReceive, NET_02_AFrameIsDeliveredWholeOrNotAtAll) {
  ReceiveBench bench(GetParam());
  Random random(2);
  std::uint64_t delivered = 0;
  std::uint64_t too_small = 0;
  for (int round = 0; round < 500; ++round) {
    const std::uint32_t room = 12 + random.below(200);
    bench.post({room});
    const Bytes frame = plain_frame(14 + random.below(200), static_cast<std::uint32_t>(round));
    const bool fits = 12 + frame.size() <= room;
    EXPECT_EQ(bench.deliver(frame), fits ? 1U : 0U);
    auto got = bench.received();
    if (!fits) {
      EXPECT_TRUE(got.empty());
      ASSERT_EQ(bench.deliver(plain_frame(14)), room >= 26 ? 1U : 0U);
      got = bench.received();
      if (room < 26) {
        bench.guest.fill(bench.buffer(1), 1, 0);
        break;  // This buffer fits nothing; the next test is about those.
      }
      expect_whole(got.at(0), plain_frame(14));
    } else {
      expect_whole(got.at(0), frame);
    }
    ++(fits ? delivered : too_small);
  }
  EXPECT_GT(delivered, 0U);
  EXPECT_GT(too_small, 0U);
}

// NET-03: a buffer that does not even hold the header is given back unwritten, so that it cannot
// stand in the way for ever.
TEST_P(VirtioNetReceive, NET_03_ABufferBelowTheHeadersSizeComesBackEmpty) {
  for (const bool merge : {false, true}) {
    for (std::uint32_t size = 0; size < 12; ++size) {
      ReceiveBench bench(GetParam(), merge ? FeatureSet{Feature::kMrgRxbuf} : FeatureSet{});
      bench.post({size});
      bench.post({2000});
      const Bytes frame = plain_frame(60);
      EXPECT_EQ(bench.deliver(frame), 0U) << size;
      EXPECT_EQ(bench.drops(DropCause::kBufferTooSmall), 1U);
      auto got = bench.received();
      ASSERT_EQ(got.size(), 1U);
      EXPECT_EQ(got[0].length, 0U);
      EXPECT_EQ(got[0].bytes, Bytes(size, std::byte{0xEE}));
      ASSERT_EQ(bench.deliver(frame), 1U) << "the next buffer is a good one";
      got = bench.received();
      ASSERT_EQ(got.size(), 1U);
      expect_whole(got[0], frame);
    }
  }
}

// SPL-05: readable pieces of a receive chain are neither written nor counted as room.
TEST_P(VirtioNetReceive, SPL_05_ReadablePiecesAreNotWritten) {
  ReceiveBench bench(GetParam());
  const std::uint64_t page = (bench.buffer(8192) + 4095) / 4096 * 4096;
  const std::uint64_t room = bench.buffer(2000);
  bench.guest.fill(page, 4096, 0xAB);
  bench.guest.protect_device_view(page, 4096, true);
  const std::vector<Piece> mixed = {{page, 100, false}, {room, 2000, true}};
  const std::vector<Piece> only_readable = {{page, 2000, false}};
  bench.driver->post(mixed);
  bench.driver->post(only_readable);
  const Bytes frame = plain_frame(60);
  EXPECT_EQ(bench.deliver(frame), 1U);
  EXPECT_EQ(bench.deliver(frame), 0U);
  const auto back = bench.driver->reap();
  ASSERT_EQ(back.size(), 2U);
  EXPECT_EQ(back[0].length, 72U);
  EXPECT_EQ(back[1].length, 0U);
  EXPECT_EQ(bench.guest.get(room + 12, 60), frame);
  bench.guest.protect_device_view(page, 4096, false);
}

// H26 on this side: the same shapes, with room to spare or none.
TEST_P(VirtioNetReceive, H26_AFrameIntoManyPiecesIsTheFrameInOne) {
  ReceiveBench bench(GetParam());
  Random random(26);
  const Bytes frame = plain_frame(1514);
  for (const std::size_t pieces : {1U, 2U, 17U, 255U}) {
    for (int round = 0; round < 20; ++round) {
      const std::size_t room = 1526 + (round % 2 == 0 ? 0 : random.below(500));
      std::vector<std::uint32_t> lengths(pieces, 0);
      std::size_t left = room;
      for (std::size_t i = 0; i + 1 < pieces; ++i) {
        lengths[i] = random.below(std::min<std::size_t>(left, 2 * room / pieces) + 1);
        left -= lengths[i];
      }
      lengths.back() = static_cast<std::uint32_t>(left);
      ASSERT_TRUE(bench.post(lengths).has_value());
      ASSERT_EQ(bench.deliver(frame), 1U);
      const auto got = bench.received();
      ASSERT_EQ(got.size(), 1U);
      expect_whole(got[0], frame);
    }
  }
}

// No buffers, too few buffers, and the account of it.
TEST_P(VirtioNetReceive, TheCountersAddUp) {
  ReceiveBench bench(GetParam(), {Feature::kMrgRxbuf}, 64);
  std::uint64_t offered = 0;
  std::uint64_t delivered = 0;
  Random random(3);
  for (int round = 0; round < 300; ++round) {
    for (std::uint32_t i = random.below(6); i > 0; --i) bench.post({100 + random.below(400)});
    std::vector<OffloadedFrame> frames(1 + random.below(8));
    for (auto& frame : frames) frame.bytes = plain_frame(14 + random.below(900));
    offered += frames.size();
    delivered += bench.deliver(frames, 1 + random.below(3));
    bench.packets();
  }
  EXPECT_EQ(bench.counters.packets.value(), delivered);
  EXPECT_EQ(delivered + bench.all_drops(), offered);
  EXPECT_EQ(bench.all_drops(), bench.drops(DropCause::kNoBuffers));
  EXPECT_EQ(bench.counters.notifications.value(), bench.call->count());
  EXPECT_GT(delivered, 100U);
  EXPECT_GT(bench.all_drops(), 100U);
}

}  // namespace
}  // namespace sluice::test
