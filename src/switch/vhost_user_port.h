// VhostUserPort: a port whose packets go to and come from a driver behind vhost-user.
//
// It joins two worlds: as a Port it is used by workers, burst by burst; as a net::Device (and as
// the target of control commands) it is used by the session on the control thread. They meet in
// VhostQueue, and in a list of receiveqs that packets may be spread over now.
//
// Receiveqs never ask for kicks: a packet for which the driver has no buffer is dropped, not kept
// (DESIGN section 7), so nobody waits for buffers and no wish can be forgotten (H22).
//
// Threads: Port's functions as switch/port.h says; all others by the control thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "net/control_queue.h"
#include "net/net_device.h"
#include "net/transport.h"
#include "switch/options.h"
#include "switch/port.h"
#include "switch/vhost_queue.h"

namespace sluice::fabric {

/// What a port tells the switch around it.
class PortEvents {
 public:
  virtual ~PortEvents() = default;
  /// Queues began, ended or have work: workers must look at them, and at what wakes them.
  /// Threads: any.
  virtual void queues_changed() = 0;
  /// The station `mac` lives at this port from now on; tell the others.
  virtual void announce(std::uint16_t port, net::PackedMac mac) = 0;
  /// The device's configuration space changed.
  virtual void config_changed(std::uint16_t port) = 0;
};

class VhostUserPort final : public Port, public net::Device, private net::ControlTarget {
  struct Passkey {};

 public:
  /// Errors: kOutOfRange for queues or mtu; kInvalidArgument for a mac that no station can have;
  /// kSystem.
  [[nodiscard]] static Result<std::unique_ptr<VhostUserPort>> create(
      const VhostUserOptions& options, std::uint16_t number, PortEvents& events);
  VhostUserPort(Passkey, const VhostUserOptions& options, std::uint16_t number, PortEvents& events,
                UniqueFd control_epoll);
  ~VhostUserPort() override;

  // Port
  [[nodiscard]] std::string_view name() const override { return name_; }
  [[nodiscard]] std::string_view kind() const override { return "vhost-user"; }
  [[nodiscard]] std::uint16_t queue_pairs() const override { return pairs_; }
  std::size_t receive(std::uint16_t q, packet::Burst& burst) override;
  void release(std::uint16_t q) override;
  std::size_t transmit(std::uint32_t hint, const packet::Burst& burst,
                       std::span<const packet::PacketIndex> which) override;
  [[nodiscard]] const net::DirectionCounters& from_driver(std::uint16_t q) const override {
    return transmitqs_[q].counters;
  }
  net::DirectionCounters& from_driver(std::uint16_t q) override { return transmitqs_[q].counters; }
  [[nodiscard]] const net::DirectionCounters& to_driver(std::uint16_t q) const override {
    return receiveqs_[q].counters;
  }
  [[nodiscard]] const Refusals& refusals() const override { return refusals_; }
  bool arm(std::uint16_t q) override;
  void disarm(std::uint16_t q) override;
  [[nodiscard]] WakeSource wake_source(std::uint16_t q) override {
    return transmitqs_[q].wake_source();
  }
  [[nodiscard]] bool ready() const override {
    return ready_count_.load(std::memory_order_relaxed) != 0;
  }
  [[nodiscard]] const net::ReceiveFilter* filter() const override { return &filter_; }
  [[nodiscard]] std::vector<QueueView> queues() const override;

  // net::Device
  [[nodiscard]] virtio::FeatureSet offered_features() const override { return offered_; }
  [[nodiscard]] std::uint16_t max_queue_pairs() const override { return pairs_; }
  Status set_features(const virtio::FeatureSet& features) override;
  Status start_queue(net::QueueIndex queue, net::QueueStart start) override;
  Result<virtio::RingPosition> stop_queue(net::QueueIndex queue) override;
  void enable_queue(net::QueueIndex queue, bool enabled) override;
  void set_call(net::QueueIndex queue, std::shared_ptr<net::Notifier> call) override;
  void kick(net::QueueIndex queue) override;
  [[nodiscard]] std::span<const std::byte> config() const override { return config_.bytes(); }
  Status write_config(std::uint32_t offset, std::span<const std::byte> data) override;
  Status set_mtu(std::uint16_t mtu) override;
  Status send_rarp(std::span<const std::byte, 6> mac) override;
  void set_status(std::uint8_t status) override;

