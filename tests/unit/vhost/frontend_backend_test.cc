// NetDriver and Frontend against our own back-end over a socket: both ends, packets included.
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "frontend_fixture.h"
#include "net/net_driver.h"
#include "support/backend_thread.h"
#include "support/driver_pair.h"
#include "support/temporary_directory.h"
#include "vhost/frontend_source.h"

namespace sluice::vhost {
namespace {

using net::NetDriver;
using net::NetDriverOptions;
using net::QueueIndex;
using test::BackendThread;
using test::DriverPair;
using virtio::Feature;
using virtio::FeatureSet;

constexpr std::uint32_t kFrameBytes = 12 + 60;

class BothEnds : public ::testing::Test {
 protected:
  std::unique_ptr<NetDriver> create(const NetDriverOptions& options,
                                    std::uint64_t protocol = ~std::uint64_t{0}) {
    auto frontend = Frontend::adopt(backend_.start(), {.protocol_features = protocol});
    EXPECT_TRUE(frontend);
    frontend_ = frontend->get();
    auto driver = NetDriver::create(options, std::move(*frontend));
    EXPECT_TRUE(driver) << driver.error().text << " " << driver.error().detail;
    return driver ? std::move(*driver) : nullptr;
  }
  void expect_peace() {
    EXPECT_EQ(backend_.with_device([](auto& device) { return device.complaint(); }), "");
    const SessionView view = backend_.view();
    EXPECT_EQ(view.refused, 0U) << view.last_error_request << ": "
                                << (view.last_error ? view.last_error->text : "");
  }
  /// Packets both ways on a pair.
  void exchange(NetDriver& driver, std::uint16_t pair, std::size_t count) {
    DriverPair queues(driver, pair);
    exchange(queues, pair, count);
  }
  void exchange(DriverPair& queues, std::uint16_t pair, std::size_t count) {
    const std::size_t receiveq = 2 * std::size_t{pair};
    const std::size_t before = backend_.served(receiveq + 1);
    backend_.allow(receiveq + 1, count, 0);
    backend_.allow(receiveq, count, kFrameBytes);
    std::size_t sent = 0;
    ASSERT_TRUE(test::wait_for([&] {
      sent += queues.send(count - sent);
      return sent == count;
    }));
    EXPECT_EQ(queues.receive(count), count);
    EXPECT_TRUE(test::wait_for([&] { return backend_.served(receiveq + 1) == before + count; }));
    EXPECT_FALSE(queues.receiveq.error());
    EXPECT_FALSE(queues.transmitq.error());
  }

