// VirtioUserPort and VirtioUserLink opposite a VhostUserPort, by a real socket: every byte of every
// frame, offloads kept and completed, merged buffers, and sessions that come and go.
#include "switch/virtio_user_port.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "device_side.h"
#include "support/conservation.h"
#include "support/driver_pair.h"
#include "support/fake_port.h"
#include "support/frame_builder.h"
#include "support/temporary_directory.h"
#include "switch/vhost_link.h"
#include "switch/vhost_user_port.h"
#include "switch/virtio_user_link.h"
#include "vhost/socket_path.h"

namespace sluice::fabric {
namespace {

using test::wait_for;

// The parameter's bits: packed, in order, mergeable receive buffers.
class VirtioUserPortTest : public ::testing::TestWithParam<int> {
 protected:
  [[nodiscard]] VirtioUserOptions options() const {
    return {.path = path_,
            .name = "up",
            .packed_vq = (GetParam() & 1) != 0,
            .in_order = (GetParam() & 2) != 0,
            .mrg_rxbuf = (GetParam() & 4) != 0};
  }
  [[nodiscard]] VhostUserOptions device_options() const { return {.path = path_, .name = "down"}; }

  void begin(const VirtioUserOptions& options, const VhostUserOptions& device) {
    device_ = std::make_unique<DeviceSide>(device);
    port_ = std::make_unique<VirtioUserPort>(options);
    link_ = *VirtioUserLink::create(options, *port_, events_);
    ASSERT_TRUE(link_->start().has_value());
    wait_running();
  }
  void wait_running() {
    ASSERT_TRUE(wait_for([&] { return port_->ready() && device_->port->ready(); }))
        << (link_->view().last_error ? link_->view().last_error->text : "no error");
  }
  void TearDown() override {
    link_ = nullptr;
    if (port_ != nullptr) {
      EXPECT_TRUE(balanced());
    }
  }
  // What one side sent arrived at the other or was counted there.
  ::testing::AssertionResult balanced() {
    const PortStats driver = test::stats_of(*port_);
    if (lost_on_purpose_ || device_ == nullptr) return ::testing::AssertionSuccess();
    const PortStats device = test::stats_of(*device_->port);
    if (driver.to_driver.packets + segmented_ == device.from_driver.packets &&
        device.to_driver.packets == driver.from_driver.packets) {
      return ::testing::AssertionSuccess();
    }
    return ::testing::AssertionFailure() << "packets are missing";
  }

