// IndirectTables: where a driver ring writes buffers of several segments, so that they take one
// ring slot each. Spec: virtio 1.3, 2.7.5.3 (split), 2.8.7 (packed).
//
// There is one table for each slot of a split ring and for each id of a packed one: it belongs to
// the buffer that begins there until that buffer came back. So there is no pool to keep, and a
// table is never rewritten under the device. Longer buffers go out as chains.
//
// The driver writes the tables and reads nothing of them back.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "memory/shared.h"
#include "virtio/ring.h"
#include "virtio/spec.h"

namespace sluice::virtio {

class IndirectTables {
 public:
  /// No tables: every buffer goes out as a chain.
  IndirectTables() = default;
  /// Tables of a ring, if INDIRECT_DESC was negotiated and there is room for them.
  explicit IndirectTables(const RingConfig& config)
      : area_(config.indirect_area),
        most_(config.indirect && area_.bytes != nullptr
                  ? std::min<std::size_t>(kIndirectSegmentsMax, config.size)
                  : 0) {}

  /// Bytes for the tables of a ring of `size`.
  [[nodiscard]] static std::uint64_t area_size(std::uint32_t size) {
    return std::uint64_t{size} * kTableBytes;
  }

  /// Does a buffer of so many segments go into a table? One segment gains nothing by it, and no
  /// buffer may be longer than the queue (virtio 1.3, 2.7.5.3.1).
  [[nodiscard]] bool take(std::size_t segments) const { return segments > 1 && segments <= most_; }
  /// Ring slots of such a buffer.
  [[nodiscard]] std::size_t slots(std::size_t segments) const {
    return take(segments) ? 1 : segments;
  }

  /// Where a table lies, for the descriptor that refers to it.
  struct Place {
    std::uint64_t address;
    std::uint32_t bytes;
    std::uint32_t writable;  // Bytes of the buffer that the device may write.
  };
  /// Write table `index`. Requires: take(segments.size()); the device does not have the table.
  Place write_split(std::uint16_t index, std::span<const OfferSegment> segments) const {
    std::byte* const table = area_.bytes + std::size_t{index} * kTableBytes;
    std::uint32_t writable = 0;
    for (std::size_t i = 0; i < segments.size(); ++i) {
      const OfferSegment& segment = segments[i];
      const bool last = i + 1 == segments.size();
      // Spec: virtio 1.3, 2.7.5.3.1: no INDIRECT in a table; 2.7.9: next is i + 1 (IND-07).
      memory::shared_at<virtq_desc>(table + i * sizeof(virtq_desc))
          ->store({.addr = segment.address,
                   .len = segment.length,
                   .flags = static_cast<std::uint16_t>((last ? 0 : kDescNext) |
                                                       (segment.writable ? kDescWrite : 0)),
                   .next = static_cast<std::uint16_t>(last ? 0 : i + 1)});
      if (segment.writable) writable += segment.length;
    }
    return place(index, segments.size(), writable);
  }
  Place write_packed(std::uint16_t index, std::span<const OfferSegment> segments) const {
    std::byte* const table = area_.bytes + std::size_t{index} * kTableBytes;
    std::uint32_t writable = 0;
    for (std::size_t i = 0; i < segments.size(); ++i) {
      const OfferSegment& segment = segments[i];
      // Spec: virtio 1.3, 2.8.7: entries follow each other; no flag but WRITE has a meaning, and
      // ids are reserved (PKD-11).
      memory::shared_at<pvirtq_desc>(table + i * sizeof(pvirtq_desc))
          ->store({.addr = segment.address,
                   .len = segment.length,
                   .id = 0,
                   .flags = segment.writable ? kDescWrite : std::uint16_t{0}});
      if (segment.writable) writable += segment.length;
    }
    return place(index, segments.size(), writable);
  }

 private:
  static constexpr std::size_t kEntryBytes = sizeof(virtq_desc);
  static_assert(sizeof(pvirtq_desc) == kEntryBytes);
  static constexpr std::size_t kTableBytes = kIndirectSegmentsMax * kEntryBytes;

  [[nodiscard]] Place place(std::uint16_t index, std::size_t segments,
                            std::uint32_t writable) const {
    return {.address = area_.address + index * kTableBytes,
            .bytes = static_cast<std::uint32_t>(segments * kEntryBytes),
            .writable = writable};
  }

  IndirectArea area_;
  std::size_t most_ = 0;
};

}  // namespace sluice::virtio
