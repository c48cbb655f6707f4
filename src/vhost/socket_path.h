// SocketPath: the right to serve a Unix socket path, and the care not to take it from others.
#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"
#include "base/unique_fd.h"

namespace sluice::vhost {

/// Longest path that fits a Unix socket address, with its final zero (unix(7)).
inline constexpr std::size_t kSocketPathMax = 107;

/// Errors: kInvalidArgument if `path` is empty or too long for a socket.
Status check_socket_path(const std::string& path);

/// A non-blocking socket connected to `path`. Errors: kSystem with the errno of connect().
[[nodiscard]] Result<UniqueFd> connect_to(const std::string& path);

/// A lock file "<path>.lock" and a listening socket at `path`. The lock keeps two processes apart
/// that start at the same moment: without it both could find a dead socket, and the slower one
/// would remove the socket that the other has just made.
class SocketPath {
 public:
  /// Errors: see Endpoint::create.
  [[nodiscard]] static Result<SocketPath> listen(const std::string& path);
  SocketPath(SocketPath&&) = default;
  SocketPath& operator=(SocketPath&&) = delete;
  SocketPath(const SocketPath&) = delete;
  SocketPath& operator=(const SocketPath&) = delete;
  /// Removes the socket if it is still ours, then the lock file.
  ~SocketPath();

  [[nodiscard]] int fd() const { return socket_.get(); }

 private:
  explicit SocketPath(std::string path, UniqueFd lock)
      : path_(std::move(path)), lock_(std::move(lock)) {}
  Status bind();

  std::string path_;
  UniqueFd lock_;
  UniqueFd socket_;
  std::uint64_t device_ = 0;  // Of the socket file that we made.
  std::uint64_t inode_ = 0;
};

}  // namespace sluice::vhost
