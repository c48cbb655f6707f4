// System calls behind UniqueFd and EventFd.
#include "base/unique_fd.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <ctime>

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

constexpr unsigned kMeasuredOneIn = 16;
constexpr std::chrono::microseconds kLong{500};
constexpr int kLongInARow = 8;

std::chrono::nanoseconds thread_time() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
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
    if (fd && !is_harmless(fd.get())) close_foreign(std::move(fd));
    return fail(ErrorCode::kInvalidArgument, "the descriptor is not an eventfd", fd.get());
  }
  const int flags = ::fcntl(fd.get(), F_GETFL);
  return EventFd(std::move(fd), flags >= 0 && (flags & O_NONBLOCK) != 0);
}

// False if the write was made to wait.
bool EventFd::add_one() const {
  const std::uint64_t one = 1;
  const WatchedCall call;
  return ::write(fd_.get(), &one, sizeof one) >= 0 || errno != EINTR;
}

void EventFd::signal() const {
  if (spoiled()) return;
  if (!nonblocking_ && !ready(fd_.get(), POLLOUT)) return;
  // A write wakes all who wait for the eventfd, in the time of the thread that writes, and a peer
  // can make them a hundred thousand. Processor time is measured, since a waiter may well take the
  // processor; now and then only, as long as nothing is wrong.
  const bool measured = slow_.load(std::memory_order_relaxed) != 0 ||
                        turn_.fetch_add(1, std::memory_order_relaxed) % kMeasuredOneIn == 0;
  const auto begin = measured ? thread_time() : std::chrono::nanoseconds(0);
  bool good = add_one();
  if (measured) {
    const bool slow = thread_time() - begin > kLong;
    const int row = slow ? slow_.load(std::memory_order_relaxed) + 1 : 0;
    slow_.store(static_cast<std::uint8_t>(row), std::memory_order_relaxed);
    good = good && row < kLongInARow;
  }
  if (!good) spoiled_.store(true, std::memory_order_relaxed);
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
