// Evidence in ring memory for or against a record.
#include "vhost/packed_restart.h"

#include <atomic>

#include "virtio/packed_layout.h"
#include "virtio/packed_recovery.h"

namespace sluice::vhost {

bool packed_ring_was_used(const virtio::RingConfig& ring) {
  const virtio::PackedLayout layout(ring);
  for (std::uint32_t i = 0; i < ring.size; ++i) {
    const auto slot = static_cast<std::uint16_t>(i);
    const virtio::PackedTail tail = layout.read_tail(slot);
    if ((tail.flags & virtio::kPackedUsed) != 0) return true;
    // Some drivers number the ids of a fresh ring, so ids prove nothing.
    const bool written = tail.len != 0 || layout.read_address(slot) != 0;
    if ((tail.flags & virtio::PackedLayout::kStateBits) == 0 && written) return true;
  }
  return false;
}

std::uint16_t packed_restart_position(const virtio::RingConfig& ring,
                                      const virtio::UsedPositionRecord& record,
                                      std::uint16_t base) {
  virtio::UsedPositionRecord copy = record;
  // A peer that changes the record after the copy changes nothing; without this the compiler could
  // read it again.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  const virtio::PackedPosition next = virtio::PackedPosition::decode(copy.new_used);
  if (next.slot() >= ring.size || !packed_ring_was_used(ring)) return base;
  // The slot that is used next cannot have been used in this lap: then somebody else served the
  // ring since.
  const virtio::PackedLayout layout(ring);
  if (virtio::PackedLayout::is_used(layout.read_flags(next.slot()), next.wrap())) return base;
  virtio::RingConfig with_copy = ring;
  with_copy.used_record = &copy;
  return virtio::recover_packed_position(with_copy, base);
}

std::uint16_t packed_restart_position(const virtio::RingConfig& ring,
                                      const InflightRegion::Positions& positions,
                                      std::uint16_t base) {
  const virtio::PackedPosition before = virtio::PackedPosition::decode(positions.old_used);
  if (before.slot() >= ring.size) return base;
  const std::uint16_t flags = virtio::PackedLayout(ring).read_flags(before.slot());
  const bool published = !virtio::PackedLayout::is_avail(flags, before.wrap());
  virtio::UsedPositionRecord record{};
  record.reset(published ? positions.new_used : positions.old_used);
  return packed_restart_position(ring, record, base);
}

}  // namespace sluice::vhost
