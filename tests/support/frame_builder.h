// FramePlan: Ethernet frames for tests, built byte by byte without the product's packet code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "packet/packet.h"

namespace sluice::test {

using Bytes = std::vector<std::byte>;

/// What a frame is to be made of. Fill in what matters, the rest is plausible.
struct FramePlan {
  std::size_t vlan_tags = 0;
  bool ipv6 = false;
  bool udp = false;                             // Else TCP.
  std::vector<std::uint8_t> ipv4_options = {};  // A multiple of 4 bytes.
  /// IPv6 extension headers one behind the other, each without its first byte (next header).
  std::vector<std::pair<std::uint8_t, std::vector<std::uint8_t>>> extensions = {};
  std::vector<std::uint8_t> tcp_options = {};  // A multiple of 4 bytes.
  std::uint8_t tcp_flags = 0x10;               // ACK.
  std::uint16_t urgent = 0;
  std::uint32_t sequence = 0xFFFF'F000;  // Near the wrap.
  std::uint16_t identification = 0xFFFE;
  std::uint16_t fragment = 0;  // Flags and offset of IPv4.
  std::size_t payload = 100;   // Bytes, 1, 2, 3, ... modulo 251.
};

/// A frame with all checksums complete.
[[nodiscard]] Bytes build_frame(const FramePlan& plan);

/// A frame as a driver hands it over: the transport checksum holds the pseudo header's sum only,
/// and `offload` says so. gso_size 0: no segmentation.
struct OffloadedFrame {
  Bytes bytes;
  packet::Offload offload;
};
[[nodiscard]] OffloadedFrame build_offloaded(const FramePlan& plan, std::uint16_t gso_size = 0);

/// Where the headers of build_frame(plan) begin.
[[nodiscard]] std::size_t network_at(const FramePlan& plan);
[[nodiscard]] std::size_t transport_at(const FramePlan& plan);
[[nodiscard]] std::size_t payload_at(const FramePlan& plan);

/// The Internet checksum as RFC 1071 defines it: big-endian words one by one, carry added at once.
[[nodiscard]] std::uint16_t slow_sum(std::span<const std::byte> bytes, std::uint16_t sum = 0);

/// True if the IPv4 header checksum and the TCP or UDP checksum of the frame are right.
[[nodiscard]] bool checksums_are_right(const FramePlan& plan, std::span<const std::byte> frame);

}  // namespace sluice::test
