// Segmenter against a slow reference that works field by field, and against bytes that lie.
#include "packet/offload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "support/frame_builder.h"

namespace sluice::packet {
namespace {

using test::build_frame;
using test::build_offloaded;
using test::Bytes;
using test::FramePlan;
using test::OffloadedFrame;

constexpr std::uint8_t kFin = 0x01;
constexpr std::uint8_t kSyn = 0x02;
constexpr std::uint8_t kRst = 0x04;
constexpr std::uint8_t kPsh = 0x08;
constexpr std::uint8_t kAck = 0x10;
constexpr std::uint8_t kUrg = 0x20;
constexpr std::uint8_t kCwr = 0x80;

std::vector<Bytes> segments_of(const OffloadedFrame& frame) {
  const Bytes exact(frame.bytes);
  Segmenter segmenter(exact, frame.offload);
  std::vector<Bytes> segments;
  // Exactly as large as promised, so that AddressSanitizer sees a byte too many.
  Bytes out(segmenter.longest());
  while (const std::uint32_t length = segmenter.next(out)) {
    segments.emplace_back(out.begin(), out.begin() + length);
  }
  EXPECT_EQ(segments.size(), segmenter.count());
  EXPECT_EQ(segmenter.next(out), 0U) << "and stays at its end";
  return segments;
}

bool refused(const OffloadedFrame& frame) {
  const Segmenter segmenter(frame.bytes, frame.offload);
  EXPECT_EQ(segmenter.valid(), segmenter.count() != 0);
  if (!segmenter.valid()) {
    EXPECT_TRUE(segments_of(frame).empty());
  }
  return !segmenter.valid();
}

// What a sender without offload would have sent: one frame for each piece of the payload, made by
// the builder from a plan of its own.
std::vector<Bytes> reference(const FramePlan& whole, std::size_t size) {
  const Bytes original = build_frame(whole);
  std::vector<Bytes> segments;
  for (std::size_t offset = 0; offset < std::max<std::size_t>(whole.payload, 1); offset += size) {
    FramePlan plan = whole;
    const bool last = offset + size >= whole.payload;
    plan.payload = last ? whole.payload - offset : size;
    plan.sequence += static_cast<std::uint32_t>(offset);
    plan.identification = static_cast<std::uint16_t>(whole.identification + segments.size());
    if (!last) plan.tcp_flags &= static_cast<std::uint8_t>(~(kFin | kPsh));
    if (offset != 0) plan.tcp_flags &= static_cast<std::uint8_t>(~kCwr);
    if ((whole.tcp_flags & kUrg) != 0 && offset != 0) {
      if (whole.urgent <= offset) plan.tcp_flags &= static_cast<std::uint8_t>(~kUrg);
      plan.urgent = static_cast<std::uint16_t>(whole.urgent <= offset ? 0 : whole.urgent - offset);
    }
    // The builder's payload begins with 1 each time; ours goes on.
    auto [bytes, offload] = build_offloaded(plan);
    std::copy_n(original.begin() + static_cast<std::ptrdiff_t>(test::payload_at(whole) + offset),
                plan.payload, bytes.begin() + static_cast<std::ptrdiff_t>(test::payload_at(plan)));
    complete_checksum(bytes, offload);
    EXPECT_TRUE(test::checksums_are_right(plan, bytes));
    segments.push_back(std::move(bytes));
  }
  return segments;
}

void expect_equal_to_reference(const FramePlan& plan, std::uint16_t gso_size) {
  const auto segments = segments_of(build_offloaded(plan, gso_size));
  const auto expected = reference(plan, gso_size);
  ASSERT_EQ(segments.size(), expected.size());
  for (std::size_t i = 0; i < segments.size(); ++i) {
    ASSERT_EQ(segments[i], expected[i]) << "segment " << i << " of " << segments.size();
  }
}

TEST(Segmenter, EqualsTheReferenceForEveryKindOfFrame) {
  for (const std::size_t tags : {0UL, 1UL, 2UL}) {
    for (const bool ipv6 : {false, true}) {
      for (const bool udp : {false, true}) {
        for (const std::size_t payload : {0UL, 1UL, 99UL, 100UL, 101UL, 200UL, 1234UL, 20'000UL}) {
          const FramePlan plan{.vlan_tags = tags, .ipv6 = ipv6, .udp = udp, .payload = payload};
          for (const std::uint16_t size :
               std::initializer_list<std::uint16_t>{std::uint16_t{100}, std::uint16_t{1448}}) {
            expect_equal_to_reference(plan, size);
          }
        }
      }
    }
  }
}

TEST(Segmenter, EqualsTheReferenceForEverySmallSize) {
  for (std::uint16_t size = 1; size < 64; ++size) {
    for (const std::size_t payload : {1UL, 7UL, 63UL, 64UL}) {
      expect_equal_to_reference({.payload = payload}, size);
      expect_equal_to_reference({.ipv6 = true, .udp = true, .payload = payload}, size);
    }
  }
}

TEST(Segmenter, RepeatsOptionsAndExtensionHeaders) {
  expect_equal_to_reference({.ipv4_options = {7, 3, 4, 1},
                             .tcp_options = {1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8},
                             .payload = 3000},
                            1000);
  expect_equal_to_reference(
      {.ipv6 = true, .extensions = {{60, {0, 1, 4, 0, 0, 0, 0}}}, .payload = 3000}, 999);
}

TEST(Segmenter, ControlBitsStandWhereTheyBelong) {
  for (int flags = 0; flags < 256; ++flags) {
    if ((flags & (kSyn | kRst)) != 0) continue;
    const FramePlan plan{.tcp_flags = static_cast<std::uint8_t>(flags), .payload = 450};
    expect_equal_to_reference(plan, 100);
  }
  const FramePlan plan{.tcp_flags = kFin | kPsh | kAck | kCwr, .payload = 300};
  const auto segments = segments_of(build_offloaded(plan, 100));
  ASSERT_EQ(segments.size(), 3U);
  const auto flags_of = [&](std::size_t i) {
    return std::to_integer<int>(segments[i][test::transport_at(plan) + 13]);
  };
  EXPECT_EQ(flags_of(0), kAck | kCwr);
  EXPECT_EQ(flags_of(1), kAck);
  EXPECT_EQ(flags_of(2), kAck | kFin | kPsh);
}

TEST(Segmenter, NET_18_TheEcnBitChangesNoSegment) {
  const FramePlan plan{.tcp_flags = kAck | kCwr, .payload = 300};
  OffloadedFrame frame = build_offloaded(plan, 100);
  const auto without = segments_of(frame);
  frame.offload.gso_type |= kGsoEcn;
  EXPECT_EQ(segments_of(frame), without);
}

TEST(Segmenter, UrgentDataStaysWhereItWas) {
  for (const std::uint16_t urgent :
       std::initializer_list<std::uint16_t>{0, 1, 99, 100, 101, 250, 449, 450, 65535}) {
    expect_equal_to_reference({.tcp_flags = kAck | kUrg, .urgent = urgent, .payload = 450}, 100);
  }
}

TEST(Segmenter, AllSegmentsTogetherAreThePayload) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 300; ++i) {
    const FramePlan plan{.vlan_tags = random() % 3,
                         .ipv6 = random() % 2 == 0,
                         .udp = random() % 2 == 0,
                         .sequence = static_cast<std::uint32_t>(random()),
                         .payload = random() % 65'000};
    const auto size = static_cast<std::uint16_t>(256 + random() % 9000);
    const OffloadedFrame frame = build_offloaded(plan, size);
    const auto segments = segments_of(frame);
    ASSERT_FALSE(segments.empty());
    Bytes payload;
    const auto headers = static_cast<std::ptrdiff_t>(test::payload_at(plan));
    for (const Bytes& segment : segments) {
      ASSERT_TRUE(test::checksums_are_right(plan, segment));
      payload.insert(payload.end(), segment.begin() + headers, segment.end());
    }
    ASSERT_TRUE(std::equal(payload.begin(), payload.end(), frame.bytes.begin() + headers,
                           frame.bytes.end()));
  }
}

TEST(Segmenter, NET_13_HdrLenDoesNotMatter) {
  OffloadedFrame frame = build_offloaded({.payload = 500}, 100);
  const auto right = segments_of(frame);
  for (const std::uint16_t hdr_len :
       std::initializer_list<std::uint16_t>{0, 1, 54, 55, 500, 65535}) {
    frame.offload.hdr_len = hdr_len;
    EXPECT_EQ(segments_of(frame), right);
  }
}

TEST(Segmenter, LengthFieldsAndChecksumsOfTheSenderDoNotMatter) {
  OffloadedFrame frame = build_offloaded({.payload = 500}, 100);
  const auto right = segments_of(frame);
  for (const std::size_t field : {16UL, 17UL, 24UL, 25UL, 50UL, 51UL}) {
    frame.bytes[field] = std::byte{0xEE};
  }
  EXPECT_EQ(segments_of(frame), right);
}

TEST(Segmenter, NET_19_UdpFragmentsAreRefused) {
  OffloadedFrame frame = build_offloaded({.udp = true, .payload = 500}, 100);
  EXPECT_FALSE(refused(frame));
  frame.offload.gso_type = kGsoTypeUdpFragments;
  EXPECT_TRUE(refused(frame));
}

TEST(Segmenter, TypesThatDoNotSuitTheFrameAreRefused) {
  for (const bool ipv6 : {false, true}) {
    for (const bool udp : {false, true}) {
      OffloadedFrame frame = build_offloaded({.ipv6 = ipv6, .udp = udp, .payload = 500}, 100);
      const std::uint8_t right = frame.offload.gso_type;
      for (const std::uint8_t type : std::initializer_list<std::uint8_t>{1, 3, 4, 5}) {
        frame.offload.gso_type = type;
        EXPECT_EQ(refused(frame), type != right);
      }
    }
  }
}

TEST(Segmenter, MarksThatPointElsewhereAreRefused) {
  for (const int step : {-20, -1, 1, 8, 1000}) {
    OffloadedFrame frame = build_offloaded({.payload = 2000}, 100);
    frame.offload.csum_start = static_cast<std::uint16_t>(frame.offload.csum_start + step);
    EXPECT_TRUE(refused(frame));
    frame = build_offloaded({.udp = true, .payload = 2000}, 100);
    frame.offload.csum_offset = static_cast<std::uint16_t>(frame.offload.csum_offset + step);
    EXPECT_TRUE(refused(frame));
  }
}

TEST(Segmenter, SEC_46_HeadersThatAreTooShortAreRefused) {
  for (int ihl = 0; ihl < 16; ++ihl) {
    OffloadedFrame frame = build_offloaded({.payload = 500}, 100);
    frame.bytes[14] = static_cast<std::byte>(0x40 | ihl);
    EXPECT_EQ(refused(frame), ihl != 5) << ihl;
  }
  for (int words = 0; words < 5; ++words) {
    OffloadedFrame frame = build_offloaded({.payload = 500}, 100);
    frame.bytes[46] = static_cast<std::byte>(words << 4);
    EXPECT_TRUE(refused(frame)) << words;
  }
}

TEST(Segmenter, FramesThatNoStackWouldSegmentAreRefused) {
  EXPECT_TRUE(refused(build_offloaded({.tcp_flags = kSyn, .payload = 500}, 100)));
  EXPECT_TRUE(refused(build_offloaded({.tcp_flags = kRst | kAck, .payload = 500}, 100)));
  EXPECT_TRUE(refused(build_offloaded({.fragment = 0x2000, .payload = 500}, 100)));
  EXPECT_TRUE(refused(build_offloaded({.fragment = 0x0001, .payload = 500}, 100)));
  EXPECT_TRUE(
      refused(build_offloaded({.ipv4_options = {131, 7, 4, 10, 0, 0, 1, 0}, .payload = 500}, 100)));
  EXPECT_TRUE(refused(build_offloaded(
      {.ipv6 = true, .extensions = {{43, {0, 4, 1, 0, 0, 0, 0}}}, .payload = 500}, 100)));
}

TEST(Segmenter, SEC_17_ASizeOfZeroIsRefusedNotDividedBy) {
  OffloadedFrame frame = build_offloaded({.payload = 500}, 100);
  frame.offload.gso_size = 0;
  EXPECT_TRUE(refused(frame));
}

TEST(Segmenter, OneFrameBecomesAtMost256) {
  EXPECT_EQ(segments_of(build_offloaded({.payload = 256}, 1)).size(), 256U);
  EXPECT_TRUE(refused(build_offloaded({.payload = 257}, 1)));
  EXPECT_TRUE(refused(build_offloaded({.payload = 65'000}, 1)));
  // What real paths can ask for: the smallest segments of IPv4, an MTU of 296.
  EXPECT_FALSE(refused(build_offloaded({.payload = 65'495}, 536)));
  EXPECT_FALSE(refused(build_offloaded({.payload = 65'495}, 256)));
}

TEST(Segmenter, HeadersAreLimited) {
  FramePlan plan{.ipv6 = true, .payload = 500};
  std::vector<std::uint8_t> extension(127 + 8);
  extension[0] = 16;  // 8 * (16 + 1) bytes.
  extension[1] = 1;
  extension[2] = 132;
  plan.extensions.emplace_back(60, extension);
  EXPECT_LE(test::payload_at(plan), Segmenter::kHeadersMax);
  EXPECT_FALSE(refused(build_offloaded(plan, 100)));
  plan.extensions.emplace_back(60, extension);
  EXPECT_GT(test::payload_at(plan), Segmenter::kHeadersMax);
  EXPECT_TRUE(refused(build_offloaded(plan, 100)));
}

TEST(Segmenter, SegmentsThatDoNotFitALengthFieldAreRefused) {
  // IPv4 counts its header, IPv6 does not.
  EXPECT_FALSE(refused(build_offloaded({.payload = 65'535 - 40}, 65'535)));
  EXPECT_TRUE(refused(build_offloaded({.payload = 65'535 - 39}, 65'535)));
  EXPECT_FALSE(refused(build_offloaded({.payload = 65'535 - 39}, 40'000)));
  EXPECT_FALSE(refused(build_offloaded({.ipv6 = true, .udp = true, .payload = 65'527}, 65'535)));
  EXPECT_TRUE(refused(build_offloaded({.ipv6 = true, .udp = true, .payload = 65'528}, 65'535)));
}

TEST(Segmenter, FramesLongerThanAnyFrameAreRefused) {
  EXPECT_TRUE(refused(build_offloaded({.ipv6 = true, .payload = kFrameMax}, 9000)));
}

TEST(Segmenter, SEC_46_RandomDamageNeverLeavesTheBuffers) {
  std::mt19937_64 random(11);
  std::size_t cut = 0;
  for (int i = 0; i < 20'000; ++i) {
    const FramePlan plan{.vlan_tags = random() % 3,
                         .ipv6 = random() % 2 == 0,
                         .udp = random() % 2 == 0,
                         .payload = random() % 600};
    OffloadedFrame frame = build_offloaded(plan, static_cast<std::uint16_t>(1 + random() % 700));
    for (std::size_t changes = random() % 4; changes > 0; --changes) {
      frame.bytes[random() % std::min<std::size_t>(frame.bytes.size(), 80)] =
          static_cast<std::byte>(random());
    }
    if (random() % 4 == 0) frame.bytes.resize(random() % (frame.bytes.size() + 1));
    if (!offload_is_consistent(frame.offload, static_cast<std::uint32_t>(frame.bytes.size()))) {
      continue;
    }
    cut += segments_of(frame).size();
  }
  EXPECT_GT(cut, 10'000U) << "the damage must leave something to cut";
}

TEST(SegmenterDeathTest, AScratchFrameThatIsTooSmallIsOurBug) {
  const OffloadedFrame frame = build_offloaded({.payload = 500}, 100);
  Segmenter segmenter(frame.bytes, frame.offload);
  Bytes out(segmenter.longest() - 1);
  EXPECT_DEATH((void)segmenter.next(out), "scratch frame");
}

}  // namespace
}  // namespace sluice::packet
