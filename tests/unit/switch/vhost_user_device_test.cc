// VhostUserPort as the device of a session: negotiation, refusals, control commands.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "net/net_device.h"
#include "support/counting_notifier.h"
#include "support/frame_builder.h"
#include "unit/switch/vhost_port_fixture.h"

namespace sluice::fabric {
namespace {

using net::DropCause;
using net::QueueIndex;
using test::make_frame;
using virtio::Feature;

class VhostUserDeviceTest : public VhostPortFixture {
 protected:
  // Negotiates with a control queue and starts all queues.
  void attach_with_control(std::uint16_t pairs, virtio::FeatureSet more = {}) {
    VhostUserOptions options;
    options.queues = pairs;
    make(options);
    more = more | virtio::FeatureSet{Feature::kCtrlVq, Feature::kCtrlRx, Feature::kCtrlMacAddr,
                                     Feature::kCtrlGuestOffloads, Feature::kGuestAnnounce};
    attach({.mrg_rxbuf = true, .pairs = pairs, .more = more});
    guest_->start_all();
    control_.emplace(guest_->make_queue());
    const QueueIndex index = net::control_queue_index(pairs, guest_->features());
    auto start = guest_->start_record(*control_);
    control_kick_ = start.kick;
    ASSERT_TRUE(port_->start_queue(index, std::move(start)).has_value());
  }
  // Posts a command, kicks, has it served, and gives the answer.
  int command(const std::vector<std::uint8_t>& bytes) {
    const std::uint64_t page = control_->buffers;
    guest_->guest().put(page, std::as_bytes(std::span(bytes)));
    guest_->guest().fill(page + 1024, 1, 0xee);
    const std::vector<test::Piece> pieces = {
        {.address = page, .length = static_cast<std::uint32_t>(bytes.size())},
        {.address = page + 1024, .length = 1, .writable = true}};
    EXPECT_TRUE(control_->driver->post(pieces).has_value());
    control_kick_->signal();
    EXPECT_TRUE(control_ready());
    port_->serve_control_queue();
    EXPECT_FALSE(control_ready());
    EXPECT_EQ(control_->driver->reap().size(), 1U);
    return guest_->guest().read<std::uint8_t>(page + 1024);
  }
  bool control_ready() {
    pollfd item{.fd = port_->control_fd(), .events = POLLIN, .revents = 0};
    return ::poll(&item, 1, 0) == 1;
  }
  // Sends one frame with offload marks; returns how many frames the driver found.
  std::size_t transmit_offloaded(const test::OffloadedFrame& frame) {
    packet::Packet& packet = burst_.packets[0];
    packet = {.data = frame.bytes.data(),
              .length = static_cast<std::uint32_t>(frame.bytes.size()),
              .first_length = static_cast<std::uint32_t>(frame.bytes.size()),
              .more_first = 0,
              .more_count = 0,
              .offload = frame.offload,
              .head = {}};
    std::memcpy(packet.head.data(), frame.bytes.data(), packet.head.size());
    burst_.count = 1;
    burst_.more_count = 0;
    const std::vector<packet::PacketIndex> which{0};
    EXPECT_EQ(port_->transmit(0, burst_, which), 1U);
    return guest_->driver(0).reap().size();
  }

