// StallWatch and foreign descriptors: a peer cannot make us wait.
#include "base/stall_watch.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <limits>
#include <thread>
#include <utility>
#include <vector>

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

TEST(ForeignFd, EventsMemoryAndPipesAreHarmless) {
  EXPECT_TRUE(is_harmless(-1));
  EXPECT_TRUE(is_harmless(UniqueFd(::eventfd(0, EFD_CLOEXEC)).get()));
  EXPECT_TRUE(is_harmless(UniqueFd(::memfd_create("memory", MFD_CLOEXEC)).get()));
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const UniqueFd reader(ends[0]);
  const UniqueFd writer(ends[1]);
  EXPECT_TRUE(is_harmless(reader.get()));
}

TEST(ForeignFd, FilesWithAPathAndSocketsAreNot) {
  EXPECT_FALSE(is_harmless(UniqueFd(::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC)).get()));
  EXPECT_FALSE(is_harmless(UniqueFd(::open("/dev/null", O_RDWR | O_CLOEXEC)).get()));
  const UniqueFd internet(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const UniqueFd local(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_FALSE(is_harmless(internet.get()));
  EXPECT_FALSE(is_harmless(local.get()));
  EXPECT_TRUE(is_local_socket(local.get()));
  EXPECT_FALSE(is_local_socket(internet.get()));
}

// A TCP connection with data that nobody reads: its close waits for `linger` seconds.
UniqueFd lingering_socket(std::array<UniqueFd, 2>& others, int seconds) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  others[0] = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  UniqueFd client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(::bind(others[0].get(), generic, size), 0);
  EXPECT_EQ(::listen(others[0].get(), 1), 0);
  EXPECT_EQ(::getsockname(others[0].get(), generic, &size), 0);
  ::connect(client.get(), generic, size);
  others[1] = UniqueFd(::accept(others[0].get(), nullptr, nullptr));
  const std::array<char, 65536> bytes{};
  while (::send(client.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) {
  }
  const linger wish{.l_onoff = 1, .l_linger = seconds};
  EXPECT_EQ(::setsockopt(client.get(), SOL_SOCKET, SO_LINGER, &wish, sizeof wish), 0);
  ::fcntl(client.get(), F_SETFL, 0);
  return client;
}

void send_fd(int to, int fd) {
  char byte = 0;
  iovec part{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  cmsghdr* const item = CMSG_FIRSTHDR(&header);
  item->cmsg_level = SOL_SOCKET;
  item->cmsg_type = SCM_RIGHTS;
  item->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(item), &fd, sizeof fd);
  EXPECT_EQ(::sendmsg(to, &header, 0), 1);
}

TEST(ForeignFd, ASocketWithALingeringOneInItsQueueIsClosedWithoutAWait) {
  std::array<UniqueFd, 2> others;
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  PeerSocket ours{UniqueFd(ends[0])};
  UniqueFd theirs(ends[1]);
  send_fd(theirs.get(), lingering_socket(others, 8).get());
  const auto before = steady_clock::now();
  ours = PeerSocket();
  EXPECT_LT(steady_clock::now() - before, std::chrono::seconds(4));
  others = {};  // A reset ends the wait, wherever it is.
}

TEST(ForeignFd, APeersSocketWithNothingInItIsClosedAtOnce) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  const UniqueFd theirs(ends[1]);
  {
    const PeerSocket ours{UniqueFd(ends[0])};
  }
  EXPECT_LT(::fcntl(ends[0], F_GETFD), 0);
}

// Each write to an eventfd wakes all who wait for it, in the writer's time.
TEST(StallWatch, AnEventfdWithACrowdOfWaitersIsSpoiled) {
  const PeersEvent event;
  std::vector<UniqueFd> copies;
  std::vector<UniqueFd> sets;
  for (int i = 0; i < 150; ++i)
    copies.emplace_back(::fcntl(event.theirs.get(), F_DUPFD_CLOEXEC, 0));
  for (int i = 0; i < 400 && !event.ours.spoiled(); ++i) {
    sets.emplace_back(::epoll_create1(EPOLL_CLOEXEC));
    for (const UniqueFd& copy : copies) {
      epoll_event wish{.events = EPOLLIN | EPOLLET, .data = {}};
      if (::epoll_ctl(sets.back().get(), EPOLL_CTL_ADD, copy.get(), &wish) != 0) {
        GTEST_SKIP() << "the system does not permit so many waiters";
      }
    }
    if (i % 20 != 19) continue;
    for (int k = 0; k < 32; ++k) event.ours.signal();
  }
  EXPECT_TRUE(event.ours.spoiled()) << sets.size() * copies.size() << " waiters";
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
