// Kinds of descriptors, told without asking whoever serves the file.
#include "base/foreign_fd.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <string_view>

#include "base/elsewhere.h"

namespace sluice {
namespace {

// The name of an open file as the kernel shows it, cut to what tells the kind. A file with a path
// shows that, which begins with '/'; the kernel's own kinds begin with their name.
class FileName {
 public:
  explicit FileName(int fd) {
    std::array<char, 48> path{};
    std::snprintf(path.data(), path.size(), "/proc/self/fd/%d", fd);
    const ssize_t length = ::readlink(path.data(), text_.data(), text_.size());
    length_ = length > 0 ? static_cast<std::size_t>(length) : 0;
  }
  [[nodiscard]] std::string_view view() const { return {text_.data(), length_}; }

 private:
  std::array<char, 64> text_{};
  std::size_t length_ = 0;
};

bool is_local_socket(int fd) {
  int domain = 0;
  socklen_t size = sizeof domain;
  return ::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX;
}

}  // namespace

bool lives_in_memory(int fd) {
  return ::fcntl(fd, F_GET_SEALS) >= 0;
}

bool is_eventfd(int fd) {
  // The whole name is compared: that of a file begins with its path, which a peer may choose.
  return FileName(fd).view() == "anon_inode:[eventfd]";
}

bool is_harmless(int fd) {
  if (fd < 0 || lives_in_memory(fd)) return true;
  const FileName name(fd);
  if (name.view().starts_with("socket:[")) return is_local_socket(fd);
  return name.view().starts_with("pipe:[") || name.view() == "anon_inode:[eventfd]";
}

void close_foreign(UniqueFd fd) {
  // Without a thread, better a descriptor too many than a wait: it goes with the process.
  const int doomed = fd.release();
  [[maybe_unused]] const bool closed = run_elsewhere([doomed] { ::close(doomed); });
}

}  // namespace sluice
