// The split virtqueue in shared memory: its three areas, and the order of accesses to them.
// Spec: virtio 1.3, 2.7.
//
//   driver                                     device
//   ------                                     ------
//   write descriptors, avail.ring[]            read avail.idx            B acquire, pairs with A
//   write avail.idx             A release      read avail.ring[], descriptors
//   full barrier                E              write used.ring[]
//   read used.flags/avail_event                write used.idx            C release, pairs with D
//   read used.idx               D acquire      full barrier              F
//   read used.ring[]                           read avail.flags/used_event
//
// Without A/B the device follows heads that are not there yet; without C/D the driver reads lengths
// that are not there yet; without E/F each side may read the other's wish to sleep from before its
// own publication: a stall for ever (EVI-04).
#pragma once

#include <cstddef>
#include <cstdint>

#include "memory/shared.h"
#include "virtio/ring.h"
#include "virtio/spec.h"

namespace sluice::virtio {

class SplitLayout {
 public:
  explicit SplitLayout(const RingConfig& config)
      : size_(config.size),
        mask_(static_cast<std::uint16_t>(config.size - 1)),
        descriptors_(memory::shared_at<virtq_desc>(config.descriptors)),
        avail_(memory::shared_at<std::uint16_t>(config.driver_area)),
        used_(memory::shared_at<std::uint16_t>(config.device_area)),
        used_ring_(memory::shared_at<virtq_used_elem>(config.device_area + 4)) {}

  [[nodiscard]] std::uint32_t size() const { return size_; }
  /// Slot of a free-running index: the size is a power of two.
  [[nodiscard]] std::uint16_t slot(std::uint16_t index) const {
    return static_cast<std::uint16_t>(index & mask_);
  }

  /// Requires: index < size(), checked by the caller.
  [[nodiscard]] memory::Shared<virtq_desc>& descriptor(std::uint16_t index) const {
    return descriptors_[index];
  }
  [[nodiscard]] memory::Shared<std::uint16_t>& avail_flags() const { return avail_[0]; }
  [[nodiscard]] memory::Shared<std::uint16_t>& avail_idx() const { return avail_[1]; }
  [[nodiscard]] memory::Shared<std::uint16_t>& avail_entry(std::uint16_t index) const {
    return avail_[2 + slot(index)];
  }
  [[nodiscard]] memory::Shared<std::uint16_t>& used_event() const { return avail_[2 + size_]; }
  [[nodiscard]] memory::Shared<std::uint16_t>& used_flags() const { return used_[0]; }
  [[nodiscard]] memory::Shared<std::uint16_t>& used_idx() const { return used_[1]; }
  [[nodiscard]] memory::Shared<virtq_used_elem>& used_entry(std::uint16_t index) const {
    return used_ring_[slot(index)];
  }
  [[nodiscard]] memory::Shared<std::uint16_t>& avail_event() const { return used_[2 + 4 * size_]; }

  /// Bytes from the start of the used ring to the entry of `index`, for the dirty log.
  [[nodiscard]] std::uint64_t used_offset(std::uint16_t index) const {
    return 4 + std::uint64_t{slot(index)} * sizeof(virtq_used_elem);
  }
  [[nodiscard]] std::uint64_t avail_event_offset() const { return 4 + std::uint64_t{size_} * 8; }

 private:
  std::uint32_t size_;
  std::uint16_t mask_;
  memory::Shared<virtq_desc>* descriptors_;
  memory::Shared<std::uint16_t>* avail_;  // flags, idx, ring[size], used_event
  memory::Shared<std::uint16_t>* used_;   // flags, idx, then 4 words an entry, avail_event
  memory::Shared<virtq_used_elem>* used_ring_;
};

}  // namespace sluice::virtio