  BackendThread backend_;
  Frontend* frontend_ = nullptr;
};

const FeatureSet kEveryKind[] = {
    {},
    {Feature::kInOrder},
    {Feature::kRingPacked},
    {Feature::kRingPacked, Feature::kInOrder},
    {Feature::kEventIdx},
    {Feature::kRingPacked, Feature::kEventIdx},
    {Feature::kMrgRxbuf, Feature::kInOrder},
    {Feature::kRingPacked, Feature::kMrgRxbuf, Feature::kInOrder, Feature::kEventIdx},
};

TEST_F(BothEnds, PacketsPassBothWaysOnEveryKindOfRing) {
  for (const FeatureSet& kind : kEveryKind) {
    const auto driver =
        create({.queue_pairs = 2, .queue_size = 64, .wanted = kind, .required = kind});
    ASSERT_TRUE(driver->start());
    exchange(*driver, 0, 1000);
    exchange(*driver, 1, 1000);
    ASSERT_TRUE(driver->stop());
    expect_peace();
    EXPECT_FALSE(backend_.with_device([](auto& device) { return device.any_running(); }));
  }
}

TEST_F(BothEnds, TheBackendIsToldWhatTheDriverNegotiated) {
  const auto driver = create({.required = {Feature::kRingPacked, Feature::kInOrder}});
  ASSERT_TRUE(driver->start());
  EXPECT_EQ(
      backend_.with_device([](auto& device) { return device.features; }) & net::kDriverFeatures,
      driver->features());
  EXPECT_EQ(backend_.view().status, 15);
  EXPECT_EQ(*frontend_->status(), 15);
  EXPECT_EQ(frontend_->protocol_features(), Frontend::kProtocolFeatures);
  EXPECT_EQ(backend_.view().memory_bytes, driver->memory().bytes().size());
}

// Every start begins an epoch: nothing of what was outstanding before may be missing or come twice.
TEST_F(BothEnds, AThousandRestartsWithPacketsOutstandingLoseNothingAndLeakNothing) {
  for (const bool packed : {false, true}) {
    const FeatureSet kind = packed ? FeatureSet{Feature::kRingPacked} : FeatureSet{};
    const auto driver = create({.queue_size = 16, .required = kind});
    ASSERT_TRUE(driver->start());
    const std::size_t descriptors = open_descriptors();
    const std::size_t mappings = memory::Mapping::live_count();
    const std::size_t outstanding[] = {0, 1, 15, 16};
    for (std::size_t i = 0; i < 500; ++i) {
      DriverPair pair(*driver);
      EXPECT_EQ(pair.receiveq.outstanding(), 16U);
      EXPECT_EQ(pair.send(outstanding[i % 4]), outstanding[i % 4]);
      if (i % 50 == 0) exchange(pair, 0, 40);
      ASSERT_TRUE(driver->stop());
      ASSERT_TRUE(driver->start());
    }
    exchange(*driver, 0, 100);
    EXPECT_TRUE(descriptors_settle_at(descriptors));
    EXPECT_EQ(memory::Mapping::live_count(), mappings);
    expect_peace();
  }
}

TEST_F(BothEnds, OneQueueRestartsWhileAnotherPairCarriesPackets) {
  for (const bool packed : {false, true}) {
    const FeatureSet kind = packed ? FeatureSet{Feature::kRingPacked} : FeatureSet{};
    const auto driver = create({.queue_pairs = 2, .required = kind});
    ASSERT_TRUE(driver->start());
    DriverPair other(*driver, 1);
    exchange(other, 1, 100);
    const auto starts = backend_.with_device([](auto& device) { return device.queue(2).starts; });
    for (int i = 0; i < 20; ++i) {
      ASSERT_TRUE(driver->restart_queue(QueueIndex(0)));
      ASSERT_TRUE(driver->restart_queue(QueueIndex(1)));
      exchange(*driver, 0, 30);
      exchange(other, 1, 30);
    }
    EXPECT_EQ(backend_.with_device([](auto& device) { return device.queue(2).starts; }), starts);
    expect_peace();
    ASSERT_TRUE(driver->stop());
  }
}

// Ways to tell memory and to reset differ; all must lead to the same.
TEST_F(BothEnds, ResetAndStartWorkWithEverySetOfProtocolFeatures) {
  const std::uint64_t slots = bit(ProtocolFeature::kConfigureMemSlots);
  const std::uint64_t status = bit(ProtocolFeature::kStatus);
  const std::uint64_t device = bit(ProtocolFeature::kResetDevice);
  const std::uint64_t ack = bit(ProtocolFeature::kReplyAck);
  for (const std::uint64_t without :
       {std::uint64_t{0}, slots, status, device, ack, status | device, slots | status | device,
        slots | status | device | ack, ~std::uint64_t{0}}) {
    const auto driver = create({}, ~without);
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(driver->start());
      exchange(*driver, 0, 50);
      ASSERT_TRUE(driver->reset());
      EXPECT_FALSE(backend_.with_device([](auto& fake) { return fake.any_running(); }));
    }
    expect_peace();
  }
}

TEST_F(BothEnds, ActivePairsAreEnabledRings) {
  const auto driver = create({.queue_pairs = 2});
  ASSERT_TRUE(driver->start());
  const auto enabled = [&](std::size_t queue) {
    return backend_.with_device([&](auto& device) { return device.queue(queue).enabled; });
  };
  EXPECT_TRUE(enabled(0) && enabled(1) && enabled(2) && enabled(3));
  ASSERT_TRUE(driver->set_active_pairs(1));
  EXPECT_TRUE(enabled(0) && enabled(1) && !enabled(2) && !enabled(3));
  ASSERT_TRUE(driver->set_active_pairs(2));
  EXPECT_TRUE(enabled(2) && enabled(3));
  expect_peace();
}

TEST_F(BothEnds, ABackendThatIsKilledIsFollowedByTheNext) {
  for (const bool packed : {false, true}) {
    const FeatureSet kind = packed ? FeatureSet{Feature::kRingPacked} : FeatureSet{};
    const auto driver = create({.required = kind});
    const std::size_t mappings = memory::Mapping::live_count();
    for (int i = 0; i < 20; ++i) {
      ASSERT_TRUE(driver->start());
      EXPECT_TRUE(driver->transport().connected());
      exchange(*driver, 0, 40);
      backend_.stop();
      EXPECT_FALSE(driver->transport().connected());
      EXPECT_EQ(driver->stop().error().code, ErrorCode::kClosed);
      EXPECT_EQ(driver->start().error().code, ErrorCode::kWrongState);
      auto next = Frontend::adopt(backend_.start(), {});
      ASSERT_TRUE(next);
      ASSERT_TRUE(driver->reconnect(std::move(*next)));
    }
    ASSERT_TRUE(driver->start());
    exchange(*driver, 0, 40);
    ASSERT_TRUE(driver->reset());
    EXPECT_EQ(memory::Mapping::live_count(), mappings);
  }
}

TEST_F(BothEnds, ConfigurationMtuRarpAndLogReachTheDevice) {
  for (std::size_t i = 0; i < backend_.device.config_space.size(); ++i) {
    backend_.device.config_space[i] = std::byte(i + 2);
  }
  backend_.device.offered.add(Feature::kMac);
  const auto driver = create({});
  EXPECT_EQ(driver->mac(), (net::MacAddress{2, 3, 4, 5, 6, 7}));
  std::array<std::byte, 64> out{};
  EXPECT_EQ(*frontend_->read_config(20, std::span(out).first(4)), 4U);
  EXPECT_EQ(out[0], std::byte{22});
  EXPECT_EQ(*frontend_->read_config(0, out), 0U) << "more than the device has";
  ASSERT_TRUE(frontend_->set_mtu(9000));
  EXPECT_EQ(backend_.with_device([](auto& device) { return device.mtu; }), 9000);
  const auto mac = std::as_bytes(std::span(driver->mac()));
  ASSERT_TRUE(frontend_->send_rarp(mac.first<6>()));
  EXPECT_EQ(backend_.with_device([](auto& device) { return device.rarp.size(); }), 6U);
  backend_.with_device(
      [](auto& device) { device.mtu_status = fail(ErrorCode::kOutOfRange, "too large"); });
  const Status refused = frontend_->set_mtu(65535);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kPermission);
  EXPECT_EQ(refused.error().detail, NET_SET_MTU);
  EXPECT_EQ(frontend_->write_config(0, std::span(out).first(1)).error().code,
            ErrorCode::kPermission);
}

