// Worker: rounds, sleeping and waking, with ports that are not devices.
#include "switch/worker.h"

#include <gtest/gtest.h>
#include <immintrin.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "support/conservation.h"
#include "support/fake_port.h"

namespace sluice::fabric {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// A port whose queue behaves like a ring with kick suppression: posting signals only if the worker
// asked for it. One packet is a number.
class BellPort final : public test::FakePort {
 public:
  BellPort() : FakePort("bell") {
    auto made = EventFd::create();
    EXPECT_TRUE(made.has_value());
    bell_ = std::make_shared<EventFd>(*std::move(made));
  }

  void post() {
    posted_.fetch_add(1, std::memory_order_seq_cst);
    if (armed_.load(std::memory_order_seq_cst)) {
      kicks_.fetch_add(1);
      bell_->signal();
    }
  }
  [[nodiscard]] std::uint64_t taken() const { return taken_.load(std::memory_order_acquire); }
  [[nodiscard]] std::uint64_t kicks() const { return kicks_; }

  std::size_t receive(std::uint16_t, packet::Burst& burst) override {
    const std::uint64_t waiting = posted_.load(std::memory_order_acquire) - taken();
    burst.clear();
    if (waiting == 0) return 0;
    static constexpr std::array<std::byte, 64> kFrame{};
    for (; burst.count < std::min<std::uint64_t>(waiting, packet::kBurstMax); ++burst.count) {
      burst.packets[burst.count] = {.data = kFrame.data(),
                                    .length = kFrame.size(),
                                    .first_length = kFrame.size(),
                                    .more_first = 0,
                                    .more_count = 0,
                                    .offload = {},
                                    .head = {}};
    }
    held_ = burst.count;
    return held_;
  }
  void release(std::uint16_t) override { taken_.fetch_add(held_, std::memory_order_release); }
  bool arm(std::uint16_t) override {
    armed_.store(true, std::memory_order_seq_cst);
    return posted_.load(std::memory_order_seq_cst) != taken();
  }
  void disarm(std::uint16_t) override {
    armed_.store(false, std::memory_order_relaxed);
    bell_->drain();
  }
  [[nodiscard]] WakeSource wake_source(std::uint16_t) override {
    return {.event = with_event_ ? bell_ : nullptr, .generation = 1, .must_poll = !with_event_};
  }
  void have_no_event() { with_event_ = false; }

