// Fabric: whole switches with drivers on real sockets.
#include "switch/fabric.h"

#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "support/fabric_runner.h"
#include "support/macs.h"
#include "support/temporary_directory.h"

namespace sluice::fabric {
namespace {

using test::kA;
using test::kB;

using namespace std::chrono_literals;
using net::DriverFrame;
using net::DropCause;
using test::connect_driver;
using test::DriverPair;
using test::FabricRunner;
using test::wait_for;

std::size_t open_descriptors() {
  std::size_t count = 0;
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir("/proc/self/fd"), ::closedir);
  while (::readdir(dir.get()) != nullptr) ++count;
  return count;
}

// A driver's end of a queue pair which knows addresses and numbers its frames.
struct Station {
  Station(const std::string& path, net::PackedMac own, const net::NetDriverOptions& options = {})
      : mac(own), driver(connect_driver(path, options)) {
    if (driver == nullptr || !driver->start().has_value()) return;
    for (std::uint16_t pair = 0; pair < options.queue_pairs; ++pair)
      pairs.emplace_back(*driver, pair);
  }
  // Sends up to `count` numbered frames, as many as there is room for.
  std::size_t send(net::PackedMac to, std::size_t count, std::size_t pair = 0) {
    std::array<DriverFrame, net::kDriverBurstMax> frames;
    const auto room = std::span(frames).first(std::min(count, frames.size()));
    const std::size_t got = pairs[pair].transmitq.reserve(room);
    for (DriverFrame& frame : room.first(got)) {
      std::memset(frame.data, 0, 64);
      std::memcpy(frame.data, &to, 6);
      std::memcpy(frame.data + 6, &mac, 6);
      std::memcpy(frame.data + 14, &sent, sizeof sent);
      frame.length = 64;
      ++sent;
    }
    pairs[pair].transmitq.submit(room.first(got));
    return got;
  }
  // Takes what came. Checks that numbers of one sender go up.
  std::size_t receive() {
    std::size_t count = 0;
    std::array<DriverFrame, net::kDriverBurstMax> frames;
    for (DriverPair& pair : pairs) {
      const std::size_t got = pair.receiveq.receive(frames);
      for (const DriverFrame& frame : std::span(frames).first(got)) {
        std::uint32_t number = 0;
        std::memcpy(&number, frame.data + 14, sizeof number);
        if (number < next) ++out_of_order;
        next = number + 1;
      }
      pair.receiveq.repost();
      count += got;
    }
    received += count;
    return count;
  }

