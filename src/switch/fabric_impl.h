// Fabric::Impl: what a running switch consists of. Shared by fabric.cc and fabric_views.cc.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "base/stall_watch.h"
#include "base/unique_fd.h"
#include "net/drop.h"
#include "packet/packet.h"
#include "switch/fabric.h"
#include "switch/forwarder.h"
#include "switch/mac_table.h"
#include "switch/vhost_link.h"
#include "switch/vhost_user_port.h"
#include "switch/virtio_user_link.h"
#include "switch/virtio_user_port.h"
#include "switch/worker.h"

namespace sluice::fabric {

struct Fabric::Impl final : PortEvents {
  using Clock = std::chrono::steady_clock;
  enum class State : std::uint8_t { kCreated, kRunning, kStopped };

  explicit Impl(SwitchOptions switch_options) : options(std::move(switch_options)) {}
  ~Impl() override { stop(); }

  Status open();
  Status open_ports();
  Status open_forwarder();
  Status open_workers();
  Status open_links();
  Status open_driver_links();
  Status watch(int fd, std::uint64_t tag) const;
  Status start();
  void serve(std::uint64_t tag);
  void link_changed(std::size_t index);
  void look_at_driver_links();
  void housekeeping();
  void stop();

  // PortEvents
  void queues_changed() override;
  void announce(std::uint16_t port, net::PackedMac mac) override;
  void config_changed(std::uint16_t port) override;

  /// What the control thread needs to send packets of its own.
  struct Sender {
    packet::Burst burst;
    Forwarder::Scratch scratch;
    net::DirectionCounters counters;
  };

  const SwitchOptions options;  // Complete.
  State state = State::kCreated;
  PortFault fault;  // Why open() failed, if it did.
  UniqueFd epoll;
  UniqueFd timer;
  std::shared_ptr<const EventFd> reset_done;  // Signalled when a reset has an outcome.
  std::unique_ptr<StallWatch> stall_watch;
  // In order of construction; each uses those before it.
  std::vector<std::unique_ptr<Port>> ports;   // By number.
  std::vector<VhostUserPort*> vhost_ports;    // The first ones of them, ...
  std::vector<VirtioUserPort*> driver_ports;  // ... and those that follow.
  std::unique_ptr<MacTable> table;            // Null: patch.
  std::unique_ptr<Forwarder> forwarder;
  std::unique_ptr<Sender> sender;
  std::vector<std::unique_ptr<Worker>> workers;
  std::vector<std::unique_ptr<VhostLink>> links;              // One a vhost-user port, by number.
  std::vector<std::unique_ptr<VirtioUserLink>> driver_links;  // One a virtio-user port.
  Clock::time_point began = Clock::now();
  Clock::time_point last_tick = began;
};

}  // namespace sluice::fabric
