// Where rings go on after the process that served them died: split by memory, packed by record.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "support/raw_driver.h"
#include "support/temporary_directory.h"
#include "support/vhost_bench.h"
#include "vhost/packed_restart.h"
#include "vhost/ring_records.h"

namespace sluice::test {
namespace {

using vhost::Message;
using vhost::Request;
using vhost::RingRecords;

constexpr std::uint32_t kQueue = 1;

// A restart: the session ends without a stop, another begins; QEMU says what it said at the start.
class Restart : public testing::Test {
 protected:
  explicit Restart(std::shared_ptr<RingRecords> records) : bench_(1, std::move(records)) {}
  Restart() : Restart(nullptr) {}

  void post(RawDriver& driver, int count) {
    for (int i = 0; i < count; ++i) ASSERT_TRUE(driver.post(Piece{buffer_, 64}).has_value());
  }
  void begin(std::uint64_t features, const RawDriver& driver, std::uint32_t base) {
    ASSERT_TRUE(bench_.negotiate(features));
    ASSERT_TRUE(bench_.start_ring(kQueue, driver, base));
    ASSERT_TRUE(bench_.enable(kQueue));
  }
  std::size_t serve() { return bench_.device.serve(kQueue); }

  VhostBench bench_;
  std::uint64_t buffer_ = bench_.guest.allocate(64);
};

class SplitRestart : public Restart {};

TEST_F(SplitRestart, GoesOnAtTheUsedIndexOfRingMemoryWhateverTheBaseSays) {
  RawSplitDriver driver(bench_.guest, DriverOptions{.size = 16});
  begin(kSplitFeatures, driver, 0);
  for (int round = 1; round < 100; ++round) {
    post(driver, 5);
    EXPECT_EQ(bench_.device.serve(kQueue, 3), 3U);
    bench_.reconnect();
    begin(kSplitFeatures, driver, round % 3 == 0 ? 0 : driver.ring().used_index());
    EXPECT_EQ(serve(), 2U);
    EXPECT_EQ(driver.reap().size(), 5U);
  }
  EXPECT_EQ(driver.complaint(), "");
}

TEST_F(SplitRestart, H02_ORD_10_BuffersTakenAndNotGivenBackAreTakenAgain) {
  RawSplitDriver driver(bench_.guest, DriverOptions{.size = 16});
  begin(kSplitFeatures, driver, 0);
  post(driver, 6);
  EXPECT_EQ(bench_.device.serve(kQueue, 2), 2U);
  // A back-end that died held four; the front-end counts them as taken.
  bench_.device.take_and_forget(kQueue);
  bench_.reconnect();
  begin(kSplitFeatures, driver, 6);
  EXPECT_EQ(serve(), 4U);
  EXPECT_EQ(driver.reap().size(), 6U);
}

TEST_F(SplitRestart, TellsTheDriverOnceWhatTheDeadMayNotHaveTold) {
  RawSplitDriver driver(bench_.guest, DriverOptions{.size = 16});
  begin(kSplitFeatures, driver, 0);
  EXPECT_EQ(bench_.call.take(), 0U);  // A fresh ring owes nobody a call.
  post(driver, 2);
  serve();
  bench_.call.take();
  bench_.reconnect();
  begin(kSplitFeatures, driver, 2);
  EXPECT_EQ(bench_.call.take(), 1U);
}

class PackedRestart : public Restart {
 protected:
  PackedRestart() : Restart(open()) {}

  static std::shared_ptr<RingRecords> open() {
    static TemporaryDirectory directory;
    static int number = 0;
    return *RingRecords::open(directory / std::to_string(number++), 3);
  }
  std::unique_ptr<RawPackedDriver> make_driver(std::uint32_t size = 16) {
    return std::make_unique<RawPackedDriver>(bench_.guest, DriverOptions{.size = size});
  }
  void run(RawPackedDriver& driver, int count) {
    for (int i = 0; i < count; ++i) {
      post(driver, 1);
      ASSERT_EQ(serve(), 1U);
      ASSERT_EQ(driver.reap().size(), 1U);
    }
    ASSERT_EQ(driver.complaint(), "");
  }
  void restart(const RawPackedDriver& driver, std::uint32_t base = kFresh) {
    bench_.reconnect();
    begin(kPackedFeatures, driver, base);
  }
  std::uint16_t position() const { return bench_.device.queue(kQueue).start.ring.position.used; }

