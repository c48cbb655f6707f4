// QueueConfig: what a front-end says of a ring before it runs, and the check that lets it run.
#pragma once

#include <cstdint>

#include "base/error.h"
#include "memory/address.h"
#include "memory/guest_memory.h"
#include "virtio/features.h"
#include "virtio/ring.h"

namespace sluice::virtio {

struct QueueConfig {
  std::uint32_t size = 0;           // Entries.
  memory::UserAddress descriptors;  // Descriptor table / ring.
  memory::UserAddress driver_area;  // Avail ring / driver event suppression.
  memory::UserAddress device_area;  // Used ring / device event suppression.
  RingPosition position;

  /// Bytes of the three areas for a ring of `size` entries.
  struct AreaSizes {
    std::uint64_t descriptors;
    std::uint64_t driver_area;
    std::uint64_t device_area;
  };
  [[nodiscard]] static AreaSizes area_sizes(std::uint32_t size, const FeatureSet& features);

  /// Checks size, alignment (SPL-01, PKD-01, PKD-02) and that all of each area is shared memory,
  /// and yields a ring that can start. The position is checked too: a packed slot must be < size.
  /// Errors: kInvalidArgument for size, alignment, position; kBadAddress for an area outside.
  /// Spec: virtio 1.3, 2.7, 2.7.10.1, 2.8.10.
  [[nodiscard]] Result<RingConfig> layout(const memory::GuestMemory& memory,
                                          const FeatureSet& features) const;
};

}  // namespace sluice::virtio
