// QueueConfig: from addresses a front-end wrote to areas a ring may touch.
#include "virtio/queue_config.h"

#include <bit>
#include <cstddef>

#include "virtio/spec.h"

namespace sluice::virtio {
namespace {

struct Alignment {
  std::uint64_t descriptors;
  std::uint64_t driver_area;
  std::uint64_t device_area;
};
constexpr Alignment kSplitAlignment = {16, 2, 4};   // virtio 1.3, 2.7
constexpr Alignment kPackedAlignment = {16, 4, 4};  // virtio 1.3, 2.8.10.1

// Bytes of `length` at `address`, aligned both in the front-end's numbers and in ours: a region may
// begin anywhere in its file, and it is our own access that must not tear.
Result<std::byte*> area(const memory::GuestMemory& memory, memory::UserAddress address,
                        std::uint64_t length, std::uint64_t alignment) {
  if (address.raw() % alignment != 0) {
    return fail(ErrorCode::kInvalidArgument, "ring address is not aligned",
                static_cast<std::int64_t>(address.raw()));
  }
  std::byte* const bytes = memory.translate(address, length);
  if (bytes == nullptr) {
    return fail(ErrorCode::kBadAddress, "ring is not wholly inside one shared memory region",
                static_cast<std::int64_t>(address.raw()));
  }
  if (std::bit_cast<std::uintptr_t>(bytes) % alignment != 0) {
    return fail(ErrorCode::kInvalidArgument, "memory region puts the ring off its alignment",
                static_cast<std::int64_t>(address.raw()));
  }
  return bytes;
}

Status check_size(std::uint32_t size, bool packed) {
  if (size == 0 || size > kQueueSizeMax) {
    return fail(ErrorCode::kInvalidArgument, "queue size must be 1 to 32768", size);
  }
  if (!packed && !std::has_single_bit(size)) {
    return fail(ErrorCode::kInvalidArgument, "size of a split ring must be a power of two", size);
  }
  return {};
}

Status check_position(const RingPosition& position, std::uint32_t size, bool packed) {
  if (!packed) return {};  // Free-running indices: every value is possible.
  const std::uint16_t slot_mask = 0x7fff;
  if ((position.avail & slot_mask) >= size || (position.used & slot_mask) >= size) {
    return fail(ErrorCode::kInvalidArgument, "ring position lies behind the end of the ring",
                position.avail);
  }
  return {};
}

}  // namespace

QueueConfig::AreaSizes QueueConfig::area_sizes(std::uint32_t size, const FeatureSet& features) {
  const std::uint64_t entries = size;
  if (features.has(Feature::kRingPacked)) {
    return {entries * sizeof(pvirtq_desc), sizeof(pvirtq_event_suppress),
            sizeof(pvirtq_event_suppress)};
  }
  // flags, idx, one entry each, and the event field, which has its place even when not negotiated.
  return {entries * sizeof(virtq_desc), 6 + 2 * entries, 6 + entries * sizeof(virtq_used_elem)};
}

Result<RingConfig> QueueConfig::layout(const memory::GuestMemory& memory,
                                       const FeatureSet& features) const {
  const bool packed = features.has(Feature::kRingPacked);
  TRY(check_size(size, packed));
  TRY(check_position(position, size, packed));
  const AreaSizes bytes = area_sizes(size, features);
  const Alignment& align = packed ? kPackedAlignment : kSplitAlignment;
  RingConfig ring;
  ring.size = size;
  ring.descriptors = TRY(area(memory, descriptors, bytes.descriptors, align.descriptors));
  ring.driver_area = TRY(area(memory, driver_area, bytes.driver_area, align.driver_area));
  ring.device_area = TRY(area(memory, device_area, bytes.device_area, align.device_area));
  ring.position = position;
  ring.event_idx = features.has(Feature::kEventIdx);
  ring.indirect = features.has(Feature::kIndirectDesc);
  return ring;
}

}  // namespace sluice::virtio