  static constexpr std::uint32_t kFresh = 0x8000'8000;
};

TEST_F(PackedRestart, ORD_10_GoesOnByItsRecordAtEveryPlaceOfThreeLaps) {
  for (const std::uint32_t size : {1U, 3U, 16U, 17U}) {
    auto driver = make_driver(size);
    bench_.reconnect();
    begin(kPackedFeatures, *driver, kFresh);
    for (std::uint32_t i = 0; i < 3 * size + 1; ++i) {
      run(*driver, 1);
      restart(*driver);
      ASSERT_EQ(position(), driver->expected_position().used) << size << " " << i;
    }
    run(*driver, 5);
  }
}

TEST_F(PackedRestart, BuffersTakenAndNotGivenBackAreTakenAgain) {
  auto driver = make_driver();
  begin(kPackedFeatures, *driver, kFresh);
  run(*driver, 21);
  post(*driver, 6);
  EXPECT_EQ(bench_.device.serve(kQueue, 2), 2U);
  EXPECT_EQ(bench_.device.take_and_forget(kQueue), 4U);
  restart(*driver);
  EXPECT_EQ(serve(), 4U);
  EXPECT_EQ(driver->reap().size(), 6U);
  EXPECT_EQ(driver->complaint(), "");
}

TEST_F(PackedRestart, ABatchThatWasLoggedButNotPublishedIsFinished) {
  auto driver = make_driver();
  begin(kPackedFeatures, *driver, kFresh);
  run(*driver, 10);
  post(*driver, 3);
  // As the ring does before it writes descriptors, and then the process is killed.
  virtio::UsedPositionRecord* record = bench_.device.queue(kQueue).start.ring.used_record;
  ASSERT_NE(record, nullptr);
  const std::uint16_t from = static_cast<std::uint16_t>(0x8000 | 10);
  record->begin(from);
  for (std::uint32_t i = 0; i < 3; ++i) {
    record->entry(i, {.len = 0, .id = driver->ring().descriptor(10 + i).id, .slots = 0});
  }
  record->commit(3, static_cast<std::uint16_t>(from + 3));
  restart(*driver);
  EXPECT_EQ(position(), 0x8000 | 13);
  EXPECT_EQ(driver->reap().size(), 3U);
  run(*driver, 20);
}

TEST_F(PackedRestart, AnOrderlyStopLeavesTheWordToTheFrontEnd) {
  auto driver = make_driver();
  begin(kPackedFeatures, *driver, kFresh);
  run(*driver, 5);
  const auto base = bench_.stop_ring(kQueue);
  ASSERT_EQ(base, 0x8005'8005U);
  bench_.reconnect();
  begin(kPackedFeatures, *driver, *base);
  EXPECT_EQ(position(), 0x8005);
  run(*driver, 20);
}

TEST_F(PackedRestart, AGuestThatRebootedMeanwhileHasAFreshRing) {
  auto driver = make_driver();
  begin(kPackedFeatures, *driver, kFresh);
  for (const int done : {5, 16, 16 + 3}) {
    // Each time the same ring at the same place, zeroed by the driver of the guest's next life.
    run(*driver, done);
    bench_.hang_up();
    bench_.guest.allocate_from(buffer_ + 64);
    driver = make_driver();
    post(*driver, 8);
    restart(*driver);
    ASSERT_EQ(position(), virtio::kPackedStart) << done;
    EXPECT_EQ(serve(), 8U);
    EXPECT_EQ(driver->reap().size(), 8U);
    restart(*driver);
  }
  EXPECT_EQ(driver->complaint(), "");
}

TEST_F(PackedRestart, AnotherMemoryFileAtTheSameAddressesIsAnotherGuest) {
  auto driver = make_driver();
  begin(kPackedFeatures, *driver, kFresh);
  run(*driver, 5);
  VhostBench next(1, bench_.records);  // All guest addresses alike, the memfd not.
  const std::uint64_t buffer = next.guest.allocate(64);
  RawPackedDriver other(next.guest, DriverOptions{.size = 16});
  ASSERT_TRUE(other.post(Piece{buffer, 64}).has_value());
  ASSERT_TRUE(next.negotiate(kPackedFeatures));
  ASSERT_TRUE(next.start_ring(kQueue, other, kFresh));
  EXPECT_EQ(next.device.queue(kQueue).start.ring.position.used, virtio::kPackedStart);
}

TEST_F(PackedRestart, OtherFeaturesOrAnotherSizeAreAnotherRing) {
  auto driver = make_driver();
  begin(kPackedFeatures, *driver, kFresh);
  run(*driver, 5);
  bench_.reconnect();
  begin(kPackedFeatures | kInOrderBit, *driver, 0x8003'8003);
  EXPECT_EQ(position(), 0x8003);
}

TEST_F(PackedRestart, SomebodyElseServedTheRingSince) {
  auto driver = make_driver();
  begin(kPackedFeatures, *driver, kFresh);
  run(*driver, 5);
  bench_.hang_up();
  // Another back-end without records used slot 5 and went on.
  post(*driver, 1);
  driver->ring().set_flags(5, used_on(true));
  restart(*driver, 0x8006'8006);
  EXPECT_EQ(position(), 0x8006);
}

TEST_F(PackedRestart, WithoutARecordTheBaseCounts) {
  VhostBench bench;
  const std::uint64_t buffer = bench.guest.allocate(64);
  RawPackedDriver driver(bench.guest, DriverOptions{.size = 16});
  ASSERT_TRUE(driver.post(Piece{buffer, 64}).has_value());
  ASSERT_TRUE(bench.negotiate(kPackedFeatures));
  ASSERT_TRUE(bench.start_ring(kQueue, driver, kFresh));
  EXPECT_EQ(bench.device.queue(kQueue).start.ring.used_record, nullptr);
  EXPECT_EQ(bench.device.serve(kQueue), 1U);
}

// virtio-user sets the lower half only, and so do back-ends of DPDK.
TEST_F(PackedRestart, TheLowerHalfOfTheBaseStandsForBoth) {
  for (const std::uint32_t base : {0x8003U, 0x8003'8003U, 0x1234'8003U}) {
    auto driver = make_driver();
    bench_.reconnect();
    begin(kPackedFeatures, *driver, base);
    EXPECT_EQ(bench_.device.queue(kQueue).start.ring.position,
              (virtio::RingPosition{0x8003, 0x8003}));
  }
}

TEST_F(PackedRestart, ABaseBehindTheEndOfTheRingIsRefused) {
  auto driver = make_driver(16);
  ASSERT_TRUE(bench_.negotiate(kPackedFeatures));
  EXPECT_FALSE(bench_.start_ring(kQueue, *driver, 0x8010));
  EXPECT_FALSE(bench_.device.queue(kQueue).running);
}

TEST_F(PackedRestart, AnyContentOfTheRecordIsHarmless) {
  auto driver = make_driver(3);
  begin(kPackedFeatures, *driver, kFresh);
  run(*driver, 4);
  const virtio::RingConfig ring = driver->config();
  for (std::uint32_t seed = 0; seed < 20'000; ++seed) {
    std::mt19937 random(seed);
    virtio::UsedPositionRecord record{};
    const auto small = [&] { return static_cast<std::uint16_t>(random() % 6); };
    record.old_used = static_cast<std::uint16_t>(small() | (random() % 2 ? 0x8000 : 0));
    record.new_used = static_cast<std::uint16_t>(small() | (random() % 2 ? 0x8000 : 0));
    record.count = random() % 4 == 0 ? static_cast<std::uint32_t>(random()) : small();
    for (auto& entry : record.log) {
      entry = {static_cast<std::uint32_t>(random()), small(),
               random() % 3 == 0 ? static_cast<std::uint16_t>(random()) : small()};
    }
    const std::uint16_t at = vhost::packed_restart_position(ring, record, 0x8000);
    ASSERT_LT(at & 0x7fff, 3);
  }
  EXPECT_TRUE(driver->canaries_intact());
}

// The same by a region that the front-end keeps (INFLIGHT_SHMFD).
class InflightRestart : public Restart {
 protected:
  // Asks for a region, or gives back the one there is.
  void begin_with_region(const RawDriver& driver, std::uint32_t base) {
    ASSERT_TRUE(bench_.negotiate(kPackedFeatures));
    if (!region_) {
      auto answer = bench_.send(
          Message(Request::kGetInflightFd).add(vhost::InflightDescription{0, 0, 2, 16, 0}));
      ASSERT_EQ(answer->fds.size(), 1U);
      region_ = std::move(answer->fds[0]);
      description_ = answer->get<vhost::InflightDescription>();
    }
    Message set = Message(Request::kSetInflightFd).add(description_);
    ASSERT_TRUE(bench_.accepted(VhostBench::with_fd(std::move(set), copy_of(region_.get()))));
    ASSERT_TRUE(bench_.start_ring(kQueue, driver, base));
    ASSERT_TRUE(bench_.enable(kQueue));
  }
  void run(RawPackedDriver& driver, int count) {
    for (int i = 0; i < count; ++i) {
      post(driver, 1);
      ASSERT_EQ(serve(), 1U);
      ASSERT_EQ(driver.reap().size(), 1U);
    }
  }
  UniqueFd region_;
  vhost::InflightDescription description_{};
};

TEST_F(InflightRestart, APackedRingGoesOnByTheRegionAlone) {
  RawPackedDriver driver(bench_.guest, DriverOptions{.size = 16});
  begin_with_region(driver, 0x8000);
  for (int i = 0; i < 40; ++i) {
    run(driver, 1);
    bench_.reconnect();
    begin_with_region(driver, 0x8000);
    ASSERT_EQ(bench_.device.queue(kQueue).start.ring.position.used,
              driver.expected_position().used);
  }
}

TEST_F(InflightRestart, AnOrderlyStopLeavesThePositionInTheProtocolsBlock) {
  RawPackedDriver driver(bench_.guest, DriverOptions{.size = 16});
  begin_with_region(driver, 0x8000);
  run(driver, 21);
  EXPECT_EQ(bench_.stop_ring(kQueue), 0x0005'0005U);
  const auto mapping = *memory::Mapping::map_file(region_.get(), 0, description_.mmap_size);
  const std::uint64_t block = vhost::InflightRegion::block_bytes(16, true);
  EXPECT_EQ(block, 576U);  // 32 and 16 * 32 bytes, in whole cache lines.
  const auto field = [&](std::size_t offset) {
    std::uint16_t value = 0;
    std::memcpy(&value, mapping.bytes().data() + block + offset, sizeof value);
    return value;
  };
  EXPECT_EQ(field(8), 1);    // version
  EXPECT_EQ(field(10), 16);  // desc_num
  EXPECT_EQ(field(16), 5);   // used_idx
  EXPECT_EQ(field(18), 5);   // old_used_idx
  EXPECT_EQ(field(20), 0);   // used_wrap_counter, old_used_wrap_counter
}

// A region as a foreign back-end leaves it: no table of ours behind the blocks.
TEST_F(InflightRestart, AForeignBackEndsBlockTellsThePosition) {
  for (const bool published : {true, false}) {
    bench_.reconnect();
    RawPackedDriver driver(bench_.guest, DriverOptions{.size = 16});
    bench_.hang_up();
    post(driver, 8);
    for (std::uint32_t slot = 0; slot < 4; ++slot) driver.ring().set_flags(slot, used_on(true));
    if (published) driver.ring().set_flags(4, used_on(true));
    const std::uint64_t block = vhost::InflightRegion::block_bytes(16, true);
    auto memory = *memory::Mapping::create_shared("foreign", 2 * block);
    const auto put = [&](std::size_t offset, auto value) {
      std::memcpy(memory.mapping.bytes().data() + block + offset, &value, sizeof value);
    };
    put(8, std::uint16_t{1});
    put(10, std::uint16_t{16});
    put(16, std::uint16_t{5});       // used_idx after the batch,
    put(18, std::uint16_t{4});       // and before.
    put(20, std::uint16_t{0x0101});  // Both wrap counters 1.
    region_ = std::move(memory.fd);
    description_ = {2 * block, 0, 2, 16, 0};
    bench_.reconnect();
    begin_with_region(driver, 0x8000);
    EXPECT_EQ(bench_.device.queue(kQueue).start.ring.position.used, published ? 0x8005 : 0x8004);
  }
}

TEST_F(InflightRestart, WhateverIsWrittenIntoTheRegionIsHarmless) {
  RawPackedDriver driver(bench_.guest, DriverOptions{.size = 16});
  begin_with_region(driver, 0x8000);
  run(driver, 5);
  auto mapping = *memory::Mapping::map_file(region_.get(), 0, description_.mmap_size);
  const std::vector<std::byte> good(mapping.bytes().begin(), mapping.bytes().end());
  std::mt19937 random(7);
  for (int i = 0; i < 2000; ++i) {
    std::ranges::copy(good, mapping.bytes().begin());
    for (int change = 0; change < 1 + i % 40; ++change) {
      mapping.bytes()[random() % good.size()] = static_cast<std::byte>(random());
    }
    bench_.reconnect();
    begin_with_region(driver, 0x8000);
    ASSERT_LT(bench_.device.queue(kQueue).start.ring.position.used & 0x7fff, 16);
  }
  EXPECT_TRUE(driver.canaries_intact());
}

}  // namespace
}  // namespace sluice::test
