// The control socket: a Unix stream socket on which a running process answers questions.
//
// One request per line, one reply per line (docs/control.md). This file knows lines only; what
// they mean is in requests.h.
//
// How it works: all descriptors are non-blocking and sit in one epoll set, which the control
// thread's loop watches. Each client has at most one request and one reply in memory: while a
// reply is not taken, nothing more is read from that client, so a client that does not read stops
// nobody but itself. A request that takes time is answered later, and holds up its client only. A
// new client is always let in; if there are too many, the one that has been
// silent longest goes.
//
// Threads: the control thread only. The packet path knows nothing of this file.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/error.h"
#include "base/unique_fd.h"

namespace sluice::control {

inline constexpr std::size_t kRequestMax = 4096;  // Bytes of one request line.
inline constexpr std::size_t kControlClientsMax = 32;

/// Where the socket is if nobody says otherwise: /run/sluice.sock for root, else
/// $XDG_RUNTIME_DIR/sluice.sock, else /tmp/sluice-UID.sock.
[[nodiscard]] std::string default_control_path();

/// Gives the reply once there is one. It is asked again at each serve().
using Later = std::function<std::optional<std::string>()>;
using Reply = std::variant<std::string, Later>;
/// Makes the reply, without the newline, to one request line.
using Answer = std::function<Reply(std::string_view request)>;

class ControlServer {
  struct Private {};

 public:
  explicit ControlServer(Private) {}
  /// Listens at `path`, readable and writable for the owner only. A socket that nobody serves any
  /// more is replaced. `too_long` is the reply to a line longer than kRequestMax.
  /// Errors: kExists if a process answers there or the file is no socket; kOutOfRange for a path
  ///         too long; else the system's.
  [[nodiscard]] static Result<std::unique_ptr<ControlServer>> listen(const std::string& path,
                                                                     std::string too_long);
  /// Closes all clients and removes the socket's file, unless another one stands there by now.
  ~ControlServer();
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;

  /// Readable when serve() has something to do (an epoll set).
  [[nodiscard]] int poll_fd() const { return epoll_.get(); }
  /// Does what can be done without waiting, a bounded amount of it. poll_fd() does not tell that a
  /// Later has its reply: who makes one calls this then.
  void serve(const Answer& answer);

  [[nodiscard]] std::size_t clients() const { return clients_.size(); }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  struct Client {
    UniqueFd fd;
    std::string in;             // At most kRequestMax + 1 bytes.
    std::string out;            // The rest of one reply.
    Later later;                // The reply to come, or empty.
    bool at_end = false;        // No more comes, or none is wanted: close when `out` is empty.
    std::uint32_t watched = 0;  // What epoll was told.
    std::uint64_t last_active = 0;
  };

  Status open_socket(const std::string& path);
  void accept_clients();
  void admit(UniqueFd fd);
  void drop_most_silent();
  // False if the client must go.
  bool advance(Client& client, bool readable, const Answer& answer);
  bool read_some(Client& client);
  bool answer_lines(Client& client, const Answer& answer);
  void watch(Client& client, std::uint32_t events);

  std::string path_;
  std::string too_long_;
  UniqueFd epoll_;
  UniqueFd listener_;
  UniqueFd spare_;  // Given up for a moment when descriptors run out, to turn a client away.
  std::uint64_t device_ = 0;  // Which file is ours.
  std::uint64_t inode_ = 0;
  std::uint64_t activity_ = 0;
  std::map<int, Client> clients_;
};

/// The other end, for the commands.
class ControlClient {
 public:
  /// Errors: kNotFound if nobody serves `path`; kPermission if it may not be used, or if it
  ///         belongs to another user than root and ourselves; kTimeout; else the system's.
  [[nodiscard]] static Result<ControlClient> connect(const std::string& path);
  /// Sends one line, returns the reply without its newline. Waits for some seconds at most, or for
  /// `patience` if that is given.
  [[nodiscard]] Result<std::string> ask(std::string_view request,
                                        std::chrono::seconds patience = std::chrono::seconds{0});

 private:
  explicit ControlClient(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace sluice::control
