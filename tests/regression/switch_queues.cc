// H08, H11, INI-14, SEC-60: queues that begin and end under load, beside a port that must not
// notice.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "memory/mapping.h"
#include "support/counting_notifier.h"
#include "support/fake_port.h"
#include "support/macs.h"
#include "support/port_guest.h"
#include "support/random.h"
#include "switch/forwarder.h"
#include "switch/vhost_user_port.h"
#include "switch/worker.h"

namespace sluice::test {
namespace {

// Wakes the workers when the port says that its queues changed, as a switch does.
class WakingEvents final : public RecordingEvents {
 public:
  void queues_changed() override {
    if (wake) wake();
  }
  std::function<void()> wake;
};

std::unique_ptr<fabric::VhostUserPort> make_port(const char* name, std::uint16_t queues,
                                                 fabric::PortEvents& events) {
  fabric::VhostUserOptions options;
  options.name = name;
  options.path = "unused";
  options.queues = queues;
  auto made = fabric::VhostUserPort::create(options, 0, events);
  EXPECT_TRUE(made.has_value());
  return *std::move(made);
}

// Two workers over a port whose guest comes and goes, and a quiet pair of fake ports.
class Bystanders {
 public:
  Bystanders(fabric::VhostUserPort& port, WakingEvents& events)
      : forwarder_({&port, &left_, &right_}, {0, 2, 1}) {  // The port echoes.
    std::vector<std::vector<fabric::WorkerQueue>> shares(2);
    for (std::uint16_t q = 0; q < port.queue_pairs(); ++q) {
      shares[q % 2].push_back({.port = &port, .port_number = 0, .queue = q});
    }
    shares[0].push_back({.port = &left_, .port_number = 1, .queue = 0});
    for (auto& share : shares) {
      auto made = fabric::Worker::create({}, share, forwarder_);
      EXPECT_TRUE(made.has_value());
      workers_.push_back(*std::move(made));
      EXPECT_TRUE(workers_.back()->start().has_value());
    }
    events.wake = [this] { wake(); };
  }
  void wake() {
    for (auto& worker : workers_) worker->wake();
  }
  void stop() { workers_.clear(); }
  // Sends counted frames through the quiet pair; all of them must come out.
  void send() { left_.inject(make_frame(kB, kA, sent_++)); }
  [[nodiscard]] bool all_arrived() {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    std::size_t arrived = 0;
    while (arrived < sent_ && std::chrono::steady_clock::now() < end) {
      arrived += right_.sent().size();
      std::this_thread::yield();
    }
    return arrived == sent_;
  }

