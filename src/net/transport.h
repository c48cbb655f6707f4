// What stands between a virtio-net device and whoever connects a driver to it.
//
// net declares these interfaces; vhost calls them (vhost-user back-end -> Device), and the port in
// switch/ joins the two. All calls come from the control thread; the implementation sees to it that
// no worker touches a queue while it changes (rule 7: queue lock, held for one burst at most).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/error.h"
#include "base/strong.h"
#include "base/unique_fd.h"
#include "memory/dirty_log.h"
#include "memory/guest_memory.h"
#include "virtio/features.h"
#include "virtio/ring.h"

namespace sluice::net {

/// Index of a virtqueue of a device: receiveq of pair n is 2n, transmitq 2n+1 (virtio 1.3, 5.1.2).
using QueueIndex = Strong<struct QueueIndexTag, std::uint16_t>;

/// Most queue pairs of one device: vhost-user names rings in 8 bits.
inline constexpr std::uint16_t kQueuePairsMax = 127;

/// Wakes the driver of one queue (an eventfd, or a message for in-band notifications).
/// Threads: any; never blocks.
class Notifier {
 public:
  virtual ~Notifier() = default;
  virtual void notify() = 0;
};

/// Everything a queue needs to run. Addresses in `ring` are translated and checked.
struct QueueStart {
  virtio::RingConfig ring;
  virtio::FeatureSet features;                        // As negotiated.
  std::shared_ptr<const memory::GuestMemory> memory;  // Keeps `ring`'s pointers valid.
  std::shared_ptr<const memory::DirtyLog> log;        // Null unless logging is on.
  std::shared_ptr<void> keep_alive;                   // E.g. the used-position record's mapping.
  std::shared_ptr<EventFd> kick;                      // Null: the driver never kicks, poll.
  std::shared_ptr<Notifier> call;                     // Null: the driver polls.
  std::shared_ptr<Notifier> error;  // Told once when the ring breaks. May be null.
};

/// The device that a transport serves. Ring states are the transport's business (vhost-user,
/// "Ring states"): it calls start_queue/stop_queue/enable_queue as the states change.
class Device {
 public:
  virtual ~Device() = default;

  /// Features the device offers. Constant for the life of the device.
  [[nodiscard]] virtual virtio::FeatureSet offered_features() const = 0;
  [[nodiscard]] virtual std::uint16_t max_queue_pairs() const = 0;

  /// The driver's choice; a subset of what was offered (the transport checked that).
  virtual Status set_features(const virtio::FeatureSet& features) = 0;

  /// Starts a stopped queue. It looks at the ring at once: no kick will come (H04).
  virtual Status start_queue(QueueIndex queue, QueueStart start) = 0;
  /// Stops a queue. On success nobody touches its memory any more and everything taken was given
  /// back. Returns where it stands; a stopped queue answers its last position.
  /// Errors: kTimeout if a worker does not let go of it. Then the queue takes nothing new, keeps
  /// its memory until it can end, and where it will stand is not known: end the session.
  virtual Result<virtio::RingPosition> stop_queue(QueueIndex queue) = 0;
  /// A started queue that is disabled takes transmitted frames and discards them, and gets none.
  virtual void enable_queue(QueueIndex queue, bool enabled) = 0;
  /// Another call target for a queue, running or not (QEMU masks interrupts this way).
  virtual void set_call(QueueIndex queue, std::shared_ptr<Notifier> call) = 0;
  /// The driver kicked in-band (VHOST_USER_VRING_KICK).
  virtual void kick(QueueIndex queue) = 0;

  /// Device configuration space (virtio_net_config, virtio 1.3, 5.1.4); the whole of it.
  [[nodiscard]] virtual std::span<const std::byte> config() const = 0;
  /// Writes that the driver may make. Errors: kPermission for read-only fields.
  virtual Status write_config(std::uint32_t offset, std::span<const std::byte> data) = 0;

  /// NET_SET_MTU. Errors: kOutOfRange below 68 or above what the device can forward.
  virtual Status set_mtu(std::uint16_t mtu) = 0;
  /// SEND_RARP: announce `mac` on the network side (after migration).
  virtual Status send_rarp(std::span<const std::byte, 6> mac) = 0;
  /// Status register, for transports that carry it; 0 is a device reset (queues were stopped).
  virtual void set_status(std::uint8_t status) = 0;
};

}  // namespace sluice::net
