// Kinds of descriptors, told without asking whoever serves the file.
#include "base/foreign_fd.h"

#include <fcntl.h>
#include <sys/ioctl.h>
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

}  // namespace

bool lives_in_memory(int fd) {
  return ::fcntl(fd, F_GET_SEALS) >= 0;
}

bool is_eventfd(int fd) {
  // The whole name is compared: that of a file begins with its path, which a peer may choose.
  return FileName(fd).view() == "anon_inode:[eventfd]";
}

bool is_local_socket(int fd) {
  if (!FileName(fd).view().starts_with("socket:[")) return false;
  int domain = 0;
  socklen_t size = sizeof domain;
  return ::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX;
}

bool is_harmless(int fd) {
  if (fd < 0 || lives_in_memory(fd)) return true;
  const FileName name(fd);
  return name.view().starts_with("pipe:[") || name.view() == "anon_inode:[eventfd]";
}

PeerSocket& PeerSocket::operator=(PeerSocket&& other) noexcept {
  if (this != &other) {
    close();
    fd_ = std::move(other.fd_);
  }
  return *this;
}

void PeerSocket::close() {
  if (!fd_) return;
  // From here on nothing more can arrive.
  ::shutdown(fd_.get(), SHUT_RDWR);
  int unread = 0;
  if (::ioctl(fd_.get(), FIONREAD, &unread) == 0 && unread == 0) {
    fd_.reset();
  } else {
    close_foreign(std::move(fd_));
  }
}

void close_foreign(UniqueFd fd) {
  // Without a thread, better a descriptor too many than a wait: it goes with the process.
  const int doomed = fd.release();
  [[maybe_unused]] const bool closed = run_elsewhere([doomed] { ::close(doomed); });
}

}  // namespace sluice
