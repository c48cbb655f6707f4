// VirtioUserLink: the sessions of a virtio-user port with devices, one after the other, for ever.
//
// A driver waits for each answer of its back-end, which may be slow or silent, so every link has a
// thread of its own: no port holds up another (DESIGN rule 7). A back-end that goes is followed by
// the next one, which may offer other features: everything is negotiated anew each time. One that
// comes to nothing is tried again after a pause, which grows.
//
// Threads: create(), start() and close() by the control thread; what is shown by any.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/foreign_fd.h"
#include "base/unique_fd.h"
#include "net/net_driver.h"
#include "switch/options.h"
#include "switch/queue_reset.h"
#include "switch/vhost_user_port.h"
#include "switch/virtio_user_port.h"
#include "vhost/frontend_source.h"

namespace sluice::fabric {

class VirtioUserLink {
  struct Passkey {};

 public:
  /// Opens the socket; as a server it listens at once. `port` and `events` outlive the link;
  /// queues_changed() is called from the link's thread. Errors: those of Endpoint::create.
  [[nodiscard]] static Result<std::unique_ptr<VirtioUserLink>> create(
      const VirtioUserOptions& options, VirtioUserPort& port, PortEvents& events);
  VirtioUserLink(Passkey, const VirtioUserOptions& options, VirtioUserPort& port,
                 PortEvents& events, vhost::FrontendSource source);
  ~VirtioUserLink();

  /// Begins to look for a device. Errors: kSystem.
  Status start();
  /// Begins to end it: close() does not take long then.
  void request_stop();
  /// Ends the session and closes the socket, for good.
  void close();
  /// True if a session began or ended since the last call.
  bool take_change() { return changed_.exchange(false); }

  /// Has the link's thread reset what `order` says; `done` is signalled when that has an outcome:
  /// the report, or a refusal that changed nothing: kOutOfRange and kInvalidArgument for the queue
  /// or its size, kNotNegotiated if the device cannot reset single queues; or kClosed if the reset
  /// failed and the session with the device ended, for the reason in `text`.
  /// Errors: kWrongState unless the port is running; kExists if a reset is under way.
  [[nodiscard]] Result<std::shared_ptr<const PendingReset>> begin_reset(
      const ResetOrder& order, std::shared_ptr<const EventFd> done);

  /// What is shown of a link.
  struct View {
    std::string_view state;      // "listening", "connecting", "connected", "running" or "stopped".
    std::uint64_t sessions = 0;  // Devices that were started.
    std::optional<Error> last_error;
    virtio::FeatureSet features;  // Negotiated.
    std::vector<std::string_view> protocol_features;
    std::uint64_t memory_bytes = 0;  // Shared with the back-end.
  };
  [[nodiscard]] View view() const;

 private:
  void loop(const std::stop_token& stop);
  Status serve(const std::stop_token& stop, std::unique_ptr<vhost::Frontend> frontend);
  Status run(const std::stop_token& stop, net::NetDriver& driver);
  Status serve_reset(net::NetDriver& driver);
  [[nodiscard]] Result<ResetReport> reset(net::NetDriver& driver, const ResetOrder& order);
  [[nodiscard]] bool keep_socket(const std::stop_token& stop, Result<UniqueFd> socket);
  void show(std::string_view state);
  void forget_session(const Status& why);
  void hang_up();
  void rest(const std::stop_token& stop, std::chrono::milliseconds time);

  const VirtioUserOptions options_;
  VirtioUserPort& port_;
  PortEvents& events_;
  std::optional<vhost::FrontendSource> source_;  // The thread's while there is one.
  std::atomic<bool> changed_{false};

  mutable std::mutex mutex_;  // For what follows.
  std::condition_variable_any sleep_;
  ResetOrder order_;                       // What to reset, ...
  std::shared_ptr<PendingReset> pending_;  // ... if this is not null.
  View view_;
  PeerSocket socket_;  // Of the session. Shut down, no call waits for an answer.

  std::jthread thread_;
};

}  // namespace sluice::fabric