 private:
  FakePort left_{"left"};
  FakePort right_{"right"};
  fabric::Forwarder forwarder_;
  std::vector<std::unique_ptr<fabric::Worker>> workers_;
  std::uint32_t sent_ = 0;
};

TEST(SwitchQueues, H11_AGuestRebootsUnderLoadWhileOthersKeepTheirTraffic) {
  WakingEvents events;
  const auto port = make_port("p0", 4, events);
  Bystanders others(*port, events);
  Random random(11);
  const std::size_t mappings = memory::Mapping::live_count();
  for (int boot = 0; boot < 100; ++boot) {
    // New memory each time; what the old one held is unmapped with it.
    GuestOptions options{
        .packed = random.one_in(2), .in_order = random.one_in(2), .pairs = 4, .size = 32};
    PortGuest guest(*port, options);
    std::vector<std::uint16_t> order = {0, 1, 2, 3, 4, 5, 6, 7};
    const auto shuffle = [&] {
      for (std::size_t i = order.size(); i > 1; --i)
        std::swap(order[i - 1], order[random.below(i)]);
    };
    shuffle();
    for (const std::uint16_t index : order) {
      if (index % 2 == 0) guest.post_receive(index / 2, 32);
      ASSERT_TRUE(guest.start(index).has_value());
    }
    for (int i = 0; i < 20; ++i) {
      for (std::uint16_t pair = 0; pair < 4; ++pair) {
        guest.send(pair, make_frame(kA, kB, static_cast<std::uint32_t>(i)));
      }
      others.send();
    }
    others.wake();
    shuffle();
    for (const std::uint16_t index : order) {
      guest.stop(index);
      // From here on nobody touches the ring: what it holds does not change any more.
      const auto before = guest.driver(index).reap().size();
      std::this_thread::yield();
      EXPECT_EQ(guest.driver(index).reap().size(), 0U) << before;
      EXPECT_EQ(guest.driver(index).complaint(), "");
    }
    port->session_over();
  }
  EXPECT_TRUE(others.all_arrived()) << "another port's frames were lost";
  others.stop();
  EXPECT_EQ(memory::Mapping::live_count(), mappings);
}

TEST(SwitchQueues, H08_ASessionThatStartsOneRingOnlyWorksAndEndsCleanly) {
  WakingEvents events;
  const auto port = make_port("p0", 2, events);
  Bystanders others(*port, events);
  const std::size_t mappings = memory::Mapping::live_count();
  for (int session = 0; session < 50; ++session) {
    {
      PortGuest guest(*port, {.packed = session % 2 != 0, .pairs = 2});
      ASSERT_TRUE(guest.start(1).has_value());
      for (std::uint32_t i = 0; i < 10; ++i) ASSERT_TRUE(guest.send(0, make_frame(kA, kB, i)));
      others.wake();
      std::size_t back = 0;
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
      while (back < 10 && std::chrono::steady_clock::now() < end) {
        back += guest.sent_back(0);
        std::this_thread::yield();
      }
      ASSERT_EQ(back, 10U);
      for (std::uint16_t index = 0; index < 4; ++index) guest.stop(index);
      port->session_over();
    }
    // Its memory is gone with it: nobody held on.
    EXPECT_EQ(memory::Mapping::live_count(), mappings);
  }
  others.stop();
}

// After a stop under load the device's view of the memory may vanish: nobody looks there any more.
TEST(SwitchQueues, INI_14_AStoppedQueueTouchesNothingAnyMore) {
  WakingEvents events;
  const auto port = make_port("p0", 1, events);
  Bystanders others(*port, events);
  for (int boot = 0; boot < 40; ++boot) {
    PortGuest guest(*port, {.packed = boot % 2 != 0, .in_order = boot % 4 < 2, .size = 256});
    guest.post_receive(0, 256);
    guest.start_all();
    for (std::uint32_t i = 0; i < 256; ++i) guest.send(0, make_frame(kA, kB, i));
    others.wake();
    guest.stop_all();
    std::byte* const view = guest.guest().device_view(FakeGuest::kBase, FakeGuest::kDefaultSize);
    ASSERT_EQ(::mprotect(view, FakeGuest::kDefaultSize, PROT_NONE), 0);
    others.send();
    others.wake();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    port->housekeeping();
    port->session_over();
  }
  EXPECT_TRUE(others.all_arrived());
  others.stop();
}

// Control changes everything it may change while workers poll: for ThreadSanitizer.
TEST(SwitchQueues, SEC_60_H11_EnablingCallsAndViewsChangeUnderLoad) {
  WakingEvents events;
  const auto port = make_port("p0", 2, events);
  Bystanders others(*port, events);
  PortGuest guest(*port, {.pairs = 2, .size = 256});
  guest.start_all();
  Random random(3);
  for (int i = 0; i < 2000; ++i) {
    const auto index = static_cast<std::uint16_t>(random.below(4));
    switch (random.below(6)) {
      case 0: port->enable_queue(net::QueueIndex(index), random.one_in(2)); break;
      case 1: port->set_call(net::QueueIndex(index), std::make_shared<CountingNotifier>()); break;
      case 2: guest.stop(index); break;
      case 3: (void)guest.start(index); break;
      case 4: (void)port->queues(); break;
      default: port->housekeeping(); break;
    }
    guest.send(0, make_frame(kA, kB, 1));
    guest.sent_back(0);
    if (i % 16 == 0) others.wake();
  }
  guest.stop_all();
  others.stop();
  EXPECT_FALSE(port->last_error().has_value());
}

}  // namespace
}  // namespace sluice::test
