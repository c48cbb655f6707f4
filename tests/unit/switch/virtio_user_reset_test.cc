// Resets of a virtio-user port's queues opposite a VhostUserPort: buffers come back, sizes change,
// frames find another queue, and what cannot be done is refused without harm.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "device_side.h"
#include "support/conservation.h"
#include "support/driver_pair.h"
#include "support/scripted_backend.h"
#include "support/temporary_directory.h"
#include "switch/virtio_user_link.h"
#include "switch/virtio_user_port.h"
#include "vhost/socket_path.h"

namespace sluice::fabric {
namespace {

using test::wait_for;

// The parameter's bits: packed, in order.
class VirtioUserResetTest : public ::testing::TestWithParam<int> {
 protected:
  void begin(bool ring_reset, std::uint16_t pairs = 2) {
    device_ = std::make_unique<DeviceSide>(
        VhostUserOptions{.path = path_, .name = "down", .queues = pairs, .ring_reset = ring_reset});
    const VirtioUserOptions options{.path = path_,
                                    .name = "up",
                                    .queues = pairs,
                                    .packed_vq = packed(),
                                    .in_order = (GetParam() & 2) != 0,
                                    .tso = false};
    port_ = std::make_unique<VirtioUserPort>(options);
    link_ = *VirtioUserLink::create(options, *port_, events_);
    ASSERT_TRUE(link_->start().has_value());
    ASSERT_TRUE(wait_for([&] { return port_->ready() && device_->port->ready(); }));
  }
  void TearDown() override { link_ = nullptr; }
  [[nodiscard]] bool packed() const { return (GetParam() & 1) != 0; }

  Result<ResetReport> reset(const ResetOrder& order) {
    const auto begun = link_->begin_reset(order, nullptr);
    if (!begun) return std::unexpected(begun.error());
    std::optional<Result<ResetReport>> outcome;
    EXPECT_TRUE(wait_for([&] { return (outcome = (*begun)->outcome()).has_value(); }));
    return outcome.value_or(fail(ErrorCode::kTimeout, "no outcome"));
  }
  ErrorCode refusal(const ResetOrder& order) {
    const auto outcome = reset(order);
    return outcome ? ErrorCode::kExists : outcome.error().code;
  }
  [[nodiscard]] std::uint32_t size_of(std::size_t queue) const {
    return port_->queues().at(queue).size;
  }
  // Frames go both ways on pair `q`; those left from before are not counted.
  void expect_works(std::uint16_t q) {
    Sent sent(frames_of({60, 200, 1514}));
    ASSERT_EQ(sent.to(*port_, q), 3U);
    EXPECT_EQ(take(*device_->port, 3, q).frames, sent.frames);
    ASSERT_EQ(sent.to(*device_->port, q), 3U);
    EXPECT_EQ(take(*port_, 3, q).frames, sent.frames);
  }

