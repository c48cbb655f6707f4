// Ring states of vhost-user: when a ring runs, in which orders front-ends may speak, what a stop
// leaves behind. Raw messages, raw rings.
#include <gtest/gtest.h>

#include <array>
#include <memory>

#include "support/raw_driver.h"
#include "support/vhost_bench.h"

namespace sluice::test {
namespace {

using vhost::Message;
using vhost::Request;

// A back-end opposite a split transmitq driver with three buffers posted.
class VhostUserRings : public testing::Test {
 protected:
  VhostUserRings() { post(*driver_, 3); }

  void post(RawDriver& driver, int count) {
    for (int i = 0; i < count; ++i) {
      const std::uint64_t address = bench_.guest.allocate(64);
      ASSERT_TRUE(driver.post(Piece{address, 64}).has_value());
    }
  }
  bool running(std::size_t index = kQueue) const {
    return bench_.backend->rings().at(index).running;
  }
  bool send_kick() {
    return bench_.accepted(VhostBench::ring_fd(Request::kSetVringKick, kQueue, event_.copy()));
  }
  Message num() const {
    return VhostBench::state(Request::kSetVringNum, kQueue, driver_->config().size);
  }
  Message addresses() const {
    return VhostBench::addresses(kQueue, driver_->config(), bench_.guest);
  }
  static Message features(std::uint64_t bits) {
    return VhostBench::number(Request::kSetFeatures, bits);
  }

