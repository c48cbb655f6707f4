// What stands between a virtio-net driver and whoever provides the device: the mirror of
// net/transport.h. net declares it; vhost::Frontend implements it over a vhost-user socket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/error.h"
#include "base/unique_fd.h"
#include "memory/guest_memory.h"
#include "net/transport.h"
#include "virtio/features.h"
#include "virtio/ring.h"

namespace sluice::net {

/// What a device says of itself before anything is negotiated.
struct DeviceOffer {
  virtio::FeatureSet features;
  std::uint16_t max_queue_pairs = 1;  // An upper bound.
};

/// Memory that the driver shares: what the device calls it, and the file that holds it.
struct SharedRegion {
  memory::RegionRecord record;
  int fd = -1;  // Borrowed for the time of the call.
};

/// One virtqueue as the device is told of it. Areas are named by user address, inside a region.
struct RingSetup {
  QueueIndex queue;
  std::uint32_t size = 0;
  memory::UserAddress descriptors;
  memory::UserAddress driver_area;
  memory::UserAddress device_area;
  virtio::RingPosition position;
  std::shared_ptr<const EventFd> kick;  // Null: the device has to poll.
  std::shared_ptr<const EventFd> call;  // Null: the driver polls.
  bool enabled = true;
};

/// Everything of a device's start. The transport puts it in the order that devices want.
struct DeviceStart {
  virtio::FeatureSet features;  // A subset of the offer.
  std::span<const SharedRegion> regions;
  std::span<const RingSetup> rings;
};

/// The device as its driver sees it. Calls block up to the transport's deadline; the device is
/// hostile: whatever it answers, the outcome is a value or an Error.
/// Threads: one at a time, never the packet path.
class DriverTransport {
 public:
  virtual ~DriverTransport() = default;

  /// What the device offers. Begins the session when called first.
  [[nodiscard]] virtual Result<DeviceOffer> offer() = 0;

  /// Negotiates, shares the memory, starts the rings and enables those that want it. Also starts a
  /// device again whose rings were all stopped. Errors: kNotNegotiated if the device does not
  /// take the features (INI-02); kTimeout, kClosed, kProtocol. After an error the device is in an
  /// unknown state: reset() or a new transport.
  virtual Status start(const DeviceStart& start) = 0;

  /// Shares exactly these regions from now on. Rings may run: what they use stays as it is. On
  /// success the device has let go of every other region.
  /// Errors: kOutOfRange if the device takes fewer regions: then nothing changed.
  /// kPermission if it refused: then it may have the old regions, some or none.
  virtual Status set_memory(std::span<const SharedRegion> regions) = 0;
  /// Starts one stopped ring, the others run on.
  virtual Status start_queue(const RingSetup& ring) = 0;
  /// Stops one ring. On return the device does not touch its memory. Returns where it stands.
  virtual Result<virtio::RingPosition> stop_queue(QueueIndex queue) = 0;
  /// Errors: kNotNegotiated if the device cannot enable or disable rings.
  virtual Status enable_queue(QueueIndex queue, bool enabled) = 0;
  /// Stops all rings, then puts the device back to before negotiation as far as it can do that.
  virtual Status reset() = 0;

  /// Reads configuration space. Returns how many bytes the device has at `offset`; they may be
  /// fewer than asked (INI-11). Errors: kNotNegotiated if the device does not serve it.
  virtual Result<std::size_t> read_config(std::uint32_t offset, std::span<std::byte> out) = 0;
  /// Tells the device the link's MTU. Errors: kNotNegotiated, kPermission if it refuses.
  virtual Status set_mtu(std::uint16_t mtu) = 0;

  /// False once the device is known to be gone. Does not block.
  [[nodiscard]] virtual bool connected() = 0;
  /// How many times the device said that its configuration changed. Does not block.
  [[nodiscard]] virtual std::uint64_t config_changes() = 0;
};

}  // namespace sluice::net