  /// Readable when serve_control_queue() has something to do.
  [[nodiscard]] int control_fd() const { return control_epoll_.get(); }
  void serve_control_queue();
  /// Notices what workers noted, ends stops that took too long, serves what has no kick. A few
  /// times a second.
  void housekeeping();
  /// The session is over and its queues are stopped: forget all it negotiated (H10).
  void session_over();
  [[nodiscard]] const virtio::FeatureSet& features() const { return features_; }
  [[nodiscard]] std::optional<net::PackedMac> mac() const { return mac_; }
  [[nodiscard]] std::uint16_t mtu() const { return mtu_; }
  /// What last went wrong on a queue, or with a frame's source address.
  [[nodiscard]] const std::optional<Error>& last_error() const { return last_error_; }
  /// True if some queue runs.
  [[nodiscard]] bool running() const;

 private:
  using TransmitQueue = VhostQueue<net::TransmitPath>;
  using ReceiveQueue = VhostQueue<net::ReceivePath>;
  enum class Role : std::uint8_t { kReceive, kTransmit, kControl, kNone };
  struct Place {
    Role role;
    std::uint16_t pair;
  };

  // net::ControlTarget
  void set_promiscuous(bool on) override { filter_.set_promiscuous(on); }
  void set_all_multicast(bool on) override { filter_.set_all_multicast(on); }
  void set_mac_tables(std::span<const net::PackedMac> unicast,
                      std::span<const net::PackedMac> multicast) override {
    filter_.set_tables(unicast, multicast);
  }
  bool set_mac_address(net::PackedMac mac) override;
  void announced() override;
  bool use_queue_pairs(std::uint16_t pairs) override;
  [[nodiscard]] std::uint16_t command_max_queue_pairs() const override { return pairs_; }
  bool set_guest_offloads(const virtio::FeatureSet& offloads) override;

  [[nodiscard]] Place place_of(net::QueueIndex queue) const;
  [[nodiscard]] virtio::FeatureSet features_in_force(const virtio::FeatureSet& negotiated) const;
  [[nodiscard]] VhostQueueBase* queue_of(const Place& place);
  std::size_t drop_foreign_sources(packet::Burst& burst, net::DirectionCounters& counters);
  void forget_negotiation();
  void find_ready_queues();
  void queue_changed();
  void note(const Status& status);
  [[nodiscard]] std::chrono::milliseconds patience() const;
  Status start_control(net::QueueStart start);
  virtio::RingPosition stop_control();
  void check_control();

  // Immutable after construction.
  const std::string name_;
  const std::uint16_t number_;
  const std::uint16_t pairs_;
  const std::optional<net::PackedMac> mac_;
  const net::DeviceOptions device_options_;
  const net::QueueOptions queue_options_;
  const virtio::FeatureSet offered_;
  PortEvents& events_;
  const UniqueFd control_epoll_;

  // Read by workers.
  const std::unique_ptr<TransmitQueue[]> transmitqs_;
  const std::unique_ptr<ReceiveQueue[]> receiveqs_;
  std::vector<std::atomic<std::uint16_t>> ready_;  // Pairs whose receiveq takes packets now.
  std::atomic<std::uint16_t> ready_count_{0};
  net::ReceiveFilter filter_;
  Refusals refusals_;
  std::atomic<bool> foreign_source_seen_{false};

  // The control thread's.
  net::ConfigSpace config_;
  virtio::FeatureSet features_;
  std::optional<virtio::FeatureSet> guest_offloads_;  // As commanded; none: all negotiated.
  std::uint16_t pair_limit_;                          // Receiveqs beyond get nothing.
  std::uint16_t mtu_;
  std::unique_ptr<net::ControlQueue> control_;
  std::shared_ptr<EventFd> control_kick_;
  std::shared_ptr<net::Notifier> control_error_;  // Null once told.
  virtio::RingPosition control_stopped_at_;
  std::optional<Error> last_error_;
  // A worker did not let go of a queue in time: until it does, others are not waited for as long,
  // so that a port of many queues does not hold up the control thread for each.
  bool stuck_ = false;
};

}  // namespace sluice::fabric
