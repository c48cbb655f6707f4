// parse_headers(): what well-formed frames are, and that malformed ones end the walk in bounds.
#include "packet/headers.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "packet/packet.h"
#include "support/frame_builder.h"

namespace sluice::packet {
namespace {

using test::build_frame;
using test::Bytes;
using test::FramePlan;

void set(Bytes& frame, std::size_t at, int value) {
  frame.at(at) = static_cast<std::byte>(value);
}

// Every promise of Headers that does not depend on the bytes.
void expect_in_bounds(const Headers& headers, std::size_t size) {
  ASSERT_LE(headers.network_at, headers.transport_at);
  ASSERT_LE(headers.transport_at, headers.payload_at);
  if (size >= kEthernetHeaderSize) {
    ASSERT_LE(headers.payload_at, size);
  }
  ASSERT_LE(headers.vlan_tags, kVlanTagsMax);
  if (headers.network == Network::kNone) {
    ASSERT_EQ(headers.payload_at, headers.network_at);
    ASSERT_EQ(headers.transport, Transport::kNone);
  } else {
    ASSERT_LE(headers.addresses_at() + headers.addresses_size(), size);
  }
  if (headers.transport == Transport::kTcp) {
    ASSERT_GE(headers.payload_at - headers.transport_at, kTcpHeaderSize);
  }
  if (headers.transport == Transport::kUdp) {
    ASSERT_EQ(headers.payload_at - headers.transport_at, kUdpHeaderSize);
  }
  if (headers.fragment) {
    ASSERT_EQ(headers.transport, Transport::kNone);
  }
}

TEST(Headers, FindsEveryHeaderOfEveryKindOfFrame) {
  for (const std::size_t tags : {0UL, 1UL, 2UL}) {
    for (const bool ipv6 : {false, true}) {
      for (const bool udp : {false, true}) {
        const FramePlan plan{.vlan_tags = tags, .ipv6 = ipv6, .udp = udp};
        const Headers headers = parse_headers(build_frame(plan));
        EXPECT_EQ(headers.vlan_tags, tags);
        EXPECT_EQ(headers.ether_type, ipv6 ? kEtherTypeIpv6 : kEtherTypeIpv4);
        EXPECT_EQ(headers.network, ipv6 ? Network::kIpv6 : Network::kIpv4);
        EXPECT_EQ(headers.transport, udp ? Transport::kUdp : Transport::kTcp);
        EXPECT_EQ(headers.ip_protocol, udp ? kIpProtocolUdp : kIpProtocolTcp);
        EXPECT_EQ(headers.network_at, test::network_at(plan));
        EXPECT_EQ(headers.transport_at, test::transport_at(plan));
        EXPECT_EQ(headers.payload_at, test::payload_at(plan));
        EXPECT_FALSE(headers.fragment);
        EXPECT_FALSE(headers.source_routed);
      }
    }
  }
}

TEST(Headers, ReadsTheTagsFromOutsideIn) {
  const Headers headers = parse_headers(build_frame({.vlan_tags = 2}));
  EXPECT_EQ(headers.vlan[0], 0x6064);
  EXPECT_EQ(headers.vlan[1], 0x6065);
}

TEST(Headers, AThirdTagIsPayload) {
  const Headers headers = parse_headers(build_frame({.vlan_tags = 3}));
  EXPECT_EQ(headers.vlan_tags, 2);
  EXPECT_EQ(headers.ether_type, kEtherTypeVlan);
  EXPECT_EQ(headers.network, Network::kNone);
}

TEST(Headers, OptionsMoveThePayload) {
  const FramePlan plan{.ipv4_options = {1, 1, 1, 0}, .tcp_options = {1, 1, 1, 1, 1, 1, 1, 0}};
  const Headers headers = parse_headers(build_frame(plan));
  EXPECT_EQ(headers.transport_at, 14U + 24);
  EXPECT_EQ(headers.payload_at, 14U + 24 + 28);
}

TEST(Headers, WalksExtensionHeaders) {
  const FramePlan plan{.ipv6 = true,
                       .udp = true,
                       .extensions = {{0, {0, 1, 4, 0, 0, 0, 0}},  // Hop by hop.
                                      {60, {1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
                                      {43, {0, 4, 0, 0, 0, 0, 0}},  // Routing, at its end.
                                      {51, {1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}}}};  // 12 bytes.
  const Headers headers = parse_headers(build_frame(plan));
  EXPECT_EQ(headers.transport, Transport::kUdp);
  EXPECT_EQ(headers.transport_at, test::transport_at(plan));
  EXPECT_FALSE(headers.source_routed);
}

TEST(Headers, EndsTheWalkAfterEightExtensionHeaders) {
  FramePlan plan{.ipv6 = true};
  plan.extensions.assign(kExtensionHeadersMax, {60, {0, 1, 4, 0, 0, 0, 0}});
  EXPECT_EQ(parse_headers(build_frame(plan)).transport, Transport::kTcp);
  plan.extensions.emplace_back(60, std::vector<std::uint8_t>{0, 1, 4, 0, 0, 0, 0});
  const Headers headers = parse_headers(build_frame(plan));
  EXPECT_EQ(headers.network, Network::kIpv6);
  EXPECT_EQ(headers.transport, Transport::kNone);
}

TEST(Headers, FragmentsHaveNoTransport) {
  for (const int bits : {0x2000, 0x0001, 0x1FFF, 0x2005}) {
    const Headers headers =
        parse_headers(build_frame({.fragment = static_cast<std::uint16_t>(bits)}));
    EXPECT_TRUE(headers.fragment);
    EXPECT_EQ(headers.transport, Transport::kNone);
    EXPECT_EQ(headers.ip_protocol, kIpProtocolTcp);
  }
  EXPECT_FALSE(parse_headers(build_frame({.fragment = 0x4000})).fragment) << "don't fragment";
  const auto v6 = [](std::uint8_t high, std::uint8_t low) {
    return parse_headers(
        build_frame({.ipv6 = true, .extensions = {{44, {0, high, low, 0, 0, 0, 9}}}}));
  };
  EXPECT_EQ(v6(0, 0).transport, Transport::kTcp) << "a fragment that is the whole (RFC 6946)";
  EXPECT_TRUE(v6(0, 1).fragment);
  EXPECT_TRUE(v6(0, 8).fragment);
  EXPECT_TRUE(v6(0xFF, 0xF8).fragment);
  EXPECT_EQ(v6(0, 8).transport, Transport::kNone);
}

TEST(Headers, KnowsSourceRoutes) {
  const auto v4 = [](std::vector<std::uint8_t> options) {
    return parse_headers(build_frame({.ipv4_options = std::move(options)})).source_routed;
  };
  EXPECT_TRUE(v4({131, 7, 4, 10, 0, 0, 1, 0}));
  EXPECT_TRUE(v4({1, 137, 7, 4, 10, 0, 0, 1}));
  EXPECT_TRUE(v4({7, 3, 4, 131}));
  EXPECT_FALSE(v4({7, 7, 4, 131, 131, 131, 131, 0})) << "addresses recorded on the way";
  EXPECT_FALSE(v4({0, 131, 131, 131})) << "behind the end of options";
  EXPECT_FALSE(v4({7, 0, 131, 131})) << "a length of 0 must not go round for ever";
  EXPECT_FALSE(v4({7, 1, 131, 131}));
  EXPECT_FALSE(v4({1, 1, 1, 7}));
  EXPECT_TRUE(
      parse_headers(build_frame({.ipv6 = true, .extensions = {{43, {0, 4, 1, 0, 0, 0, 0}}}}))
          .source_routed);
}

TEST(Headers, SEC_46_ShortAndLyingIpHeadersAreNotBelieved) {
  for (int ihl = 0; ihl < 16; ++ihl) {
    Bytes frame = build_frame({.payload = 4});
    set(frame, 14, 0x40 | ihl);
    const Headers headers = parse_headers(frame);
    expect_in_bounds(headers, frame.size());
    const bool fits = ihl >= 5 && 14 + ihl * 4 <= static_cast<int>(frame.size());
    EXPECT_EQ(headers.network == Network::kIpv4, fits) << ihl;
  }
  for (int version = 0; version < 16; ++version) {
    Bytes frame = build_frame({});
    set(frame, 14, version << 4 | 5);
    EXPECT_EQ(parse_headers(frame).network == Network::kIpv4, version == 4);
    frame = build_frame({.ipv6 = true});
    set(frame, 14, version << 4);
    EXPECT_EQ(parse_headers(frame).network == Network::kIpv6, version == 6);
  }
}

TEST(Headers, SEC_46_ShortTcpHeadersAreNotBelieved) {
  for (int words = 0; words < 16; ++words) {
    Bytes frame = build_frame({.payload = 10});
    set(frame, 14 + 20 + 12, words << 4);
    const Headers headers = parse_headers(frame);
    expect_in_bounds(headers, frame.size());
    EXPECT_EQ(headers.transport == Transport::kTcp, words >= 5 && words * 4 <= 30) << words;
  }
}

TEST(Headers, LengthFieldsOfTheSenderDoNotMatter) {
  Bytes frame = build_frame({});
  const Headers right = parse_headers(frame);
  for (const int value : {0x00, 0x01, 0xFF}) {
    set(frame, 16, value);
    set(frame, 17, value);
    EXPECT_EQ(parse_headers(frame).payload_at, right.payload_at);
  }
}

TEST(Headers, EveryTruncationOfEveryFrameStaysInBounds) {
  const std::vector<FramePlan> plans = {
      {.vlan_tags = 2, .ipv4_options = {1, 1, 1, 0}, .tcp_options = {1, 1, 1, 0}, .payload = 3},
      {.ipv6 = true, .udp = true, .payload = 3},
      {.vlan_tags = 1,
       .ipv6 = true,
       .extensions = {{0, {0, 1, 4, 0, 0, 0, 0}}, {44, {0, 0, 0, 0, 0, 0, 9}}},
       .payload = 3}};
  for (const FramePlan& plan : plans) {
    const Bytes whole = build_frame(plan);
    for (std::size_t size = 0; size <= whole.size(); ++size) {
      // An exact copy, so that AddressSanitizer sees a read past the end.
      const Bytes frame(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
      const Headers headers = parse_headers(frame);
      expect_in_bounds(headers, size);
      EXPECT_EQ(headers.transport != Transport::kNone, size >= test::payload_at(plan)) << size;
    }
  }
}

TEST(Headers, RandomBytesStayInBounds) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 50'000; ++i) {
    Bytes frame = build_frame({.vlan_tags = random() % 3, .ipv6 = random() % 2 == 0});
    frame.resize(random() % frame.size());
    for (std::size_t changes = random() % 8; changes > 0 && !frame.empty(); --changes) {
      set(frame, random() % frame.size(), static_cast<int>(random() & 0xFF));
    }
    const Headers headers = parse_headers(Bytes(frame));
    expect_in_bounds(headers, frame.size());
    if (frame.size() >= kEthernetHeaderSize) (void)flow_hash(frame, headers);
  }
}

// A frame that goes back: source and destination exchanged everywhere.
Bytes reply_to(Bytes frame, const FramePlan& plan) {
  const auto at = [&](std::size_t offset) { return frame.begin() + static_cast<int>(offset); };
  std::swap_ranges(at(0), at(6), at(6));
  const std::size_t addresses = test::network_at(plan) + (plan.ipv6 ? 8 : 12);
  const std::size_t size = plan.ipv6 ? 16 : 4;
  std::swap_ranges(at(addresses), at(addresses + size), at(addresses + size));
  const std::size_t ports = test::transport_at(plan);
  std::swap_ranges(at(ports), at(ports + 2), at(ports + 2));
  return frame;
}

TEST(FlowHash, IsTheSameInBothDirectionsAndForAllPacketsOfAFlow) {
  for (const bool ipv6 : {false, true}) {
    for (const bool udp : {false, true}) {
      const FramePlan plan{.ipv6 = ipv6, .udp = udp};
      const Bytes frame = build_frame(plan);
      const std::uint32_t hash = flow_hash(frame, parse_headers(frame));
      const Bytes reply = reply_to(frame, plan);
      EXPECT_EQ(flow_hash(reply, parse_headers(reply)), hash);
      FramePlan later = plan;
      later.sequence = 77;
      later.payload = 5;
      const Bytes next = build_frame(later);
      EXPECT_EQ(flow_hash(next, parse_headers(next)), hash);
    }
  }
}

TEST(FlowHash, SpreadsFlowsThatDifferByOnePort) {
  std::vector<int> buckets(16);
  for (int port = 0; port < 1600; ++port) {
    Bytes frame = build_frame({});
    set(frame, 34, port >> 8);
    set(frame, 35, port & 0xFF);
    ++buckets[flow_hash(frame, parse_headers(frame)) % buckets.size()];
  }
  for (const int count : buckets) {
    EXPECT_GT(count, 50);
    EXPECT_LT(count, 160);
  }
}

TEST(FlowHash, KeepsTheFragmentsOfADatagramTogether) {
  const Bytes first = build_frame({.udp = true, .fragment = 0x2000});
  Bytes second = build_frame({.udp = true, .fragment = 0x0010});
  set(second, 34, 0x99);  // Where the first has its ports, the second has payload.
  EXPECT_EQ(flow_hash(first, parse_headers(first)), flow_hash(second, parse_headers(second)));
}

TEST(FlowHash, FramesWithoutIpHashByTheirStations) {
  Bytes frame(60, std::byte{1});
  set(frame, 0, 0x52);
  const std::uint32_t hash = flow_hash(frame, parse_headers(frame));
  set(frame, 59, 0x77);
  EXPECT_EQ(flow_hash(frame, parse_headers(frame)), hash);
  set(frame, 5, 0x78);
  EXPECT_NE(flow_hash(frame, parse_headers(frame)), hash);
}

}  // namespace
}  // namespace sluice::packet
