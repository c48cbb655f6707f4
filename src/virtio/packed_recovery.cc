// Redoing the last batch of a packed ring.
#include "virtio/packed_recovery.h"

namespace sluice::virtio {

namespace {

struct LoggedEntry {
  std::uint32_t slots;
  PackedTail tail;
};

LoggedEntry decode(const UsedLogEntry& entry, bool wrap) {
  const bool wrote = (entry.slots & 0x8000) != 0;
  const auto flags =
      static_cast<std::uint16_t>(PackedLayout::used_bits(wrap) | (wrote ? kDescWrite : 0));
  return {(entry.slots & 0x7fffU) + 1, {.len = entry.len, .id = entry.id, .flags = flags}};
}

}  // namespace

std::uint16_t recover_packed_position(const RingConfig& config, std::uint16_t fallback) {
  const UsedPositionRecord& record = *config.used_record;
  const PackedLayout layout(config);
  const PackedPosition from = PackedPosition::decode(record.old_used);
  const PackedPosition to = PackedPosition::decode(record.new_used);
  if (from.slot() >= config.size || to.slot() >= config.size) return fallback;
  if (from == to) return to.encode();
  const std::uint16_t flags = layout.read_flags(from.slot());
  if (PackedLayout::is_used(flags, from.wrap())) return to.encode();
  if (!PackedLayout::is_avail(flags, from.wrap())) {
    // The driver has seen the batch and gone on in this slot, a lap later.
    PackedPosition next_lap = from;
    next_lap.advance(config.size, config.size);
    return PackedLayout::is_avail(flags, next_lap.wrap()) ? to.encode() : fallback;
  }
  if (record.count == 0 || record.count > kTakeMax) return fallback;
  // Check the log before anything is written: it must end where the record says.
  PackedPosition at = from;
  for (std::uint32_t i = 0; i < record.count; ++i) {
    const std::uint32_t slots = decode(record.log[i], at.wrap()).slots;
    if (slots > config.size) return fallback;
    at.advance(slots, config.size);
  }
  const bool one_entry = record.count == 1;
  if (at != to && !one_entry) return fallback;
  at = from;
  for (std::uint32_t i = 0; i < record.count; ++i) {
    const LoggedEntry entry = decode(record.log[i], at.wrap());
    if (i > 0) layout.publish_tail(at.slot(), entry.tail);
    at.advance(entry.slots, config.size);
  }
  layout.publish_tail(from.slot(), decode(record.log[0], from.wrap()).tail);
  return to.encode();
}

}  // namespace sluice::virtio
