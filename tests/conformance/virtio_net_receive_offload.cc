// virtio-net, the device's receive side: offload marks towards the driver (virtio 1.3, 5.1.6.4;
// NET-10, NET-16 to NET-18). What was not negotiated is done in software first.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "support/path_bench.h"

namespace sluice::test {
namespace {

using net::DropCause;
using virtio::Feature;
using virtio::FeatureSet;

class VirtioNetReceiveOffload : public testing::TestWithParam<PathKind> {
 protected:
  static packet::Offload marks_of(const Bytes& packet) {
    packet::Offload marks;
    std::memcpy(&marks, packet.data(), sizeof marks);
    return marks;
  }
  static Bytes frame_of(const Bytes& packet) { return {packet.begin() + 12, packet.end()}; }
  static void post_many(ReceiveBench& bench, int count) {
    for (int i = 0; i < count; ++i) bench.post({2048});
  }
};
INSTANTIATE_TEST_SUITE_P(All, VirtioNetReceiveOffload, testing::ValuesIn(kAllPathKinds), kind_name);

// NET-10, NET-17: without GUEST_CSUM the flags are 0 and the checksum is complete.
TEST_P(VirtioNetReceiveOffload, NET_10_NET_17_WithoutGuestCsumTheChecksumIsCompleted) {
  for (const bool merge : {false, true}) {
    ReceiveBench bench(GetParam(), merge ? FeatureSet{Feature::kMrgRxbuf} : FeatureSet{});
    for (const bool udp : {false, true}) {
      for (const bool ipv6 : {false, true}) {
        const FramePlan plan{.ipv6 = ipv6, .udp = udp, .payload = 333};
        const OffloadedFrame frame = build_offloaded(plan);
        post_many(bench, 1);
        ASSERT_EQ(bench.deliver(std::span(&frame, 1), 2), 1U);
        const auto packets = bench.packets();
        ASSERT_EQ(packets.size(), 1U);
        EXPECT_EQ(marks_of(packets[0]), packet::Offload{});
        EXPECT_EQ(frame_of(packets[0]), build_frame(plan));
      }
    }
  }
}

TEST_P(VirtioNetReceiveOffload, NET_10_WithGuestCsumTheMarksPassUntouched) {
  ReceiveBench bench(GetParam(), {Feature::kGuestCsum});
  const OffloadedFrame frame = build_offloaded({.payload = 333});
  post_many(bench, 1);
  ASSERT_EQ(bench.deliver(std::span(&frame, 1)), 1U);
  const auto packets = bench.packets();
  ASSERT_EQ(packets.size(), 1U);
  EXPECT_EQ(marks_of(packets[0]), frame.offload);
  EXPECT_EQ(frame_of(packets[0]), frame.bytes);
}

// NET-16: each type passes only if its own feature was negotiated; else segments of full size come.
TEST_P(VirtioNetReceiveOffload, NET_16_SegmentationThatWasNotNegotiatedIsDoneInSoftware) {
  struct Case {
    FramePlan plan;
    FeatureSet features;
  };
  const std::vector<Case> cases = {
      {{.payload = 3500}, {Feature::kGuestTso4}},
      {{.ipv6 = true, .payload = 3500}, {Feature::kGuestTso6}},
      {{.udp = true, .payload = 3500}, {Feature::kGuestUso4, Feature::kGuestUso6}},
  };
  for (const Case& c : cases) {
    const OffloadedFrame frame = build_offloaded(c.plan, 1000);
    for (const bool negotiated : {false, true}) {
      FeatureSet features{Feature::kGuestCsum, Feature::kMrgRxbuf};
      if (negotiated) features = features | c.features;
      ReceiveBench bench(GetParam(), features);
      post_many(bench, 8);
      ASSERT_EQ(bench.deliver(std::span(&frame, 1)), 1U);
      const auto packets = bench.packets();
      if (negotiated) {
        ASSERT_EQ(packets.size(), 1U);
        EXPECT_EQ(marks_of(packets[0]), frame.offload);
        EXPECT_EQ(frame_of(packets[0]), frame.bytes);
        continue;
      }
      ASSERT_EQ(packets.size(), 4U);
      Bytes payload;
      for (const Bytes& packet : packets) {
        EXPECT_EQ(marks_of(packet), packet::Offload{});
        const Bytes segment = frame_of(packet);
        EXPECT_TRUE(checksums_are_right(c.plan, segment));
        payload.insert(payload.end(),
                       segment.begin() + static_cast<std::ptrdiff_t>(payload_at(c.plan)),
                       segment.end());
      }
      EXPECT_TRUE(std::equal(payload.begin(), payload.end(),
                             frame.bytes.begin() + static_cast<std::ptrdiff_t>(payload_at(c.plan)),
                             frame.bytes.end()));
    }
  }
}

TEST_P(VirtioNetReceiveOffload, NET_18_EcnPassesOnlyWithItsFeature) {
  OffloadedFrame frame = build_offloaded({.payload = 2500}, 1000);
  frame.offload.gso_type |= 0x80;
  for (const bool ecn : {false, true}) {
    FeatureSet features{Feature::kGuestCsum, Feature::kGuestTso4, Feature::kMrgRxbuf};
    if (ecn) features.add(Feature::kGuestEcn);
    ReceiveBench bench(GetParam(), features);
    post_many(bench, 4);
    ASSERT_EQ(bench.deliver(std::span(&frame, 1)), 1U);
    EXPECT_EQ(bench.packets().size(), ecn ? 1U : 3U);
  }
}

// NET-16: what cannot be segmented is dropped and counted, never passed on as it is.
TEST_P(VirtioNetReceiveOffload, NET_16_WhatCannotBeSegmentedIsDroppedAndCounted) {
  ReceiveBench bench(GetParam(), {Feature::kGuestCsum, Feature::kMrgRxbuf});
  OffloadedFrame frame = build_offloaded({.payload = 3500}, 1000);
  frame.offload.gso_type = 4;  // "TCP over IPv6", and it is not.
  post_many(bench, 8);
  EXPECT_EQ(bench.deliver(std::span(&frame, 1)), 0U);
  EXPECT_EQ(bench.drops(DropCause::kNotSegmentable), 1U);
  EXPECT_TRUE(bench.received().empty());
}

// Segments go through the same buffers as anything else: a packet that runs out of them on the way
// is counted once, and buffers stay in order.
TEST_P(VirtioNetReceiveOffload, NET_16_SegmentsThatFindNoBuffersDropTheRestOnce) {
  ReceiveBench bench(GetParam());
  const OffloadedFrame frame = build_offloaded({.payload = 3500}, 1000);
  post_many(bench, 2);
  EXPECT_EQ(bench.deliver(std::span(&frame, 1)), 0U);
  EXPECT_EQ(bench.all_drops(), 1U);
  const std::size_t partial = bench.packets().size();
  EXPECT_LE(partial, 2U);
  post_many(bench, 4);
  ASSERT_EQ(bench.deliver(std::span(&frame, 1)), 1U);
  EXPECT_EQ(bench.packets().size(), 4U);
}

// The driver's MTU: frames above it are dropped, segments are judged one by one.
TEST_P(VirtioNetReceiveOffload, AFrameAboveTheMtuIsDroppedAndCounted) {
  ReceiveBench bench(GetParam(), {Feature::kMrgRxbuf}, 256, {.mtu = 1500});
  post_many(bench, 40);
  EXPECT_EQ(bench.deliver(plain_frame(1518)), 1U) << "a VLAN tag is allowed";
  EXPECT_EQ(bench.deliver(plain_frame(1519)), 0U);
  EXPECT_EQ(bench.drops(DropCause::kMtu), 1U);
  const OffloadedFrame large = build_offloaded({.payload = 8000}, 1400);
  EXPECT_EQ(bench.deliver(std::span(&large, 1)), 1U);
  const OffloadedFrame wide = build_offloaded({.payload = 8000}, 1500);
  EXPECT_EQ(bench.deliver(std::span(&wide, 1)), 0U);
  EXPECT_EQ(bench.drops(DropCause::kMtu), 2U);
}

}  // namespace
}  // namespace sluice::test
