// Where a packed ring stands after the process that served it died. Reasons: virtio/used_record.h.
#pragma once

#include <cstdint>

#include "virtio/packed_layout.h"
#include "virtio/ring.h"
#include "virtio/used_record.h"

namespace sluice::virtio {

/// Finishes a batch that was logged but not published, and returns the ring's position: the value
/// for both halves of RingConfig::position. `config.used_record` is the dead process's record;
/// `fallback` is returned if the record cannot belong to this ring (positions beyond its size, a
/// log that does not add up, or a descriptor at `old_used` that is neither used nor available).
/// Requires: config was laid out by QueueConfig::layout; the caller compared the fingerprint.
[[nodiscard]] std::uint16_t recover_packed_position(const RingConfig& config,
                                                    std::uint16_t fallback);

}  // namespace sluice::virtio