  std::optional<test::PortGuest::Queue> control_;
  std::shared_ptr<EventFd> control_kick_;
};

INSTANTIATE_TEST_SUITE_P(Rings, VhostUserDeviceTest, ::testing::Values(0, 1, 2, 3), ring_name);

TEST_P(VhostUserDeviceTest, RefusesQueuesItDoesNotHaveAndDoubleStarts) {
  make();
  attach();
  guest_->start_all();
  auto queue = guest_->make_queue();
  EXPECT_EQ(port_->start_queue(QueueIndex(2), guest_->start_record(queue)).error().code,
            ErrorCode::kOutOfRange);
  EXPECT_EQ(port_->start_queue(QueueIndex(0xffff), guest_->start_record(queue)).error().code,
            ErrorCode::kOutOfRange);
  EXPECT_EQ(guest_->start(1).error().code, ErrorCode::kWrongState);
  EXPECT_EQ(*port_->stop_queue(QueueIndex(999)), virtio::RingPosition{});
  port_->enable_queue(QueueIndex(999), true);
  port_->set_call(QueueIndex(999), nullptr);
  port_->kick(QueueIndex(999));
}

TEST_P(VhostUserDeviceTest, H10_TheNextSessionStartsFromNothing) {
  make();
  attach({.more = {virtio::Feature::kMac}});
  guest_->start_all();
  guest_->stop_all();
  port_->session_over();
  EXPECT_TRUE(port_->features().empty());
  EXPECT_FALSE(port_->ready());
  attach();
  ASSERT_TRUE(port_
                  ->start_queue(QueueIndex(0),
                                [&] {
                                  auto queue = guest_->make_queue();
                                  return guest_->start_record(queue);
                                }())
                  .has_value());
  EXPECT_EQ(state_of(0), "disabled") << "enabled in the last session, but not in this one";
}

TEST_P(VhostUserDeviceTest, MtuIsCheckedAndEnforced) {
  VhostUserOptions options;
  options.mtu = 1500;
  make(options);
  EXPECT_TRUE(port_->offered_features().has(virtio::Feature::kMtu));
  EXPECT_EQ(port_->set_mtu(67).error().code, ErrorCode::kOutOfRange);
  EXPECT_EQ(port_->set_mtu(1501).error().code, ErrorCode::kOutOfRange);
  ASSERT_TRUE(port_->set_mtu(100).has_value());
  attach();  // QEMU tells the MTU before the features: it stays.
  EXPECT_EQ(port_->mtu(), 100);
  guest_->start_all();
  EXPECT_EQ(port_->set_mtu(1000).error().code, ErrorCode::kWrongState);
  guest_->post_receive(0, 4);
  test::FakePort source("source");
  source.inject(make_frame(kA, kB, 1, 100));
  source.inject(make_frame(kA, kB, 2, 200));
  source.receive(0, burst_);
  const std::vector<packet::PacketIndex> which{0, 1};
  EXPECT_EQ(port_->transmit(0, burst_, which), 1U);
  source.release(0);
  EXPECT_EQ(to_drops(DropCause::kMtu), 1U);
  guest_->stop_all();
  port_->session_over();
  EXPECT_EQ(port_->mtu(), 1500);
}

TEST_P(VhostUserDeviceTest, SendRarpAnnouncesOnTheNetworkSide) {
  make();
  attach();
  const std::array<std::byte, 6> mac{std::byte{2}, {}, {}, {}, {}, std::byte{0x0a}};
  ASSERT_TRUE(port_->send_rarp(mac).has_value());
  ASSERT_EQ(events_.announced.size(), 1U);
  EXPECT_EQ(events_.announced[0].second, kA);
  const std::array<std::byte, 6> group{std::byte{1}, {}, {}, {}, {}, {}};
  EXPECT_EQ(port_->send_rarp(group).error().code, ErrorCode::kInvalidArgument);
}

TEST_P(VhostUserDeviceTest, H45_SendRarpForAnotherAddressThanMacIsRefused) {
  VhostUserOptions options;
  options.mac = MacAddress{std::byte{2}, {}, {}, {}, {}, std::byte{0x0c}};
  make(options);
  attach();
  const std::array<std::byte, 6> foreign{std::byte{2}, {}, {}, {}, {}, std::byte{0x0a}};
  EXPECT_EQ(port_->send_rarp(foreign).error().code, ErrorCode::kPermission);
  EXPECT_TRUE(events_.announced.empty());
  EXPECT_TRUE(port_->send_rarp(*options.mac).has_value());
  EXPECT_EQ(events_.announced.size(), 1U);
}

TEST_P(VhostUserDeviceTest, ConfigurationSpaceIsReadOnly) {
  make();
  const std::array<std::byte, 2> data{};
  EXPECT_EQ(port_->write_config(0, data).error().code, ErrorCode::kPermission);
  EXPECT_EQ(port_->write_config(23, data).error().code, ErrorCode::kOutOfRange);
}

TEST_P(VhostUserDeviceTest, RefusesOptionsThatNoDeviceCanHave) {
  const auto code = [&](VhostUserOptions options) {
    const auto made = VhostUserPort::create(options, 0, events_);
    return made.has_value() ? ErrorCode::kSystem : made.error().code;
  };
  EXPECT_EQ(code({.queues = 0}), ErrorCode::kOutOfRange);
  EXPECT_EQ(code({.queues = 128}), ErrorCode::kOutOfRange);
  EXPECT_EQ(code({.mtu = 67}), ErrorCode::kOutOfRange);
  EXPECT_EQ(code({.mac = MacAddress{}}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({.mac = MacAddress{std::byte{1}}}), ErrorCode::kInvalidArgument);
}

TEST_P(VhostUserDeviceTest, SetCallMovesInterruptsToTheNewTarget) {
  make();
  attach();
  guest_->start_all();
  const auto other = std::make_shared<test::CountingNotifier>();
  port_->set_call(QueueIndex(1), other);
  guest_->send(0, make_frame(kA, kB, 1));
  receive();
  EXPECT_EQ(guest_->call(1).count(), 0);
  EXPECT_EQ(other->count(), 1U);
  port_->set_call(QueueIndex(1), nullptr);
  guest_->send(0, make_frame(kA, kB, 2));
  receive();
  EXPECT_EQ(other->count(), 1U);
}

TEST_P(VhostUserDeviceTest, H01_AStoppedQueueAnswersItsLastPositionAgainAndAgain) {
  make();
  attach();
  guest_->start_all();
  for (std::uint32_t i = 0; i < 10; ++i) guest_->send(0, make_frame(kA, kB, i));
  receive();
  guest_->sent_back(0);
  const auto position = *port_->stop_queue(QueueIndex(1));
  EXPECT_EQ(position, guest_->driver(1).expected_position());
  EXPECT_EQ(*port_->stop_queue(QueueIndex(1)), position);
  port_->enable_queue(QueueIndex(1), true);
  EXPECT_EQ(*port_->stop_queue(QueueIndex(1)), position);
}

TEST_P(VhostUserDeviceTest, CTL_04_QueuePairsBeyondTheCommandGetNothing) {
  attach_with_control(3);
  for (std::uint16_t pair = 0; pair < 3; ++pair) guest_->post_receive(pair, 16);
  const auto spread = [&] {
    for (std::uint32_t hint = 0; hint < 6; ++hint) transmit(1, hint);
    std::vector<std::size_t> counts;
    for (std::uint16_t pair = 0; pair < 3; ++pair) counts.push_back(guest_->received(pair).size());
    return counts;
  };
  EXPECT_EQ(spread(), (std::vector<std::size_t>{6, 0, 0})) << "one pair until the driver says more";
  EXPECT_EQ(command({4, 0, 3, 0}), 0);
  EXPECT_EQ(spread(), (std::vector<std::size_t>{2, 2, 2}));
  EXPECT_EQ(command({4, 0, 2, 0}), 0);
  EXPECT_EQ(spread(), (std::vector<std::size_t>{3, 3, 0}));
  EXPECT_EQ(command({4, 0, 4, 0}), 1);
  EXPECT_EQ(command({4, 0, 0, 0}), 1);
  EXPECT_EQ(spread(), (std::vector<std::size_t>{3, 3, 0}));
}

TEST_P(VhostUserDeviceTest, CTL_07_FramesAfterTheCommandDoNotCarryWhatWasTurnedOff) {
  attach_with_control(1, {Feature::kCsum, Feature::kGuestCsum, Feature::kGuestTso4});
  guest_->post_receive(0, 32);
  const auto big = test::build_offloaded({.payload = 4500}, 1125);
  EXPECT_EQ(transmit_offloaded(big), 3U) << "one frame, merged from three buffers";
  ASSERT_EQ(command({5, 0, 0, 0, 0, 0, 0, 0, 0, 0}), 0);
  EXPECT_EQ(transmit_offloaded(big), 4U) << "four segments";
  ASSERT_EQ(command({5, 0, 0x82, 0, 0, 0, 0, 0, 0, 0}), 0);
  EXPECT_EQ(transmit_offloaded(big), 3U);
  EXPECT_EQ(guest_->driver(0).complaint(), "");
}

TEST_P(VhostUserDeviceTest, ANN_02_ADriverThatAnnouncesItselfIsAskedTo) {
  attach_with_control(1);
  const std::array<std::byte, 6> mac{std::byte{2}, {}, {}, {}, {}, std::byte{0x0a}};
  ASSERT_TRUE(port_->send_rarp(mac).has_value());
  EXPECT_EQ(events_.announced.size(), 0U);
  EXPECT_EQ(events_.config_changes, 1);
  EXPECT_EQ(std::to_integer<int>(port_->config()[6]), 3);
  EXPECT_EQ(command({3, 0}), 0);
  EXPECT_EQ(std::to_integer<int>(port_->config()[6]), 1);
}

TEST_P(VhostUserDeviceTest, TheReceiveFilterFollowsTheCommandsAndEndsWithTheSession) {
  attach_with_control(1);
  ASSERT_NE(port_->filter(), nullptr);
  EXPECT_TRUE(port_->filter()->wants(kB));
  EXPECT_EQ(command({1, 1, 2, 0, 0, 0, 0, 0x0a}), 0);
  EXPECT_EQ(command({0, 0, 0}), 0);
  EXPECT_TRUE(port_->filter()->wants(kA));
  EXPECT_FALSE(port_->filter()->wants(kB));
  EXPECT_EQ(command({1, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0x0b, 0, 0, 0, 0}), 0);
  EXPECT_TRUE(port_->filter()->wants(kB));
  guest_->stop_all();
  port_->session_over();
  EXPECT_TRUE(port_->filter()->wants(0x77'00'00'00'00'02));
}

TEST_P(VhostUserDeviceTest, ABrokenControlQueueIsReportedOnceAndTheOthersLiveOn) {
  attach_with_control(1);
  ASSERT_TRUE(control_->driver->post({.address = 0x10, .length = 8}).has_value());
  port_->serve_control_queue();
  port_->serve_control_queue();
  EXPECT_EQ(control_->error->count(), 1U);
  ASSERT_TRUE(port_->last_error().has_value());
  EXPECT_EQ(port_->queues().back().state, "broken");
  guest_->send(0, make_frame(kA, kB, 5));
  EXPECT_EQ(receive(), (Tags{5}));
}

TEST_P(VhostUserDeviceTest, TheControlQueueStopsAndGoesOnWhereItStood) {
  attach_with_control(1);
  const QueueIndex index(2);
  ASSERT_EQ(command({0, 1, 1}), 0);
  const auto position = *port_->stop_queue(index);
  EXPECT_EQ(position, control_->driver->expected_position());
  EXPECT_EQ(*port_->stop_queue(index), position);
  control_->config.position = position;
  auto start = guest_->start_record(*control_);
  control_kick_ = start.kick;
  ASSERT_TRUE(port_->start_queue(index, std::move(start)).has_value());
  EXPECT_EQ(command({0, 1, 0}), 0);
}

// The counter of a semaphore stays above zero: that must not keep the control thread running.
TEST_P(VhostUserDeviceTest, SEC_62_AKickThatStaysReadableWakesOnce) {
  attach_with_control(1);
  control_->config.position = *port_->stop_queue(QueueIndex(2));
  auto start = guest_->start_record(*control_);
  UniqueFd semaphore(::eventfd(1000, EFD_NONBLOCK | EFD_SEMAPHORE | EFD_CLOEXEC));
  start.kick = std::make_shared<EventFd>(*EventFd::adopt(*semaphore.duplicate()));
  ASSERT_TRUE(port_->start_queue(QueueIndex(2), std::move(start)).has_value());
  pollfd item{.fd = port_->control_fd(), .events = POLLIN, .revents = 0};
  port_->serve_control_queue();
  EXPECT_EQ(::poll(&item, 1, 0), 0);
  ASSERT_EQ(::eventfd_write(semaphore.get(), 1), 0);
  EXPECT_EQ(::poll(&item, 1, 0), 1) << "a new kick is seen";
  EXPECT_EQ(command({0, 1, 0}), 0);
}

TEST_P(VhostUserDeviceTest, AControlQueueWithoutKicksIsServedByHousekeeping) {
  attach_with_control(1);
  control_->config.position = *port_->stop_queue(QueueIndex(2));
  auto start = guest_->start_record(*control_);
  start.kick = nullptr;
  ASSERT_TRUE(port_->start_queue(QueueIndex(2), std::move(start)).has_value());
  const std::vector<test::Piece> pieces = {
      {.address = control_->buffers, .length = 3},
      {.address = control_->buffers + 64, .length = 1, .writable = true}};
  ASSERT_TRUE(control_->driver->post(pieces).has_value());
  port_->housekeeping();
  EXPECT_EQ(control_->driver->reap().size(), 1U);
}

}  // namespace
}  // namespace sluice::fabric
