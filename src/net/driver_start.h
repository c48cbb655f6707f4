// DriverQueueStart: all that the driver's end of a virtqueue needs to run one epoch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/unique_fd.h"
#include "memory/dma_map.h"
#include "memory/mapping.h"
#include "virtio/features.h"
#include "virtio/ring.h"

namespace sluice::net {

/// Default distance of a driver's packet buffers. An odd number of cache lines: buffers a power of
/// two apart share few cache sets, and copying between them runs at a quarter of the speed.
inline constexpr std::uint32_t kBufferStride = 2368;

/// Which packet buffers a queue has: numbers in DriverQueueStart::buffers, as many as its ring can
/// ever hold; those of the ring as it is come first. Queues of one driver can exchange buffers (see
/// DriverTransmitQueue::forward()); then the lists are stale until the queues are recalled.
struct DriverBuffers {
  std::vector<std::uint32_t> numbers;
  bool stale = false;
};

/// One queue of a NetDriver at the start of an epoch: the ring areas are clean, no buffer is
/// posted, the device does not interrupt. Every start, restart and reconnect makes a new one; what
/// was built on an older one is stale.
/// Threads: the holder of the queue. The memory stays mapped as long as `memory` is held.
struct DriverQueueStart {
  virtio::RingConfig ring;
  virtio::FeatureSet features;                    // As negotiated.
  std::span<std::byte> buffers;                   // Of all queues. Buffer i: i * buffer_stride.
  std::uint64_t buffers_guest_address = 0;        // What the device calls buffers.data().
  std::size_t buffer_stride = kBufferStride;      // Distance of buffers, bytes.
  std::size_t buffer_size = kBufferStride;        // Usable bytes of each; at most the stride.
  std::shared_ptr<DriverBuffers> own_buffers;     // Which of them are this queue's.
  std::shared_ptr<const EventFd> kick;            // We wake the device.
  std::shared_ptr<const EventFd> call;            // The device wakes us.
  std::shared_ptr<const memory::Mapping> memory;  // Keeps the pointers valid.
  std::shared_ptr<memory::DmaMap> dma;            // What else the device can reach. May be null.
};

}  // namespace sluice::net
