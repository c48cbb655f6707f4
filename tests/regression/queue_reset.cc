// RST-03..RST-09: one queue of a switch's port is reset, again and again, with buffers outstanding
// and at other sizes, while the port's other queue pair carries packets and loses none.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "net/driver_queue.h"
#include "net/net_driver.h"
#include "support/driver_pair.h"
#include "support/echo_stream.h"
#include "support/fabric_runner.h"
#include "support/temporary_directory.h"

namespace sluice::test {
namespace {

using net::QueueIndex;
using virtio::Feature;
using virtio::FeatureSet;

constexpr QueueIndex kResetReceiveq{2};  // Of pair 1, which is reset.
constexpr QueueIndex kResetTransmitq{3};

// The parameter's bits: packed, in order.
class QueueReset : public ::testing::TestWithParam<int> {
 protected:
  QueueReset() {
    fabric::SwitchOptions options;
    options.vhost_user.push_back(
        {.path = path_, .name = "a", .queues = 2, .ring_reset = true, .one_used_entry = false});
    options.forward = fabric::Forward::kPatch;
    options.patches = {{"a", "a"}};
    fabric_ = std::make_unique<FabricRunner>(options);
    net::NetDriverOptions driver{.queue_pairs = 2, .queue_size_max = 1024};
    driver.required = {Feature::kRingReset};
    driver.wanted = {Feature::kMrgRxbuf, Feature::kEventIdx};
    if ((GetParam() & 1) != 0) driver.required.add(Feature::kRingPacked);
    if ((GetParam() & 2) != 0) driver.required.add(Feature::kInOrder);
    driver_ = connect_driver(path_, driver);
  }
  [[nodiscard]] bool packed() const { return (GetParam() & 1) != 0; }

  // Recalls a transmitq's buffers and checks that they are `count` different ones.
  template <class Queue>
  static void expect_recalled(Queue& queue, std::size_t count) {
    std::vector<std::uint32_t> tokens;
    queue.recall([&](std::uint32_t token) { tokens.push_back(token); });
    EXPECT_EQ(tokens.size(), count);
    std::ranges::sort(tokens);
    EXPECT_EQ(std::ranges::adjacent_find(tokens), tokens.end()) << "a buffer came twice";
    EXPECT_EQ(queue.outstanding(), 0U);
    ASSERT_TRUE(queue.error().has_value());
    EXPECT_EQ(queue.error()->code, ErrorCode::kClosed);
  }
  // What is sent on pair 1 comes back there; a frame can come before the buffer it left in.
  static void expect_works(DriverPair& pair) {
    std::size_t sent = 0;
    ASSERT_TRUE(wait_for([&] { return (sent += pair.send(20 - sent)) == 20; })) << sent;
    EXPECT_EQ(pair.receive(20), 20U);
  }

  TemporaryDirectory directory_;
  std::string path_ = directory_ / "a.sock";
  std::unique_ptr<FabricRunner> fabric_;
  std::unique_ptr<net::NetDriver> driver_;
};

TEST_P(QueueReset, RST_09_TheOtherPairLosesNothingInHundredsOfResets) {
  ASSERT_NE(driver_, nullptr);
  ASSERT_TRUE(driver_->start());
  EchoStream stream(*driver_);
  DriverPair pair(*driver_, 1);
  std::uint64_t before = 0;
  for (int i = 0; i < 200; ++i) {
    if (i % 20 == 0) expect_works(pair);
    ASSERT_TRUE(driver_->reset_queue(kResetReceiveq));
    expect_recalled(pair.receiveq, pair.receiveq.outstanding());
    ASSERT_TRUE(driver_->restart_queue(kResetReceiveq));
    pair.receiveq = net::DriverReceiveQueue::make(*driver_->queue(kResetReceiveq));
    ASSERT_TRUE(driver_->reset_queue(kResetTransmitq));
    expect_recalled(pair.transmitq, pair.transmitq.outstanding());
    ASSERT_TRUE(driver_->restart_queue(kResetTransmitq));
    pair.transmitq = net::DriverTransmitQueue::make(*driver_->queue(kResetTransmitq));
    EXPECT_TRUE(wait_for([&] { return stream.received() > before; })) << "the other pair stands";
    before = stream.received();
  }
  expect_works(pair);
  stream.stop();
  EXPECT_EQ(stream.received(), stream.sent());
  ASSERT_TRUE(driver_->stop());
  fabric_->stop();
  EXPECT_TRUE(fabric_->conserved());
}

TEST_P(QueueReset, RST_04_RST_05_RST_06_AQueueChangesItsSizeAndLosesNoBuffer) {
  ASSERT_NE(driver_, nullptr);
  ASSERT_TRUE(driver_->start());
  EchoStream stream(*driver_);
  DriverPair pair(*driver_, 1);
  std::vector<std::uint32_t> sizes = {1024, 32, 256, 64};
  if (packed()) sizes.push_back(100);
  for (int lap = 0; lap < 3; ++lap) {
    for (const std::uint32_t size : sizes) {
      ASSERT_TRUE(driver_->reset_queue(kResetReceiveq));
      const std::size_t posted = pair.receiveq.outstanding();
      expect_recalled(pair.receiveq, posted);
      ASSERT_TRUE(driver_->restart_queue(kResetReceiveq, size));
      pair.receiveq = net::DriverReceiveQueue::make(*driver_->queue(kResetReceiveq));
      EXPECT_EQ(pair.receiveq.outstanding(), size);
      ASSERT_TRUE(driver_->restart_queue(kResetTransmitq, size));
      pair.transmitq = net::DriverTransmitQueue::make(*driver_->queue(kResetTransmitq));
      const auto shown = fabric_->ask([](fabric::Fabric& fabric) { return fabric.queues("a"); });
      EXPECT_EQ(shown.at(kResetReceiveq.raw()).size, size);
      EXPECT_EQ(shown.at(kResetTransmitq.raw()).size, size);
      EXPECT_EQ(shown.at(0).size, 256U);
      for (int i = 0; i < 5; ++i) expect_works(pair);
    }
  }
  stream.stop();
  EXPECT_EQ(stream.received(), stream.sent());
}

// RST-08: frames of a pair whose receiveq is under reset go to another one.
TEST_P(QueueReset, RST_08_FramesFindAnotherQueueMeanwhile) {
  ASSERT_NE(driver_, nullptr);
  ASSERT_TRUE(driver_->start());
  DriverPair first(*driver_, 0);
  DriverPair second(*driver_, 1);
  expect_works(second);
  ASSERT_TRUE(driver_->reset_queue(kResetReceiveq));
  ASSERT_EQ(second.send(20), 20U);
  EXPECT_EQ(first.receive(20), 20U);
  ASSERT_TRUE(driver_->reset_queue(QueueIndex(0)));
  ASSERT_EQ(second.send(20), 20U);
  EXPECT_TRUE(wait_for([&] {
    const fabric::PortStats stats = fabric_->stats(0);
    return dropped(stats.to_driver, net::DropCause::kNotReady) == 20;
  })) << "all receiveqs are under reset: dropped and counted";
}

INSTANTIATE_TEST_SUITE_P(Rings, QueueReset, ::testing::Range(0, 4), [](const auto& kind) {
  return std::string((kind.param & 1) != 0 ? "Packed" : "Split") +
         ((kind.param & 2) != 0 ? "InOrder" : "");
});

}  // namespace
}  // namespace sluice::test
