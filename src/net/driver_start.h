// DriverQueueStart: all that the driver's end of a virtqueue needs to run one epoch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/unique_fd.h"
#include "memory/dma_map.h"
#include "memory/mapping.h"
#include "virtio/features.h"
#include "virtio/ring.h"

namespace sluice::net {

/// Default distance of a driver's packet buffers. An odd number of cache lines: buffers a power of
/// two apart share few cache sets, and copying between them runs at a quarter of the speed.
inline constexpr std::uint32_t kBufferStride = 2368;

/// One queue of a NetDriver at the start of an epoch: the ring areas are clean, no buffer is
/// posted, the device does not interrupt. Every start, restart and reconnect makes a new one; what
/// was built on an older one is stale.
/// Threads: the holder of the queue. The memory stays mapped as long as `memory` is held.
struct DriverQueueStart {
  virtio::RingConfig ring;
  virtio::FeatureSet features;                    // As negotiated.
  std::span<std::byte> buffers;                   // Buffer i is at i * buffer_stride.
  std::uint64_t buffers_guest_address = 0;        // What the device calls buffers.data().
  std::size_t buffer_stride = kBufferStride;      // Distance of buffers, bytes.
  std::size_t buffer_size = kBufferStride;        // Usable bytes of each; at most the stride.
  std::size_t buffer_count = 0;                   // Never less than ring.size.
  std::shared_ptr<const EventFd> kick;            // We wake the device.
  std::shared_ptr<const EventFd> call;            // The device wakes us.
  std::shared_ptr<const memory::Mapping> memory;  // Keeps the pointers valid.
  std::shared_ptr<memory::DmaMap> dma;            // What else the device can reach. May be null.
};

}  // namespace sluice::net