  static constexpr std::uint32_t kQueue = 1;
  VhostBench bench_{2};
  TestEvent event_;
  std::unique_ptr<RawSplitDriver> driver_ =
      std::make_unique<RawSplitDriver>(bench_.guest, DriverOptions{.size = 16});
};

TEST_F(VhostUserRings, RunOnlyWhenEverythingIsThereWhateverCameLast) {
  // All orders of the five things a ring needs.
  std::array<int, 5> order = {0, 1, 2, 3, 4};
  do {
    bench_.reconnect();
    ASSERT_TRUE(bench_.greet());
    for (std::size_t i = 0; i < order.size(); ++i) {
      EXPECT_FALSE(running());
      bool fine = false;
      switch (order[i]) {
        case 0: fine = bench_.accepted(features(kVersion1Bit)); break;
        case 1: fine = bench_.accepted(bench_.mem_table()); break;
        case 2: fine = bench_.accepted(num()); break;
        case 3: fine = bench_.accepted(addresses()); break;
        case 4: fine = send_kick(); break;
      }
      EXPECT_TRUE(fine);
    }
    EXPECT_TRUE(running());
  } while (std::next_permutation(order.begin(), order.end()));
  EXPECT_EQ(bench_.device.complaint(), "");
}

TEST_F(VhostUserRings, ADriverStatusHoldsRingsBackUntilDriverOk) {
  ASSERT_TRUE(bench_.greet());
  ASSERT_TRUE(bench_.accepted(VhostBench::number(Request::kSetStatus, 3)));
  ASSERT_TRUE(bench_.accepted(features(kVersion1Bit)));
  ASSERT_TRUE(bench_.accepted(VhostBench::number(Request::kSetStatus, 11)));
  ASSERT_TRUE(bench_.accepted(bench_.mem_table()));
  ASSERT_TRUE(bench_.start_ring(kQueue, *driver_, 0));
  EXPECT_FALSE(running());
  EXPECT_EQ(bench_.device.serve(kQueue), 0U);
  ASSERT_TRUE(bench_.accepted(VhostBench::number(Request::kSetStatus, 15)));
  EXPECT_TRUE(running());
  EXPECT_EQ(bench_.device.serve(kQueue), 3U);
}

TEST_F(VhostUserRings, INI_05_INI_06_NothingIsReadOrUsedBeforeDriverOk) {
  ASSERT_TRUE(bench_.greet());
  ASSERT_TRUE(bench_.accepted(VhostBench::number(Request::kSetStatus, 1)));
  ASSERT_TRUE(bench_.accepted(features(kVersion1Bit)));
  ASSERT_TRUE(bench_.accepted(bench_.mem_table()));
  ASSERT_TRUE(bench_.start_ring(kQueue, *driver_, 0));
  bench_.kick.kick();
  ASSERT_TRUE(bench_.accepted(VhostBench::state(Request::kVringKick, kQueue, 0)));
  EXPECT_EQ(bench_.device.serve(kQueue), 0U);
  EXPECT_EQ(driver_->ring().used_index(), 0);
  EXPECT_EQ(bench_.call.take(), 0U);
}

TEST_F(VhostUserRings, StatusNegotiatedButNeverSetHoldsNothingBack) {
  ASSERT_TRUE(bench_.negotiate(kVersion1Bit));
  ASSERT_TRUE(bench_.start_ring(kQueue, *driver_, 0));
  EXPECT_TRUE(running());
}

TEST_F(VhostUserRings, DriverOkCanBeTakenBackOnlyByAReset) {
  ASSERT_TRUE(bench_.negotiate(kVersion1Bit));
  ASSERT_TRUE(bench_.accepted(VhostBench::number(Request::kSetStatus, 15)));
  ASSERT_TRUE(bench_.start_ring(kQueue, *driver_, 0));
  EXPECT_FALSE(bench_.accepted(VhostBench::number(Request::kSetStatus, 11)));
  EXPECT_TRUE(running());
  EXPECT_TRUE(bench_.accepted(VhostBench::number(Request::kSetStatus, 15 | 128)));
  EXPECT_TRUE(running());
  EXPECT_TRUE(bench_.accepted(VhostBench::number(Request::kSetStatus, 0)));
  EXPECT_FALSE(running());
}

TEST_F(VhostUserRings, WithoutProtocolFeaturesEveryRingIsEnabled) {
  ASSERT_TRUE(bench_.negotiate(kVersion1Bit));
  ASSERT_TRUE(bench_.start_ring(kQueue, *driver_, 0));
  EXPECT_TRUE(bench_.device.queue(kQueue).enabled);
}

TEST_F(VhostUserRings, WithProtocolFeaturesARingStartsDisabledAndRemembers) {
  ASSERT_TRUE(bench_.negotiate(kSplitFeatures));
  ASSERT_TRUE(bench_.start_ring(kQueue, *driver_, 0));
  EXPECT_FALSE(bench_.device.queue(kQueue).enabled);
  ASSERT_TRUE(bench_.enable(kQueue));
  EXPECT_TRUE(bench_.device.queue(kQueue).enabled);
  // The bit outlives a stop, and can be changed while stopped.
  ASSERT_TRUE(bench_.stop_ring(kQueue).has_value());
  ASSERT_TRUE(send_kick());
  EXPECT_TRUE(bench_.device.queue(kQueue).enabled);
  ASSERT_TRUE(bench_.stop_ring(kQueue).has_value());
  ASSERT_TRUE(bench_.enable(kQueue, false));
  ASSERT_TRUE(send_kick());
  EXPECT_FALSE(bench_.device.queue(kQueue).enabled);
}

TEST_F(VhostUserRings, AKickWithoutDescriptorStartsAPolledRing) {
  ASSERT_TRUE(bench_.negotiate(kVersion1Bit));
  ASSERT_TRUE(bench_.accepted(num()));
  ASSERT_TRUE(bench_.accepted(addresses()));
  ASSERT_TRUE(bench_.accepted(VhostBench::ring_fd(Request::kSetVringKick, kQueue, UniqueFd())));
  EXPECT_TRUE(running());
  EXPECT_EQ(bench_.device.queue(kQueue).start.kick, nullptr);
}

TEST_F(VhostUserRings, ASecondKickSwapsTheDescriptorAndKeepsTheState) {
  ASSERT_TRUE(bench_.negotiate(kSplitFeatures));
  ASSERT_TRUE(bench_.start_ring(kQueue, *driver_, 0));
  ASSERT_TRUE(bench_.enable(kQueue));
  EXPECT_EQ(bench_.device.serve(kQueue, 2), 2U);
  const int before = bench_.device.queue(kQueue).start.kick->fd();
  ASSERT_TRUE(send_kick());
  EXPECT_TRUE(running());
  EXPECT_TRUE(bench_.device.queue(kQueue).enabled);
  EXPECT_NE(bench_.device.queue(kQueue).start.kick->fd(), before);
  EXPECT_EQ(bench_.device.serve(kQueue), 1U);
  EXPECT_EQ(driver_->reap().size(), 3U);
}

TEST_F(VhostUserRings, CallMayComeBeforeAnythingElseAndAgainWhileRunning) {
  for (int i = 0; i < 3; ++i) {
    ASSERT_FALSE(bench_.send(VhostBench::ring_fd(Request::kSetVringCall, kQueue, event_.copy())));
  }
  ASSERT_TRUE(bench_.negotiate(kVersion1Bit));
  ASSERT_TRUE(bench_.accepted(num()));
  ASSERT_TRUE(bench_.accepted(addresses()));
  ASSERT_TRUE(send_kick());
  EXPECT_EQ(bench_.device.serve(kQueue, 1), 1U);
  EXPECT_EQ(event_.take(), 1U);
  // Another target, none, and the first again.
  const TestEvent other;
  ASSERT_TRUE(bench_.accepted(VhostBench::ring_fd(Request::kSetVringCall, kQueue, other.copy())));
  other.take();
  EXPECT_EQ(bench_.device.serve(kQueue, 1), 1U);
  EXPECT_EQ(other.take(), 1U);
  EXPECT_EQ(event_.take(), 0U);
  ASSERT_TRUE(bench_.accepted(VhostBench::ring_fd(Request::kSetVringCall, kQueue, UniqueFd())));
  EXPECT_EQ(bench_.device.queue(kQueue).call, nullptr);
  EXPECT_EQ(bench_.device.serve(kQueue, 1), 1U);
  EXPECT_EQ(other.take(), 0U);
}

TEST_F(VhostUserRings, AddressesMayComeBeforeMemory) {
  ASSERT_TRUE(bench_.greet());
  ASSERT_TRUE(bench_.accepted(features(kVersion1Bit)));
  ASSERT_TRUE(bench_.start_ring(kQueue, *driver_, 0));
  EXPECT_FALSE(running());
  ASSERT_TRUE(bench_.accepted(bench_.mem_table()));
  EXPECT_TRUE(running());
  EXPECT_EQ(bench_.device.serve(kQueue), 3U);
}

TEST_F(VhostUserRings, AMemoryTableWhileRingsRunLetsThemGoOn) {
  ASSERT_TRUE(bench_.negotiate(kVersion1Bit));
  ASSERT_TRUE(bench_.start_ring(kQueue, *driver_, 0));
  EXPECT_EQ(bench_.device.serve(kQueue, 2), 2U);
  const std::byte* before = bench_.device.queue(kQueue).start.ring.descriptors;
  ASSERT_TRUE(bench_.accepted(bench_.mem_table()));
  EXPECT_TRUE(running());
  // The region is the same file at the same addresses: it was not mapped again.
  EXPECT_EQ(bench_.device.queue(kQueue).start.ring.descriptors, before);
  EXPECT_EQ(bench_.device.serve(kQueue), 1U);
  EXPECT_EQ(driver_->reap().size(), 3U);
  EXPECT_EQ(driver_->complaint(), "");
}

TEST_F(VhostUserRings, OnlyLogAllChangesWhileRingsRun) {
  ASSERT_TRUE(bench_.negotiate(kSplitFeatures));
  ASSERT_TRUE(bench_.start_ring(kQueue, *driver_, 0));
  ASSERT_TRUE(bench_.enable(kQueue));
  EXPECT_EQ(bench_.device.serve(kQueue, 2), 2U);
  EXPECT_FALSE(bench_.accepted(features(kPackedFeatures)));
  const std::size_t starts = bench_.device.queue(kQueue).starts;
  EXPECT_TRUE(bench_.accepted(features(kSplitFeatures)));  // As QEMU does for each pair.
  EXPECT_EQ(bench_.device.queue(kQueue).starts, starts);
  EXPECT_TRUE(bench_.accepted(features(kSplitFeatures | kLogAllBit)));
  EXPECT_TRUE(running());
  EXPECT_TRUE(bench_.device.queue(kQueue).enabled);
  EXPECT_EQ(bench_.device.serve(kQueue), 1U);
  EXPECT_EQ(driver_->reap().size(), 3U);
}

TEST_F(VhostUserRings, StoppingAStoppedRingAnswersWhatWasSet) {
  ASSERT_TRUE(bench_.negotiate(kVersion1Bit));
  EXPECT_EQ(bench_.stop_ring(kQueue), 0U);
  ASSERT_TRUE(bench_.accepted(VhostBench::state(Request::kSetVringBase, kQueue, 77)));
  EXPECT_EQ(bench_.stop_ring(kQueue), 77U);
  EXPECT_EQ(bench_.stop_ring(kQueue), 77U);
}

TEST_F(VhostUserRings, RST_10_RST_03_OneRingStopsAndStartsAgainWhileOthersRun) {
  RawSplitDriver other(bench_.guest, DriverOptions{.size = 16});
  ASSERT_TRUE(bench_.negotiate(kVersion1Bit));
  ASSERT_TRUE(bench_.start_ring(kQueue, *driver_, 0));
  ASSERT_TRUE(bench_.start_ring(3, other, 0));
  EXPECT_EQ(bench_.device.serve(kQueue), 3U);
  const std::size_t starts = bench_.device.queue(3).starts;
  EXPECT_EQ(bench_.stop_ring(kQueue), 3U);
  EXPECT_FALSE(running());
  post(other, 2);
  EXPECT_EQ(bench_.device.serve(3), 2U);
  // The ring begins a new life: other addresses, another size, from the start (RST-04, RST-05).
  RawSplitDriver fresh(bench_.guest, DriverOptions{.size = 64});
  post(fresh, 5);
  ASSERT_TRUE(bench_.start_ring(kQueue, fresh, 0));
  EXPECT_EQ(bench_.device.serve(kQueue), 5U);
  EXPECT_EQ(fresh.reap().size(), 5U);
  EXPECT_EQ(bench_.device.queue(3).starts, starts);
  EXPECT_EQ(bench_.device.complaint(), "");
}

TEST_F(VhostUserRings, SEC_64_AMisalignedRingIsRefusedAtItsKick) {
  ASSERT_TRUE(bench_.negotiate(kVersion1Bit));
  ASSERT_TRUE(bench_.accepted(num()));
  const Message right = addresses();
  for (const std::size_t field : {8U, 16U, 24U}) {  // descriptor, used, available
    Message wrong(Request::kSetVringAddr);
    wrong.payload = right.payload;
    const auto address = wrong.get<std::uint64_t>(field) + 1;
    std::memcpy(wrong.payload.data() + field, &address, sizeof address);
    ASSERT_TRUE(bench_.accepted(std::move(wrong)));
    EXPECT_FALSE(send_kick());
    EXPECT_FALSE(running());
    ASSERT_TRUE(bench_.backend->rings().at(kQueue).failure.has_value());
    EXPECT_EQ(bench_.backend->rings().at(kQueue).failure->code, ErrorCode::kInvalidArgument);
    ASSERT_TRUE(bench_.stop_ring(kQueue).has_value());
  }
}

TEST_F(VhostUserRings, ARingOutsideMemoryIsRefusedAtItsKickAndTellsTheErrorTarget) {
  const TestEvent error;
  ASSERT_TRUE(bench_.negotiate(kVersion1Bit));
  ASSERT_TRUE(bench_.accepted(VhostBench::ring_fd(Request::kSetVringErr, kQueue, error.copy())));
  ASSERT_TRUE(bench_.accepted(num()));
  Message wrong(Request::kSetVringAddr);
  wrong.add(vhost::VringAddress{kQueue, 0, 0x1000, 0x2000, 0x3000, 0});
  ASSERT_TRUE(bench_.accepted(std::move(wrong)));
  EXPECT_FALSE(send_kick());
  EXPECT_EQ(bench_.backend->rings().at(kQueue).failure->code, ErrorCode::kBadAddress);
  EXPECT_EQ(error.take(), 1U);
}

TEST_F(VhostUserRings, SizeAndBaseOfARunningRingCannotChange) {
  ASSERT_TRUE(bench_.negotiate(kVersion1Bit));
  ASSERT_TRUE(bench_.start_ring(kQueue, *driver_, 0));
  EXPECT_FALSE(bench_.accepted(num()));
  EXPECT_FALSE(bench_.accepted(VhostBench::state(Request::kSetVringBase, kQueue, 5)));
  EXPECT_TRUE(running());
  EXPECT_EQ(bench_.device.serve(kQueue), 3U);
}

TEST_F(VhostUserRings, UnknownAddressFlagsAndEnableValuesAreRefused) {
  ASSERT_TRUE(bench_.negotiate(kVersion1Bit));
  EXPECT_FALSE(bench_.accepted(VhostBench::addresses(kQueue, driver_->config(), bench_.guest, 2)));
  EXPECT_FALSE(bench_.accepted(VhostBench::state(Request::kSetVringEnable, kQueue, 2)));
}

TEST_F(VhostUserRings, ResetDeviceStopsAndDisablesEverythingAndKeepsMemory) {
  for (const bool by_status : {false, true}) {
    bench_.reconnect();
    RawSplitDriver driver(bench_.guest, DriverOptions{.size = 16});
    ASSERT_TRUE(bench_.negotiate(kVersion1Bit));
    const auto driver_ok = [&] {
      return !by_status || bench_.accepted(VhostBench::number(Request::kSetStatus, 15));
    };
    ASSERT_TRUE(driver_ok());
    ASSERT_TRUE(bench_.start_ring(kQueue, driver, 0));
    ASSERT_TRUE(running());
    ASSERT_TRUE(bench_.accepted(by_status ? VhostBench::number(Request::kSetStatus, 0)
                                          : Message(Request::kResetDevice)));
    EXPECT_FALSE(running());
    EXPECT_FALSE(bench_.backend->rings().at(kQueue).enabled);
    EXPECT_EQ(bench_.backend->view().memory_regions, 1U);
    // Nothing of the former configuration starts a ring (SEC-21).
    ASSERT_TRUE(bench_.accepted(features(kVersion1Bit)));
    ASSERT_TRUE(send_kick());
    ASSERT_TRUE(driver_ok());
    EXPECT_FALSE(running());
    // And a new configuration does.
    post(driver, 2);
    ASSERT_TRUE(bench_.start_ring(kQueue, driver, 0));
    EXPECT_TRUE(running());
    EXPECT_EQ(bench_.device.serve(kQueue), 2U);
  }
}

// QEMU 7.2 has one vhost device a queue pair, and may reset after it stopped the first of them.
TEST_F(VhostUserRings, PositionsCanStillBeAskedForAfterAReset) {
  ASSERT_TRUE(bench_.negotiate(kVersion1Bit));
  ASSERT_TRUE(bench_.start_ring(kQueue, *driver_, 0));
  EXPECT_EQ(bench_.device.serve(kQueue), 3U);
  ASSERT_TRUE(bench_.accepted(Message(Request::kResetDevice)));
  ASSERT_TRUE(bench_.accepted(Message(Request::kResetDevice)));
  EXPECT_EQ(bench_.stop_ring(kQueue), 3U);
  EXPECT_EQ(bench_.stop_ring(kQueue), 3U);
  // But a ring that starts without a base starts afresh.
  RawSplitDriver fresh(bench_.guest, DriverOptions{.size = 16});
  post(fresh, 2);
  ASSERT_TRUE(bench_.accepted(features(kVersion1Bit)));
  ASSERT_TRUE(bench_.accepted(num()));
  ASSERT_TRUE(bench_.accepted(VhostBench::addresses(kQueue, fresh.config(), bench_.guest)));
  ASSERT_TRUE(send_kick());
  EXPECT_EQ(bench_.device.queue(kQueue).start.ring.position.avail, 0);
  EXPECT_EQ(bench_.device.serve(kQueue), 2U);
}

// virtio-user resets first, before any feature is known.
TEST_F(VhostUserRings, APackedRingThatNeverRanStandsAtItsStartAlsoAfterAReset) {
  ASSERT_TRUE(bench_.greet());
  ASSERT_TRUE(bench_.accepted(VhostBench::number(Request::kSetStatus, 0)));
  ASSERT_TRUE(bench_.accepted(features(kPackedFeatures)));
  EXPECT_EQ(bench_.stop_ring(kQueue), 0x8000'8000U);
}

TEST_F(VhostUserRings, ResetOwnerDisablesAllRings) {
  ASSERT_TRUE(bench_.negotiate(kVersion1Bit));
  ASSERT_TRUE(bench_.start_ring(kQueue, *driver_, 0));
  ASSERT_TRUE(bench_.accepted(Message(Request::kResetOwner)));
  EXPECT_FALSE(bench_.device.queue(kQueue).enabled);
  EXPECT_TRUE(running());
}

TEST_F(VhostUserRings, SEC_35_FewerRingsThanThereAreWork) {
  ASSERT_TRUE(bench_.negotiate(kVersion1Bit));
  ASSERT_TRUE(bench_.start_ring(kQueue, *driver_, 0));
  EXPECT_EQ(bench_.device.serve(kQueue), 3U);
  for (const std::size_t index : {0U, 2U, 3U, 4U}) EXPECT_FALSE(running(index));
}

TEST_F(VhostUserRings, TheOrderOfVirtioUserWorks) {
  RawSplitDriver receive(bench_.guest, DriverOptions{.size = 16});
  ASSERT_TRUE(bench_.greet());
  for (const std::uint32_t index : {0U, 1U, 2U, 3U}) {
    bench_.send(VhostBench::ring_fd(Request::kSetVringCall, index, event_.copy()));
  }
  ASSERT_TRUE(bench_.accepted(features(kSplitFeatures)));
  ASSERT_TRUE(bench_.accepted(bench_.mem_table()));
  ASSERT_TRUE(bench_.start_ring(0, receive, 0));
  ASSERT_TRUE(bench_.start_ring(1, *driver_, 0));
  ASSERT_TRUE(bench_.enable(0));
  ASSERT_TRUE(bench_.enable(1));
  EXPECT_EQ(bench_.device.serve(1), 3U);
  for (const std::uint32_t index : {0U, 1U, 2U, 3U}) ASSERT_TRUE(bench_.enable(index, false));
  for (const std::uint32_t index : {0U, 1U, 2U, 3U}) {
    EXPECT_TRUE(bench_.stop_ring(index).has_value());
  }
  EXPECT_FALSE(bench_.device.any_running());
}

}  // namespace
}  // namespace sluice::test