TEST_F(BothEnds, TheBackendSaysWhenItsConfigurationChanged) {
  const auto driver = create({});
  ASSERT_TRUE(driver->start());
  EXPECT_EQ(frontend_->config_changes(), 0U);
  backend_.tell_config_changed();
  EXPECT_TRUE(test::wait_for([&] { return frontend_->config_changes() == 1; }));
  EXPECT_TRUE(frontend_->connected());
}

TEST_F(BothEnds, DirtyPagesAreLoggedWhenAskedFor) {
  const auto driver = create({.queue_size = 64});
  ASSERT_TRUE(driver->start());
  // One bit a page, up to the end of the driver's memory.
  const std::uint64_t end = net::DriverMemory::kGuestBase + driver->memory().bytes().size();
  auto log = memory::Mapping::create_shared("log", end / 4096 / 8 + 4096);
  ASSERT_TRUE(log);
  ASSERT_TRUE(frontend_->set_log(log->fd.get(), 0, log->mapping.bytes().size()));
  ASSERT_TRUE(frontend_->set_logging(true));
  EXPECT_TRUE(backend_.view().logging);
  DriverPair pair(*driver);
  exchange(pair, 0, 32);
  const auto bytes = log->mapping.bytes();
  EXPECT_TRUE(std::any_of(bytes.begin(), bytes.end(), [](auto b) { return b != std::byte{0}; }));
  ASSERT_TRUE(frontend_->set_logging(false));
  EXPECT_FALSE(backend_.view().logging);
  exchange(pair, 0, 32);
  expect_peace();
}

TEST_F(BothEnds, TheInflightRegionIsHandedOn) {
  const auto driver = create({.queue_size = 64});
  const auto inflight = frontend_->get_inflight(4, 64);
  ASSERT_TRUE(inflight) << inflight.error().text;
  ASSERT_TRUE(frontend_->set_inflight(*inflight));
  ASSERT_TRUE(driver->start());
  exchange(*driver, 0, 100);
  expect_peace();
}

TEST_F(BothEnds, SourcesMeetTheBackendInBothRoles) {
  using namespace std::chrono_literals;
  const test::TemporaryDirectory directory;
  for (const bool server : {false, true}) {
    const std::string path = directory / (server ? "server.sock" : "client.sock");
    FrontendSource::Options options;
    options.path = path;
    options.server = server;
    auto source = FrontendSource::create(options);
    ASSERT_TRUE(source) << source.error().text;
    EXPECT_EQ(source->next(10ms).error().code, ErrorCode::kTimeout);
    auto peer = Endpoint::create({.path = path, .client = server});
    ASSERT_TRUE(peer) << peer.error().text;
    for (int i = 0; i < 3; ++i) {
      // The back-end's endpoint has to be asked while the source waits.
      std::atomic<bool> met = false;
      std::thread other([&] {
        met = test::wait_for([&] {
          if (auto socket = (*peer)->on_ready()) {
            backend_.start_on(std::move(*socket));
            return true;
          }
          return false;
        });
      });
      auto frontend = source->next(20s);
      other.join();
      ASSERT_TRUE(frontend) << frontend.error().text;
      ASSERT_TRUE(met);
      auto driver = NetDriver::create({}, std::move(*frontend));
      ASSERT_TRUE(driver);
      ASSERT_TRUE((*driver)->start());
      exchange(**driver, 0, 50);
      backend_.stop();
      (*peer)->session_over();
    }
  }
}

}  // namespace
}  // namespace sluice::vhost
