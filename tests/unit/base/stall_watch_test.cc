// StallWatch and foreign descriptors: a peer cannot make us wait.
#include "base/stall_watch.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <limits>
#include <thread>
#include <utility>

#include "base/foreign_fd.h"
#include "base/unique_fd.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// An eventfd of a peer that looked well when it came.
struct PeersEvent {
  PeersEvent() {
    auto copy = theirs.duplicate();
    auto adopted = EventFd::adopt(*std::move(copy));
    ours = *std::move(adopted);
  }
  void make_blocking() const { ::fcntl(theirs.get(), F_SETFL, 0); }
  void fill() const {
    const std::uint64_t most = std::numeric_limits<std::uint64_t>::max() - 1;
    EXPECT_EQ(::write(theirs.get(), &most, sizeof most), static_cast<ssize_t>(sizeof most));
  }
  UniqueFd theirs = UniqueFd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  EventFd ours;
};

TEST(StallWatch, SEC_62_AWriteThatAPeerMakesWaitIsEndedAndNotTriedAgain) {
  const auto watch = StallWatch::start();
  ASSERT_TRUE(watch.has_value());
  const PeersEvent event;
  event.make_blocking();
  event.fill();
  event.ours.signal();  // The time limit of the test is the check.
  EXPECT_TRUE(event.ours.spoiled());
  const auto before = steady_clock::now();
  for (int i = 0; i < 100; ++i) event.ours.signal();
  EXPECT_LT(steady_clock::now() - before, 100 * StallWatch::kPatience);
}

TEST(StallWatch, ThreadsThatDoNotWaitAreLeftAlone) {
  const auto watch = StallWatch::start();
  ASSERT_TRUE(watch.has_value());
  const PeersEvent event;
  const auto end = steady_clock::now() + 3 * StallWatch::kPatience;
  while (steady_clock::now() < end) {
    event.ours.signal();
    event.ours.drain();
  }
  EXPECT_FALSE(event.ours.spoiled());
  // A wait that is no watched call is not ended either.
  EXPECT_EQ(::poll(nullptr, 0, 300), 0);
}

TEST(StallWatch, ThreadsComeAndGo) {
  const auto watch = StallWatch::start();
  ASSERT_TRUE(watch.has_value());
  const auto end = steady_clock::now() + 3 * StallWatch::kPatience;
  while (steady_clock::now() < end) {
    std::thread([] {
      const PeersEvent event;
      event.ours.signal();
    }).join();
  }
}

TEST(EventFdOfAPeer, SEC_61_DrainNeverWaitsWhateverThePeerDoesToTheFlags) {
  const PeersEvent event;
  event.make_blocking();
  EXPECT_FALSE(event.ours.drain());
  event.ours.signal();
  EXPECT_TRUE(event.ours.drain());
  EXPECT_FALSE(event.ours.drain());
}

TEST(EventFdOfAPeer, MovesWithItsState) {
  PeersEvent event;
  EventFd moved(std::move(event.ours));
  EXPECT_FALSE(event.ours);
  moved.signal();
  event.ours = std::move(moved);
  EXPECT_TRUE(event.ours.drain());
}

TEST(ForeignFd, EventsMemoryPipesAndLocalSocketsAreHarmless) {
  EXPECT_TRUE(is_harmless(-1));
  EXPECT_TRUE(is_harmless(UniqueFd(::eventfd(0, EFD_CLOEXEC)).get()));
  EXPECT_TRUE(is_harmless(UniqueFd(::memfd_create("memory", MFD_CLOEXEC)).get()));
  EXPECT_TRUE(is_harmless(UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)).get()));
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const UniqueFd reader(ends[0]);
  const UniqueFd writer(ends[1]);
  EXPECT_TRUE(is_harmless(reader.get()));
}

TEST(ForeignFd, FilesWithAPathAndOtherSocketsAreNot) {
  EXPECT_FALSE(is_harmless(UniqueFd(::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC)).get()));
  EXPECT_FALSE(is_harmless(UniqueFd(::open("/dev/null", O_RDWR | O_CLOEXEC)).get()));
  EXPECT_FALSE(is_harmless(UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)).get()));
}

TEST(ForeignFd, OneThatIsNotHarmlessIsClosedAllTheSame) {
  UniqueFd fd(::open("/dev/null", O_RDWR | O_CLOEXEC));
  const int number = fd.get();
  close_foreign(std::move(fd));
  const auto end = steady_clock::now() + std::chrono::seconds(30);
  while (::fcntl(number, F_GETFD) >= 0 && steady_clock::now() < end) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_LT(::fcntl(number, F_GETFD), 0);
}

}  // namespace
}  // namespace sluice
