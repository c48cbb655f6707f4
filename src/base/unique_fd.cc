// System calls behind UniqueFd and EventFd.
#include "base/unique_fd.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>

#include "base/foreign_fd.h"
#include "base/stall_watch.h"

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
  if (spoiled()) return;
  if (!nonblocking_ && !ready(fd_.get(), POLLOUT)) return;
  const WatchedCall call;
  if (::write(fd_.get(), &one, sizeof one) < 0 && errno == EINTR) {
    spoiled_.store(true, std::memory_order_relaxed);
  }
}

bool EventFd::drain() const {
  std::uint64_t count = 0;
  iovec part{&count, sizeof count};
  // Of a counter that is read this flag forbids to wait, whatever the peer did to O_NONBLOCK.
  ssize_t got = ::preadv2(fd_.get(), &part, 1, -1, RWF_NOWAIT);
  if (got < 0 && errno == EOPNOTSUPP) {  // A kernel before 5.8.
    if (!nonblocking_ && !ready(fd_.get(), POLLIN)) return false;
    const WatchedCall call;
    got = ::read(fd_.get(), &count, sizeof count);
  }
  return got == static_cast<ssize_t>(sizeof count);
}

}  // namespace sluice
