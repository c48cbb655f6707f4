// bind(), connect(), flock() and unlink() around a socket path.
#include "vhost/socket_path.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace sluice::vhost {
namespace {

struct Address {
  explicit Address(const std::string& path) {
    unix.sun_family = AF_UNIX;
    std::memcpy(unix.sun_path, path.data(), path.size());
  }
  [[nodiscard]] const sockaddr* get() const {
    return static_cast<const sockaddr*>(static_cast<const void*>(&unix));
  }
  sockaddr_un unix{};
};

Result<UniqueFd> make_socket() {
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return fail_errno("cannot make a Unix socket");
  return fd;
}

std::unexpected<Error> path_error(const char* text) {
  switch (errno) {
    case ENOENT: return fail(ErrorCode::kNotFound, "the directory of the socket does not exist");
    case ENOTDIR: return fail(ErrorCode::kNotFound, "a part of its path is not a directory");
    case EACCES:
    case EPERM:
    case EROFS:
      return fail(ErrorCode::kPermission, "no permission to make the socket there", errno);
    default: return fail_errno(text);
  }
}

bool same_file(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

// The lock file is removed by its last holder, so after locking it must still be the one of that
// name; else somebody locked, removed and left in between.
Result<UniqueFd> take_lock(const std::string& path) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd) return path_error("cannot make the lock file of the socket");
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) return fail_errno("cannot lock the lock file of the socket");
      return fail(ErrorCode::kExists, "another process serves this socket path");
    }
    struct stat mine{};
    struct stat named{};
    if (::fstat(fd.get(), &mine) == 0 && ::lstat(path.c_str(), &named) == 0 &&
        same_file(mine, named)) {
      return fd;
    }
  }
  return fail(ErrorCode::kExists, "the lock file of the socket changes all the time");
}

// Removes a socket file that nobody listens on. Errors: it is something else, or somebody does.
Status remove_dead_socket(const std::string& path) {
  struct stat info{};
  if (::lstat(path.c_str(), &info) != 0) return {};  // Gone by itself.
  if (!S_ISSOCK(info.st_mode)) {
    return fail(ErrorCode::kInvalidArgument, "the path exists and is not a socket");
  }
  const Result<UniqueFd> probe = connect_to(path);
  if (probe || probe.error().detail == EAGAIN) {
    return fail(ErrorCode::kExists, "another process serves this socket path");
  }
  if (probe.error().detail != ECONNREFUSED) {
    errno = static_cast<int>(probe.error().detail);
    return path_error("cannot tell whether the socket is in use");
  }
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
    return path_error("cannot remove the dead socket");
  }
  return {};
}

}  // namespace

Status check_socket_path(const std::string& path) {
  if (path.empty()) return fail(ErrorCode::kInvalidArgument, "the socket has no path");
  if (path.size() > kSocketPathMax || path.find('\0') != std::string::npos) {
    return fail(ErrorCode::kInvalidArgument, "a socket path can have at most 107 bytes",
                static_cast<std::int64_t>(path.size()));
  }
  return {};
}

Result<UniqueFd> connect_to(const std::string& path) {
  TRY(check_socket_path(path));
  UniqueFd fd = TRY(make_socket());
  const Address address(path);
  if (::connect(fd.get(), address.get(), sizeof address.unix) != 0) {
    return fail_errno("cannot connect to the socket");
  }
  return fd;
}

Result<SocketPath> SocketPath::listen(const std::string& path) {
  TRY(check_socket_path(path));
  SocketPath mine(path, TRY(take_lock(path + ".lock")));
  TRY(mine.bind());
  if (::listen(mine.socket_.get(), 16) != 0) return fail_errno("cannot listen on the socket");
  return mine;
}

Status SocketPath::bind() {
  UniqueFd fd = TRY(make_socket());
  const Address address(path_);
  int result = ::bind(fd.get(), address.get(), sizeof address.unix);
  if (result != 0 && errno == EADDRINUSE) {
    TRY(remove_dead_socket(path_));
    result = ::bind(fd.get(), address.get(), sizeof address.unix);
    if (result != 0 && errno == EADDRINUSE) {
      return fail(ErrorCode::kExists, "another process serves this socket path");
    }
  }
  if (result != 0) return path_error("cannot bind the socket");
  struct stat info{};
  if (::lstat(path_.c_str(), &info) != 0) return fail_errno("cannot look at the socket");
  device_ = info.st_dev;
  inode_ = info.st_ino;
  socket_ = std::move(fd);
  return {};
}

SocketPath::~SocketPath() {
  if (!lock_) return;  // Moved from.
  struct stat info{};
  if (socket_ && ::lstat(path_.c_str(), &info) == 0 && info.st_dev == device_ &&
      info.st_ino == inode_) {
    ::unlink(path_.c_str());
  }
  ::unlink((path_ + ".lock").c_str());
}

}  // namespace sluice::vhost
