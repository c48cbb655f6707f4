// virtio-net, the device's transmit side, by raw bytes on every ring (virtio 1.3, 5.1.6.2): framing
// of header and frame (NET-01, NET-05, NET-07, NET-08, NET-15, H26).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "net/net_header.h"
#include "support/path_bench.h"
#include "support/random.h"

namespace sluice::test {
namespace {

using net::DropCause;
using virtio::Feature;
using virtio::FeatureSet;

class VirtioNetTransmit : public testing::TestWithParam<PathKind> {};
INSTANTIATE_TEST_SUITE_P(All, VirtioNetTransmit, testing::ValuesIn(kAllPathKinds), kind_name);

// NET-01, SEC-41: every combination of the features that the header's size depends on.
TEST(VirtioNetHeader, NET_01_SEC_41_TheHeadersSizeFollowsTheNegotiation) {
  constexpr Feature kBits[] = {Feature::kMrgRxbuf,
                               Feature::kVersion1,
                               Feature::kHashReport,
                               Feature::kGuestUdpTunnelGso,
                               Feature::kHostUdpTunnelGso,
                               Feature::kOutNetHeader,
                               Feature::kIpsec};
  for (std::uint32_t mask = 0; mask < (1U << std::size(kBits)); ++mask) {
    FeatureSet features;
    for (std::size_t i = 0; i < std::size(kBits); ++i) {
      if ((mask >> i & 1) != 0) features.add(kBits[i]);
    }
    std::size_t expected = 10;
    if ((mask & 0b000'0011) != 0) expected = 12;
    if ((mask & 0b000'0100) != 0) expected = 20;
    if ((mask & 0b001'1000) != 0) expected = 24;
    if ((mask & 0b110'0000) != 0) expected = 32;
    EXPECT_EQ(net::header_size(features), expected) << mask;
  }
}

TEST_P(VirtioNetTransmit, NET_01_TheFrameBeginsBehindTheHeaderWhateverItsSize) {
  struct Case {
    FeatureSet features;
    std::size_t header;
  };
  for (const Case& c :
       {Case{{}, 12}, Case{{Feature::kMrgRxbuf}, 12}, Case{{Feature::kHashReport}, 20},
        Case{{Feature::kHostUdpTunnelGso}, 24}, Case{{Feature::kOutNetHeader}, 32}}) {
    TransmitBench bench(GetParam(), c.features);
    const Bytes frame = plain_frame(60);
    ASSERT_TRUE(bench.send(with_header({}, frame, c.header)).has_value());
    const std::vector<std::size_t> cuts = {c.header - 1, c.header + 3};
    ASSERT_TRUE(bench.send(with_header({}, frame, c.header), cuts).has_value());
    const auto frames = bench.pass();
    ASSERT_EQ(frames.size(), 2U) << c.header;
    EXPECT_EQ(frames[0].bytes, frame);
    EXPECT_EQ(frames[1].bytes, frame);
  }
}

TEST_P(VirtioNetTransmit, NET_05_NumBuffersIsIgnored) {
  TransmitBench bench(GetParam(), {Feature::kMrgRxbuf});
  for (const std::uint16_t number : Words{0, 1, 2, 0x7fff, 0xffff}) {
    const Bytes frame = plain_frame(64, number);
    Bytes bytes = with_header({}, frame);
    bytes[10] = static_cast<std::byte>(number);
    bytes[11] = static_cast<std::byte>(number >> 8);
    bench.send(bytes);
    bench.send(plain_frame(200, 3));
    const auto frames = bench.pass();
    ASSERT_FALSE(frames.empty());
    EXPECT_EQ(frames[0].bytes, frame);
    EXPECT_EQ(bench.driver->reap().size(), 2U);
  }
}

// NET-07, SEC-11: the header cut at each byte, in three, and one byte a descriptor, both shapes.
TEST_P(VirtioNetTransmit, NET_07_SEC_11_TheHeaderMayBeCutAnywhere) {
  TransmitBench bench(GetParam(), {Feature::kIndirectDesc});
  const Bytes frame = plain_frame(20);
  std::vector<std::vector<std::size_t>> layouts;
  for (std::size_t cut = 0; cut <= 32; ++cut) layouts.push_back({cut});
  for (std::size_t a = 1; a < 12; ++a) {
    for (std::size_t b = a; b <= 12; ++b) layouts.push_back({a, b});
  }
  std::vector<std::size_t> every;
  for (std::size_t i = 1; i < 32; ++i) every.push_back(i);
  layouts.push_back(every);
  for (const Shape shape : {Shape::kChained, Shape::kTable}) {
    for (const auto& cuts : layouts) {
      ASSERT_TRUE(bench.send(with_header({}, frame), cuts, shape).has_value());
      const auto frames = bench.pass();
      ASSERT_EQ(frames.size(), 1U);
      EXPECT_EQ(frames[0].bytes, frame);
      const auto back = bench.driver->reap();
      ASSERT_EQ(back.size(), 1U);
      EXPECT_EQ(back[0].length, 0U) << "H26: a device only reads";
    }
  }
  EXPECT_EQ(bench.all_drops(), 0U);
}

// NET-08, SEC-18: everything shorter than header and Ethernet header is dropped, counted, returned.
TEST_P(VirtioNetTransmit, NET_08_SEC_18_AChainThatIsTooShortIsDroppedCountedAndReturned) {
  TransmitBench bench(GetParam());
  std::uint64_t expected = 0;
  for (std::size_t length = 0; length <= 12 + 17; ++length) {
    for (const bool pieces : {false, true}) {
      const Bytes bytes(length, std::byte{0});
      std::vector<std::size_t> cuts;
      for (std::size_t i = 1; pieces && i < length; ++i) cuts.push_back(i);
      ASSERT_TRUE(bench.send(bytes, cuts).has_value());
      const bool enough = length >= 12 + 14;
      const auto frames = bench.pass();
      ASSERT_EQ(frames.size(), enough ? 1U : 0U) << length;
      if (enough) {
        EXPECT_EQ(frames[0].bytes.size(), length - 12);
      }
      expected += enough ? 0 : 1;
      EXPECT_EQ(bench.drops(DropCause::kShortChain), expected);
      EXPECT_EQ(bench.driver->reap().size(), 1U);
    }
  }
  EXPECT_EQ(bench.counters.packets.value(), 60U) << "dropped ones were taken too";
  EXPECT_EQ(bench.path.error(), std::nullopt);
}

// Good frames around a bad one are not touched by it.
TEST_P(VirtioNetTransmit, NET_08_ABadFrameInABurstLeavesTheOthersAlone) {
  for (std::uint32_t bad = 0; bad < 5; ++bad) {
    TransmitBench bench(GetParam());
    for (std::uint32_t i = 0; i < 5; ++i) {
      bench.send(i == bad ? Bytes(13) : with_header({}, plain_frame(60 + i, i)));
    }
    const auto frames = bench.pass();
    ASSERT_EQ(frames.size(), 4U);
    std::size_t at = 0;
    for (std::uint32_t i = 0; i < 5; ++i) {
      if (i == bad) continue;
      EXPECT_EQ(frames[at++].bytes, plain_frame(60 + i, i));
    }
    EXPECT_EQ(bench.driver->reap().size(), 5U);
  }
}

// A driver has no business with writable pieces here; they are left alone and reported unwritten.
TEST_P(VirtioNetTransmit, NET_08_WritablePiecesOfATransmitChainAreNotTouched) {
  TransmitBench bench(GetParam());
  const Bytes frame = plain_frame(100);
  auto pieces = bench.pieces_of(with_header({}, frame));
  const std::uint64_t extra = bench.buffer(64);
  bench.guest.fill(extra, 64, 0xEE);
  pieces.push_back({extra, 64, true});
  bench.driver->post(pieces);
  bench.driver->post({.address = extra, .length = 64, .writable = true});
  const auto frames = bench.pass();
  ASSERT_EQ(frames.size(), 1U);
  EXPECT_EQ(frames[0].bytes, frame);
  EXPECT_EQ(bench.drops(DropCause::kShortChain), 1U);
  EXPECT_EQ(bench.guest.get(extra, 64), Bytes(64, std::byte{0xEE}));
  for (const Returned& back : bench.driver->reap()) EXPECT_EQ(back.length, 0U);
}

// NET-15: the longest frame is 65,535 bytes of IPv6 payload and its headers, and a VLAN tag.
TEST_P(VirtioNetTransmit, NET_15_FramesUpTo65593BytesPassAndNoMore) {
  TransmitBench bench(GetParam());
  for (const std::size_t size : {1514U, 1518U, 9014U, 9018U, 65'549U, 65'550U, 65'551U, 65'589U,
                                 65'590U, 65'593U, 65'594U, 65'600U, 200'000U}) {
    const Bytes frame = plain_frame(size);
    bench.send(with_header({}, frame));
    const std::vector<std::size_t> cuts = {12, 1000};
    bench.send(with_header({}, frame), cuts);
    const auto frames = bench.pass();
    ASSERT_EQ(frames.size(), size <= 65'593 ? 2U : 0U) << size;
    for (const auto& one : frames) EXPECT_EQ(one.bytes, frame);
    EXPECT_EQ(bench.driver->reap().size(), 2U);
  }
  EXPECT_EQ(bench.drops(DropCause::kTooLong), 6U);
}

// H26: cut at random into 1, 2, 17 and 256 pieces, some of them empty, a frame stays the same.
TEST_P(VirtioNetTransmit, H26_AFrameInManyPiecesIsTheFrameInOne) {
  TransmitBench bench(GetParam());
  Random random(26);
  const Bytes frame = plain_frame(1514);
  const Bytes bytes = with_header({}, frame);
  for (const std::size_t pieces : {1U, 2U, 17U, 256U}) {
    for (int round = 0; round < 20; ++round) {
      std::vector<std::size_t> cuts;
      for (std::size_t i = 1; i < pieces; ++i) cuts.push_back(random.below(bytes.size() + 1));
      std::ranges::sort(cuts);
      ASSERT_TRUE(bench.send(bytes, cuts).has_value());
      const auto frames = bench.pass();
      ASSERT_EQ(frames.size(), 1U) << pieces;
      EXPECT_EQ(frames[0].bytes, frame);
      const auto back = bench.driver->reap();
      ASSERT_EQ(back.size(), 1U);
      EXPECT_EQ(back[0].length, 0U);
    }
  }
}

// SPL-05: what the driver gave to be read is read only. A write would end the process.
TEST_P(VirtioNetTransmit, SPL_05_ReadableBuffersAreNeverWritten) {
  TransmitBench bench(GetParam(), {Feature::kCsum});
  const std::uint64_t page = (bench.buffer(8192) + 4095) / 4096 * 4096;
  const OffloadedFrame marked = build_offloaded({});
  const Bytes bytes = with_header(marked.offload, marked.bytes);
  bench.guest.put(page, bytes);
  bench.guest.protect_device_view(page, 4096, true);
  for (int i = 0; i < 10; ++i) {
    bench.driver->post({.address = page, .length = static_cast<std::uint32_t>(bytes.size())});
    ASSERT_EQ(bench.pass().size(), 1U);
    bench.driver->reap();
  }
  bench.guest.protect_device_view(page, 4096, false);
  EXPECT_EQ(bench.guest.get(page, bytes.size()), bytes);
}

// H21: a guest that only sends and asks for one call when its ring is all used gets it in time.
TEST_P(VirtioNetTransmit, H21_ASenderThatAsksForOneCallPerRingGetsThemAll) {
  TransmitBench bench(GetParam(), {Feature::kEventIdx}, 16);
  const Bytes bytes = with_header({}, plain_frame(60));
  std::uint32_t sent = 0;
  std::uint32_t stalls = 0;
  while (sent < 10'000 && stalls < 2) {
    const std::uint64_t calls = bench.call->count();
    std::uint32_t burst = 0;
    while (bench.send(bytes)) ++burst;
    bench.driver->want_interrupt_after(static_cast<std::uint32_t>(bench.driver->outstanding() - 1));
    sent += burst;
    while (!bench.pass().empty()) {
    }
    // The guest sleeps until the call comes.
    if (bench.call->count() == calls) ++stalls;
    EXPECT_EQ(bench.driver->reap().size(), burst);
  }
  EXPECT_EQ(stalls, 0U);
}

TEST_P(VirtioNetTransmit, TheCountersAddUp) {
  TransmitBench bench(GetParam());
  std::size_t frames = 0;
  std::uint64_t bytes = 0;
  for (std::uint32_t i = 0; i < 200; ++i) {
    bench.send(i % 7 == 0 ? Bytes(i % 25) : with_header({}, plain_frame(14 + i % 90)));
    if (i % 10 != 9) continue;
    for (const auto& frame : bench.pass()) {
      ++frames;
      bytes += frame.bytes.size();
    }
    bench.driver->reap();
  }
  EXPECT_EQ(bench.counters.packets.value(), 200U);
  EXPECT_EQ(bench.counters.packets.value(), frames + bench.all_drops());
  EXPECT_EQ(bench.counters.bytes.value(), bytes);
  EXPECT_EQ(bench.counters.bursts.value(), 20U);
  EXPECT_EQ(bench.counters.notifications.value(), bench.call->count());
  EXPECT_GT(bench.call->count(), 0U);
}

}  // namespace
}  // namespace sluice::test
