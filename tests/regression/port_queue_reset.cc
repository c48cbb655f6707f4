// RST-05..RST-10: queues of a virtio-user port are reset by order, again and again, while the
// port's other queue pair carries packets and loses none. Two switches in one process:
//
//   driver -- b [switch] up -- a [switch that echoes]
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>

#include "net/net_driver.h"
#include "support/driver_pair.h"
#include "support/echo_stream.h"
#include "support/fabric_runner.h"
#include "support/temporary_directory.h"

namespace sluice::test {
namespace {

using fabric::ResetOrder;
using fabric::ResetReport;

// The parameter's bits: packed, in order.
class PortQueueReset : public ::testing::TestWithParam<int> {
 protected:
  PortQueueReset() {
    fabric::SwitchOptions echo;
    echo.vhost_user.push_back(
        {.path = directory_ / "a.sock", .name = "a", .queues = 2, .ring_reset = true});
    echo.forward = fabric::Forward::kPatch;
    echo.patches = {{"a", "a"}};
    echo_ = std::make_unique<FabricRunner>(echo);
    fabric::SwitchOptions options;
    options.vhost_user.push_back({.path = directory_ / "b.sock", .name = "b", .queues = 2});
    options.virtio_user.push_back({.path = directory_ / "a.sock",
                                   .name = "up",
                                   .queues = 2,
                                   .packed_vq = packed(),
                                   .in_order = (GetParam() & 2) != 0});
    options.forward = fabric::Forward::kPatch;
    options.patches = {{"b", "up"}};
    options.workers.poll = fabric::PollMode::kInterrupt;  // A wake-up that is lost is seen.
    switch_ = std::make_unique<FabricRunner>(options);
    EXPECT_TRUE(wait_for([&] { return switch_->port(1).state == "running"; }));
    driver_ = connect_driver(directory_ / "b.sock", {.queue_pairs = 2});
  }
  [[nodiscard]] bool packed() const { return (GetParam() & 1) != 0; }

  ResetReport reset(const ResetOrder& order) {
    const auto begun = switch_->ask([&](fabric::Fabric& f) { return f.begin_reset("up", order); });
    EXPECT_TRUE(begun.has_value()) << begun.error().text;
    if (!begun) return {};
    EXPECT_TRUE(wait_for([&] { return (*begun)->outcome().has_value(); }));
    const auto outcome = (*begun)->outcome();
    if (!outcome) return {};
    EXPECT_TRUE(outcome->has_value()) << outcome->error().text;
    return outcome->value_or(ResetReport{});
  }
  // What is sent on pair 1 comes back there.
  static void expect_works(DriverPair& pair) {
    std::size_t sent = 0;
    ASSERT_TRUE(wait_for([&] { return (sent += pair.send(20 - sent)) == 20; })) << sent;
    EXPECT_EQ(pair.receive(20), 20U);
  }
  void expect_accounts_close() {
    ASSERT_TRUE(driver_->stop());
    switch_->stop();
    echo_->stop();
    EXPECT_TRUE(switch_->conserved());
    EXPECT_TRUE(echo_->conserved());
  }

  TemporaryDirectory directory_;
  std::unique_ptr<FabricRunner> echo_;
  std::unique_ptr<FabricRunner> switch_;
  std::unique_ptr<net::NetDriver> driver_;
};

TEST_P(PortQueueReset, RST_09_TheOtherPairLosesNothing) {
  ASSERT_NE(driver_, nullptr);
  ASSERT_TRUE(driver_->start());
  EchoStream stream(*driver_);
  DriverPair pair(*driver_, 1);
  std::uint64_t before = 0;
  for (int i = 0; i < 60; ++i) {
    const std::uint32_t size = i % 3 == 0 ? 1024 : packed() && i % 3 == 1 ? 100 : 64;
    const ResetReport receive = reset({.queue = 2, .size = size});
    EXPECT_EQ(receive.size, size);
    EXPECT_GT(receive.buffers, 0U);
    reset({.queue = 3, .size = size});
    const auto queues = switch_->ask([](fabric::Fabric& f) { return f.queues("up"); });
    EXPECT_EQ(queues.at(2).size, size);
    EXPECT_EQ(queues.at(3).size, size);
    EXPECT_EQ(queues.at(0).size, 256U);
    expect_works(pair);
    EXPECT_TRUE(wait_for([&] { return stream.received() > before; })) << "the other pair stands";
    before = stream.received();
  }
  stream.stop();
  EXPECT_EQ(stream.received(), stream.sent());
  EXPECT_EQ(switch_->port(1).sessions, 1U);
  expect_accounts_close();
}

TEST_P(PortQueueReset, TheWholeDeviceComesBackAgainAndAgain) {
  ASSERT_NE(driver_, nullptr);
  ASSERT_TRUE(driver_->start());
  DriverPair first(*driver_, 0);
  DriverPair second(*driver_, 1);
  for (int i = 0; i < 20; ++i) {
    EXPECT_GE(reset({.whole_device = true}).buffers, 500U) << "those of the receiveqs";
    expect_works(first);
    expect_works(second);
  }
  EXPECT_EQ(switch_->port(1).sessions, 1U);
  expect_accounts_close();
}

INSTANTIATE_TEST_SUITE_P(Rings, PortQueueReset, ::testing::Range(0, 4), [](const auto& kind) {
  return std::string((kind.param & 1) != 0 ? "Packed" : "Split") +
         ((kind.param & 2) != 0 ? "InOrder" : "");
});

}  // namespace
}  // namespace sluice::test
