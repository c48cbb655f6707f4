// Headers: where the headers of a frame lie. Ethernet, up to two VLAN tags, IPv4 or IPv6 with
// extension headers, TCP or UDP.
//
// Parsing never fails: it goes as far as the bytes are well formed, and what comes after counts
// as payload of an unknown kind. Every offset it yields lies within the frame, and so does the
// whole header that starts there. Length fields of the sender are not believed: where one matters,
// the user compares it with the frame (SEC-46).
//
// The bytes must be private: a copy that no peer can change (DESIGN rule 1).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice::packet {

inline constexpr std::uint16_t kEtherTypeIpv4 = 0x0800;
inline constexpr std::uint16_t kEtherTypeArp = 0x0806;
inline constexpr std::uint16_t kEtherTypeVlan = 0x8100;
inline constexpr std::uint16_t kEtherTypeServiceVlan = 0x88A8;
inline constexpr std::uint16_t kEtherTypeIpv6 = 0x86DD;
inline constexpr std::uint8_t kIpProtocolTcp = 6;
inline constexpr std::uint8_t kIpProtocolUdp = 17;

inline constexpr std::size_t kVlanTagsMax = 2;
inline constexpr std::size_t kVlanTagSize = 4;
inline constexpr std::size_t kIpv4HeaderSize = 20;  // Without options.
inline constexpr std::size_t kIpv6HeaderSize = 40;
inline constexpr std::size_t kTcpHeaderSize = 20;  // Without options.
inline constexpr std::size_t kUdpHeaderSize = 8;
/// Extension headers beyond this number are not walked: real packets have at most four kinds, and
/// a frame could hold 8,000 (a bound on work, not on safety).
inline constexpr std::size_t kExtensionHeadersMax = 8;

enum class Network : std::uint8_t { kNone, kIpv4, kIpv6 };
enum class Transport : std::uint8_t { kNone, kTcp, kUdp };

struct Headers {
  Network network = Network::kNone;
  Transport transport = Transport::kNone;
  std::uint8_t vlan_tags = 0;
  std::uint8_t ip_protocol = 0;  // What follows the IP headers, if `network` is not kNone.
  bool fragment = false;         // Of a fragmented datagram; its transport is then kNone.
  bool source_routed = false;    // The destination address is not yet the final one.
  std::uint16_t ether_type = 0;  // After the tags.
  std::array<std::uint16_t, kVlanTagsMax> vlan{};  // Tag control information, outer first.
  std::uint32_t network_at = 0;                    // First byte after Ethernet and tags.
  std::uint32_t transport_at = 0;  // First byte after the IP headers; network_at without IP.
  std::uint32_t payload_at = 0;    // First byte after the transport header; transport_at without.

  /// Source and destination address, which are adjacent. Requires: a network.
  [[nodiscard]] std::uint32_t addresses_at() const {
    return network_at + (network == Network::kIpv4 ? 12 : 8);
  }
  [[nodiscard]] std::uint32_t addresses_size() const { return network == Network::kIpv4 ? 8 : 32; }
};

/// Looks at the headers of `frame`; its start is enough, for all headers that it contains.
[[nodiscard]] Headers parse_headers(std::span<const std::byte> frame);

/// A hash of the flow that the frame belongs to; the same in both directions. Frames without
/// transport hash by addresses, frames without IP by Ethernet addresses. Not keyed: for spreading
/// load, not for tables that a peer could fill.
/// Requires: `headers` was parsed from `frame`, which has an Ethernet header.
[[nodiscard]] std::uint32_t flow_hash(std::span<const std::byte> frame, const Headers& headers);

}  // namespace sluice::packet
