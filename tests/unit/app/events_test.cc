// Sentences about what changed at the ports.
#include "app/events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/control/fake_views.h"

namespace sluice::app {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class Events : public ::testing::Test {
 protected:
  Events() {
    views_ = control::two_ports();
    EXPECT_THAT(watcher_.look(views_), IsEmpty());
  }
  void connect() {
    vm0().sessions += 1;
    vm0().state = "connected";
  }
  // Of two queue pairs the driver uses so many.
  void run(int pairs) {
    std::vector<fabric::QueueView>& queues = views_.queue_views["vm0"];
    queues.assign(4, {});
    for (int i = 0; i < 4; ++i) {
      queues[std::size_t(i)].kind = i % 2 == 0 ? "receiveq" : "transmitq";
      queues[std::size_t(i)].state = i / 2 < pairs ? "running" : "disabled";
    }
  }
  fabric::PortView& vm0() { return views_.port_views[0]; }

  control::FakeViews views_;
  EventWatcher watcher_;
};

TEST_F(Events, NothingHappenedIsNoSentence) {
  EXPECT_THAT(watcher_.look(views_), IsEmpty());
}

TEST_F(Events, AConnectionIsTold) {
  connect();
  EXPECT_THAT(watcher_.look(views_), ElementsAre("vm0: connected, session 1"));
  EXPECT_THAT(watcher_.look(views_), IsEmpty());
}

TEST_F(Events, ADriverThatRunsIsToldWithWhatWasNegotiated) {
  connect();
  (void)watcher_.look(views_);
  vm0().state = "running";
  vm0().memory_bytes = std::uint64_t{1} << 30;
  vm0().memory_regions = 2;
  vm0().features = {"VERSION_1", "MQ"};
  run(1);
  EXPECT_THAT(watcher_.look(views_),
              ElementsAre("vm0: running: 1 queue pair, 1 GiB of memory in 2 regions, features "
                          "VERSION_1 MQ"));
}

TEST_F(Events, TheEndOfASessionIsToldOnceWithItsCause) {
  connect();
  (void)watcher_.look(views_);
  vm0().state = "listening";
  vm0().last_error = "protocol error: unknown request (99)";
  EXPECT_THAT(watcher_.look(views_),
              ElementsAre("vm0: disconnected: protocol error: unknown request (99)"));
  EXPECT_THAT(watcher_.look(views_), IsEmpty());
}

TEST_F(Events, ASessionThatEndsWithoutErrorWasClosedByTheOtherSide) {
  connect();
  (void)watcher_.look(views_);
  vm0().state = "listening";
  EXPECT_THAT(watcher_.look(views_),
              ElementsAre("vm0: disconnected: the other side closed the connection"));
}

TEST_F(Events, AReconnectBetweenTwoLooksIsToldAsBoth) {
  connect();
  (void)watcher_.look(views_);
  connect();
  EXPECT_THAT(watcher_.look(views_),
              ElementsAre("vm0: disconnected: the other side closed the connection",
                          "vm0: connected, session 2"));
}

TEST_F(Events, ASessionThatCameAndWentBetweenTwoLooksIsToldWithItsCause) {
  vm0().sessions = 1;
  vm0().last_error = "protocol error: x";
  EXPECT_THAT(watcher_.look(views_),
              ElementsAre("vm0: connected, session 1", "vm0: disconnected: protocol error: x"));
}

TEST_F(Events, ManySessionsBetweenTwoLooksAreOneSentence) {
  vm0().sessions = 500;
  EXPECT_THAT(watcher_.look(views_),
              ElementsAre("vm0: connected 500 times, session 500",
                          "vm0: disconnected: the other side closed the connection"));
}

TEST_F(Events, ThePairsThatRunAreCounted) {
  connect();
  vm0().queue_pairs = 2;
  vm0().state = "running";
  run(1);
  EXPECT_THAT(
      watcher_.look(views_),
      ElementsAre("vm0: connected, session 1",
                  "vm0: running: 1 of 2 queue pairs, 0 B of memory in 0 regions, features "));
  run(2);
  EXPECT_THAT(watcher_.look(views_), ElementsAre("vm0: now 2 queue pairs"));
  EXPECT_THAT(watcher_.look(views_), IsEmpty());
}

TEST_F(Events, AFrontEndThatComesAndGoesIsToldOnceASecond) {
  auto now = EventWatcher::Clock::now();
  int told = 0;
  vm0().last_error = "closed during negotiation";
  for (int i = 0; i < 100; ++i, now += std::chrono::milliseconds(100)) {
    vm0().sessions += 7;
    if (i % 3 == 0) vm0().state = i % 2 == 0 ? "connected" : "listening";
    const auto events = watcher_.look(views_, now);
    told += static_cast<int>(events.size());
    if (i > 20 && !events.empty()) {
      EXPECT_THAT(events, ElementsAre("vm0: connected 70 more times, never running: closed during "
                                      "negotiation"));
    }
  }
  EXPECT_LE(told, 13);
  EXPECT_GE(told, 9);
  vm0().sessions += 1;
  vm0().state = "running";
  run(1);
  EXPECT_GE(watcher_.look(views_, now).size(), 1U) << "who runs is told at once";
}

TEST_F(Events, ASessionThatSharesNoMemoryForLongIsToldOnce) {
  const auto begin = EventWatcher::Clock::now();
  connect();
  (void)watcher_.look(views_, begin);
  EXPECT_THAT(watcher_.look(views_, begin + std::chrono::seconds(4)), IsEmpty());
  EXPECT_THAT(watcher_.look(views_, begin + std::chrono::seconds(5)),
              ElementsAre("vm0: connected, but shares no memory yet (the guest boots, or QEMU's "
                          "memory-backend lacks share=on)"));
  EXPECT_THAT(watcher_.look(views_, begin + std::chrono::seconds(9)), IsEmpty());
}

TEST_F(Events, AnErrorThatEndsNoSessionIsTold) {
  connect();
  (void)watcher_.look(views_);
  vm0().last_error = "ring corrupt: loop";
  EXPECT_THAT(watcher_.look(views_), ElementsAre("vm0: ring corrupt: loop"));
}

TEST_F(Events, AnotherSourceAddressIsToldOncePerSession) {
  constexpr auto kCause = static_cast<std::size_t>(net::DropCause::kSourceFilter);
  connect();
  vm0().mac = "52:54:00:00:00:01";
  (void)watcher_.look(views_);
  std::uint64_t& dropped = views_.port_stats[0].from_driver.drops[kCause];
  dropped = 3;
  EXPECT_THAT(watcher_.look(views_), ElementsAre("vm0: the driver sends from another address than "
                                                 "mac=52:54:00:00:00:01: such frames are dropped"));
  dropped = 9;
  EXPECT_THAT(watcher_.look(views_), IsEmpty());
  connect();
  EXPECT_EQ(watcher_.look(views_).size(), 2U);
  EXPECT_THAT(watcher_.look(views_), IsEmpty()) << "no more of them in this session";
  dropped = 10;
  EXPECT_EQ(watcher_.look(views_).size(), 1U);
}

TEST_F(Events, AQueueThatBreaksIsToldOnceAndAgainIfItBreaksAgain) {
  fabric::QueueView queue;
  queue.kind = "transmitq";
  queue.index = 1;
  queue.state = "broken";
  queue.error = "index jumped";
  views_.queue_views["vm1"] = {queue};
  EXPECT_THAT(watcher_.look(views_), ElementsAre("vm1: transmitq 1 is broken: index jumped"));
  EXPECT_THAT(watcher_.look(views_), IsEmpty());
  views_.queue_views["vm1"][0].state = "running";
  EXPECT_THAT(watcher_.look(views_), IsEmpty());
  views_.queue_views["vm1"][0].state = "broken";
  EXPECT_THAT(watcher_.look(views_), ElementsAre("vm1: transmitq 1 is broken: index jumped"));
}

}  // namespace
}  // namespace sluice::app