  test::TemporaryDirectory directory_;
  std::string path_ = directory_ / "s.sock";
  test::RecordingEvents events_;
  std::unique_ptr<DeviceSide> device_;
  std::unique_ptr<VirtioUserPort> port_;
  std::unique_ptr<VirtioUserLink> link_;
};

TEST_P(VirtioUserResetTest, RST_06_EveryBufferThatTheDeviceHadComesBackOnce) {
  begin(true);
  const auto receive = reset({.queue = 2});
  ASSERT_TRUE(receive.has_value()) << receive.error().text;
  EXPECT_EQ(receive->buffers, 256U) << "all were posted";
  EXPECT_EQ(receive->size, 256U);
  // The device takes none of these.
  EXPECT_EQ(Sent(frames_of(std::vector<std::size_t>(50, 60))).to(*port_, 1), 50U);
  const auto transmit = reset({.queue = 3});
  ASSERT_TRUE(transmit.has_value()) << transmit.error().text;
  EXPECT_EQ(transmit->buffers, 50U);
  expect_works(1);
  expect_works(0);
  EXPECT_EQ(link_->view().sessions, 1U);
}

TEST_P(VirtioUserResetTest, RST_05_AQueueChangesItsSizeAndTheOthersDoNot) {
  begin(true);
  for (const std::uint32_t size : {1024U, 32U, 2U, packed() ? 100U : 128U}) {
    for (const std::uint16_t queue : {std::uint16_t{2}, std::uint16_t{3}}) {
      const auto outcome = reset({.queue = queue, .size = size});
      ASSERT_TRUE(outcome.has_value()) << outcome.error().text;
      EXPECT_EQ(outcome->size, size);
      EXPECT_EQ(size_of(queue), size);
    }
    EXPECT_EQ(size_of(0), 256U);
    EXPECT_EQ(size_of(1), 256U);
    EXPECT_EQ(Sent(frames_of(std::vector<std::size_t>(2, 60))).to(*port_, 1), 2U);
    EXPECT_EQ(take(*device_->port, 2, 1).frames.size(), 2U);
  }
  expect_works(0);
}

TEST_P(VirtioUserResetTest, TheWholeDeviceIsStoppedAndStartedWhateverItOffers) {
  for (const bool ring_reset : {false, true}) {
    begin(ring_reset);
    EXPECT_EQ(Sent(frames_of(std::vector<std::size_t>(20, 60))).to(*port_, 0), 20U);
    const auto all = reset({.whole_device = true});
    ASSERT_TRUE(all.has_value()) << all.error().text;
    EXPECT_EQ(all->buffers, 256U * 2 + 20);
    EXPECT_EQ(all->size, 0U);
    expect_works(0);
    expect_works(1);
    const auto one = reset({.queue = 1, .size = 512, .whole_device = true});
    ASSERT_TRUE(one.has_value()) << one.error().text;
    EXPECT_EQ(one->size, 512U);
    EXPECT_EQ(size_of(1), 512U);
    EXPECT_EQ(size_of(3), 256U);
    expect_works(0);
    EXPECT_EQ(link_->view().sessions, 1U);
    link_ = nullptr;
    device_ = nullptr;
  }
}

TEST_P(VirtioUserResetTest, Q_02_ADeviceWithoutRingResetIsNotAskedToResetOneQueue) {
  begin(false);
  EXPECT_EQ(refusal({.queue = 2}), ErrorCode::kNotNegotiated);
  expect_works(1);
  EXPECT_EQ(link_->view().sessions, 1U);
}

TEST_P(VirtioUserResetTest, WrongOrdersAreRefusedAndChangeNothing) {
  begin(true);
  for (const bool whole : {false, true}) {
    EXPECT_EQ(refusal({.queue = 4, .whole_device = whole}), ErrorCode::kOutOfRange);
    EXPECT_EQ(refusal({.queue = 1, .size = 2048, .whole_device = whole}), ErrorCode::kOutOfRange);
    EXPECT_EQ(refusal({.queue = 1, .size = 1, .whole_device = whole}), ErrorCode::kInvalidArgument);
    EXPECT_EQ(refusal({.queue = 1, .size = 40'000, .whole_device = whole}),
              ErrorCode::kInvalidArgument);
    EXPECT_EQ(refusal({.size = 64, .whole_device = whole}), ErrorCode::kInvalidArgument);
    if (!packed()) {
      EXPECT_EQ(refusal({.queue = 1, .size = 100, .whole_device = whole}),
                ErrorCode::kInvalidArgument);
    }
  }
  EXPECT_EQ(refusal({}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(size_of(1), 256U);
  expect_works(0);
  expect_works(1);
  EXPECT_EQ(link_->view().sessions, 1U);
}

TEST_P(VirtioUserResetTest, WithoutADeviceThereIsNothingToReset) {
  begin(true);
  device_ = nullptr;
  ASSERT_TRUE(wait_for([&] { return !port_->ready(); }));
  EXPECT_EQ(refusal({.queue = 0}), ErrorCode::kWrongState);
  link_->close();
  EXPECT_EQ(refusal({.queue = 0}), ErrorCode::kWrongState);
}

TEST_P(VirtioUserResetTest, ASleepingWorkerIsWokenByTheQueueInItsNewLife) {
  begin(true);
  const auto before = port_->wake_source(1).generation;
  ASSERT_TRUE(reset({.queue = 2}).has_value());
  const WakeSource wake = port_->wake_source(1);
  EXPECT_GT(wake.generation, before);
  ASSERT_NE(wake.event, nullptr);
  EXPECT_FALSE(port_->arm(1));
  pollfd item{.fd = wake.event->fd(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&item, 1, 0), 0);
  ASSERT_EQ(Sent(frames_of({60})).to(*device_->port, 1), 1U);
  EXPECT_EQ(::poll(&item, 1, 5000), 1);
  port_->disarm(1);
  EXPECT_EQ(take(*port_, 1, 1).frames.size(), 1U);
}

TEST_P(VirtioUserResetTest, RST_08_FramesOfAQueueUnderResetFindAnotherOrAreCounted) {
  begin(true);
  std::atomic<bool> done{false};
  std::uint64_t offered = 0;
  std::uint64_t went = 0;
  std::thread worker([&] {
    Sent sent(frames_of({60}));
    while (!done) {
      went += sent.to(*port_, 1);
      ++offered;
    }
  });
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(reset({.queue = 3}).has_value());
  done = true;
  worker.join();
  const PortStats stats = test::stats_of(*port_);
  std::uint64_t drops = 0;
  for (const std::uint64_t count : stats.to_driver.drops) drops += count;
  EXPECT_EQ(offered, went + drops);
  EXPECT_EQ(stats.to_driver.packets, went);
  EXPECT_GT(port_->to_driver(0).packets.value(), 0U) << "those of pair 1 went by pair 0 meanwhile";
}

INSTANTIATE_TEST_SUITE_P(Rings, VirtioUserResetTest, ::testing::Range(0, 4), [](const auto& kind) {
  return std::string((kind.param & 1) != 0 ? "Packed" : "Split") +
         ((kind.param & 2) != 0 ? "InOrder" : "");
});

// A device that takes its time over the stop of a ring, and then leaves.
TEST(VirtioUserReset, ADeviceThatFailsEndsTheSessionAndOneResetIsUnderWayAtATime) {
  constexpr std::uint32_t kGetVringBase = 11;
  test::TemporaryDirectory directory;
  std::atomic<bool> asked{false};
  std::atomic<bool> leave{false};
  test::ScriptedBackend backend([&](test::ScriptedBackend& self, const auto& request) {
    if (request.id != kGetVringBase) return false;
    asked = true;
    EXPECT_TRUE(wait_for([&] { return leave.load(); }));
    self.hang_up();
    return true;
  });
  backend.features = std::uint64_t{1} << 32 | std::uint64_t{1} << 40;
  const VirtioUserOptions options{.path = directory / "s.sock", .name = "up", .server = true};
  VirtioUserPort port(options);
  test::RecordingEvents events;
  const auto link = *VirtioUserLink::create(options, port, events);
  ASSERT_TRUE(link->start().has_value());
  auto socket = vhost::connect_to(options.path);
  ASSERT_TRUE(socket.has_value());
  ASSERT_EQ(::fcntl(socket->get(), F_SETFL, 0), 0);  // The back-end waits in its reads.
  backend.start_on(*std::move(socket));
  ASSERT_TRUE(wait_for([&] { return port.ready(); }))
      << (link->view().last_error ? link->view().last_error->text : "no error");
  const auto done = std::make_shared<const EventFd>(*EventFd::create());
  const auto first = link->begin_reset({.queue = 1}, done);
  ASSERT_TRUE(first.has_value()) << first.error().text;
  ASSERT_TRUE(wait_for([&] { return asked.load(); }));
  EXPECT_EQ(link->begin_reset({.queue = 0}, nullptr).error().code, ErrorCode::kExists);
  EXPECT_EQ(port.queues().at(1).state, "stopped");
  EXPECT_EQ(port.queues().at(0).state, "running");
  EXPECT_FALSE((*first)->outcome().has_value());
  EXPECT_FALSE(done->drain());
  leave = true;
  ASSERT_TRUE(wait_for([&] { return (*first)->outcome().has_value(); }));
  EXPECT_EQ((*first)->outcome()->error().code, ErrorCode::kClosed);
  EXPECT_TRUE(wait_for([&] { return done->drain(); }));
  EXPECT_TRUE(wait_for([&] { return !port.ready(); }));
}

}  // namespace
}  // namespace sluice::fabric
