// SoftwareOffload: completes in software what the receiver of a packet does not take undone
// (DESIGN rule 8). One for each queue that packets leave by, device side or driver side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "net/drop.h"
#include "packet/offload.h"
#include "packet/packet.h"

namespace sluice::net {

/// Bytes of the longest frame without GSO that a receiver with this MTU takes: header, payload and
/// a VLAN tag. 65535: any frame.
[[nodiscard]] constexpr std::uint32_t frame_max(std::uint16_t mtu) {
  constexpr std::uint32_t kTag = 4;
  if (mtu == 65535) return packet::kFrameMax;
  return std::uint32_t{mtu} + packet::kEthernetHeaderSize + kTag;
}

/// Threads: the holder of the queue.
class SoftwareOffload {
 public:
  /// Hands the frames that `packet` becomes to `place(std::span<const std::byte>)`, one by one, as
  /// long as it returns true: one frame with its checksum complete, or its segments. Frames are
  /// valid during the call. `frame_max`: bytes of the longest one allowed.
  /// Returns why nothing was placed, if that is so: kMtu, kNotSegmentable.
  /// Requires: offload_is_consistent(packet.offload, packet.length), and it asks for something.
  template <class Place>
  [[gnu::cold, gnu::noinline]] std::optional<DropCause> complete(const packet::Burst& burst,
                                                                 const packet::Packet& packet,
                                                                 std::uint32_t frame_max,
                                                                 Place place) {
    const std::span<std::byte> frame(scratch_.get(), packet.length);
    packet::copy_frame(burst, packet, 0, frame);
    if (packet.offload.gso_type == packet::kGsoTypeNone) {
      if (packet.length > frame_max) return DropCause::kMtu;
      packet::complete_checksum(frame, packet.offload);
      place(std::span<const std::byte>(frame));
      return std::nullopt;
    }
    packet::Segmenter segments(frame, packet.offload);
    if (!segments.valid()) return DropCause::kNotSegmentable;
    if (segments.longest() > frame_max) return DropCause::kMtu;
    const std::span<std::byte> out(scratch_.get() + packet::kFrameMax, packet::kFrameMax);
    while (const std::uint32_t length = segments.next(out)) {
      if (!place(std::span<const std::byte>(out.first(length)))) break;
    }
    return std::nullopt;
  }

 private:
  // The frame, and behind it one segment. Made at the start, since workers do not allocate; pages
  // that are never used cost no memory.
  std::unique_ptr<std::byte[]> scratch_ =
      std::make_unique_for_overwrite<std::byte[]>(2 * packet::kFrameMax);
};

}  // namespace sluice::net
