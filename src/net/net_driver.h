// NetDriver: a virtio-net driver in user space, control side (virtio-user). The packet path is
// DriverTransmitQueue and DriverReceiveQueue (net/driver_queue.h), built on what queue() gives.
//
// One block of shared memory holds, for each queue, the three ring areas and its packet buffers:
//
//   | rings of queue 0 | rings of queue 1 | ... | buffers of queue 0 | buffers of queue 1 | ...
//
// Guest address = kGuestBase + offset, user address = kUserBase + offset; neither is a pointer of
// ours, so that one kind of address taken for another is found at once.
//
// One routine, begin_epoch(), cleans a ring; start, restart of one queue, reset and reconnect all
// go through it, and the device is told position 0 (packed: slot 0, wrap counters 1) each time
// (H13). The control queue is not sent to the device: more or fewer queue pairs are a matter of
// enabling rings.
//
// Threads: one control thread. A queue's holder must have let go of it before it is stopped.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/unique_fd.h"
#include "memory/mapping.h"
#include "net/driver_start.h"
#include "net/driver_transport.h"
#include "virtio/features.h"
#include "virtio/ring.h"

namespace sluice::net {

using MacAddress = std::array<std::uint8_t, 6>;

struct NetDriverOptions {
  std::uint16_t queue_pairs = 1;
  std::uint32_t queue_size = 256;  // Split: a power of two. Packed: any up to 32768.
  /// Used if the device offers them. VERSION_1 is always required.
  virtio::FeatureSet wanted = {virtio::Feature::kMrgRxbuf, virtio::Feature::kInOrder,
                               virtio::Feature::kEventIdx, virtio::Feature::kIndirectDesc};
  /// The driver does not start without these.
  virtio::FeatureSet required;
  std::optional<MacAddress> mac;                // Else the device's, else a random local one.
  std::uint32_t buffer_stride = kBufferStride;  // Bytes; an odd number of cache lines.
  /// Where a buffer, hence its header, begins within a cache line. With 0 to 52 the 12-byte header
  /// and a 64-byte frame touch two lines; with 52 the frame is aligned.
  std::uint32_t buffer_lead = 0;
};

class NetDriver {
 public:
  static constexpr std::uint64_t kGuestBase = 0x1'0000'0000;
  static constexpr std::uint64_t kUserBase = 0x7e00'0000'0000;

  /// Asks the device for its offer, negotiates and allocates; nothing is started.
  /// Errors: kInvalidArgument for options out of range; kNotNegotiated if a required feature is
  /// not offered (`detail` is its bit); kOutOfRange for more queue pairs than the device has;
  /// those of the transport.
  [[nodiscard]] static Result<std::unique_ptr<NetDriver>> create(
      const NetDriverOptions& options, std::unique_ptr<DriverTransport> transport);
  ~NetDriver();
  NetDriver(const NetDriver&) = delete;
  NetDriver& operator=(const NetDriver&) = delete;

  /// Begins an epoch on every queue and starts the device. Errors: kWrongState if running.
  Status start();
  /// Stops every queue. On success the device no longer touches the memory. Stopping twice is
  /// harmless. After an error the driver counts as stopped, but only reset() or reconnect() lead
  /// on: the device may still write.
  Status stop();
  /// Stops one queue and starts it with a new epoch, while the others run on.
  Status restart_queue(QueueIndex queue);
  /// Stops all and forgets the negotiation; start() begins anew.
  Status reset();
  /// Another device in the place of one that is gone. The same features are required again; the
  /// memory is a new block, for the old device may still write into the former one. Stopped
  /// afterwards.
  Status reconnect(std::unique_ptr<DriverTransport> transport);
  /// Changes number and size of queues while stopped; memory is allocated anew if it must be.
  Status reconfigure(std::uint16_t queue_pairs, std::uint32_t queue_size);
  /// Enables the first `pairs` queue pairs and disables the others (VIRTIO_NET_CTRL_MQ's place).
  Status set_active_pairs(std::uint16_t pairs);

  /// A queue of the current epoch. Errors: kWrongState if not running, kOutOfRange.
  [[nodiscard]] Result<DriverQueueStart> queue(QueueIndex queue) const;

  [[nodiscard]] bool running() const { return running_; }
  [[nodiscard]] const virtio::FeatureSet& features() const { return features_; }
  [[nodiscard]] std::uint16_t queue_pairs() const { return options_.queue_pairs; }
  [[nodiscard]] std::uint16_t queue_count() const {
    return static_cast<std::uint16_t>(options_.queue_pairs * 2);
  }
  [[nodiscard]] const MacAddress& mac() const { return mac_; }
  [[nodiscard]] DriverTransport& transport() { return *transport_; }

  /// All of the shared memory and its descriptor, for tests that look at raw bytes.
  [[nodiscard]] std::span<std::byte> shared_memory() const;
  [[nodiscard]] int shared_memory_fd() const { return memory_fd_.get(); }
  /// The ring's areas, running or not. Requires: queue < queue_count().
  [[nodiscard]] virtio::RingConfig ring(QueueIndex queue) const;

 private:
  struct Queue;

  NetDriver(const NetDriverOptions& options, std::unique_ptr<DriverTransport> transport);
  Status negotiate();
  Status find_mac();
  Status allocate();
  void begin_epoch(Queue& queue);
  [[nodiscard]] RingSetup setup_of(const Queue& queue, QueueIndex index) const;

  NetDriverOptions options_;
  std::unique_ptr<DriverTransport> transport_;
  virtio::FeatureSet features_;
  MacAddress mac_{};
  UniqueFd memory_fd_;
  std::shared_ptr<const memory::Mapping> memory_;
  std::vector<Queue> queues_;
  std::uint16_t active_pairs_ = 0;
  bool running_ = false;
  bool stop_failed_ = false;  // The device may still write: no epoch may begin.
};

}  // namespace sluice::net