  const net::PackedMac mac;
  std::unique_ptr<net::NetDriver> driver;
  std::vector<DriverPair> pairs;
  std::uint32_t sent = 0;
  std::uint32_t next = 0;
  std::uint32_t out_of_order = 0;
  std::size_t received = 0;
};

class FabricTest : public ::testing::Test {
 protected:
  SwitchOptions two_ports() {
    SwitchOptions options;
    options.vhost_user = {{.path = directory_ / "a.sock"}, {.path = directory_ / "b.sock"}};
    return options;
  }
  std::string socket(const char* name) { return directory_ / name; }
  test::TemporaryDirectory directory_;
};

struct Kind {
  const char* name;
  bool packed;
  bool in_order;
  Forward forward;
  PollMode poll;
};
class FabricTraffic : public FabricTest, public ::testing::WithParamInterface<Kind> {};
INSTANTIATE_TEST_SUITE_P(
    Kinds, FabricTraffic,
    ::testing::Values(Kind{"SplitBridge", false, false, Forward::kBridge, PollMode::kAdaptive},
                      Kind{"SplitInOrderPatch", false, true, Forward::kPatch, PollMode::kInterrupt},
                      Kind{"PackedBridge", true, false, Forward::kBridge, PollMode::kInterrupt},
                      Kind{"PackedInOrderPatch", true, true, Forward::kPatch, PollMode::kAdaptive},
                      Kind{"PackedBusy", true, true, Forward::kBridge, PollMode::kBusy}),
    [](const auto& test) { return test.param.name; });

TEST_P(FabricTraffic, TwoDriversExchangeFramesInOrderAndAllAreAccountedFor) {
  SwitchOptions options = two_ports();
  options.forward = GetParam().forward;
  options.workers.poll = GetParam().poll;
  FabricRunner fabric(options);
  net::NetDriverOptions driver;
  if (!GetParam().in_order) driver.wanted.remove(virtio::Feature::kInOrder);
  if (GetParam().packed) driver.wanted.add(virtio::Feature::kRingPacked);
  Station a(socket("a.sock"), kA, driver);
  Station b(socket("b.sock"), kB, driver);
  ASSERT_EQ(a.pairs.size(), 1U);
  ASSERT_EQ(b.pairs.size(), 1U);
  EXPECT_EQ(a.driver->features().has(virtio::Feature::kRingPacked), GetParam().packed);
  EXPECT_EQ(a.driver->features().has(virtio::Feature::kInOrder), GetParam().in_order);
  // One burst at a time, each way: the receiver always has room, so nothing may be lost.
  for (int round = 0; round < 200; ++round) {
    const std::size_t to_b = a.send(kB, 32);
    ASSERT_EQ(to_b, 32U);
    const std::size_t want_b = b.received + to_b;
    ASSERT_TRUE(wait_for([&] {
      b.receive();
      return b.received >= want_b;
    })) << round;
    const std::size_t to_a = b.send(kA, 17);
    const std::size_t want_a = a.received + to_a;
    ASSERT_TRUE(wait_for([&] {
      a.receive();
      return a.received >= want_a;
    })) << round;
  }
  EXPECT_EQ(b.received, 6400U);
  EXPECT_EQ(a.received, 3400U);
  EXPECT_EQ(a.out_of_order + b.out_of_order, 0U);
  EXPECT_EQ(fabric.port(0).state, "running");
  fabric.stop();
  EXPECT_TRUE(fabric.conserved());
  EXPECT_EQ(fabric.stats(0).from_driver.packets, 6400U);
  EXPECT_EQ(fabric.stats(1).to_driver.packets, 6400U);
  EXPECT_EQ(fabric.stats(0).from_driver.bytes, 6400U * 64);
}

TEST_F(FabricTest, SeveralQueuesAndWorkersConserveWhatTheyForward) {
  SwitchOptions options = two_ports();
  options.vhost_user[0].queues = options.vhost_user[1].queues = 4;
  options.workers.count = 2;
  FabricRunner fabric(options);
  const net::NetDriverOptions driver{.queue_pairs = 4};
  Station a(socket("a.sock"), kA, driver);
  Station b(socket("b.sock"), kB, driver);
  ASSERT_EQ(a.pairs.size(), 4U);
  ASSERT_EQ(b.pairs.size(), 4U);
  const auto end = std::chrono::steady_clock::now() + 500ms;
  while (std::chrono::steady_clock::now() < end) {
    for (std::size_t pair = 0; pair < 4; ++pair) {
      a.send(kB, 16, pair);
      b.send(kA, 16, pair);
    }
    a.receive();
    b.receive();
  }
  fabric.stop();
  EXPECT_GT(b.received, 0U);
  EXPECT_TRUE(fabric.conserved());
  // What the switch delivered is what the drivers find.
  while (a.receive() != 0 || b.receive() != 0) {
  }
  EXPECT_EQ(fabric.stats(1).to_driver.packets, b.received);
  EXPECT_EQ(fabric.stats(0).to_driver.packets, a.received);
}

TEST_F(FabricTest, LearnsStationsAndForgetsThoseOfAFrontEndThatLeft) {
  FabricRunner fabric(two_ports());
  auto a = std::make_unique<Station>(socket("a.sock"), kA);
  Station b(socket("b.sock"), kB);
  ASSERT_EQ(a->send(kB, 1), 1U);
  ASSERT_TRUE(wait_for([&] { return b.receive() != 0; }));
  const auto fdb = [&] { return fabric.ask([](Fabric& f) { return f.fdb(); }); };
  ASSERT_EQ(fdb().size(), 1U);
  EXPECT_EQ(fdb()[0].port, "a");
  EXPECT_FALSE(fdb()[0].is_static);
  a = nullptr;
  EXPECT_TRUE(wait_for([&] { return fdb().empty(); }));
  EXPECT_EQ(fabric.port(0).state, "listening");
}

TEST_F(FabricTest, SessionsFollowEachOtherWithoutLeaks) {
  FabricRunner fabric(two_ports());
  Station b(socket("b.sock"), kB);
  std::size_t descriptors = 0;
  for (int i = 0; i < 40; ++i) {
    Station a(socket("a.sock"), kA);
    ASSERT_EQ(a.pairs.size(), 1U);
    ASSERT_EQ(a.send(kB, 1), 1U);
    const std::size_t want = b.received + 1;
    ASSERT_TRUE(wait_for([&] {
      b.receive();
      return b.received >= want;
    })) << i;
    if (i == 5) descriptors = open_descriptors();
    if (i > 5) {
      EXPECT_EQ(open_descriptors(), descriptors) << i;
    }
  }
  EXPECT_GE(fabric.port(0).sessions, 40U);
}

TEST_F(FabricTest, H45_AFixedAddressIsPinnedAndForeignSourcesAreReported) {
  SwitchOptions options = two_ports();
  options.vhost_user[0].mac = MacAddress{std::byte{2}, {}, {}, {}, {}, std::byte{0x0a}};
  FabricRunner fabric(options);
  Station a(socket("a.sock"), kB);  // It lies about its address.
  Station b(socket("b.sock"), kB);
  const auto fdb = fabric.ask([](Fabric& f) { return f.fdb(); });
  ASSERT_EQ(fdb.size(), 1U);
  EXPECT_TRUE(fdb[0].is_static);
  a.send(kB, 8);
  ASSERT_TRUE(wait_for(
      [&] { return test::dropped(fabric.stats(0).from_driver, DropCause::kSourceFilter) == 8; }));
  EXPECT_TRUE(
      wait_for([&] { return fabric.port(0).last_error.find("mac=") != std::string::npos; }));
  EXPECT_EQ(fabric.port(0).mac, "02:00:00:00:00:0a");
  EXPECT_EQ(b.receive(), 0U);
}

TEST_F(FabricTest, AGeneratorReachesADriverAndADriverASink) {
  SwitchOptions options;
  options.vhost_user = {{.path = directory_ / "a.sock"}};
  options.generators = {{.size = 64}};
  options.forward = Forward::kPatch;
  {
    FabricRunner fabric(options);
    Station a(socket("a.sock"), kA);
    ASSERT_TRUE(wait_for([&] {
      a.receive();
      return a.received > 10'000;
    }));
    fabric.stop();
    EXPECT_TRUE(fabric.conserved());
  }
  options.generators.clear();
  options.sinks = {{.touch = true}};
  FabricRunner fabric(options);
  Station a(socket("a.sock"), kA);
  ASSERT_TRUE(wait_for([&] {
    a.send(kB, 32);
    return a.sent > 10'000;
  }));
  fabric.stop();
  EXPECT_TRUE(fabric.conserved());
  EXPECT_EQ(fabric.stats(1).to_driver.packets, fabric.stats(0).from_driver.packets);
}

TEST_F(FabricTest, AnnouncesAMigratedStationOnce) {
  FabricRunner fabric(two_ports());
  Station a(socket("a.sock"), kA);
  Station b(socket("b.sock"), kB);
  const std::array<std::byte, 6> mac{std::byte{2}, {}, {}, {}, {}, std::byte{0x0c}};
  auto* const frontend = dynamic_cast<vhost::Frontend*>(&a.driver->transport());
  ASSERT_NE(frontend, nullptr);
  ASSERT_TRUE(frontend->send_rarp(mac).has_value());
  EXPECT_TRUE(wait_for([&] { return b.receive() == 1; }));
  const auto fdb = fabric.ask([](Fabric& f) { return f.fdb(); });
  ASSERT_EQ(fdb.size(), 1U);
  EXPECT_EQ(fdb[0].port, "a");
  EXPECT_EQ(fdb[0].mac[5], std::byte{0x0c});
  fabric.stop();
  EXPECT_TRUE(fabric.conserved(1));
}

TEST_F(FabricTest, AnIdleAdaptiveSwitchUsesHardlyAnyProcessorTime) {
  FabricRunner fabric(two_ports());
  Station a(socket("a.sock"), kA);
  Station b(socket("b.sock"), kB);
  a.send(kB, 1);
  ASSERT_TRUE(wait_for([&] { return b.receive() != 0; }));
  std::this_thread::sleep_for(50ms);
  const auto iterations = [&] {
    return fabric.ask([](Fabric& f) { return f.workers().at(0).iterations; });
  };
  const std::uint64_t before = iterations();
  std::this_thread::sleep_for(500ms);
  EXPECT_LT(iterations() - before, 20U) << "rounds of a worker that has nothing to do";
}

TEST_F(FabricTest, ASecondFrontEndWaitsUntilTheFirstIsGone) {
  FabricRunner fabric(two_ports());
  auto first = std::make_unique<Station>(socket("a.sock"), kA);
  ASSERT_EQ(first->pairs.size(), 1U);
  auto source =
      vhost::FrontendSource::create({.path = socket("a.sock"), .frontend = {.timeout = 20s}});
  ASSERT_TRUE(source.has_value());
  std::jthread second([&] {
    auto frontend = source->next(20s);
    ASSERT_TRUE(frontend.has_value());
    EXPECT_TRUE((*frontend)->offer().has_value());
  });
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(fabric.port(0).sessions, 1U);
  first = nullptr;
  second.join();
  EXPECT_EQ(fabric.port(0).sessions, 2U);
}

TEST_F(FabricTest, APortShowsItsOwnAddressAndSpeed) {
  SwitchOptions options = two_ports();
  options.virtio_user.push_back({.path = socket("u.sock"), .speed = 25'000});
  options.virtio_user.back().mac = MacAddress{std::byte{2}, {}, {}, {}, {}, std::byte{0xab}};
  FabricRunner fabric(options);
  EXPECT_EQ(fabric.port(2).mac, "02:00:00:00:00:ab");
  EXPECT_EQ(fabric.port(2).speed, 25'000U);
  EXPECT_EQ(fabric.port(0).speed, 0U);
}

TEST_F(FabricTest, OnlyAConnectedVirtioUserPortCanBeReset) {
  SwitchOptions options = two_ports();
  options.virtio_user.push_back({.path = socket("u.sock")});
  FabricRunner fabric(options);
  const auto refusal = [&](const char* port) {
    return fabric.ask([&](Fabric& asked) { return asked.begin_reset(port, {.queue = 0}); })
        .error()
        .code;
  };
  EXPECT_EQ(refusal("nobody"), ErrorCode::kNotFound);
  EXPECT_EQ(refusal("a"), ErrorCode::kUnsupported);
  EXPECT_EQ(refusal("u"), ErrorCode::kWrongState);
}

TEST_F(FabricTest, TwoSwitchesCannotServeTheSameSocket) {
  FabricRunner fabric(two_ports());
  const auto second = Fabric::create(two_ports());
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code, ErrorCode::kExists);
}

TEST_F(FabricTest, ASwitchThatCannotOpenLeavesNothingBehind) {
  SwitchOptions options = two_ports();
  options.vhost_user[1].path = "/nonexistent/b.sock";
  const std::size_t descriptors = open_descriptors();
  for (int i = 0; i < 10; ++i) {
    PortFault fault;
    const auto made = Fabric::create(options, &fault);
    ASSERT_FALSE(made.has_value());
    EXPECT_EQ(made.error().code, ErrorCode::kNotFound);
    EXPECT_EQ(fault.port, "b");
    EXPECT_EQ(fault.path, "/nonexistent/b.sock");
  }
  EXPECT_EQ(open_descriptors(), descriptors);
  EXPECT_FALSE(std::filesystem::exists(socket("a.sock")));
  EXPECT_FALSE(std::filesystem::exists(socket("a.sock.rings")));
}

TEST_F(FabricTest, StartsOnceAndAnswersAfterItStopped) {
  auto made = Fabric::create(two_ports());
  ASSERT_TRUE(made.has_value());
  Fabric& fabric = **made;
  ASSERT_TRUE(fabric.start().has_value());
  EXPECT_EQ(fabric.start().error().code, ErrorCode::kWrongState);
  fabric.poll(1ms);
  fabric.stop();
  EXPECT_EQ(fabric.ports().at(0).state, "stopped");
  EXPECT_EQ(fabric.stats().size(), 2U);
  EXPECT_TRUE(fabric.queues("nobody").empty());
  EXPECT_EQ(fabric.queues("a").size(), 2U);
  EXPECT_EQ(fabric.workers().at(0).queues, (std::vector<std::string>{"a:0", "b:0"}));
  EXPECT_EQ(fabric.start().error().code, ErrorCode::kWrongState);
}

}  // namespace
}  // namespace sluice::fabric