 private:
  std::shared_ptr<EventFd> bell_;
  bool with_event_ = true;
  std::atomic<std::uint64_t> posted_{0};
  std::atomic<std::uint64_t> taken_{0};
  std::atomic<bool> armed_{false};
  std::atomic<std::uint64_t> kicks_{0};
  std::size_t held_ = 0;
};

bool yield_until(const auto& condition, std::chrono::milliseconds limit = 20s) {
  const auto end = Clock::now() + limit;
  while (!condition()) {
    if (Clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

class WorkerTest : public ::testing::Test {
 protected:
  void make(PollMode mode, std::chrono::microseconds spin = 50us, int core = Worker::kNoCore) {
    auto made = Worker::create({.id = 0, .core = core, .poll = mode, .spin = spin},
                               {{.port = &port_, .port_number = 0, .queue = 0}}, forwarder_);
    ASSERT_TRUE(made.has_value());
    worker_ = *std::move(made);
  }
  BellPort port_;
  test::FakePort sink_{"sink"};
  Forwarder forwarder_{{&port_, &sink_}, {1, 0}};
  std::unique_ptr<Worker> worker_;
};

TEST_F(WorkerTest, OneRoundMovesWhatWaits) {
  make(PollMode::kBusy);
  EXPECT_EQ(worker_->run_once(), 0U);
  for (int i = 0; i < 100; ++i) port_.post();
  EXPECT_EQ(worker_->run_once(), 64U);
  EXPECT_EQ(worker_->run_once(), 36U);
  EXPECT_EQ(worker_->run_once(), 0U);
  EXPECT_EQ(sink_.sent().size(), 100U);
  EXPECT_EQ(worker_->counters().iterations.value(), 4U);
  EXPECT_EQ(worker_->counters().busy_iterations.value(), 2U);
  EXPECT_EQ(worker_->forward_counters().offers.value(), 100U);
}

TEST_F(WorkerTest, BusyNeverSleepsAndNeverAsksForKicks) {
  make(PollMode::kBusy);
  ASSERT_TRUE(worker_->start().has_value());
  for (int i = 0; i < 50; ++i) {
    port_.post();
    ASSERT_TRUE(yield_until([&] { return port_.taken() == static_cast<std::uint64_t>(i + 1); }));
  }
  worker_->stop();
  EXPECT_EQ(port_.kicks(), 0U);
  EXPECT_EQ(worker_->counters().sleeps.value(), 0U);
}

// H21: the producer publishes at every moment around the worker's falling asleep; a lost wake-up
// leaves it asleep for ever, and the watchdog speaks.
void exchange_with_sleeper(BellPort& port, Worker& worker, int rounds) {
  ASSERT_TRUE(worker.start().has_value());
  for (int i = 0; i < rounds; ++i) {
    port.post();
    ASSERT_TRUE(yield_until([&] { return port.taken() == static_cast<std::uint64_t>(i + 1); }))
        << "a wake-up was lost in round " << i;
    // Now and then the worker gets the time to fall asleep, else the next post races with it.
    for (int pause = 0; pause < (i % 64) * 20; ++pause) _mm_pause();
  }
  worker.stop();
}

TEST_F(WorkerTest, H21_InterruptModeLosesNoWakeUp) {
  make(PollMode::kInterrupt);
  exchange_with_sleeper(port_, *worker_, 20'000);
  EXPECT_GT(worker_->counters().sleeps.value(), 100U);
  EXPECT_GT(port_.kicks(), 0U);
}

TEST_F(WorkerTest, H21_AdaptiveModeLosesNoWakeUp) {
  make(PollMode::kAdaptive, 2us);
  exchange_with_sleeper(port_, *worker_, 20'000);
}

TEST_F(WorkerTest, AnIdleAdaptiveWorkerSleepsUntilItIsNeeded) {
  make(PollMode::kAdaptive);
  ASSERT_TRUE(worker_->start().has_value());
  ASSERT_TRUE(yield_until([&] { return worker_->counters().sleeps.value() > 0; }));
  std::this_thread::sleep_for(20ms);
  const std::uint64_t before = worker_->counters().iterations.value();
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(worker_->counters().iterations.value(), before);
  port_.post();
  EXPECT_TRUE(yield_until([&] { return port_.taken() == 1; }));
  worker_->stop();
}

TEST_F(WorkerTest, AQueueWithoutEventIsLookedAtByTheClockAtLittleCost) {
  port_.have_no_event();
  make(PollMode::kAdaptive);
  ASSERT_TRUE(worker_->start().has_value());
  std::this_thread::sleep_for(20ms);
  const std::uint64_t before = worker_->counters().iterations.value();
  std::this_thread::sleep_for(200ms);
  const std::uint64_t rounds = worker_->counters().iterations.value() - before;
  EXPECT_GT(rounds, 10U);
  EXPECT_LE(rounds, 450U) << "about one round a millisecond";
  port_.post();
  EXPECT_TRUE(yield_until([&] { return port_.taken() == 1; }));
  worker_->stop();
}

TEST_F(WorkerTest, WakeMakesASleeperLookAgain) {
  make(PollMode::kInterrupt);
  ASSERT_TRUE(worker_->start().has_value());
  ASSERT_TRUE(yield_until([&] { return worker_->counters().sleeps.value() > 0; }));
  for (int i = 0; i < 200; ++i) {
    const std::uint64_t before = worker_->counters().iterations.value();
    worker_->wake();
    ASSERT_TRUE(yield_until([&] { return worker_->counters().iterations.value() > before; }));
  }
  worker_->stop();
}

TEST_F(WorkerTest, StopsAtOnceEvenWhenAsleepOrBusy) {
  for (const PollMode mode : {PollMode::kBusy, PollMode::kAdaptive, PollMode::kInterrupt}) {
    make(mode);
    ASSERT_TRUE(worker_->start().has_value());
    worker_->stop();
    worker_->stop();
  }
}

TEST_F(WorkerTest, RefusesACoreThatDoesNotExist) {
  make(PollMode::kAdaptive, 50us, 1000);
  const Status status = worker_->start();
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(status.error().detail, 1000);
}

TEST_F(WorkerTest, RunsOnTheCoreItIsPinnedTo) {
  make(PollMode::kAdaptive, 50us, 0);
  ASSERT_TRUE(worker_->start().has_value());
  port_.post();
  EXPECT_TRUE(yield_until([&] { return port_.taken() == 1; }));
  worker_->stop();
}

}  // namespace
}  // namespace sluice::fabric
