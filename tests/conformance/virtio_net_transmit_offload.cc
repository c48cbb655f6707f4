// virtio-net, the device's transmit side, by raw bytes: what the header may ask for (virtio 1.3,
// 5.1.6.2; NET-11 to NET-14, NET-18, NET-19), and a header that changes meanwhile (SEC-13).
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "support/path_bench.h"

namespace sluice::test {
namespace {

using net::DropCause;
using virtio::Feature;
using virtio::FeatureSet;

constexpr std::uint8_t kNeedsCsum = 1;
const FeatureSet kEverything{Feature::kCsum, Feature::kHostTso4, Feature::kHostTso6,
                             Feature::kHostUso, Feature::kHostEcn};

class VirtioNetOffload : public testing::TestWithParam<PathKind> {
 protected:
  // Sends `frame` with these marks, in one piece and in small ones. Returns how many of the two
  // passed (the others must be counted as kBadOffload), and the marks of the last that did.
  static int passes(TransmitBench& bench, const packet::Offload& offload, const Bytes& frame,
                    packet::Offload* marks = nullptr) {
    const std::uint64_t before = bench.drops(DropCause::kBadOffload);
    const Bytes bytes = with_header(offload, frame);
    bench.send(bytes);
    std::vector<std::size_t> cuts;
    const std::size_t step = std::max<std::size_t>(7, bytes.size() / 40);
    for (std::size_t at = 3; at < bytes.size(); at += step) cuts.push_back(at);
    bench.send(bytes, cuts);
    const auto frames = bench.pass();
    for (const auto& one : frames) {
      EXPECT_EQ(one.bytes, frame);
      if (marks != nullptr) *marks = one.offload;
    }
    EXPECT_EQ(bench.driver->reap().size(), 2U);
    EXPECT_EQ(bench.drops(DropCause::kBadOffload) - before, 2 - frames.size());
    return static_cast<int>(frames.size());
  }
};
INSTANTIATE_TEST_SUITE_P(All, VirtioNetOffload, testing::ValuesIn(kAllPathKinds), kind_name);

// NET-11, SEC-12: the checksum field must lie in the frame, behind the Ethernet header.
TEST_P(VirtioNetOffload, NET_11_SEC_12_AChecksumBeyondTheFrameDropsIt) {
  TransmitBench bench(GetParam(), {Feature::kCsum}, 64);
  constexpr std::uint32_t kLength = 60;
  const Bytes frame = plain_frame(kLength);
  for (const std::uint32_t start :
       {0U, 1U, 13U, 14U, 34U, 42U, 50U, 57U, 58U, 59U, 60U, 61U, 0x7fffU, 0xfffeU, 0xffffU}) {
    for (const std::uint32_t offset :
         {0U, 1U, 6U, 16U, 23U, 24U, 25U, 44U, 45U, 0xfff0U, 0xffffU}) {
      const packet::Offload offload{.flags = kNeedsCsum,
                                    .csum_start = static_cast<std::uint16_t>(start),
                                    .csum_offset = static_cast<std::uint16_t>(offset)};
      const bool legal = start >= 14 && start + offset + 2 <= kLength;
      EXPECT_EQ(passes(bench, offload, frame), legal ? 2 : 0) << start << " + " << offset;
    }
  }
}

// Without NEEDS_CSUM the two fields mean nothing.
TEST_P(VirtioNetOffload, NET_11_ChecksumFieldsWithoutTheFlagAreIgnored) {
  TransmitBench bench(GetParam(), {Feature::kCsum}, 64);
  const packet::Offload offload{.csum_start = 0xffff, .csum_offset = 0xffff};
  EXPECT_EQ(passes(bench, offload, plain_frame(60)), 2);
}

TEST_P(VirtioNetOffload, NET_11_AChecksumRequestWithoutNegotiationDropsTheFrame) {
  TransmitBench bench(GetParam(), {}, 64);
  const packet::Offload offload{.flags = kNeedsCsum, .csum_start = 34, .csum_offset = 16};
  EXPECT_EQ(passes(bench, offload, plain_frame(60)), 0);
  EXPECT_EQ(passes(bench, {}, plain_frame(60)), 2);
}

// NET-12, SEC-17: segmentation needs a checksum to complete and a size.
TEST_P(VirtioNetOffload, NET_12_SEC_17_SegmentationWithoutChecksumOrSizeDropsTheFrame) {
  TransmitBench bench(GetParam(), kEverything, 64);
  const OffloadedFrame good = build_offloaded({.payload = 4000}, 1000);
  EXPECT_EQ(passes(bench, good.offload, good.bytes), 2);
  packet::Offload offload = good.offload;
  offload.gso_size = 0;
  EXPECT_EQ(passes(bench, offload, good.bytes), 0);
  offload = good.offload;
  offload.flags = 0;
  EXPECT_EQ(passes(bench, offload, good.bytes), 0);
}

// NET-12, NET-18, NET-19: all 256 types. Only what was negotiated passes; UFO (3) never was.
TEST_P(VirtioNetOffload, NET_12_NET_18_NET_19_OnlyNegotiatedTypesPass) {
  struct Case {
    FeatureSet features;
    std::vector<std::uint8_t> types;
  };
  const std::vector<Case> cases = {
      {{Feature::kCsum}, {0}},
      {{Feature::kCsum, Feature::kHostTso4}, {0, 1}},
      {{Feature::kCsum, Feature::kHostTso6}, {0, 4}},
      {{Feature::kCsum, Feature::kHostUso}, {0, 5}},
      {{Feature::kCsum, Feature::kHostTso4, Feature::kHostEcn}, {0, 1, 0x81}},
      {kEverything, {0, 1, 4, 5, 0x81, 0x84}},
  };
  for (const Case& c : cases) {
    TransmitBench bench(GetParam(), c.features, 64);
    for (std::uint32_t type = 0; type < 256; ++type) {
      const packet::Offload offload{.flags = kNeedsCsum,
                                    .gso_type = static_cast<std::uint8_t>(type),
                                    .gso_size = 500,
                                    .csum_start = 34,
                                    .csum_offset = 16};
      const bool legal = std::ranges::find(c.types, type) != c.types.end();
      EXPECT_EQ(passes(bench, offload, plain_frame(1000)), legal ? 2 : 0) << type;
    }
  }
}

// NET-13: what the driver says of the header's length decides nothing.
TEST_P(VirtioNetOffload, NET_13_AnyHeaderLengthIsHarmless) {
  TransmitBench bench(GetParam(), kEverything, 64);
  const OffloadedFrame good = build_offloaded({.payload = 4000}, 1000);
  for (const std::uint16_t length : Words{0, 1, 14, 53, 54, 55, 0x7fff, 0xffff}) {
    packet::Offload offload = good.offload;
    offload.hdr_len = length;
    EXPECT_EQ(passes(bench, offload, good.bytes), 2) << length;
  }
}

// NET-14: all 256 flags. Only NEEDS_CSUM is known here; DATA_VALID and RSC_INFO are not believed.
TEST_P(VirtioNetOffload, NET_14_UnknownFlagsAreIgnoredAndNotPassedOn) {
  TransmitBench bench(GetParam(), {Feature::kCsum}, 64);
  for (std::uint32_t flags = 0; flags < 256; ++flags) {
    packet::Offload marks{.flags = 0xff};
    const packet::Offload offload{
        .flags = static_cast<std::uint8_t>(flags), .csum_start = 34, .csum_offset = 16};
    EXPECT_EQ(passes(bench, offload, plain_frame(100), &marks), 2) << flags;
    EXPECT_EQ(marks.flags, flags & kNeedsCsum) << flags;
  }
}

// SEC-13: a thread rewrites the header and the first bytes of the frame all the time. The marks
// that come out are always ones that were checked, and each packet has the one head it was given.
TEST_P(VirtioNetOffload, SEC_13_SPL_16_WhatWasCheckedIsWhatIsPassedOn) {
  TransmitBench bench(GetParam(), kEverything, 64);
  constexpr std::uint32_t kLength = 100;
  const std::uint64_t address = bench.buffer(12 + kLength);
  const std::array<packet::Offload, 4> marks = {{
      {},
      {.flags = kNeedsCsum, .csum_start = 34, .csum_offset = 16},
      {.flags = kNeedsCsum, .csum_start = 0xffff, .csum_offset = 0xffff},
      {.flags = kNeedsCsum, .gso_type = 1, .gso_size = 0, .csum_start = 34, .csum_offset = 16},
  }};
  std::atomic<bool> stop{false};
  std::thread flipper([&] {
    for (std::size_t i = 0; !stop.load(std::memory_order_relaxed); ++i) {
      std::array<std::uint8_t, 10> raw;
      std::memcpy(raw.data(), &marks[i % marks.size()], raw.size());
      for (std::size_t k = 0; k < raw.size(); ++k) bench.guest.write(address + k, raw[k]);
      for (std::uint64_t k = 12; k < 28; ++k) {
        bench.guest.write(address + k, static_cast<std::uint8_t>(i));
      }
    }
  });
  std::uint64_t passed = 0;
  for (int round = 0; round < 5'000; ++round) {
    for (int i = 0; i < 4; ++i) {
      bench.driver->post({.address = address, .length = 12 + kLength});
    }
    for (const OffloadedFrame& frame : bench.take()) {
      const packet::Offload& offload = frame.offload;
      ++passed;
      ASSERT_EQ(offload.flags & ~kNeedsCsum, 0);
      if (offload.flags != 0) {
        ASSERT_GE(offload.csum_start, 14);
        ASSERT_LE(std::uint32_t{offload.csum_start} + offload.csum_offset + 2, kLength);
      }
      if (offload.gso_type != 0) {
        ASSERT_NE(offload.gso_size, 0);
        ASSERT_NE(offload.flags, 0);
      }
    }
    // The head is a copy: looked at twice, it is the same.
    std::vector<std::array<std::byte, packet::kHeadSize>> heads;
    for (std::size_t i = 0; i < bench.burst->count; ++i)
      heads.push_back(bench.burst->packets[i].head);
    for (std::size_t i = 0; i < bench.burst->count; ++i) {
      Bytes again(packet::kHeadSize);
      packet::copy_frame(*bench.burst, bench.burst->packets[i], 0, again);
      ASSERT_TRUE(std::ranges::equal(again, heads[i]));
    }
    bench.path.release();
    bench.driver->reap();
  }
  stop = true;
  flipper.join();
  EXPECT_GT(passed, 0U);
}

}  // namespace
}  // namespace sluice::test
