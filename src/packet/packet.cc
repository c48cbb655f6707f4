// Copying a frame out of its segments.
#include "packet/packet.h"

#include <algorithm>

namespace sluice::packet {

void copy_frame(const Burst& burst, const Packet& packet, std::size_t from,
                std::span<std::byte> out) {
  std::size_t done = 0;
  const auto copy_overlap = [&](const std::byte* data, std::size_t start, std::size_t length) {
    const std::size_t at = from + done;
    if (done == out.size() || at >= start + length) return;
    const std::size_t n = std::min(start + length - at, out.size() - done);
    std::memcpy(out.data() + done, data + (at - start), n);
    done += n;
  };
  const std::size_t head = std::min<std::size_t>(kHeadSize, packet.length);
  copy_overlap(packet.head.data(), 0, head);
  copy_overlap(packet.data, 0, packet.first_length);
  std::size_t start = packet.first_length;
  for (const Segment& segment : burst.more_of(packet)) {
    copy_overlap(segment.data, start, segment.length);
    start += segment.length;
  }
}

}  // namespace sluice::packet
