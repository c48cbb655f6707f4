// Packet and Burst: frames on their way through one burst.
//
// A packet is a view. Its bytes lie where the sender put them (guest memory, a frame of a pool) and
// stay there until the burst ends; a receiver copies them once, straight to where they go. The
// sender may change guest memory under the view at any time, so what decides a packet's fate is
// copied first: the Ethernet header (`head`) and the offload facts. The copy that is looked at is
// the copy that is delivered (DESIGN rule 1).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace sluice::packet {

/// Most packets in one burst.
inline constexpr std::size_t kBurstMax = 64;
/// Bytes of the frame's start that are copied when a packet is taken; at least the Ethernet header.
inline constexpr std::size_t kHeadSize = 16;
/// Shortest frame that counts as one: destination, source, type.
inline constexpr std::size_t kEthernetHeaderSize = 14;
/// Longest frame: Ethernet, IPv6 and 65,535 bytes of payload (virtio 1.3, 5.1.6.2), and a VLAN tag.
inline constexpr std::size_t kFrameMax = 65'593;

/// What is still to be done to a packet. Layout and meaning are those of the first ten bytes of
/// virtio_net_hdr (virtio 1.3, 5.1.6), so between two guests it passes through untouched.
struct Offload {
  std::uint8_t flags = 0;
  std::uint8_t gso_type = 0;
  std::uint16_t hdr_len = 0;
  std::uint16_t gso_size = 0;
  std::uint16_t csum_start = 0;
  std::uint16_t csum_offset = 0;

  /// True if nothing is left to do: the common case.
  [[nodiscard]] bool none() const { return flags == 0 && gso_type == 0; }
  friend bool operator==(const Offload&, const Offload&) = default;
};
static_assert(sizeof(Offload) == 10);

/// Contiguous bytes of a packet.
struct Segment {
  const std::byte* data;
  std::uint32_t length;
};

struct Packet {
  const std::byte* data;       // First bytes of the frame.
  std::uint32_t length;        // Whole frame, bytes, without FCS.
  std::uint32_t first_length;  // How many of them are at `data`.
  std::uint16_t more_first;    // The rest: Burst::more[more_first, more_first + more_count).
  std::uint16_t more_count;
  Offload offload;
  std::array<std::byte, kHeadSize> head;  // Copy of the frame's first min(16, length) bytes.
};

/// A burst of packets. No member initialisers: it is scratch that is reused, never zero-filled.
struct Burst {
  static constexpr std::size_t kMoreMax = 4096;
  std::uint32_t count;
  std::uint32_t more_count;
  std::array<Packet, kBurstMax> packets;
  std::array<Segment, kMoreMax> more;

  void clear() {
    count = 0;
    more_count = 0;
  }
  [[nodiscard]] std::span<const Segment> more_of(const Packet& packet) const {
    return std::span(more).subspan(packet.more_first, packet.more_count);
  }
};

/// Indices into Burst::packets: which packets of a burst a receiver gets.
using PacketIndex = std::uint8_t;
static_assert(kBurstMax <= 256);

/// A packet without marks whose frame lies in one piece. Requires: 14 to kFrameMax bytes.
[[nodiscard]] inline Packet linear_packet(std::span<const std::byte> frame) {
  Packet packet;
  packet.data = frame.data();
  packet.length = static_cast<std::uint32_t>(frame.size());
  packet.first_length = packet.length;
  packet.more_first = 0;
  packet.more_count = 0;
  packet.offload = {};
  packet.head = {};
  std::memcpy(packet.head.data(), frame.data(), std::min(kHeadSize, frame.size()));
  return packet;
}

/// Copies the frame's bytes [from, from + out.size()) to `out`, the head from its snapshot.
/// Requires: the range lies within the frame.
void copy_frame(const Burst& burst, const Packet& packet, std::size_t from,
                std::span<std::byte> out);

}  // namespace sluice::packet
