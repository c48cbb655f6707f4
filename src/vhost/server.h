// Endpoint and Session: a vhost-user port's socket, listening or connecting, and one conversation.
//
// Both give one descriptor that is readable when on_ready() has something to do (an epoll set of
// their own), so an owner needs no knowledge of sockets, timers or half-written replies:
//
//   endpoint readable -> socket = endpoint.on_ready(); if there is one: Session::create(socket)
//   session readable  -> if !session.on_ready(): drop the session, endpoint.session_over()
//
// Threads: everything by the control thread, except where a comment says otherwise.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/unique_fd.h"
#include "net/transport.h"
#include "vhost/ring_records.h"
#include "vhost/session_view.h"

namespace sluice::vhost {

struct EndpointOptions {
  std::string path;     // Of the socket; at most 107 bytes.
  bool client = false;  // Connect, again and again for ever, instead of listening.
  std::chrono::milliseconds retry_first{20};   // Client: first pause after a failure; it doubles
  std::chrono::milliseconds retry_most{1000};  // up to this, and varies by a quarter (jitter).
};

/// The place where sessions come from: at most one at a time. Further front-ends wait in the
/// socket's backlog until session_over().
class Endpoint {
 public:
  /// Server: takes the path (a lock file beside it keeps two processes apart) and listens. A dead
  /// socket file is replaced, a live one or another kind of file never.
  /// Errors: kInvalidArgument for an empty or too long path or one that is not a socket; kExists
  /// if another process serves it; kNotFound if its directory is missing; kPermission; kSystem.
  [[nodiscard]] static Result<std::unique_ptr<Endpoint>> create(EndpointOptions options);
  /// Server: removes the socket file if it is still ours.
  virtual ~Endpoint() = default;

  /// An epoll set: readable when on_ready() should be called.
  [[nodiscard]] virtual int fd() const = 0;
  /// A connected socket if there is one. Never blocks. Whoever takes it calls session_over() when
  /// it is done with; until then there is no other.
  [[nodiscard]] virtual std::optional<UniqueFd> on_ready() = 0;
  virtual void session_over() = 0;

  /// "listening", "connecting" or "connected".
  [[nodiscard]] virtual std::string_view state() const = 0;
  /// Why the last attempt of a client failed, or accepting did.
  [[nodiscard]] virtual std::optional<Error> last_error() const = 0;
};

struct SessionOptions {
  /// Where used positions of packed rings outlive this process. Null: a packed ring whose
  /// front-end does not know its position starts afresh after a crash. Open it once per port, for
  /// as many rings as the device has: 2 * max_queue_pairs() + 1.
  std::shared_ptr<RingRecords> records;
};

/// One front-end. Its end stops all queues of the device; nothing of it survives into the next
/// session (H10), except used positions in `records`.
class Session {
 public:
  /// Requires: `device` outlives the session, and serves no other.
  [[nodiscard]] static Result<std::unique_ptr<Session>> create(UniqueFd socket, net::Device& device,
                                                               SessionOptions options);
  virtual ~Session() = default;

  /// An epoll set: readable when on_ready() should be called.
  [[nodiscard]] virtual int fd() const = 0;
  /// Handles some messages, or goes on sending; never blocks. An error ends the session: kClosed
  /// if the front-end went away, else what it did wrong.
  [[nodiscard]] virtual Status on_ready() = 0;
  /// kMemoryShrunk if the front-end truncated the memory it shares: end the session then. Cheap;
  /// ask it now and then, for instance whenever the control loop wakes up.
  [[nodiscard]] virtual Status check_memory() const = 0;
  /// Tells the front-end that config() of the device changed (link, announcement). While all rings
  /// are stopped the message waits. No effect unless CONFIG and BACKEND_REQ were negotiated.
  virtual void config_changed() = 0;
  [[nodiscard]] virtual SessionView view() const = 0;
};

}  // namespace sluice::vhost
