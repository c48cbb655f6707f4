// Frames sent on where they lie (DriverTransmitQueue::forward()): their bytes and marks arrive, no
// buffer is lost or had twice, and a queue that exchanged buffers can be reset like any other.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "net/driver_queue.h"
#include "net/net_driver.h"
#include "support/driver_pair.h"
#include "support/fabric_runner.h"
#include "support/temporary_directory.h"

namespace sluice::test {
namespace {

using net::DriverFrame;
using net::QueueIndex;
using virtio::Feature;

constexpr std::size_t kFrames = 20;
constexpr QueueIndex kReceiveq{0};
constexpr QueueIndex kTransmitq{1};

// The parameter's bits: packed, in order. The driver's port echoes.
class BufferExchange : public ::testing::TestWithParam<int> {
 protected:
  BufferExchange() {
    fabric::SwitchOptions options;
    options.vhost_user.push_back(
        {.path = path_, .name = "a", .ring_reset = true, .one_used_entry = false});
    options.forward = fabric::Forward::kPatch;
    options.patches = {{"a", "a"}};
    fabric_ = std::make_unique<FabricRunner>(options);
    driver_ = connect_driver(path_, driver_options());
  }
  // Rings of which 7 bursts make no whole number of laps.
  [[nodiscard]] static net::NetDriverOptions driver_options() {
    net::NetDriverOptions options{.queue_size = 64};
    options.required = {Feature::kRingReset};
    options.wanted = {Feature::kMrgRxbuf, Feature::kEventIdx};
    if ((GetParam() & 1) != 0) options.required.add(Feature::kRingPacked);
    if ((GetParam() & 2) != 0) options.required.add(Feature::kInOrder);
    return options;
  }
  // Frame i is filled with i and has a length of its own.
  static void send_numbered(DriverPair& pair) {
    std::array<DriverFrame, kFrames> frames;
    std::size_t room = 0;
    ASSERT_TRUE(wait_for([&] { return (room = pair.transmitq.reserve(frames)) == kFrames; }));
    for (std::size_t i = 0; i < kFrames; ++i) {
      frames[i].length = static_cast<std::uint32_t>(60 + 10 * i);
      std::memset(frames[i].data, static_cast<int>(i), frames[i].length);
    }
    pair.transmitq.submit(frames);
  }
  // Takes all frames of a lap, checks them and hands them over in bursts.
  template <class Use>
  static void take_numbered(DriverPair& pair, Use use) {
    std::size_t next = 0;
    std::array<DriverFrame, net::kDriverBurstMax> frames;
    ASSERT_TRUE(wait_for([&] {
      const auto burst = std::span(frames).first(pair.receiveq.receive(frames));
      for (const DriverFrame& frame : burst) {
        EXPECT_EQ(frame.length, 60 + 10 * next);
        const auto value = static_cast<std::byte>(next++);
        EXPECT_TRUE(std::all_of(frame.data, frame.data + frame.length,
                                [&](std::byte byte) { return byte == value; }));
      }
      use(burst);
      pair.receiveq.repost();
      return next >= kFrames;
    })) << next;
    EXPECT_EQ(next, kFrames);
  }
  static void forward_all(DriverPair& pair, std::span<const DriverFrame> burst) {
    std::size_t sent = 0;
    EXPECT_TRUE(wait_for([&] {
      sent += pair.transmitq.forward(pair.receiveq, burst.subspan(sent));
      return sent == burst.size();
    }));
  }
  static void exchange(DriverPair& pair, int laps) {
    send_numbered(pair);
    for (int i = 0; i < laps; ++i) {
      take_numbered(pair, [&](std::span<const DriverFrame> burst) { forward_all(pair, burst); });
    }
    take_numbered(pair, [](std::span<const DriverFrame>) {});
  }
  [[nodiscard]] std::vector<std::uint32_t> own_buffers(QueueIndex queue) const {
    return driver_->memory().start(queue).own_buffers->numbers;
  }

