// NetDriver: a virtio-net driver in user space, control side (virtio-user). The packet path is
// DriverTransmitQueue and DriverReceiveQueue (net/driver_queue.h), built on what queue() gives.
//
// Rings and packet buffers lie in one block of shared memory (net/driver_memory.h).
//
// One routine, begin_epoch(), cleans a ring; start, restart of one queue, reset and reconnect all
// go through it, and the device is told position 0 (packed: slot 0, wrap counters 1) each time
// (H13). Buffers that were posted in the former epoch are free in the new one. The control queue is
// not sent to the device: more or fewer queue pairs are a matter of enabling rings.
//
// Other memory can be shared too (map_memory): the application's buffers are then sent and filled
// where they are, see net/driver_virtqueue.h.
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
#include "memory/dma_map.h"
#include "net/driver_memory.h"
#include "net/driver_start.h"
#include "net/driver_transport.h"
#include "virtio/features.h"
#include "virtio/ring.h"

namespace sluice::net {

using MacAddress = std::array<std::uint8_t, 6>;

/// Features a NetDriver can use. MQ is added by itself if there are several queue pairs.
inline constexpr virtio::FeatureSet kDriverFeatures = {
    virtio::Feature::kVersion1,     virtio::Feature::kRingPacked, virtio::Feature::kInOrder,
    virtio::Feature::kEventIdx,     virtio::Feature::kMrgRxbuf,   virtio::Feature::kCsum,
    virtio::Feature::kIndirectDesc, virtio::Feature::kGuestCsum,  virtio::Feature::kHostTso4,
    virtio::Feature::kHostTso6,     virtio::Feature::kHostEcn,    virtio::Feature::kHostUso,
    virtio::Feature::kGuestTso4,    virtio::Feature::kGuestTso6,  virtio::Feature::kGuestEcn,
    virtio::Feature::kGuestUso4,    virtio::Feature::kGuestUso6,  virtio::Feature::kRingReset};

struct NetDriverOptions {
  std::uint16_t queue_pairs = 1;
  std::uint32_t queue_size = 256;    // Split: a power of two. Packed: any up to 32768.
  std::uint32_t queue_size_max = 0;  // What one queue can be restarted with; 0: queue_size.
  /// Used if the device offers them; VERSION_1 is always required. Only what the driver's queues
  /// can do may be asked for: see kDriverFeatures.
  virtio::FeatureSet wanted = {virtio::Feature::kMrgRxbuf, virtio::Feature::kInOrder,
                               virtio::Feature::kEventIdx, virtio::Feature::kIndirectDesc,
                               virtio::Feature::kRingReset};
  /// The driver does not start without these.
  virtio::FeatureSet required;
  std::optional<MacAddress> mac;                // Else the device's, else a random local one.
  std::uint32_t buffer_stride = kBufferStride;  // Bytes; an odd number of cache lines.
  /// Where a buffer, hence its header, begins within a cache line. With 0 to 52 the 12-byte header
  /// and a 64-byte frame touch two lines; with 52 the frame is aligned.
  std::uint32_t buffer_lead = 0;
};

class NetDriver {
 private:
  struct Events {
    std::shared_ptr<const EventFd> kick;
    std::shared_ptr<const EventFd> call;
  };
  enum class QueueState : std::uint8_t { kStopped, kRunning, kUnknown };
  struct Queue {
    Events events;
    QueueState state = QueueState::kStopped;
  };
  /// All that follows from options and negotiation, made before anything of it is kept.
  struct Plan {
    virtio::FeatureSet features;
    DriverMemory memory;
    std::vector<Queue> queues;
  };

 public:
  /// Asks the device for its offer, negotiates and allocates; nothing is started.
  /// Errors: kInvalidArgument for options out of range; kNotNegotiated if a required feature is
  /// not offered (`detail` is its bit); kOutOfRange for more queue pairs than the device has;
  /// those of the transport.
  [[nodiscard]] static Result<std::unique_ptr<NetDriver>> create(
      const NetDriverOptions& options, std::unique_ptr<DriverTransport> transport);
  /// For create(): nobody else can make a Plan.
  NetDriver(const NetDriverOptions& options, std::unique_ptr<DriverTransport> transport, Plan plan);
  ~NetDriver();
  NetDriver(const NetDriver&) = delete;
  NetDriver& operator=(const NetDriver&) = delete;