  test::TemporaryDirectory directory_;
  std::string path_ = directory_ / "s.sock";
  test::RecordingEvents events_;
  std::unique_ptr<DeviceSide> device_;
  std::unique_ptr<VirtioUserPort> port_;
  std::unique_ptr<VirtioUserLink> link_;
  std::uint64_t segmented_ = 0;  // Frames that one packet became in software, beyond the first.
  bool lost_on_purpose_ = false;
};

TEST_P(VirtioUserPortTest, FramesOfEverySizeArriveAsTheyWereSentBothWays) {
  begin(options(), device_options());
  for (int lap = 0; lap < 40; ++lap) {
    std::vector<std::size_t> sizes;
    for (std::size_t i = 0; i < 37; ++i) {
      sizes.push_back(14 + (static_cast<std::size_t>(lap) * 389 + i * 53) % 1510);
    }
    Sent sent(frames_of(sizes));
    ASSERT_EQ(sent.to(*port_), sizes.size());
    EXPECT_EQ(take(*device_->port, sizes.size()).frames, sent.frames);
    ASSERT_EQ(sent.to(*device_->port), sizes.size());
    EXPECT_EQ(take(*port_, sizes.size()).frames, sent.frames);
  }
}

TEST_P(VirtioUserPortTest, LongFramesAreSpreadOverBuffersAndComeTogetherAgain) {
  VirtioUserOptions small = options();
  small.tso = false;  // Buffers of the usual size.
  begin(small, device_options());
  // The burst's end falls within a packet: 62 buffers, then one packet of four.
  std::vector<std::size_t> sizes(62, 60);
  sizes.insert(sizes.end(), {9000, 5000});
  Sent sent(frames_of(sizes));
  const std::size_t went = sent.to(*device_->port);
  if (!small.mrg_rxbuf) {
    EXPECT_EQ(went, 62U);
    sent.frames.resize(62);
  } else {
    EXPECT_EQ(went, sizes.size());
  }
  EXPECT_EQ(take(*port_, sent.frames.size()).frames, sent.frames);
  // Our own buffers are too small for them.
  EXPECT_EQ(Sent(frames_of({9000})).to(*port_), 0U);
  EXPECT_EQ(test::dropped(test::stats_of(*port_).to_driver, net::DropCause::kBufferTooSmall), 1U);
}

TEST_P(VirtioUserPortTest, OffloadsThatBothSidesHaveArePassedOn) {
  begin(options(), device_options());
  auto tcp = test::build_offloaded({.payload = 20'000}, 1448);
  for (Port* from : {static_cast<Port*>(port_.get()), static_cast<Port*>(device_->port.get())}) {
    Port& to = from == port_.get() ? static_cast<Port&>(*device_->port) : *port_;
    Sent sent({tcp.bytes});
    sent.burst->packets[0].offload = tcp.offload;
    ASSERT_EQ(sent.to(*from), 1U);
    const Arrived arrived = take(to, 1);
    EXPECT_EQ(arrived.frames, sent.frames);
    EXPECT_EQ(arrived.offloads.at(0).gso_size, 1448);
    EXPECT_EQ(arrived.offloads.at(0).gso_type, tcp.offload.gso_type);
  }
}

TEST_P(VirtioUserPortTest, OffloadsThatTheDeviceLacksAreCompletedInSoftware) {
  VhostUserOptions plain = device_options();
  plain.offloads = false;
  begin(options(), plain);
  const test::FramePlan plan{.payload = 100'000 / 2};
  auto tcp = test::build_offloaded(plan, 1000);
  Sent sent({tcp.bytes});
  sent.burst->packets[0].offload = tcp.offload;
  ASSERT_EQ(sent.to(*port_), 1U);
  const Arrived arrived = take(*device_->port, 50);
  ASSERT_EQ(arrived.frames.size(), 50U);
  segmented_ = 49;
  for (const Frame& frame : arrived.frames) {
    EXPECT_TRUE(test::checksums_are_right({.payload = 1000}, frame));
  }
}

TEST_P(VirtioUserPortTest, WhatFindsNoBufferIsDroppedAndCounted) {
  begin(options(), device_options());
  std::size_t went = 0;
  for (int i = 0; i < 8; ++i) went += Sent(frames_of(std::vector<std::size_t>(64, 60))).to(*port_);
  EXPECT_EQ(went, 256U);
  EXPECT_EQ(test::dropped(test::stats_of(*port_).to_driver, net::DropCause::kNoBuffers), 256U);
  EXPECT_EQ(take(*device_->port, 256).frames.size(), 256U);
  EXPECT_EQ(Sent(frames_of({60})).to(*port_), 1U) << "the ring has room again";
  EXPECT_EQ(take(*device_->port, 1).frames.size(), 1U);
}

TEST_P(VirtioUserPortTest, ASleepingWorkerIsWokenByTheDevice) {
  begin(options(), device_options());
  EXPECT_FALSE(port_->arm(0));
  const WakeSource wake = port_->wake_source(0);
  ASSERT_NE(wake.event, nullptr);
  pollfd item{.fd = wake.event->fd(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&item, 1, 0), 0);
  ASSERT_EQ(Sent(frames_of({60})).to(*device_->port), 1U);
  EXPECT_EQ(::poll(&item, 1, 5000), 1);
  port_->disarm(0);
  EXPECT_EQ(::poll(&item, 1, 0), 0);
  EXPECT_EQ(take(*port_, 1).frames.size(), 1U);
  EXPECT_FALSE(port_->arm(0));
  ASSERT_EQ(Sent(frames_of({60})).to(*device_->port), 1U);
  EXPECT_TRUE(port_->arm(0)) << "what came before the wish is seen";
  EXPECT_EQ(take(*port_, 1).frames.size(), 1U);
}

TEST_P(VirtioUserPortTest, ADeviceThatComesBackWithOtherFeaturesIsUsedAgain) {
  begin(options(), device_options());
  lost_on_purpose_ = true;  // The second device counts from zero.
  for (int i = 0; i < 3; ++i) {
    const auto generation = port_->wake_source(0).generation;
    device_ = nullptr;
    ASSERT_TRUE(wait_for([&] { return !port_->ready(); }));
    EXPECT_EQ(Sent(frames_of({60})).to(*port_), 0U);
    VhostUserOptions next = device_options();
    next.in_order = i % 2 != 0;
    next.packed = i % 2 != 0;
    next.mrg_rxbuf = i % 2 != 0;
    device_ = std::make_unique<DeviceSide>(next);
    wait_running();
    EXPECT_GT(port_->wake_source(0).generation, generation);
    EXPECT_EQ(link_->view().features.has(virtio::Feature::kInOrder),
              next.in_order && options().in_order);
    Sent sent(frames_of({60, 1514}));
    ASSERT_EQ(sent.to(*port_), 2U);
    EXPECT_EQ(take(*device_->port, 2).frames, sent.frames);
    ASSERT_EQ(sent.to(*device_->port), 2U);
    EXPECT_EQ(take(*port_, 2).frames, sent.frames);
  }
  EXPECT_EQ(link_->view().sessions, 4U);
}

TEST_P(VirtioUserPortTest, MoreQueuesThanTheDeviceHasAreAnErrorThatIsShown) {
  VirtioUserOptions two = options();
  two.queues = 2;
  device_ = std::make_unique<DeviceSide>(device_options());
  port_ = std::make_unique<VirtioUserPort>(two);
  link_ = *VirtioUserLink::create(two, *port_, events_);
  ASSERT_TRUE(link_->start().has_value());
  ASSERT_TRUE(wait_for([&] { return link_->view().last_error.has_value(); }));
  EXPECT_EQ(std::string(link_->view().last_error->text), "the device has fewer queue pairs");
  EXPECT_FALSE(port_->ready());
}

TEST_P(VirtioUserPortTest, ClosingDoesNotWaitForABackEndThatIsSilent) {
  VirtioUserOptions listening = options();
  listening.server = true;
  port_ = std::make_unique<VirtioUserPort>(listening);
  link_ = *VirtioUserLink::create(listening, *port_, events_);
  ASSERT_TRUE(link_->start().has_value());
  const auto silent = vhost::connect_to(path_);
  ASSERT_TRUE(silent.has_value());
  ASSERT_TRUE(wait_for([&] { return link_->view().state == "connected"; }));
  const auto begin = std::chrono::steady_clock::now();
  link_->close();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(3));
  EXPECT_EQ(link_->view().state, "stopped");
}

INSTANTIATE_TEST_SUITE_P(Rings, VirtioUserPortTest, ::testing::Range(0, 8), [](const auto& kind) {
  return std::string((kind.param & 1) != 0 ? "Packed" : "Split") +
         ((kind.param & 2) != 0 ? "InOrder" : "") + ((kind.param & 4) != 0 ? "Mergeable" : "");
});

}  // namespace
}  // namespace sluice::fabric
