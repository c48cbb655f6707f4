// VhostLink: the socket of a vhost-user port, and the session on it while there is one.
//
// An ended session is followed by the next one, for ever, in both roles; nothing but the port's
// counters, its configured address and the used positions of packed rings outlives it (H10).
//
// A front-end that comes and goes without starting a ring, again and again (QEMU that wants more
// queue pairs than the port has, with reconnect=1), is accepted only after a pause, so that it
// takes neither the control thread nor the log. After a session that ran the next one begins at
// once.
//
// Threads: the control thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/unique_fd.h"
#include "switch/growing_pause.h"
#include "switch/options.h"
#include "switch/vhost_user_port.h"
#include "vhost/server.h"

namespace sluice::fabric {

class VhostLink {
  struct Passkey {};

 public:
  /// `port` outlives the link. Errors: kSystem.
  [[nodiscard]] static Result<std::unique_ptr<VhostLink>> create(VhostUserPort& port);
  VhostLink(Passkey, VhostUserPort& port, UniqueFd epoll, UniqueFd timer);
  ~VhostLink();

  /// First of all. Errors: those of Endpoint::create.
  Status open_socket(const VhostUserOptions& options);
  /// Then: positions of packed rings are kept in the file `path`. A failure to open it is only
  /// noted if they are `optional`. Errors: those of RingRecords::open.
  Status open_records(const VhostUserOptions& options, const std::string& path, bool optional);

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
  /// True if the last session was left by the front-end after some messages, but before it shared
  /// any memory: something that it was told does not suit it.
  [[nodiscard]] bool left_in_negotiation() const { return left_in_negotiation_; }
  [[nodiscard]] std::optional<vhost::SessionView> session_view() const;

 private:
  Status watch(int fd, std::uint64_t tag);
  bool begin_session();
  void end_session(const Error& why);
  void look_at_session();
  void let_next_come();
  void end_pause();
  void tell_config_change();

  VhostUserPort& port_;
  const UniqueFd epoll_;
  const UniqueFd timer_;  // Ends a pause.
  std::shared_ptr<vhost::RingRecords> records_;
  std::string new_records_;  // Their file, if it was not there before us and may go again.
  std::unique_ptr<vhost::Endpoint> endpoint_;
  std::unique_ptr<vhost::Session> session_;
  bool config_changed_ = false;
  bool client_ = false;
  // Of the session, and when it is over of the last one.
  std::chrono::steady_clock::time_point since_;
  bool ran_ = false;
  bool shared_memory_ = false;
  bool left_in_negotiation_ = false;
  bool paused_ = false;
  GrowingPause pause_;
  std::uint64_t sessions_ = 0;
  std::optional<Error> last_error_;
};

}  // namespace sluice::fabric
