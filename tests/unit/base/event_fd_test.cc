// EventFd: wakes without ever blocking, whatever descriptor a peer sends (SEC-61, SEC-62).
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>
#include <chrono>
#include <thread>

#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "base/unique_fd.h"

namespace sluice {
namespace {

// The largest count that an eventfd holds; one more would block.
constexpr std::uint64_t kFull = std::numeric_limits<std::uint64_t>::max() - 1;

void add(int fd, std::uint64_t n) {
  ASSERT_EQ(::write(fd, &n, sizeof n), static_cast<ssize_t>(sizeof n));
}

EventFd adopted(int flags) {
  auto result = EventFd::adopt(UniqueFd(::eventfd(0, EFD_CLOEXEC | flags)));
  EXPECT_TRUE(result.has_value());
  return result.has_value() ? std::move(*result) : EventFd();
}

TEST(EventFd, ASignalIsSeenOnce) {
  const auto event = EventFd::create();
  ASSERT_TRUE(event.has_value());
  EXPECT_FALSE(event->drain());
  event->signal();
  event->signal();
  EXPECT_TRUE(event->drain());
  EXPECT_FALSE(event->drain());
}

TEST(EventFd, IsClosedOnExecAndNeverBlocks) {
  const auto event = EventFd::create();
  ASSERT_TRUE(event.has_value());
  EXPECT_NE(::fcntl(event->fd(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_NE(::fcntl(event->fd(), F_GETFL) & O_NONBLOCK, 0);
}

TEST(EventFd, SEC_62_SignalOfAFullCounterReturns) {
  const auto event = EventFd::create();
  ASSERT_TRUE(event.has_value());
  add(event->fd(), kFull);
  event->signal();  // The time limit of the test is the check.
  EXPECT_TRUE(event->drain());
}

TEST(EventFd, SEC_62_SignalOfAFullCounterThatBlocksReturns) {
  const EventFd event = adopted(0);
  add(event.fd(), kFull);
  event.signal();
  EXPECT_TRUE(event.drain());
  event.signal();
  EXPECT_TRUE(event.drain());
}

TEST(EventFd, SEC_61_DrainOfAnEmptyCounterThatBlocksReturns) {
  const EventFd event = adopted(0);
  EXPECT_FALSE(event.drain());
}

TEST(EventFd, SEC_61_DoesNotChangeTheFlagsOfThePeersFile) {
  UniqueFd theirs(::eventfd(0, EFD_CLOEXEC));
  auto copy = theirs.duplicate();
  ASSERT_TRUE(copy.has_value());
  const auto event = EventFd::adopt(std::move(*copy));
  ASSERT_TRUE(event.has_value());
  event->signal();
  EXPECT_EQ(::fcntl(theirs.get(), F_GETFL) & O_NONBLOCK, 0);
}

TEST(EventFd, SEC_62_ASemaphoreIsDrainedOneByOneWithoutBlocking) {
  const EventFd event = adopted(EFD_SEMAPHORE);
  event.signal();
  event.signal();
  EXPECT_TRUE(event.drain());
  EXPECT_TRUE(event.drain());
  EXPECT_FALSE(event.drain());
}

// Every other kind of descriptor is refused, and closed: it belongs to whom it was given.
class EventFdRefusal : public testing::TestWithParam<const char*> {
 protected:
  static UniqueFd make(const std::string& kind) {
    if (kind == "nothing") return UniqueFd();
    if (kind == "directory") return UniqueFd(::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (kind == "device") return UniqueFd(::open("/dev/null", O_RDWR | O_CLOEXEC));
    if (kind == "epoll") return UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
    if (kind == "timer") return UniqueFd(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC));
    if (kind == "socket") return UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    // A name that looks like one in /proc.
    if (kind == "memory") return UniqueFd(::memfd_create("eventfd", MFD_CLOEXEC));
    int ends[2] = {-1, -1};
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    const UniqueFd reader(ends[0]);
    return UniqueFd(ends[1]);
  }
};

TEST_P(EventFdRefusal, SEC_61_OtherKindsAreRefusedAndClosed) {
  UniqueFd fd = make(GetParam());
  const int number = fd.get();
  const auto event = EventFd::adopt(std::move(fd));
  ASSERT_FALSE(event.has_value());
  EXPECT_EQ(event.error().code, ErrorCode::kInvalidArgument);
  // What is not harmless is closed by a thread of its own.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (::fcntl(number, F_GETFD) >= 0 && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_LT(::fcntl(number, F_GETFD), 0);
}

INSTANTIATE_TEST_SUITE_P(Kinds, EventFdRefusal,
                         testing::Values("nothing", "directory", "device", "epoll", "timer",
                                         "socket", "memory", "pipe"),
                         [](const auto& kind) { return std::string(kind.param); });

TEST(EventFdName, SEC_61_AFileCalledLikeAnEventfdIsRefused) {
  // is_eventfd() goes by the name in /proc, which a peer may choose for a memfd.
  const auto event = EventFd::adopt(UniqueFd(::memfd_create("[eventfd]", MFD_CLOEXEC)));
  EXPECT_FALSE(event.has_value());
}

}  // namespace
}  // namespace sluice
