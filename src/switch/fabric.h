// Fabric: a running switch. Ports, forwarder and workers, and the control thread's event loop.
//
// Life: create() opens ports and sockets, start() starts the workers, poll() serves sockets and
// timers, stop() ends the workers and gives every buffer back.
//
// Threads: all functions by the control thread (the one that created it). Workers run inside.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "net/drop.h"
#include "switch/options.h"
#include "switch/port.h"
#include "switch/queue_reset.h"

namespace sluice::fabric {

/// What is shown of a port (`sluice port show`).
struct PortView {
  PortId id;
  std::string name;
  std::string kind;        // "vhost-user", "virtio-user", "generator", "sink".
  std::string path;        // Socket, if any.
  std::string role;        // "server", "client", or empty.
  std::string state;       // "listening", "connecting", "connected", "running", "stopped".
  std::string last_error;  // What ended the last session or queue, in words; empty if nothing did.
  std::vector<std::string> features;           // Negotiated virtio features, by name.
  std::vector<std::string> protocol_features;  // Negotiated vhost-user protocol features.
  std::string mac;                             // Configured address; empty if none.
  std::uint16_t queue_pairs = 0;
  std::uint16_t mtu = 0;
  std::uint32_t speed = 0;         // Configured for a virtio-user port, Mbit/s; 0: not known.
  std::uint64_t sessions = 0;      // Connections accepted or made so far.
  std::uint64_t memory_bytes = 0;  // Shared by the front-end.
  std::uint32_t memory_regions = 0;
};

/// Sum over a port's queues.
struct PortTotals {
  std::uint64_t packets = 0;
  std::uint64_t bytes = 0;
  std::uint64_t bursts = 0;
  std::uint64_t notifications = 0;
  std::array<std::uint64_t, net::kDropCauses> drops{};
};
struct PortStats {
  std::string name;
  PortTotals from_driver;
  PortTotals to_driver;
};

/// One learned address (`sluice fdb show`).
struct FdbEntry {
  MacAddress mac{};
  std::string port;
  std::uint32_t age_seconds = 0;
  bool is_static = false;  // A port's configured address: neither ages nor moves.
};

struct WorkerView {
  std::uint16_t id = 0;
  int core = -1;
  std::string poll;
  std::uint64_t iterations = 0;
  std::uint64_t busy_iterations = 0;  // Those that moved packets.
  std::uint64_t sleeps = 0;
  std::vector<std::string> queues;  // "vm0:0", ...
};

/// What became of the packets of all workers. With the ports' counters this closes the account:
/// switch/port.h says how.
struct ForwardTotals {
  std::uint64_t forwarded = 0;  // Packets that were offered to at least one port.
  std::uint64_t offers = 0;     // Offers made: one per packet and receiving port.
  std::uint64_t flooded = 0;    // Packets that were offered to every port that wants them.
};

/// Which port could not be opened, and what of it.
struct PortFault {
  std::string port;      // Its name; empty: the error is about no port.
  std::string path;      // The socket, or the file of ring records.
  bool records = false;  // It is the latter.
};

class Fabric {
  struct Passkey {};

 public:
  /// Errors: any of the configuration's values (kInvalidArgument, kExists for names or paths used
  /// twice) or the system's; `Error::text` names the field. `fault`, if given, names the port.
  [[nodiscard]] static Result<std::unique_ptr<Fabric>> create(const SwitchOptions& options,
                                                              PortFault* fault = nullptr);
  struct Impl;
  Fabric(Passkey, std::unique_ptr<Impl> impl);
  ~Fabric();

  /// Starts the workers, once. Errors: kSystem; kInvalidArgument for a core that does not exist;
  /// kWrongState.
  Status start();
  /// A descriptor that is readable when poll() has something to do (an epoll set).
  [[nodiscard]] int poll_fd() const;
  /// Serves sockets and timers; returns after at most `timeout`.
  void poll(std::chrono::milliseconds timeout);
  /// Begins a reset of queues of the virtio-user port `port`. poll_fd() is readable when it has an
  /// outcome, of which VirtioUserLink::begin_reset() tells; the reset goes on if nobody waits.
  /// Errors: kNotFound for a port that is not there; kUnsupported for one of another kind: the
  /// driver of a vhost-user port resets its queues; kWrongState without a running device; kExists
  /// if a reset of the port is under way.
  [[nodiscard]] Result<std::shared_ptr<const PendingReset>> begin_reset(const std::string& port,
                                                                        const ResetOrder& order);
  /// Stops workers, then sessions. Afterwards views and stats still answer.
  void stop();

  [[nodiscard]] std::vector<PortView> ports() const;
  [[nodiscard]] std::vector<PortStats> stats() const;
  [[nodiscard]] std::vector<QueueView> queues(const std::string& port) const;  // Empty: unknown.
  [[nodiscard]] std::vector<FdbEntry> fdb() const;
  [[nodiscard]] ForwardTotals forwarding() const;
  [[nodiscard]] std::vector<WorkerView> workers() const;
  [[nodiscard]] const SwitchOptions& options() const;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::fabric
