// Where a packed ring goes on whose server died: the record of the dead, doubted by the ring.
#pragma once

#include <cstdint>

#include "vhost/inflight.h"
#include "virtio/ring.h"
#include "virtio/used_record.h"

namespace sluice::vhost {

/// True if a device has used any descriptor of this packed ring since its driver set it up.
///
/// A guest may reboot while nobody serves it, and set up a fresh ring at the same place of the same
/// memory: then the record is that of the former ring, and believing it would deafen the new one.
/// In a fresh ring no descriptor has its USED bit set: the driver sets it only in the second lap,
/// which a device must have finished the first for. In the lap after that, used descriptors clear
/// it again, but keep what the driver wrote: address or length. Drivers zero a new ring.
/// Spec: virtio 1.3, 2.8.1 (wrap counters start at 1).
[[nodiscard]] bool packed_ring_was_used(const virtio::RingConfig& ring);

/// The position (for both halves of RingConfig::position) at which a ring of a dead server starts:
/// by `record` if ring memory agrees with it, else `base`, what the front-end said. Finishes a
/// batch that was logged but not published.
/// `record` is copied before it is looked at: a peer may be able to write it.
/// Requires: `ring` was laid out by QueueConfig::layout.
[[nodiscard]] std::uint16_t packed_restart_position(const virtio::RingConfig& ring,
                                                    const virtio::UsedPositionRecord& record,
                                                    std::uint16_t base);

/// The same by two positions of which a foreign back-end kept the right one: the ring tells which.
[[nodiscard]] std::uint16_t packed_restart_position(const virtio::RingConfig& ring,
                                                    const InflightRegion::Positions& positions,
                                                    std::uint16_t base);

}  // namespace sluice::vhost