  TemporaryDirectory directory_;
  std::string path_ = directory_ / "a.sock";
  std::unique_ptr<FabricRunner> fabric_;
  std::unique_ptr<net::NetDriver> driver_;
};

TEST_P(BufferExchange, FramesGoRoundAndRoundUnchanged) {
  ASSERT_NE(driver_, nullptr);
  ASSERT_TRUE(driver_->start());
  DriverPair pair(*driver_);
  exchange(pair, 50);
  // Buffers that came from the receiveq serve for frames of the driver's own as well.
  for (int i = 0; i < 5; ++i) exchange(pair, 0);
  ASSERT_TRUE(driver_->stop());
  fabric_->stop();
  EXPECT_TRUE(fabric_->conserved());
}

TEST_P(BufferExchange, SomeFramesOfABurstGoOnAndTheOthersStay) {
  ASSERT_NE(driver_, nullptr);
  ASSERT_TRUE(driver_->start());
  DriverPair pair(*driver_);
  send_numbered(pair);
  std::vector<std::byte> sent;
  take_numbered(pair, [&](std::span<const DriverFrame> burst) {
    std::vector<DriverFrame> some;
    for (std::size_t i = 1; i < burst.size(); i += 2) {
      sent.push_back(*burst[i].data);
      some.push_back(burst[i]);
      some.back().length = 60;
    }
    forward_all(pair, some);
  });
  std::vector<std::byte> received;
  std::array<DriverFrame, net::kDriverBurstMax> frames;
  EXPECT_TRUE(wait_for([&] {
    const std::size_t count = pair.receiveq.receive(frames);
    for (std::size_t i = 0; i < count; ++i) {
      EXPECT_EQ(frames[i].length, 60U);
      received.push_back(*frames[i].data);
    }
    pair.receiveq.repost();
    return received.size() >= sent.size();
  }));
  EXPECT_EQ(received, sent);
  EXPECT_EQ(pair.receiveq.outstanding(), 64U);
}

TEST_P(BufferExchange, RST_04_AQueueThatExchangedBuffersStartsAgainOnceItIsRecalled) {
  ASSERT_NE(driver_, nullptr);
  ASSERT_TRUE(driver_->start());
  DriverPair pair(*driver_);
  for (int lap = 0; lap < 3; ++lap) {
    exchange(pair, 7);
    for (const QueueIndex queue : {kReceiveq, kTransmitq}) {
      EXPECT_EQ(driver_->restart_queue(queue).error().code, ErrorCode::kWrongState);
    }
    std::vector<std::uint32_t> back;
    pair.receiveq.recall([&](std::uint32_t token) { back.push_back(token); });
    EXPECT_EQ(back.size(), 64U);
    EXPECT_TRUE(std::ranges::is_permutation(back, own_buffers(kReceiveq)));
    ASSERT_TRUE(driver_->restart_queue(kReceiveq));
    pair.receiveq = net::DriverReceiveQueue::make(*driver_->queue(kReceiveq));
    pair.transmitq.recall([](std::uint32_t) {});
    ASSERT_TRUE(driver_->restart_queue(kTransmitq));
    pair.transmitq = net::DriverTransmitQueue::make(*driver_->queue(kTransmitq));
    std::set<std::uint32_t> all;
    for (const QueueIndex queue : {kReceiveq, kTransmitq}) {
      const std::vector<std::uint32_t> own = own_buffers(queue);
      all.insert(own.begin(), own.end());
    }
    EXPECT_EQ(all.size(), 128U) << "a buffer has two owners";
  }
  // A whole stop and start deals the buffers anew.
  exchange(pair, 7);
  ASSERT_TRUE(driver_->stop());
  ASSERT_TRUE(driver_->start());
  DriverPair fresh(*driver_);
  exchange(fresh, 7);
}

INSTANTIATE_TEST_SUITE_P(Rings, BufferExchange, ::testing::Range(0, 4), [](const auto& kind) {
  return std::string((kind.param & 1) != 0 ? "Packed" : "Split") +
         ((kind.param & 2) != 0 ? "InOrder" : "");
});

// A packet in several buffers has one header, so it cannot go on as it is.
TEST(BufferExchangeOfMergedPackets, AreRefusedAndStayWithTheReceiveq) {
  const TemporaryDirectory directory;
  fabric::SwitchOptions options;
  for (const char* name : {"a", "b"}) {
    options.vhost_user.push_back({.path = directory / name, .name = name});
  }
  options.forward = fabric::Forward::kPatch;
  options.patches = {{"a", "b"}};
  FabricRunner fabric(options);
  const auto large = connect_driver(directory / "a");
  const auto small = connect_driver(directory / "b", {.buffer_stride = 192});
  ASSERT_TRUE(large != nullptr && small != nullptr);
  ASSERT_TRUE(large->start() && small->start());
  DriverPair from(*large);
  DriverPair to(*small);
  std::array<DriverFrame, 1> frame;
  ASSERT_EQ(from.transmitq.reserve(frame), 1U);
  frame[0].length = 500;
  std::memset(frame[0].data, 0x5a, 500);
  from.transmitq.submit(frame);
  std::array<DriverFrame, 8> parts;
  std::size_t count = 0;
  ASSERT_TRUE(wait_for([&] { return (count = to.receiveq.receive(parts)) != 0; }));
  EXPECT_EQ(count, 3U);
  for (std::size_t i = 0; i < count; ++i) {
    EXPECT_EQ(to.transmitq.forward(to.receiveq, std::span(parts).subspan(i, 1)), 0U);
  }
  EXPECT_EQ(from.transmitq.forward(to.receiveq, parts), 0U) << "of another driver";
  to.receiveq.repost();
  EXPECT_EQ(to.receiveq.outstanding(), 256U);
}

}  // namespace
}  // namespace sluice::test
