// System calls behind UniqueFd and EventFd.
#include "base/unique_fd.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <string_view>

namespace sluice {

void UniqueFd::reset(int fd) {
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

Result<UniqueFd> UniqueFd::duplicate() const {
  UniqueFd copy(::fcntl(fd_, F_DUPFD_CLOEXEC, 0));
  if (!copy) return fail_errno("cannot duplicate a descriptor");
  return copy;
}

namespace {

// The kernel tells the kind of an anonymous inode only by the name of its link. The whole name is
// compared: that of a file begins with its path, which a peer may choose.
bool is_eventfd(int fd) {
  std::array<char, 48> path{};
  std::array<char, 64> target{};
  std::snprintf(path.data(), path.size(), "/proc/self/fd/%d", fd);
  const ssize_t length = ::readlink(path.data(), target.data(), target.size());
  if (length <= 0) return false;
  const std::string_view name(target.data(), static_cast<std::size_t>(length));
  return name == "anon_inode:[eventfd]";
}

bool ready(int fd, short events) {
  pollfd item{.fd = fd, .events = events, .revents = 0};
  return ::poll(&item, 1, 0) == 1 && (item.revents & events) != 0;
}

}  // namespace

Result<EventFd> EventFd::create() {
  UniqueFd fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!fd) return fail_errno("cannot make an eventfd");
  return EventFd(std::move(fd), true);
}

Result<EventFd> EventFd::adopt(UniqueFd fd) {
  if (!fd || !is_eventfd(fd.get())) {
    return fail(ErrorCode::kInvalidArgument, "the descriptor is not an eventfd", fd.get());
  }
  const int flags = ::fcntl(fd.get(), F_GETFL);
  return EventFd(std::move(fd), flags >= 0 && (flags & O_NONBLOCK) != 0);
}

void EventFd::signal() const {
  const std::uint64_t one = 1;
  if (!nonblocking_ && !ready(fd_.get(), POLLOUT)) return;
  [[maybe_unused]] const ssize_t written = ::write(fd_.get(), &one, sizeof one);
}

bool EventFd::drain() const {
  std::uint64_t count = 0;
  if (!nonblocking_ && !ready(fd_.get(), POLLIN)) return false;
  return ::read(fd_.get(), &count, sizeof count) == static_cast<ssize_t>(sizeof count);
}

}  // namespace sluice