  /// Begins an epoch on every queue and starts the device. Errors: kWrongState if running.
  Status start();
  /// Stops every queue. On success the device no longer touches the memory. Stopping twice is
  /// harmless. After an error only reset() or reconnect() lead on: the device may still write.
  Status stop();
  /// Stops one queue while the others run on (virtio 1.3, 2.6.1). On success the device touches
  /// neither its ring nor its buffers any more: what was outstanding comes back by recall() of
  /// net/driver_queue.h. Harmless if the queue is stopped.
  /// Errors: kNotNegotiated without RING_RESET: some devices stop as a whole when one ring stops
  /// and this feature is how others say that they do not; stop() and start() remain.
  /// kWrongState; kOutOfRange; those of the transport: then the device may still write.
  Status reset_queue(QueueIndex queue);
  /// Resets the queue if it runs, and starts it with a new epoch; `size` 0: that it had.
  /// Errors: as reset_queue(); kOutOfRange above queue_size_max; kInvalidArgument; kWrongState if
  /// the queue has exchanged buffers with another (DriverTransmitQueue::forward()) and was not
  /// recalled since: the other one's would be posted twice.
  Status restart_queue(QueueIndex queue, std::uint32_t size = 0);
  /// Whether restart_queue() and resize_queue() take this size. Errors: kOutOfRange above
  /// queue_size_max, which is `detail`; kInvalidArgument if the ring's format does not have it.
  [[nodiscard]] Status check_size(std::uint32_t size) const { return memory_.check_resize(size); }
  /// While stopped: another size of one queue for the next start(). Errors: those of check_size();
  /// kWrongState; kOutOfRange for a queue that is not there.
  Status resize_queue(QueueIndex queue, std::uint32_t size);
  /// Stops all and puts the device back to before negotiation; start() begins anew.
  Status reset();
  /// Another device in the place of one that is gone. The same features are required again; the
  /// memory is a new block, for the old device may still write into the former one. So it may into
  /// what map_memory() shared with it; mappings keep their addresses, and bounce areas are new.
  /// Stopped afterwards. On error the driver is as it was.
  Status reconnect(std::unique_ptr<DriverTransport> transport);
  /// Changes number and size of queues while stopped; memory is allocated anew if it must be, and
  /// start() tells the device (H28). On error the driver is as it was.
  Status reconfigure(std::uint16_t queue_pairs, std::uint32_t queue_size);
  /// Enables the first `pairs` queue pairs and disables the others (VIRTIO_NET_CTRL_MQ's place),
  /// now if running and at each later start.
  Status set_active_pairs(std::uint16_t pairs);

  /// A queue of the current epoch, to build one packet path on.
  /// Errors: kWrongState if not running; kOutOfRange.
  [[nodiscard]] Result<DriverQueueStart> queue(QueueIndex queue) const;

  /// Shares memory with the device: now if it runs, and at each later start, after a reconnect()
  /// too. With `fd`, `bytes` are a shared mapping of that file from `offset` on, and the device
  /// reaches them where they are; without, through a bounce area (see memory/dma_map.h). Queues
  /// find the mapping in their next burst. Rings run on meanwhile: a region that nobody names yet
  /// disturbs none, and those in use keep file and addresses. Requires: nobody offers the memory
  /// before this returned.
  /// Errors: those of memory::DmaMap; kOutOfRange too if the device takes no more regions; those
  /// of the transport. On error nothing is mapped. If then the old regions cannot be shared again
  /// either, the driver counts as broken: reset() or reconnect() lead on.
  [[nodiscard]] Result<memory::DmaMapping> map_memory(std::span<std::byte> bytes, int fd,
                                                      std::uint64_t offset);
  [[nodiscard]] Result<memory::DmaMapping> map_memory(std::span<std::byte> bytes);
  /// Takes memory back. On success the device acknowledged that it let go of it.
  /// Requires: nobody offers buffers of it any more, which the caller sees to; what is
  /// outstanding in a DriverVirtqueue is counted here.
  /// Errors: kNotFound; kWrongState while buffers of it are outstanding (nothing changed); those of
  /// the transport: then the device may still reach the memory, though no queue will offer it, and
  /// the call can be made again; reconnect() ends it too.
  Status unmap_memory(memory::DmaId id);

  [[nodiscard]] bool running() const { return running_; }
  [[nodiscard]] const virtio::FeatureSet& features() const { return features_; }
  [[nodiscard]] std::uint16_t queue_pairs() const { return options_.queue_pairs; }
  [[nodiscard]] std::uint16_t queue_count() const { return memory_.geometry().queues; }
  [[nodiscard]] std::uint16_t active_pairs() const { return active_pairs_; }
  [[nodiscard]] const MacAddress& mac() const { return mac_; }
  [[nodiscard]] DriverTransport& transport() { return *transport_; }
  /// Rings and buffers as raw memory, for tests.
  [[nodiscard]] const DriverMemory& memory() const { return memory_; }
  /// What map_memory() mapped: look-up and copies between memory and bounce area.
  [[nodiscard]] const memory::DmaMap& dma() const { return *dma_; }

 private:
  [[nodiscard]] static Result<Plan> plan(const NetDriverOptions& options,
                                         DriverTransport& transport);
  void keep(Plan plan);
  Status find_mac();
  [[nodiscard]] RingSetup begin_epoch(QueueIndex queue);
  Status check_startable() const;
  [[nodiscard]] std::vector<SharedRegion> regions() const;
  [[nodiscard]] Result<memory::DmaMapping> share(const memory::DmaMapping& mapping);

  NetDriverOptions options_;
  std::unique_ptr<DriverTransport> transport_;
  virtio::FeatureSet features_;
  DriverMemory memory_;
  std::vector<Queue> queues_;
  std::uint16_t active_pairs_;
  MacAddress mac_{};
  std::shared_ptr<memory::DmaMap> dma_ = std::make_shared<memory::DmaMap>(DriverMemory::kDmaWindow);
  bool told_ = false;  // The device was given memory.
  bool running_ = false;
  bool uncertain_ = false;  // The device may still write: no epoch may begin.
};

}  // namespace sluice::net
