// Offload: what a sender left to be done to a frame: is it possible at all, and doing it.
//
// An offload mark is a promise (DESIGN rule 8). A frame that leaves towards a peer without the
// offload gets its checksum completed and is cut into segments here, or it is dropped and counted;
// never does a wrong checksum go out (NET-17, H47).
//
// How far the sender is believed: csum_start, csum_offset and gso_size after
// offload_is_consistent() (NET-11, NET-12); hdr_len never (NET-13); lengths and checksums in IP and
// transport headers never, they are written anew. The same bytes are checked and delivered, so
// frames here are private copies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "packet/headers.h"
#include "packet/packet.h"

namespace sluice::packet {

// Values of Offload's fields (virtio 1.3, 5.1.6). net/ checks that they are those of virtio/spec.h.
inline constexpr std::uint8_t kOffloadNeedsChecksum = 1;
inline constexpr std::uint8_t kGsoTypeNone = 0;
inline constexpr std::uint8_t kGsoTypeTcpIpv4 = 1;
inline constexpr std::uint8_t kGsoTypeUdpFragments = 3;  // UFO: IP fragments. Not USO (NET-19).
inline constexpr std::uint8_t kGsoTypeTcpIpv6 = 4;
inline constexpr std::uint8_t kGsoTypeUdpSegments = 5;  // USO: UDP datagrams.
inline constexpr std::uint8_t kGsoEcn = 0x80;           // A bit beside either TCP type.

/// True if `offload` can be meant for a frame of this length, whatever its bytes are:
/// - a checksum lies within the frame and behind the Ethernet header. (Completing one inside the
///   addresses would send a frame other than the one that was forwarded and filtered.);
/// - a known GSO type, with a size above 0 and a checksum to complete; ECN with TCP only.
/// Flags other than NEEDS_CSUM do not matter here: a device ignores them (NET-14).
/// Whether the driver may use a type at all depends on the negotiation, which net/ looks at.
[[nodiscard]] bool offload_is_consistent(const Offload& offload, std::uint32_t frame_length);

/// Does the NEEDS_CSUM of `offload`: sums from csum_start to the end of the frame, over the pseudo
/// header's sum that the sender left in the field, and stores the result there.
/// Requires: offload_is_consistent(offload, frame.size()), and NEEDS_CSUM is set. The frame is
/// not to be segmented: then each segment needs a checksum of its own.
void complete_checksum(std::span<std::byte> frame, const Offload& offload);

/// Cuts a frame with a GSO type into frames that may go on a wire, all checksums complete.
///
///   Segmenter segments(frame, offload);
///   if (!segments.valid()) drop(kNotSegmentable);
///   while (const std::uint32_t length = segments.next(scratch)) send(scratch.first(length));
///
/// Segment i carries payload [i * gso_size, (i + 1) * gso_size) under a copy of all headers, with
/// lengths and checksums of its own, and:
/// - IPv4: the identification counts up (RFC 6864 lets it repeat for unfragmented datagrams only);
/// - TCP: the sequence number moves on; FIN and PSH stand in the last one, CWR in the first; an
///   urgent pointer that lies in a later segment is adjusted, one that lies before is removed.
///
/// The frame must outlive the Segmenter. No allocation.
class Segmenter {
 public:
  /// Most segments of one frame. 64 KiB at the default IPv4 segment of 536 bytes is 122 of them, a
  /// path with an MTU of 296 bytes makes 256, USO in Linux stops at 128. Beyond that a gso_size
  /// only serves to turn one frame into 65,535, so the frame is refused.
  static constexpr std::uint32_t kSegmentsMax = 256;
  /// Most bytes of headers, which every segment repeats: Ethernet, two tags, full-size IPv4 and TCP
  /// headers are 142; this leaves IPv6 134 bytes for extension headers.
  static constexpr std::uint32_t kHeadersMax = 256;

  /// Requires: offload_is_consistent(offload, frame.size()); offload has a GSO type.
  Segmenter(std::span<const std::byte> frame, const Offload& offload);

  /// False if the bytes do not permit it: they are not what the GSO type says, a fragment, a TCP
  /// header with SYN or RST, source routed (the checksum needs the final address), UFO (which we
  /// never offer), more than kSegmentsMax, kHeadersMax or 65,535 bytes of datagram. Then count()
  /// and next() are 0.
  [[nodiscard]] bool valid() const { return count_ != 0; }
  [[nodiscard]] std::uint32_t count() const { return count_; }
  /// Bytes of the longest segment, Ethernet header included.
  [[nodiscard]] std::uint32_t longest() const { return count_ == 0 ? 0 : header_size_ + step_; }

  /// Writes the next segment to the start of `out` and returns its length; 0 after the last.
  /// Requires: out.size() >= longest(); `out` does not overlap the frame.
  [[nodiscard]] std::uint32_t next(std::span<std::byte> out);

 private:
  struct Piece {
    std::uint32_t offset;  // Of its payload in the whole payload.
    bool first;
    bool last;
  };
  [[nodiscard]] bool accepts(const Offload& offload) const;
  [[nodiscard]] bool lengths_fit() const;
  void finish_network(std::span<std::byte> segment) const;
  void finish_tcp(std::span<std::byte> segment, const Piece& piece) const;

  std::span<const std::byte> frame_;
  Headers headers_;
  std::uint32_t header_size_ = 0;
  std::uint32_t step_ = 0;   // Payload bytes of each segment but the last.
  std::uint32_t count_ = 0;  // 0: refused.
  std::uint32_t index_ = 0;
};

}  // namespace sluice::packet
