// H01-H04, H08, H10, H13: positions and states of rings over stops, reboots and reconnects.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "support/raw_driver.h"
#include "support/vhost_bench.h"

namespace sluice::test {
namespace {

using vhost::Message;
using vhost::Request;

// Packed or split, with one transmitq.
class RingStates : public testing::TestWithParam<bool> {
 protected:
  static bool packed() { return GetParam(); }
  static std::uint64_t features() { return packed() ? kPackedFeatures : kSplitFeatures; }
  static std::uint32_t fresh_base() { return packed() ? 0x8000'8000U : 0; }

  std::unique_ptr<RawDriver> make_driver(std::uint32_t size = 256) {
    const DriverOptions options{.size = size};
    if (packed()) return std::make_unique<RawPackedDriver>(bench_.guest, options);
    return std::make_unique<RawSplitDriver>(bench_.guest, options);
  }
  void post(RawDriver& driver, int count, bool writable = false) {
    for (int i = 0; i < count; ++i) {
      ASSERT_TRUE(driver.post(Piece{buffer_, 64, writable}).has_value());
    }
  }
  // Posts, serves and reaps `count` one-descriptor buffers.
  void run(RawDriver& driver, int count, std::size_t queue = kQueue) {
    for (int done = 0; done < count; ++done) {
      post(driver, 1);
      ASSERT_EQ(bench_.device.serve(queue), 1U);
      ASSERT_EQ(driver.reap().size(), 1U);
    }
    ASSERT_EQ(driver.complaint(), "");
  }
  static std::uint32_t base_of(const RawDriver& driver) {
    const virtio::RingPosition position = driver.expected_position();
    const std::uint32_t used = packed() ? position.used : 0;
    return position.avail | used << 16;
  }
  // The bytes of a ring as a driver that sets it up anew leaves them.
  void zero_ring(const RawDriver& driver) {
    const virtio::RingConfig ring = driver.config();
    const auto clear = [&](std::byte* place, std::uint64_t bytes) {
      bench_.guest.fill(bench_.guest.memory().guest_address(place).raw(), bytes, 0);
    };
    clear(ring.descriptors, 16 * std::uint64_t{ring.size});
    clear(ring.driver_area, packed() ? 4 : 6 + 2 * ring.size);
    clear(ring.device_area, packed() ? 4 : 6 + 8 * ring.size);
  }
  bool send_kick() {
    return bench_.accepted(VhostBench::ring_fd(Request::kSetVringKick, kQueue, bench_.kick.copy()));
  }

  static constexpr std::uint32_t kQueue = 1;
  VhostBench bench_;
  std::uint64_t buffer_ = bench_.guest.allocate(64);
};

TEST_P(RingStates, H01_AStopAnswersThePositionHoweverOftenItIsAsked) {
  auto driver = make_driver();
  ASSERT_TRUE(bench_.negotiate(features()));
  ASSERT_TRUE(bench_.start_ring(kQueue, *driver, fresh_base()));
  ASSERT_TRUE(bench_.enable(kQueue));
  run(*driver, 100);
  const std::uint32_t reached = base_of(*driver);
  EXPECT_EQ(bench_.stop_ring(kQueue), reached);
  EXPECT_EQ(bench_.stop_ring(kQueue), reached);
  ASSERT_TRUE(bench_.enable(kQueue));
  EXPECT_EQ(bench_.stop_ring(kQueue), reached);
  // Between the stop and the next kick nothing is touched and nobody is called.
  bench_.call.take();
  post(*driver, 5);
  bench_.kick.kick();
  EXPECT_EQ(bench_.device.serve(kQueue), 0U);
  EXPECT_EQ(bench_.call.take(), 0U);
  ASSERT_TRUE(bench_.accepted(VhostBench::state(Request::kSetVringBase, kQueue, reached)));
  ASSERT_TRUE(send_kick());
  EXPECT_EQ(bench_.device.serve(kQueue), 5U);
  EXPECT_EQ(driver->reap().size(), 5U);
  EXPECT_EQ(driver->complaint(), "");
}

class PackedRingStates : public RingStates {};
TEST_P(PackedRingStates, H01_TheSecondLapOfAPackedRingIsToldByBothHalves) {
  auto driver = make_driver(16);
  ASSERT_TRUE(bench_.negotiate(features()));
  ASSERT_TRUE(bench_.start_ring(kQueue, *driver, fresh_base()));
  ASSERT_TRUE(bench_.enable(kQueue));
  run(*driver, 16 + 5);
  EXPECT_EQ(bench_.stop_ring(kQueue), 0x0005'0005U);  // Wrap counters 0.
}

TEST_P(RingStates, H02_AGuestThatRebootsFindsAFreshUsedIndex) {
  auto driver = make_driver();
  ASSERT_TRUE(bench_.negotiate(features()));
  ASSERT_TRUE(bench_.start_ring(kQueue, *driver, fresh_base()));
  ASSERT_TRUE(bench_.enable(kQueue));
  run(*driver, 37);
  ASSERT_TRUE(bench_.stop_ring(kQueue).has_value());
  // The same place in the same memory, zeroed: the next life's ring.
  zero_ring(*driver);
  bench_.guest.allocate_from(buffer_ + 64);
  auto reborn = make_driver();
  ASSERT_EQ(reborn->config().descriptors, driver->config().descriptors);
  ASSERT_TRUE(bench_.start_ring(kQueue, *reborn, fresh_base()));
  run(*reborn, 1);
  EXPECT_EQ(bench_.stop_ring(kQueue), base_of(*reborn));
  EXPECT_EQ(base_of(*reborn) & 0x7fff, 1U);
}

TEST_P(RingStates, H02_AUsedIndexThatIsThereIsPickedUp) {
  auto driver = make_driver();
  ASSERT_TRUE(bench_.negotiate(features()));
  ASSERT_TRUE(bench_.start_ring(kQueue, *driver, fresh_base()));
  ASSERT_TRUE(bench_.enable(kQueue));
  run(*driver, 37);
  const auto base = bench_.stop_ring(kQueue);
  ASSERT_TRUE(bench_.start_ring(kQueue, *driver, *base));
  run(*driver, 300);
}

TEST_P(RingStates, H03_OldFrontEndsNeverEnableARing) {
  auto driver = make_driver();
  ASSERT_TRUE(bench_.negotiate(features() & ~kProtocolBit));
  ASSERT_TRUE(bench_.start_ring(kQueue, *driver, fresh_base()));
  EXPECT_TRUE(bench_.device.queue(kQueue).enabled);
  run(*driver, 1);
}

TEST_P(RingStates, H03_AKickNeitherEnablesNorDisables) {
  auto driver = make_driver();
  ASSERT_TRUE(bench_.negotiate(features()));
  ASSERT_TRUE(bench_.start_ring(kQueue, *driver, fresh_base()));
  EXPECT_FALSE(bench_.device.queue(kQueue).enabled);
  ASSERT_TRUE(bench_.enable(kQueue));
  EXPECT_TRUE(bench_.device.queue(kQueue).enabled);
  bench_.reconnect();
  auto again = make_driver();
  ASSERT_TRUE(bench_.negotiate(features()));
  ASSERT_TRUE(bench_.enable(kQueue));
  ASSERT_TRUE(bench_.start_ring(kQueue, *again, fresh_base()));
  EXPECT_TRUE(bench_.device.queue(kQueue).enabled);
  ASSERT_TRUE(send_kick());
  EXPECT_TRUE(bench_.device.queue(kQueue).enabled);
  run(*again, 2);
}

TEST_P(RingStates, H04_WorkThatIsThereWhenARingStartsNeedsNoKick) {
  auto receive = make_driver();
  auto transmit = make_driver();
  post(*receive, 8, true);
  post(*transmit, 3);
  ASSERT_TRUE(bench_.negotiate(features()));
  ASSERT_TRUE(bench_.start_ring(0, *receive, fresh_base()));
  ASSERT_TRUE(bench_.start_ring(1, *transmit, fresh_base()));
  ASSERT_TRUE(bench_.enable(0));
  ASSERT_TRUE(bench_.enable(1));
  EXPECT_TRUE(bench_.device.has_work(0));
  EXPECT_EQ(bench_.device.serve(1), 3U);
  EXPECT_EQ(bench_.device.serve(0, 1, 64), 1U);
  EXPECT_EQ(bench_.call.take(), 2U);  // Each side got the call it is owed.
  EXPECT_EQ(transmit->reap().size(), 3U);
  EXPECT_EQ(receive->reap().size(), 1U);
}

TEST_P(RingStates, H08_AFrontEndLeavesAfterAnyMessage) {
  // One session a cut: everything up to message number `cut`, then the line is dead.
  for (int cut = 0; cut <= 12; ++cut) {
    bench_.reconnect();
    auto driver = make_driver();
    const virtio::RingConfig ring = driver->config();
    const auto event = [&] { return bench_.call.copy(); };
    const auto message = [&](int number) -> Message {
      switch (number) {
        case 0: return Message(Request::kSetOwner);
        case 1:
          return VhostBench::number(Request::kSetProtocolFeatures,
                                    vhost::offered_protocol_features());
        case 2: return VhostBench::number(Request::kSetFeatures, features());
        case 3: return bench_.mem_table();
        case 4: return VhostBench::ring_fd(Request::kSetVringCall, kQueue, event());
        case 5: return VhostBench::ring_fd(Request::kSetVringErr, kQueue, event());
        case 6: return VhostBench::state(Request::kSetVringNum, kQueue, ring.size);
        case 7: return VhostBench::state(Request::kSetVringBase, kQueue, fresh_base());
        case 8: return VhostBench::addresses(kQueue, ring, bench_.guest);
        case 9: return VhostBench::ring_fd(Request::kSetVringKick, kQueue, bench_.kick.copy());
        case 10: return VhostBench::state(Request::kSetVringEnable, kQueue, 1);
        default: return VhostBench::number(Request::kSetStatus, 15);
      }
    };
    for (int number = 0; number < cut; ++number) bench_.send(message(number));
    if (cut >= 11) run(*driver, 10);
    bench_.hang_up();
    EXPECT_FALSE(bench_.device.any_running()) << cut;
    EXPECT_EQ(bench_.device.queue(kQueue).call, nullptr) << cut;
    // Nothing remains, and the next session is a full one.
    bench_.reconnect();
    auto next = make_driver();
    ASSERT_TRUE(bench_.negotiate(features())) << cut;
    ASSERT_TRUE(bench_.start_ring(kQueue, *next, fresh_base()));
    ASSERT_TRUE(bench_.enable(kQueue));
    run(*next, 20);
    bench_.guest.allocate_from(buffer_ + 64);
  }
  EXPECT_EQ(bench_.device.complaint(), "");
}

TEST_P(RingStates, H10_NothingOfASessionSurvivesIntoTheNext) {
  auto driver = make_driver();
  ASSERT_TRUE(bench_.negotiate(features() | kInOrderBit | kLogAllBit));
  ASSERT_TRUE(bench_.accepted(VhostBench::number(Request::kSetStatus, 15)));
  ASSERT_TRUE(bench_.start_ring(kQueue, *driver, fresh_base()));
  ASSERT_TRUE(bench_.enable(kQueue));
  bench_.reconnect();
  const vhost::SessionView view = bench_.backend->view();
  EXPECT_EQ(view.features.low(), 0U);
  EXPECT_TRUE(view.protocol_features.empty());
  EXPECT_EQ(view.memory_regions, 0U);
  EXPECT_EQ(view.status, 0);
  EXPECT_FALSE(view.logging);
  const vhost::Vring& ring = bench_.backend->rings().at(kQueue);
  EXPECT_FALSE(ring.enabled || ring.kicked || ring.running || ring.has_addresses);
  EXPECT_EQ(ring.call, nullptr);
  EXPECT_TRUE(bench_.device.features.empty());
  // The other format in the next session.
  const std::uint64_t others = packed() ? kSplitFeatures : kPackedFeatures;
  ASSERT_TRUE(bench_.negotiate(others));
  EXPECT_EQ(bench_.device.features.low(), others & ~kProtocolBit);
}

TEST_P(RingStates, H13_AfterAResetPositionsDoNotComeFromStaleMemory) {
  for (int life = 0; life < 4; ++life) {
    bench_.guest.allocate_from(buffer_ + 64);  // Each life at the same place.
    auto driver = make_driver();
    zero_ring(*driver);
    if (life == 0) {
      ASSERT_TRUE(bench_.negotiate(features()));
    } else {
      ASSERT_TRUE(bench_.accepted(VhostBench::number(Request::kSetFeatures, features())));
    }
    post(*driver, 200, true);
    ASSERT_TRUE(bench_.start_ring(0, *driver, fresh_base()));
    ASSERT_TRUE(bench_.enable(0));
    EXPECT_EQ(bench_.device.serve(0, 1000, 64), 200U) << life;
    EXPECT_EQ(driver->reap().size(), 200U);
    EXPECT_EQ(driver->complaint(), "");
    ASSERT_TRUE(bench_.accepted(Message(Request::kResetDevice)));
  }
}

// A new driver whose ring still holds the former one's used index: no index can be so far behind.
class SplitRingStates : public RingStates {};
TEST_P(SplitRingStates, H13_AnImpossibleUsedIndexOfASplitRingDoesNotCount) {
  RawSplitDriver driver(bench_.guest, DriverOptions{.size = 16});
  driver.ring().set_used_index(256);
  post(driver, 3);
  ASSERT_TRUE(bench_.negotiate(features()));
  ASSERT_TRUE(bench_.start_ring(kQueue, driver, 0));
  EXPECT_EQ(bench_.device.serve(kQueue), 3U);
  EXPECT_EQ(driver.ring().used_index(), 3);
}

std::string format_name(const testing::TestParamInfo<bool>& test) {
  return test.param ? "Packed" : "Split";
}
INSTANTIATE_TEST_SUITE_P(Formats, RingStates, testing::Bool(), format_name);
INSTANTIATE_TEST_SUITE_P(Formats, PackedRingStates, testing::Values(true), format_name);
INSTANTIATE_TEST_SUITE_P(Formats, SplitRingStates, testing::Values(false), format_name);

}  // namespace
}  // namespace sluice::test
