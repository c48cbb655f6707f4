// Frames put together field by field, and a checksum by the letter of RFC 1071.
#include "support/frame_builder.h"

#include <algorithm>

namespace sluice::test {

namespace {

void put8(Bytes& out, std::size_t value) {
  out.push_back(static_cast<std::byte>(value));
}
void put16(Bytes& out, std::size_t value) {
  put8(out, value >> 8 & 0xFF);
  put8(out, value & 0xFF);
}
void put32(Bytes& out, std::size_t value) {
  put16(out, value >> 16 & 0xFFFF);
  put16(out, value & 0xFFFF);
}
void put_all(Bytes& out, const std::vector<std::uint8_t>& values) {
  for (const std::uint8_t value : values) put8(out, value);
}

void set16(Bytes& out, std::size_t at, std::size_t value) {
  out.at(at) = static_cast<std::byte>(value >> 8 & 0xFF);
  out.at(at + 1) = static_cast<std::byte>(value & 0xFF);
}

std::size_t protocol_of(const FramePlan& plan) {
  return plan.udp ? 17 : 6;
}

std::size_t transport_length(const FramePlan& plan) {
  return (plan.udp ? 8 : 20 + plan.tcp_options.size()) + plan.payload;
}

void put_ipv4(Bytes& out, const FramePlan& plan) {
  const std::size_t at = out.size();
  const std::size_t header = 20 + plan.ipv4_options.size();
  put8(out, 0x40 | header / 4);
  put8(out, 0);
  put16(out, header + transport_length(plan));
  put16(out, plan.identification);
  put16(out, plan.fragment);
  put8(out, 64);
  put8(out, protocol_of(plan));
  put16(out, 0);
  put32(out, 0xC0A80A01);  // 192.168.10.1
  put32(out, 0xC0A80B02);  // 192.168.11.2
  put_all(out, plan.ipv4_options);
  set16(out, at + 10, static_cast<std::uint16_t>(~slow_sum(std::span(out).subspan(at))));
}

void put_ipv6(Bytes& out, const FramePlan& plan) {
  std::size_t extensions = 0;
  for (const auto& [type, rest] : plan.extensions) extensions += 1 + rest.size();
  put32(out, 0x60012345);
  put16(out, extensions + transport_length(plan));
  put8(out, plan.extensions.empty() ? protocol_of(plan) : plan.extensions.front().first);
  put8(out, 64);
  for (std::size_t i = 0; i < 16; ++i) put8(out, 0x20 + i);
  for (std::size_t i = 0; i < 16; ++i) put8(out, 0xA0 + i);
  for (std::size_t i = 0; i < plan.extensions.size(); ++i) {
    const bool last = i + 1 == plan.extensions.size();
    put8(out, last ? protocol_of(plan) : plan.extensions[i + 1].first);
    put_all(out, plan.extensions[i].second);
  }
}

void put_transport(Bytes& out, const FramePlan& plan) {
  put16(out, 0x1234);
  put16(out, 0x5678);
  if (plan.udp) {
    put16(out, transport_length(plan));
    put16(out, 0);
  } else {
    put32(out, plan.sequence);
    put32(out, 0x01020304);
    put8(out, (20 + plan.tcp_options.size()) / 4 << 4);
    put8(out, plan.tcp_flags);
    put16(out, 0x7FFF);
    put16(out, 0);
    put16(out, plan.urgent);
    put_all(out, plan.tcp_options);
  }
  for (std::size_t i = 0; i < plan.payload; ++i) put8(out, (i + 1) % 251);
}

std::uint16_t pseudo_sum(const FramePlan& plan, std::span<const std::byte> frame) {
  const std::size_t addresses = network_at(plan) + (plan.ipv6 ? 8 : 12);
  Bytes tail;
  put32(tail, frame.size() - transport_at(plan));
  put32(tail, protocol_of(plan));
  return slow_sum(tail, slow_sum(frame.subspan(addresses, plan.ipv6 ? 32 : 8)));
}

std::size_t checksum_offset(const FramePlan& plan) {
  return plan.udp ? 6 : 16;
}

}  // namespace

std::size_t network_at(const FramePlan& plan) {
  return 14 + 4 * plan.vlan_tags;
}

std::size_t transport_at(const FramePlan& plan) {
  if (!plan.ipv6) return network_at(plan) + 20 + plan.ipv4_options.size();
  std::size_t at = network_at(plan) + 40;
  for (const auto& [type, rest] : plan.extensions) at += 1 + rest.size();
  return at;
}

std::size_t payload_at(const FramePlan& plan) {
  return transport_at(plan) + transport_length(plan) - plan.payload;
}

Bytes build_frame(const FramePlan& plan) {
  Bytes out;
  put32(out, 0x52540000);
  put16(out, 0x0002);
  put32(out, 0x52540000);
  put16(out, 0x0001);
  for (std::size_t i = 0; i < plan.vlan_tags; ++i) {
    put16(out, i + 1 < plan.vlan_tags ? 0x88A8 : 0x8100);
    put16(out, 0x6000 + 100 + i);
  }
  put16(out, plan.ipv6 ? 0x86DD : 0x0800);
  plan.ipv6 ? put_ipv6(out, plan) : put_ipv4(out, plan);
  put_transport(out, plan);
  const std::size_t transport = transport_at(plan);
  const auto sum = static_cast<std::uint16_t>(
      ~slow_sum(std::span(out).subspan(transport), pseudo_sum(plan, out)));
  set16(out, transport + checksum_offset(plan), sum == 0 ? 0xFFFF : sum);
  return out;
}

OffloadedFrame build_offloaded(const FramePlan& plan, std::uint16_t gso_size) {
  OffloadedFrame frame;
  frame.bytes = build_frame(plan);
  const std::size_t transport = transport_at(plan);
  set16(frame.bytes, transport + checksum_offset(plan), pseudo_sum(plan, frame.bytes));
  frame.offload.flags = 1;
  frame.offload.csum_start = static_cast<std::uint16_t>(transport);
  frame.offload.csum_offset = static_cast<std::uint16_t>(checksum_offset(plan));
  if (gso_size != 0) {
    frame.offload.gso_type = plan.udp ? 5 : plan.ipv6 ? 4 : 1;
    frame.offload.gso_size = gso_size;
    frame.offload.hdr_len = static_cast<std::uint16_t>(payload_at(plan));
  }
  return frame;
}

std::uint16_t slow_sum(std::span<const std::byte> bytes, std::uint16_t sum) {
  for (std::size_t i = 0; i < bytes.size(); i += 2) {
    const auto high = std::to_integer<std::uint32_t>(bytes[i]);
    const auto low = i + 1 < bytes.size() ? std::to_integer<std::uint32_t>(bytes[i + 1]) : 0;
    const std::uint32_t next = sum + (high << 8 | low);
    sum = static_cast<std::uint16_t>((next & 0xFFFF) + (next >> 16));
  }
  return sum;
}

bool checksums_are_right(const FramePlan& plan, std::span<const std::byte> frame) {
  const std::size_t network = network_at(plan);
  const std::size_t transport = transport_at(plan);
  const bool ip =
      plan.ipv6 || slow_sum(frame.subspan(network, 20 + plan.ipv4_options.size())) == 0xFFFF;
  return ip && slow_sum(frame.subspan(transport), pseudo_sum(plan, frame)) == 0xFFFF;
}

}  // namespace sluice::test
