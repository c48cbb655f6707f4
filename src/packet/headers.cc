// Walking the headers. Each step checks that a whole header is there before it reads a field of it.
#include "packet/headers.h"

#include <algorithm>

#include "packet/bytes.h"
#include "packet/packet.h"

namespace sluice::packet {

namespace {

using Frame = std::span<const std::byte>;

std::uint8_t byte_at(Frame frame, std::size_t at) {
  return std::to_integer<std::uint8_t>(frame[at]);
}

bool holds(Frame frame, std::size_t at, std::size_t size) {
  return at <= frame.size() && size <= frame.size() - at;
}

bool is_vlan(std::uint16_t type) {
  return type == kEtherTypeVlan || type == kEtherTypeServiceVlan;
}

// Loose and strict source route (RFC 791, 3.1): the destination moves on at each hop, but transport
// checksums are made for the last one.
bool has_source_route(Frame options) {
  constexpr std::uint8_t kEnd = 0;
  constexpr std::uint8_t kNoOperation = 1;
  constexpr std::uint8_t kLoose = 131;
  constexpr std::uint8_t kStrict = 137;
  for (std::size_t at = 0; at < options.size();) {
    const std::uint8_t type = byte_at(options, at);
    if (type == kEnd) return false;
    if (type == kLoose || type == kStrict) return true;
    if (type == kNoOperation) {
      ++at;
      continue;
    }
    const std::size_t length = at + 1 < options.size() ? byte_at(options, at + 1) : 0;
    if (length < 2) return false;
    at += length;
  }
  return false;
}

bool parse_ipv4(Frame frame, Headers& headers) {
  const std::size_t at = headers.network_at;
  if (!holds(frame, at, kIpv4HeaderSize) || byte_at(frame, at) >> 4 != 4) return false;
  const std::size_t size = (byte_at(frame, at) & 15U) * std::size_t{4};
  if (size < kIpv4HeaderSize || !holds(frame, at, size)) return false;
  constexpr std::uint16_t kMoreFragmentsOrOffset = 0x3FFF;
  headers.network = Network::kIpv4;
  headers.fragment = (load_big<std::uint16_t>(frame, at + 6) & kMoreFragmentsOrOffset) != 0;
  headers.source_routed =
      has_source_route(frame.subspan(at + kIpv4HeaderSize, size - kIpv4HeaderSize));
  headers.ip_protocol = byte_at(frame, at + 9);
  headers.transport_at = static_cast<std::uint32_t>(at + size);
  return true;
}

// IPv6 extension headers (RFC 8200, 4; RFC 4302 for the authentication header).
enum ExtensionHeader : std::uint8_t {
  kHopByHop = 0,
  kRouting = 43,
  kFragment = 44,
  kAuthentication = 51,
  kDestination = 60,
  kMobility = 135,
  kHostIdentity = 139,
  kShim6 = 140,
};

bool is_extension(std::uint8_t protocol) {
  switch (protocol) {
    case kHopByHop:
    case kRouting:
    case kFragment:
    case kAuthentication:
    case kDestination:
    case kMobility:
    case kHostIdentity:
    case kShim6: return true;
    default: return false;
  }
}

// Bytes of the extension header at `at`, by its own kind's rule. Requires: 8 bytes are there.
std::size_t extension_size(Frame frame, std::size_t at, std::uint8_t protocol) {
  const std::size_t field = byte_at(frame, at + 1);
  if (protocol == kFragment) return 8;
  if (protocol == kAuthentication) return std::max<std::size_t>((field + 2) * 4, 8);
  return (field + 1) * 8;
}

// If the chain does not end well, ip_protocol stays at the kind of the header that stopped the
// walk.
bool parse_ipv6(Frame frame, Headers& headers) {
  std::size_t at = headers.network_at;
  if (!holds(frame, at, kIpv6HeaderSize) || byte_at(frame, at) >> 4 != 6) return false;
  headers.network = Network::kIpv6;
  headers.ip_protocol = byte_at(frame, at + 6);
  at += kIpv6HeaderSize;
  for (std::size_t i = 0; i < kExtensionHeadersMax && is_extension(headers.ip_protocol); ++i) {
    if (!holds(frame, at, 8)) break;
    const std::size_t size = extension_size(frame, at, headers.ip_protocol);
    if (!holds(frame, at, size)) break;
    if (headers.ip_protocol == kRouting) headers.source_routed |= byte_at(frame, at + 3) != 0;
    if (headers.ip_protocol == kFragment) {
      constexpr std::uint16_t kOffsetOrMore = 0xFFF9;
      headers.fragment |= (load_big<std::uint16_t>(frame, at + 2) & kOffsetOrMore) != 0;
    }
    headers.ip_protocol = byte_at(frame, at);
    at += size;
    if (headers.fragment) break;  // What follows may be the middle of something.
  }
  headers.transport_at = static_cast<std::uint32_t>(at);
  return true;
}

void parse_transport(Frame frame, Headers& headers) {
  const std::size_t at = headers.transport_at;
  headers.payload_at = headers.transport_at;
  if (headers.fragment) return;
  if (headers.ip_protocol == kIpProtocolUdp && holds(frame, at, kUdpHeaderSize)) {
    headers.transport = Transport::kUdp;
    headers.payload_at += std::uint32_t{kUdpHeaderSize};
  }
  if (headers.ip_protocol == kIpProtocolTcp && holds(frame, at, kTcpHeaderSize)) {
    const std::size_t size = (byte_at(frame, at + 12) >> 4) * std::size_t{4};
    if (size < kTcpHeaderSize || !holds(frame, at, size)) return;
    headers.transport = Transport::kTcp;
    headers.payload_at += static_cast<std::uint32_t>(size);
  }
}

// Mixes a sum of both ends, which does not tell them apart, by the finaliser of MurmurHash3.
std::uint32_t mix(std::uint64_t value) {
  value ^= value >> 33;
  value *= 0xFF51AFD7ED558CCDULL;
  value ^= value >> 33;
  value *= 0xC4CEB9FE1A85EC53ULL;
  value ^= value >> 33;
  return static_cast<std::uint32_t>(value);
}

// The sum over both ends of a hash of `size` bytes each.
std::uint64_t both_ends(Frame frame, std::size_t at, std::size_t size) {
  std::uint64_t sum = 0;
  for (std::size_t end = 0; end < 2; ++end) {
    std::uint64_t hash = size;
    for (std::size_t i = 0; i < size; i += 2) {
      const std::uint64_t word = load_big<std::uint16_t>(frame, at + end * size + i);
      hash = (hash ^ word) * 0x9E3779B97F4A7C15ULL;
      hash ^= hash >> 29;
    }
    sum += hash;
  }
  return sum;
}

}  // namespace

Headers parse_headers(Frame frame) {
  Headers headers;
  if (frame.size() < kEthernetHeaderSize) return headers;
  std::size_t at = kEthernetHeaderSize;
  headers.ether_type = load_big<std::uint16_t>(frame, at - 2);
  while (headers.vlan_tags < kVlanTagsMax && is_vlan(headers.ether_type) &&
         holds(frame, at, kVlanTagSize)) {
    headers.vlan[headers.vlan_tags++] = load_big<std::uint16_t>(frame, at);
    headers.ether_type = load_big<std::uint16_t>(frame, at + 2);
    at += kVlanTagSize;
  }
  headers.network_at = headers.transport_at = headers.payload_at = static_cast<std::uint32_t>(at);
  const bool ip = headers.ether_type == kEtherTypeIpv4   ? parse_ipv4(frame, headers)
                  : headers.ether_type == kEtherTypeIpv6 ? parse_ipv6(frame, headers)
                                                         : false;
  if (ip) parse_transport(frame, headers);
  return headers;
}

std::uint32_t flow_hash(Frame frame, const Headers& headers) {
  if (headers.network == Network::kNone) return mix(both_ends(frame, 0, 6));
  const std::uint64_t addresses =
      both_ends(frame, headers.addresses_at(), headers.addresses_size() / 2);
  // Fragments of one datagram must stay together, and only the first has ports. So all do without.
  if (headers.transport == Transport::kNone) return mix(addresses);
  return mix(addresses + headers.ip_protocol * both_ends(frame, headers.transport_at, 2));
}

}  // namespace sluice::packet
