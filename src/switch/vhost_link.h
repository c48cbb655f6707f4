// VhostLink: the socket of a vhost-user port, and the session on it while there is one.
//
// An ended session is followed by the next one, for ever, in both roles; nothing but the port's
// counters, its configured address and the used positions of packed rings outlives it (H10).
//
// Threads: the control thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/unique_fd.h"
#include "switch/options.h"
#include "switch/vhost_user_port.h"
#include "vhost/server.h"

namespace sluice::fabric {

class VhostLink {
  struct Passkey {};

 public:
  /// Opens the socket. `state_path` is where positions of packed rings are kept; empty: beside the
  /// socket. `port` outlives the link. Errors: those of Endpoint::create and RingRecords::open.
  [[nodiscard]] static Result<std::unique_ptr<VhostLink>> create(const VhostUserOptions& options,
                                                                 const std::string& state_path,
                                                                 VhostUserPort& port);
  VhostLink(Passkey, VhostUserPort& port, UniqueFd epoll);
  ~VhostLink();

  /// An epoll set: readable when on_ready() should be called.
  [[nodiscard]] int fd() const { return epoll_.get(); }
  /// Serves the socket, the session and the control queue. True if a session began or ended.
  bool on_ready();
  /// A few times a second: ends a session whose memory shrank. True if it ended.
  bool housekeeping();
  /// Ends the session and closes the socket, for good.
  void close();

  /// The session is told soon, not now: it may be what calls.
  void config_changed() { config_changed_ = true; }
  [[nodiscard]] bool connected() const { return session_ != nullptr; }
  [[nodiscard]] std::uint64_t sessions() const { return sessions_; }
  /// "listening", "connecting", "connected", "running" or "stopped".
  [[nodiscard]] std::string_view state() const;
  /// Why the last session ended, if not by the front-end's wish, or why there is none.
  [[nodiscard]] std::optional<Error> last_error() const;
  [[nodiscard]] std::optional<vhost::SessionView> session_view() const;

 private:
  Status open(const VhostUserOptions& options, const std::string& state_path);
  Status watch(int fd, std::uint64_t tag);
  bool begin_session();
  void end_session(const Error& why);
  void tell_config_change();

  VhostUserPort& port_;
  const UniqueFd epoll_;
  std::shared_ptr<vhost::RingRecords> records_;
  std::unique_ptr<vhost::Endpoint> endpoint_;
  std::unique_ptr<vhost::Session> session_;
  bool config_changed_ = false;
  std::uint64_t sessions_ = 0;
  std::optional<Error> last_error_;
};

}  // namespace sluice::fabric
