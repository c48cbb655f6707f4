// "Must I notify?": the event index tests of both formats, as pure functions.
#pragma once

#include <cstdint>

namespace sluice::virtio {

/// Split ring: true if `event` lies in (old_index, new_index] modulo 2^16, i.e. the other side
/// asked to be told when the entry `event` is passed. Spec: virtio 1.3, 2.7.7.1, 2.7.7.2 (EVI-03).
[[nodiscard]] constexpr bool split_event_passed(std::uint16_t event, std::uint16_t new_index,
                                                std::uint16_t old_index) {
  return static_cast<std::uint16_t>(new_index - event - 1) <
         static_cast<std::uint16_t>(new_index - old_index);
}

/// Packed ring: the same for positions (bits 0-14 slot, bit 15 wrap counter) on a ring of `size`
/// entries, when the ring went on from `from` to `to` (exclusive). Fewer than `size` entries were
/// passed. Spec: virtio 1.3, 2.8.14 (PKD-16).
[[nodiscard]] constexpr bool packed_event_passed(std::uint16_t event, std::uint16_t to,
                                                 std::uint16_t from, std::uint32_t size) {
  const std::uint32_t slot_mask = 0x7fff;
  const std::uint32_t to_slot = to & slot_mask;
  // Unroll both onto one line that ends at `to`: a slot of the other lap lies `size` before.
  const auto place = [&](std::uint16_t position) {
    const bool same_lap = ((position ^ to) & 0x8000) == 0;
    const std::int64_t slot = position & slot_mask;
    return same_lap ? slot : slot - static_cast<std::int64_t>(size);
  };
  const std::int64_t at = place(event);
  return at >= place(from) && at < static_cast<std::int64_t>(to_slot);
}

}  // namespace sluice::virtio
