// H09, H11, H28: sessions that end and begin, and rings that move, again and again.
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "support/raw_driver.h"
#include "support/temporary_directory.h"
#include "support/vhost_bench.h"
#include "unit/memory/leaks.h"
#include "vhost/server.h"

namespace sluice::test {
namespace {

using std::chrono::milliseconds;
using vhost::Endpoint;
using vhost::Request;

// One thread owns the port: it makes, serves and deletes the client. The peer listens, hangs up and
// listens again in a thread of its own.
TEST(VhostSessions, H09_DeletingAPortWhileItsPeerHangsUpLeavesNoConnection) {
  const TemporaryDirectory directory;
  const std::string path = directory / "port.sock";
  std::atomic<bool> done = false;
  std::thread peer([&] {
    while (!done) {
      auto server = Endpoint::create({.path = path});
      if (!server) continue;
      pollfd item{.fd = (*server)->fd(), .events = POLLIN, .revents = 0};
      if (::poll(&item, 1, 2) != 1) continue;
      while (auto socket = (*server)->on_ready()) {
        socket.reset();
        (*server)->session_over();
      }
    }
  });
  int connections = 0;
  for (int i = 0; i < 1000; ++i) {
    const auto client = *Endpoint::create({.path = path,
                                           .client = true,
                                           .retry_first = milliseconds(1),
                                           .retry_most = milliseconds(2)});
    for (int turn = 0; turn < 3; ++turn) {
      pollfd item{.fd = client->fd(), .events = POLLIN, .revents = 0};
      ::poll(&item, 1, 1);
      if (client->on_ready()) {
        ++connections;
        EXPECT_FALSE(client->on_ready().has_value());  // Never a second one beside it.
        client->session_over();
      }
    }
  }
  done = true;
  peer.join();
  EXPECT_GT(connections, 0);
}

// A guest reboots while several queues are in use: rings stop one by one in any order, memory is
// replaced, rings return in another order at other places.
TEST(VhostSessions, H11_RingsStopMoveAndReturnInAnyOrder) {
  constexpr std::uint32_t kRings = 8;
  VhostBench bench(4);
  std::mt19937 random(11);
  std::array<std::uint32_t, kRings> order{};
  for (std::uint32_t i = 0; i < kRings; ++i) order[i] = i;
  ASSERT_TRUE(bench.negotiate(kSplitFeatures));
  for (int life = 0; life < 200; ++life) {
    bench.guest.allocate_from(FakeGuest::kBase + random() % 64 * 4096);
    const std::uint64_t buffer = bench.guest.allocate(64);
    std::vector<std::unique_ptr<RawSplitDriver>> drivers;
    for (std::uint32_t i = 0; i < kRings; ++i) {
      drivers.push_back(std::make_unique<RawSplitDriver>(bench.guest, DriverOptions{.size = 64}));
    }
    std::ranges::shuffle(order, random);
    for (const std::uint32_t index : order) {
      ASSERT_TRUE(bench.start_ring(index, *drivers[index], 0));
      ASSERT_TRUE(bench.enable(index));
    }
    for (int burst = 0; burst < 20; ++burst) {
      const std::uint32_t index = static_cast<std::uint32_t>(random() % kRings);
      ASSERT_TRUE(drivers[index]->post(Piece{buffer, 64, index % 2 == 0}).has_value());
      ASSERT_EQ(bench.device.serve(index), 1U);
      ASSERT_EQ(drivers[index]->reap().size(), 1U);
      ASSERT_EQ(drivers[index]->complaint(), "");
    }
    std::ranges::shuffle(order, random);
    for (const std::uint32_t index : order) {
      ASSERT_TRUE(bench.stop_ring(index).has_value());
      ASSERT_FALSE(bench.device.queue(index).running);
      // The device holds nothing of the memory any more.
      ASSERT_EQ(bench.device.queue(index).start.memory, nullptr);
    }
    ASSERT_TRUE(bench.accepted(bench.mem_table()));
  }
  EXPECT_EQ(bench.device.complaint(), "");
}

// A front-end that starts again with other rings announces them; whatever was announced last is
// what the device uses, ring by ring, without growth.
TEST(VhostSessions, H28_RingsAreUsedWhereTheyWereAnnouncedLast) {
  VhostBench bench(2);
  ASSERT_TRUE(bench.negotiate(kSplitFeatures));
  std::optional<LeakCheck> leaks;
  for (int cycle = 0; cycle < 1000; ++cycle) {
    if (cycle == 2) leaks.emplace();  // By now each ring has its call target, which it keeps.
    bench.guest.allocate_from(FakeGuest::kBase);
    const std::uint64_t buffer = bench.guest.allocate(64 + static_cast<unsigned>(cycle % 3) * 4096);
    const std::uint32_t rings = cycle % 2 == 0 ? 2 : 4;
    const std::uint32_t size = cycle % 3 == 0 ? 256 : 512;
    std::vector<std::unique_ptr<RawSplitDriver>> drivers;
    for (std::uint32_t index = 0; index < rings; ++index) {
      drivers.push_back(std::make_unique<RawSplitDriver>(bench.guest, DriverOptions{.size = size}));
      ASSERT_TRUE(bench.start_ring(index, *drivers[index], 0));
      ASSERT_TRUE(bench.enable(index));
      ASSERT_TRUE(drivers[index]->post(Piece{buffer, 64}).has_value());
    }
    for (std::uint32_t index = 0; index < rings; ++index) {
      ASSERT_EQ(bench.device.serve(index), 1U);
      ASSERT_EQ(drivers[index]->reap().size(), 1U);
      ASSERT_EQ(bench.device.queue(index).start.ring.size, size);
    }
    for (std::uint32_t index = 0; index < rings; ++index) {
      ASSERT_TRUE(bench.stop_ring(index).has_value());
    }
  }
  EXPECT_EQ(bench.device.complaint(), "");
}

}  // namespace
}  // namespace sluice::test
