// VirtioUserPort: a port whose packets go to and come from a device behind vhost-user: this end is
// the driver. The session that brings the device is switch/virtio_user_link.h.
//
// Terms of switch/port.h: from_driver counts what came in on the port, so what the device put into
// receiveqs; to_driver what went out by transmitqs.
//
// Threads: Port's functions as switch/port.h says; start_queues(), stop_queues(), the resets and
// trouble() by the link's thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "net/driver_path.h"
#include "net/net_driver.h"
#include "switch/driver_queue.h"
#include "switch/options.h"
#include "switch/port.h"

namespace sluice::fabric {

class VirtioUserPort final : public Port {
 public:
  /// Requires: options.queues is 1 to kQueuePairsMax.
  explicit VirtioUserPort(const VirtioUserOptions& options);

  // Port
  [[nodiscard]] std::string_view name() const override { return name_; }
  [[nodiscard]] std::string_view kind() const override { return "virtio-user"; }
  [[nodiscard]] std::uint16_t queue_pairs() const override { return pairs_; }
  std::size_t receive(std::uint16_t q, packet::Burst& burst) override;
  void release(std::uint16_t q) override;
  std::size_t transmit(std::uint32_t hint, const packet::Burst& burst,
                       std::span<const packet::PacketIndex> which) override;
  [[nodiscard]] const net::DirectionCounters& from_driver(std::uint16_t q) const override {
    return receiveqs_[q].counters;
  }
  net::DirectionCounters& from_driver(std::uint16_t q) override { return receiveqs_[q].counters; }
  [[nodiscard]] const net::DirectionCounters& to_driver(std::uint16_t q) const override {
    return transmitqs_[q].counters;
  }
  [[nodiscard]] const Refusals& refusals() const override { return refusals_; }
  bool arm(std::uint16_t q) override;
  void disarm(std::uint16_t q) override;
  [[nodiscard]] WakeSource wake_source(std::uint16_t q) override {
    return receiveqs_[q].wake_source();
  }
  [[nodiscard]] bool ready() const override { return ready_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::vector<QueueView> queues() const override;

  /// Begins to use the queues of a driver that was just started. Errors: those of
  /// NetDriver::queue(); kTimeout if a worker does not let go of a queue; kProtocol if the device
  /// made a kick wait.
  Status start_queues(const net::NetDriver& driver);
  /// On success no worker touches the driver's memory any more; what is on its way is lost.
  /// Errors: kTimeout.
  Status stop_queues();
  /// Resets one queue with the device, while the others go on, and starts it again at `size` (0: as
  /// it was). Meanwhile the device's frames wait or come by other queues, and so do ours (RST-08).
  /// Returns how many buffers came back. Requires: the driver has RING_RESET, this queue and size.
  /// Errors: those of NetDriver::restart_queue() and start_queues(); then the session is over.
  Result<std::size_t> reset_queue(net::NetDriver& driver, net::QueueIndex index,
                                  std::uint32_t size);
  /// The same by a stop and a start of the whole device; any device can do that.
  Result<std::size_t> reset_all(net::NetDriver& driver, std::optional<net::QueueIndex> index,
                                std::uint32_t size);
  /// Why a ring broke, if one did since the last call, or that a kick was made to wait.
  [[nodiscard]] std::optional<Error> trouble();

 private:
  using ReceiveQueue = DriverQueue<net::DriverReceivePath>;
  using TransmitQueue = DriverQueue<net::DriverTransmitPath>;

  /// A pair's paths, which are made before anybody waits for them: they kick the device.
  struct NewPair {
    net::DriverQueueStart rx;
    net::DriverQueueStart tx;
    std::unique_ptr<net::DriverReceivePath> receive;
    std::unique_ptr<net::DriverTransmitPath> transmit;
  };
  [[nodiscard]] TransmitQueue& choose(std::uint32_t hint);
  Result<NewPair> make_pair(const net::NetDriver& driver, std::uint16_t pair);

  const std::string name_;
  const std::uint16_t pairs_;
  const std::uint16_t mtu_;
  const std::unique_ptr<ReceiveQueue[]> receiveqs_;
  const std::unique_ptr<TransmitQueue[]> transmitqs_;
  std::atomic<bool> ready_{false};
  Refusals refusals_;
  mutable std::mutex control_mutex_;  // Between the link's thread and whoever looks at queues().
};

}  // namespace sluice::fabric
