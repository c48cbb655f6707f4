// VhostUserPort between a driver with raw rings and a worker's calls.
#include "switch/vhost_user_port.h"

#include <dirent.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "unit/switch/vhost_port_fixture.h"

namespace sluice::fabric {
namespace {

using net::DropCause;
using net::QueueIndex;
using test::Frame;
using test::make_frame;
using test::tag_of;

std::size_t open_descriptors() {
  std::size_t count = 0;
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir("/proc/self/fd"), ::closedir);
  while (::readdir(dir.get()) != nullptr) ++count;
  return count;
}

class VhostUserPortTest : public VhostPortFixture {};

INSTANTIATE_TEST_SUITE_P(Rings, VhostUserPortTest, ::testing::Values(0, 1, 2, 3), ring_name);

TEST_P(VhostUserPortTest, GivesWorkersTheDriversFramesAndTheDriverItsBuffers) {
  make();
  attach();
  guest_->start_all();
  for (std::uint32_t i = 0; i < 5; ++i) ASSERT_TRUE(guest_->send(0, make_frame(kA, kB, i)));
  EXPECT_EQ(receive(), (Tags{0, 1, 2, 3, 4}));
  EXPECT_EQ(guest_->sent_back(0), 5U);
  EXPECT_EQ(guest_->call(1).count(), 1);
  EXPECT_EQ(receive(), Tags{});
  EXPECT_EQ(port_->from_driver(0).packets.value(), 5U);
}

TEST_P(VhostUserPortTest, DeliversToTheDriverAndCountsWhatFindsNoBuffer) {
  make();
  attach();
  guest_->start_all();
  guest_->post_receive(0, 3);
  EXPECT_EQ(transmit(5), 3U);
  const auto frames = guest_->received(0);
  ASSERT_EQ(frames.size(), 3U);
  for (std::uint32_t i = 0; i < 3; ++i) EXPECT_EQ(frames[i], make_frame(kA, kB, i));
  EXPECT_EQ(guest_->call(0).count(), 1);
  EXPECT_EQ(to_drops(DropCause::kNoBuffers), 2U);
  EXPECT_EQ(port_->to_driver(0).packets.value(), 3U);
}

TEST_P(VhostUserPortTest, AStoppedPortTakesAndGivesNothing) {
  make();
  attach();
  EXPECT_FALSE(port_->ready());
  EXPECT_EQ(receive(), Tags{});
  EXPECT_EQ(transmit(4), 0U);
  EXPECT_EQ(to_drops(DropCause::kNotReady), 4U);
  EXPECT_FALSE(port_->arm(0));
  port_->disarm(0);
}

TEST_P(VhostUserPortTest, ADisabledTransmitqIsEmptiedAndADisabledReceiveqGetsNothing) {
  make();
  attach();
  ASSERT_TRUE(guest_->start(0, false).has_value());
  ASSERT_TRUE(guest_->start(1, false).has_value());
  guest_->post_receive(0, 2);
  ASSERT_TRUE(guest_->send(0, make_frame(kA, kB, 1)));
  EXPECT_EQ(receive(), Tags{});
  EXPECT_EQ(guest_->sent_back(0), 1U) << "taken and discarded";
  EXPECT_EQ(from_drops(DropCause::kQueueDisabled), 1U);
  EXPECT_EQ(transmit(1), 0U);
  EXPECT_EQ(guest_->received(0).size(), 0U);
  EXPECT_EQ(state_of(0), "disabled");
  port_->enable_queue(QueueIndex(0), true);
  port_->enable_queue(QueueIndex(1), true);
  ASSERT_TRUE(guest_->send(0, make_frame(kA, kB, 2)));
  EXPECT_EQ(receive(), (Tags{2}));
  EXPECT_EQ(transmit(1), 1U);
  EXPECT_EQ(state_of(0), "running");
}

TEST_P(VhostUserPortTest, H04_StartingAQueueMakesWorkersLookAtIt) {
  make();
  attach();
  ASSERT_TRUE(guest_->send(0, make_frame(kA, kB, 1)));
  const int before = events_.changes;
  ASSERT_TRUE(guest_->start(1).has_value());
  EXPECT_GT(events_.changes, before);
  EXPECT_EQ(receive(), (Tags{1}));
}

TEST_P(VhostUserPortTest, H45_FramesFromOtherSourcesThanMacAreDroppedAndReportedOnce) {
  VhostUserOptions options;
  options.mac = {std::byte{2}, {}, {}, {}, {}, std::byte{0x0b}};
  make(options);
  attach();
  guest_->start_all();
  EXPECT_FALSE(port_->last_error().has_value());
  for (std::uint32_t i = 0; i < 6; ++i) guest_->send(0, make_frame(kA, i % 2 == 0 ? kB : kA, i));
  EXPECT_EQ(receive(), (Tags{0, 2, 4}));
  guest_->send(0, make_frame(kB, kA, 9));
  EXPECT_EQ(receive(), Tags{});
  EXPECT_EQ(guest_->sent_back(0), 7U);
  EXPECT_EQ(from_drops(DropCause::kSourceFilter), 4U);
  port_->housekeeping();
  ASSERT_TRUE(port_->last_error().has_value());
  EXPECT_EQ(port_->last_error()->code, ErrorCode::kPermission);
}

TEST_P(VhostUserPortTest, ABrokenTransmitqStopsAloneAndTellsTheDriverOnce) {
  VhostUserOptions options;
  options.queues = 2;
  make(options);
  attach({.pairs = 2});
  guest_->start_all();
  // An address outside all memory.
  ASSERT_TRUE(guest_->driver(1).post({.address = 0x10, .length = 100}).has_value());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(receive(0), Tags{});
  EXPECT_EQ(guest_->error(1).count(), 1U);
  EXPECT_EQ(state_of(1), "broken");
  EXPECT_NE(port_->queues().at(1).error, "");
  port_->housekeeping();
  EXPECT_EQ(port_->last_error()->code, ErrorCode::kBadAddress);
  ASSERT_TRUE(guest_->send(1, make_frame(kA, kB, 7)));
  EXPECT_EQ(receive(1), (Tags{7})) << "the other queue lives on";
  // A new start clears it.
  guest_->stop(1);
  EXPECT_EQ(state_of(1), "stopped");
}

TEST_P(VhostUserPortTest, ABrokenReceiveqCountsItsPacketsAndLeavesTheChoice) {
  VhostUserOptions options;
  options.queues = 2;
  make(options);
  attach({.pairs = 2});
  guest_->start_all();
  guest_->post_receive(1, 8);
  ASSERT_TRUE(guest_->driver(0).post({.address = 0x10, .length = 100, .writable = true}));
  EXPECT_EQ(transmit(2, 0), 0U);
  EXPECT_EQ(transmit(2, 0), 0U);
  EXPECT_EQ(to_drops(DropCause::kRingBroken), 4U);
  EXPECT_EQ(guest_->error(0).count(), 1U);
  port_->housekeeping();
  EXPECT_EQ(transmit(2, 0), 2U) << "everything goes to the queue that is left";
  EXPECT_EQ(guest_->received(1).size(), 2U);
}

TEST_P(VhostUserPortTest, SpreadsPacketsByHintOverTheQueuesThatTakeThem) {
  VhostUserOptions options;
  options.queues = 3;
  make(options);
  attach({.pairs = 3, .size = 16});
  guest_->start_all();
  for (std::uint16_t pair = 0; pair < 3; ++pair) guest_->post_receive(pair, 16);
  for (std::uint32_t hint = 0; hint < 6; ++hint) EXPECT_EQ(transmit(1, hint), 1U);
  for (std::uint16_t pair = 0; pair < 3; ++pair) EXPECT_EQ(guest_->received(pair).size(), 2U);
  port_->enable_queue(QueueIndex(2), false);
  for (std::uint32_t hint = 0; hint < 6; ++hint) EXPECT_EQ(transmit(1, hint), 1U);
  EXPECT_EQ(guest_->received(0).size(), 3U);
  EXPECT_EQ(guest_->received(1).size(), 0U);
  EXPECT_EQ(guest_->received(2).size(), 3U);
}

TEST_P(VhostUserPortTest, GoesOnWhereItStoppedTenThousandTimesWithoutALeak) {
  make();
  attach({.size = 16});
  guest_->start_all();
  guest_->stop_all();
  const std::size_t descriptors = open_descriptors();
  const std::size_t mappings = memory::Mapping::live_count();
  for (std::uint32_t i = 0; i < 10'000; ++i) {
    guest_->start_all();
    guest_->post_receive(0, 1);
    ASSERT_TRUE(guest_->send(0, make_frame(kA, kB, i)));
    ASSERT_EQ(receive(), (Tags{i}));
    ASSERT_EQ(transmit(1), 1U);
    ASSERT_EQ(guest_->received(0).size(), 1U);
    ASSERT_EQ(guest_->sent_back(0), 1U);
    guest_->stop_all();
  }
  EXPECT_EQ(guest_->driver(0).complaint(), "");
  EXPECT_EQ(guest_->driver(1).complaint(), "");
  EXPECT_EQ(open_descriptors(), descriptors);
  EXPECT_EQ(memory::Mapping::live_count(), mappings);
}

TEST_P(VhostUserPortTest, ArmingAsksForKicksAndSeesWhatCameBefore) {
  make();
  attach({.event_idx = true});
  guest_->start_all();
  EXPECT_FALSE(port_->arm(0));
  ASSERT_TRUE(guest_->send(0, make_frame(kA, kB, 1)));
  EXPECT_TRUE(guest_->driver(1).kick_due());
  EXPECT_TRUE(port_->arm(0)) << "EVI-05: work that is there already";
  port_->disarm(0);
  EXPECT_EQ(receive(), (Tags{1}));
}

TEST_P(VhostUserPortTest, WithoutEventIndexAnAwakeWorkerIsNotKicked) {
  make();
  attach();
  guest_->start_all();
  guest_->send(0, make_frame(kA, kB, 1));
  EXPECT_FALSE(guest_->driver(1).kick_due());
  receive();
  EXPECT_FALSE(port_->arm(0));
  guest_->send(0, make_frame(kA, kB, 2));
  EXPECT_TRUE(guest_->driver(1).kick_due());
}

TEST_P(VhostUserPortTest, TheWakeSourceIsTheKickAndChangesWithEachStart) {
  make();
  attach();
  EXPECT_EQ(port_->wake_source(0).event, nullptr);
  guest_->start_all();
  const WakeSource first = port_->wake_source(0);
  ASSERT_NE(first.event, nullptr);
  EXPECT_FALSE(first.must_poll);
  guest_->stop(1);
  EXPECT_EQ(port_->wake_source(0).event, nullptr);
  ASSERT_TRUE(guest_->start(1).has_value());
  const WakeSource second = port_->wake_source(0);
  EXPECT_NE(second.event, first.event);
  EXPECT_NE(second.generation, first.generation);
}

TEST_P(VhostUserPortTest, AQueueInUseShowsItsPathAndNoPosition) {
  make();
  attach();
  EXPECT_EQ(port_->queues().at(1).ring, "");
  guest_->start_all();
  const QueueView idle = port_->queues().at(1);
  EXPECT_EQ(idle.ring, (GetParam() & 1) != 0 ? "packed" : "split");
  EXPECT_EQ(idle.avail, (GetParam() & 1) != 0 ? virtio::kPackedStart : 0);
  guest_->send(0, make_frame(kA, kB, 1));
  ASSERT_EQ(port_->receive(0, burst_), 1U);
  const QueueView busy = port_->queues().at(1);
  EXPECT_EQ(busy.path, idle.path);
  EXPECT_FALSE(busy.avail.has_value());
  EXPECT_FALSE(busy.used.has_value());
  port_->release(0);
  EXPECT_TRUE(port_->queues().at(1).avail.has_value());
}

// DESIGN section 7: "A quiesce deadline that passed keeps the old mapping and reports it."
TEST_P(VhostUserPortTest, AStopThatTimesOutKeepsTheMemoryUntilTheWorkerIsDone) {
  make();
  attach();
  guest_->start_all();
  guest_->send(0, make_frame(kA, kB, 1));
  ASSERT_EQ(port_->receive(0, burst_), 1U);  // A worker that does not come to release().
  const std::weak_ptr<const memory::GuestMemory> memory = guest_->guest().shared_memory();
  const long users = memory.use_count();
  const auto stopped = port_->stop_queue(net::QueueIndex(1));
  ASSERT_FALSE(stopped.has_value()) << "where it will stand is not known yet";
  EXPECT_EQ(stopped.error().code, ErrorCode::kTimeout);
  // The next ones are not waited for as long: a port of many queues must not hold up control.
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(port_->stop_queue(net::QueueIndex(1)).has_value());
  EXPECT_LT(std::chrono::steady_clock::now() - began, QueueLock::kDeadline);
  EXPECT_EQ(state_of(1), "stopped");
  ASSERT_TRUE(port_->last_error().has_value());
  EXPECT_EQ(port_->last_error()->code, ErrorCode::kTimeout);
  EXPECT_EQ(memory.use_count(), users) << "the worker still reads it";
  EXPECT_EQ(tag_of(Frame(burst_.packets[0].data, burst_.packets[0].data + 64)), 1U);
  port_->release(0);
  EXPECT_EQ(port_->receive(0, burst_), 0U) << "no new burst of a stopped queue";
  port_->housekeeping();
  EXPECT_LT(memory.use_count(), users);
  EXPECT_TRUE(port_->stop_queue(net::QueueIndex(1)).has_value());
}

}  // namespace
}  // namespace sluice::fabric
