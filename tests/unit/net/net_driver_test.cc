// NetDriver: negotiation, layout, and the life of its queues, against a device that looks.
#include "net/net_driver.h"

#include <gtest/gtest.h>

#include <dirent.h>

#include <algorithm>
#include <memory>
#include <set>

#include "net_driver_fixture.h"

namespace sluice::net {
namespace {

using virtio::Feature;
using virtio::FeatureSet;

std::size_t open_descriptors() {
  std::size_t count = 0;
  std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir("/proc/self/fd"), ::closedir);
  while (::readdir(dir.get()) != nullptr) ++count;
  return count;
}

constexpr Feature kPacked = Feature::kRingPacked;

TEST_F(NetDriverTest, UsesWhatIsWantedAndOfferedOnly) {
  state_->offered.features = {Feature::kVersion1, Feature::kInOrder, Feature::kCsum, Feature::kMac};
  const auto driver = must_create({.wanted = {Feature::kInOrder, kPacked, Feature::kEventIdx}});
  EXPECT_EQ(driver->features(), (FeatureSet{Feature::kVersion1, Feature::kInOrder}));
}

TEST_F(NetDriverTest, RefusesADeviceWithoutVersion1) {
  state_->offered.features.remove(Feature::kVersion1);
  const auto driver = create({});
  ASSERT_FALSE(driver);
  EXPECT_EQ(driver.error().code, ErrorCode::kNotNegotiated);
  EXPECT_EQ(driver.error().detail, static_cast<int>(Feature::kVersion1));
}

TEST_F(NetDriverTest, RefusesADeviceWithoutARequiredFeature) {
  state_->offered.features.remove(kPacked);
  const auto driver = create({.required = {kPacked}});
  ASSERT_FALSE(driver);
  EXPECT_EQ(driver.error().code, ErrorCode::kNotNegotiated);
  EXPECT_EQ(driver.error().detail, static_cast<int>(kPacked));
}

TEST_F(NetDriverTest, RefusesToBeAskedForWhatItCannotDo) {
  const auto driver = create({.wanted = {Feature::kRss}});
  ASSERT_FALSE(driver);
  EXPECT_EQ(driver.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(driver.error().detail, static_cast<int>(Feature::kRss));
}

TEST_F(NetDriverTest, INI_03_NeverTakesAFeatureWhoseRequirementIsMissing) {
  state_->offered.features.remove(Feature::kCsum);
  const auto driver = must_create({.wanted = {Feature::kHostTso4, Feature::kHostUso}});
  EXPECT_EQ(driver->features(), FeatureSet{Feature::kVersion1});
  const auto strict = create({.required = {Feature::kHostTso4}});
  ASSERT_FALSE(strict);
  EXPECT_EQ(strict.error().detail, static_cast<int>(Feature::kHostTso4));
}

TEST_F(NetDriverTest, TakesLargeReceiveOnlyIfBuffersMergeOrAreLarge) {
  const FeatureSet large = {Feature::kGuestCsum, Feature::kGuestTso4};
  EXPECT_FALSE(must_create({.wanted = large})->features().has(Feature::kGuestTso4));
  EXPECT_TRUE(must_create({.wanted = large | FeatureSet{Feature::kMrgRxbuf}})
                  ->features()
                  .has(Feature::kGuestTso4));
  EXPECT_TRUE(must_create({.queue_size = 8, .wanted = large, .buffer_stride = 1025 * 64})
                  ->features()
                  .has(Feature::kGuestTso4));
}

TEST_F(NetDriverTest, SendsMqButNoControlQueueForSeveralPairs) {
  state_->offered.features.add(Feature::kCtrlVq);
  const auto driver = must_create({.queue_pairs = 2});
  EXPECT_TRUE(driver->features().has(Feature::kMq));
  EXPECT_FALSE(driver->features().has(Feature::kCtrlVq));
  EXPECT_FALSE(must_create({})->features().has(Feature::kMq));
}

TEST_F(NetDriverTest, RefusesMorePairsThanTheDeviceHas) {
  const auto many = create({.queue_pairs = 9});
  ASSERT_FALSE(many);
  EXPECT_EQ(many.error().code, ErrorCode::kOutOfRange);
  EXPECT_EQ(many.error().detail, 8);
  state_->offered.features.remove(Feature::kMq);
  const auto two = create({.queue_pairs = 2});
  ASSERT_FALSE(two);
  EXPECT_EQ(two.error().code, ErrorCode::kNotNegotiated);
}

TEST_F(NetDriverTest, RefusesOptionsOutOfRange) {
  const NetDriverOptions wrong[] = {
      {.queue_pairs = 0},
      {.queue_pairs = 128},
      {.queue_size = 0},
      {.queue_size = 65536},
      {.queue_size = 1000},
      {.buffer_stride = 2048},
      {.buffer_stride = 4096},
      {.buffer_stride = 2369},
      {.buffer_stride = 64},
      {.buffer_stride = 1 << 24},
      {.buffer_lead = 53},
      {.buffer_lead = 54},
      {.queue_size = 32769, .required = {kPacked}},
  };
  for (const NetDriverOptions& options : wrong) {
    const auto driver = create(options);
    ASSERT_FALSE(driver);
    EXPECT_EQ(driver.error().code, ErrorCode::kInvalidArgument) << driver.error().text;
  }
}

TEST_F(NetDriverTest, PackedRingsMayHaveAnySize) {
  for (const std::uint32_t size : {1U, 3U, 1025U, 32767U, 32768U}) {
    const auto driver = must_create({.queue_size = size, .required = {kPacked}});
    ASSERT_TRUE(driver->start());
    EXPECT_EQ(driver->queue(QueueIndex(0))->ring.size, size);
  }
}

TEST_F(NetDriverTest, TakesTheMacOfTheOptionsThenOfTheDeviceThenARandomOne) {
  state_->serves_config = true;
  for (int i = 1; i <= 8; ++i) state_->config.push_back(std::byte(i));
  const MacAddress own = {2, 0, 0, 0, 0, 9};
  EXPECT_EQ(must_create({.mac = own})->mac(), own);
  EXPECT_EQ(must_create({})->mac(), (MacAddress{1, 2, 3, 4, 5, 6}));
  state_->config.resize(5);  // INI-11: a space too small for a whole address.
  const MacAddress first = must_create({})->mac();
  state_->serves_config = false;
  const MacAddress second = must_create({})->mac();
  EXPECT_NE(first, second);
  EXPECT_EQ(first[0] & 3, 2);
  EXPECT_EQ(second[0] & 3, 2);
}

TEST_F(NetDriverTest, AddressesLeadTheDeviceToTheBytesTheDriverSees) {
  const auto driver = must_create({.queue_pairs = 2, .queue_size = 64, .buffer_lead = 52});
  ASSERT_TRUE(driver->start());
  std::set<std::byte*> seen;
  for (std::uint16_t i = 0; i < 4; ++i) {
    const auto queue = driver->queue(QueueIndex(i));
    ASSERT_TRUE(queue);
    const RingSetup& told = state_->rings.at(i).setup;
    queue->ring.descriptors[5] = std::byte(i + 1);
    queue->ring.driver_area[5] = std::byte(i + 11);
    queue->ring.device_area[5] = std::byte(i + 21);
    EXPECT_EQ(state_->at(told.descriptors)[5], std::byte(i + 1));
    EXPECT_EQ(state_->at(told.driver_area)[5], std::byte(i + 11));
    EXPECT_EQ(state_->at(told.device_area)[5], std::byte(i + 21));
    const auto& own = queue->own_buffers->numbers;
    ASSERT_EQ(own.size(), 64U);
    for (const std::uint32_t b : own) {
      std::byte* const buffer = queue->buffers.data() + b * queue->buffer_stride;
      EXPECT_TRUE(seen.insert(buffer).second);
      *buffer = std::byte(b);
      const std::uint64_t guest = queue->buffers_guest_address + b * queue->buffer_stride;
      EXPECT_EQ(state_->memory.bytes()[guest - state_->guest_base], std::byte(b));
      // Header and a 64-byte frame touch two cache lines.
      EXPECT_EQ(guest % 64, 52U);
    }
    EXPECT_EQ(queue->buffers.size(), 4 * own.size() * queue->buffer_stride);
    EXPECT_EQ(queue->kick.get(), told.kick.get());
    EXPECT_EQ(queue->call.get(), told.call.get());
  }
}

TEST_F(NetDriverTest, QueuesAreToBeHadOnlyWhileRunning) {
  const auto driver = must_create({});
  EXPECT_EQ(driver->queue(QueueIndex(0)).error().code, ErrorCode::kWrongState);
  ASSERT_TRUE(driver->start());
  EXPECT_TRUE(driver->queue(QueueIndex(1)));
  EXPECT_EQ(driver->queue(QueueIndex(2)).error().code, ErrorCode::kOutOfRange);
  EXPECT_EQ(driver->start().error().code, ErrorCode::kWrongState);
  ASSERT_TRUE(driver->stop());
  ASSERT_TRUE(driver->stop());
  EXPECT_EQ(driver->queue(QueueIndex(0)).error().code, ErrorCode::kWrongState);
}

TEST_F(NetDriverTest, AThousandEpochsBeginCleanAndLeakNothing) {
  for (const FeatureSet& required : {FeatureSet{}, FeatureSet{kPacked}}) {
    const auto driver = must_create({.queue_pairs = 2, .queue_size = 16, .required = required});
    ASSERT_TRUE(driver->start());
    const std::size_t descriptors = open_descriptors();
    const std::size_t mappings = memory::Mapping::live_count();
    for (int i = 0; i < 1000; ++i) {
      soil(*driver);
      const auto queue = driver->queue(QueueIndex(0));
      queue->kick->signal();
      queue->call->signal();
      ASSERT_TRUE(driver->stop());
      ASSERT_TRUE(driver->start());  // The fake device looks at every ring.
      EXPECT_FALSE(driver->queue(QueueIndex(0))->kick->drain());
      EXPECT_FALSE(driver->queue(QueueIndex(0))->call->drain());
    }
    EXPECT_EQ(open_descriptors(), descriptors);
    EXPECT_EQ(memory::Mapping::live_count(), mappings);
  }
}

TEST_F(NetDriverTest, StopDisablesAllPairsBeforeItStopsTheFirst) {
  const auto driver = must_create({.queue_pairs = 2});
  ASSERT_TRUE(driver->start());
  state_->calls.clear();
  ASSERT_TRUE(driver->stop());
  const std::vector<std::string> expected = {"disable",    "disable",    "disable",
                                             "disable",    "stop_queue", "stop_queue",
                                             "stop_queue", "stop_queue"};
  EXPECT_EQ(state_->calls, expected);
}

TEST_F(NetDriverTest, AfterAFailedStopOnlyResetOrReconnectLeadOn) {
  const auto driver = must_create({});
  ASSERT_TRUE(driver->start());
  state_->fail_at = "stop_queue";
  EXPECT_EQ(driver->stop().error().code, ErrorCode::kClosed);
  EXPECT_EQ(driver->start().error().code, ErrorCode::kWrongState);
  EXPECT_EQ(driver->stop().error().code, ErrorCode::kWrongState);
  EXPECT_EQ(driver->reconfigure(1, 512).error().code, ErrorCode::kWrongState);
  state_->fail_at = "reset";
  EXPECT_FALSE(driver->reset());
  EXPECT_EQ(driver->start().error().code, ErrorCode::kWrongState);
  ASSERT_TRUE(driver->reset());
  EXPECT_TRUE(driver->start());
}

TEST_F(NetDriverTest, AFailedStartLeavesTheDriverStopped) {
  const auto driver = must_create({});
  state_->fail_at = "start";
  EXPECT_EQ(driver->start().error().code, ErrorCode::kClosed);
  EXPECT_FALSE(driver->running());
  ASSERT_TRUE(driver->reset());
  EXPECT_TRUE(driver->start());
}

TEST_F(NetDriverTest, ReconnectTakesNewMemoryAndTheSameFeatures) {
  const auto driver = must_create({.queue_pairs = 2, .required = {kPacked}});
  ASSERT_TRUE(driver->start());
  ASSERT_TRUE(driver->set_active_pairs(1));
  const FeatureSet before = driver->features();
  const auto old_queue = driver->queue(QueueIndex(0));
  auto next = std::make_shared<State>();
  next->offered = state_->offered;
  next->offered.features.add(Feature::kCtrlVq);
  ASSERT_TRUE(driver->reconnect(std::make_unique<FakeDriverTransport>(next)));
  EXPECT_FALSE(driver->running());
  EXPECT_EQ(driver->features(), before);
  ASSERT_TRUE(driver->start());
  EXPECT_EQ(next->running(), 4);
  EXPECT_TRUE(next->rings.at(1).enabled);
  EXPECT_FALSE(next->rings.at(2).enabled);
  // What the old device still writes harms nobody, and what the old queue holds stays mapped.
  state_->memory.bytes()[0] = std::byte{0xee};
  EXPECT_EQ(driver->memory().bytes()[0], std::byte{0});
  EXPECT_EQ(old_queue->ring.descriptors[0], std::byte{0xee});
}

TEST_F(NetDriverTest, ReconnectRefusesADeviceWithFewerFeaturesAndChangesNothing) {
  const auto driver = must_create({.required = {kPacked}});
  ASSERT_TRUE(driver->start());
  auto next = std::make_shared<State>();
  next->offered = state_->offered;
  next->offered.features.remove(Feature::kInOrder);
  const Status outcome = driver->reconnect(std::make_unique<FakeDriverTransport>(next));
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code, ErrorCode::kNotNegotiated);
  EXPECT_TRUE(driver->running());
  EXPECT_TRUE(driver->stop());
}

TEST_F(NetDriverTest, ActivePairsFollowTheEnableState) {
  const auto driver = must_create({.queue_pairs = 4});
  ASSERT_TRUE(driver->start());
  const auto enabled = [&] {
    std::vector<int> list;
    for (const auto& [index, ring] : state_->rings) {
      if (ring.enabled) list.push_back(index);
    }
    return list;
  };
  EXPECT_EQ(enabled().size(), 8U);
  ASSERT_TRUE(driver->set_active_pairs(1));
  EXPECT_EQ(enabled(), (std::vector<int>{0, 1}));
  ASSERT_TRUE(driver->set_active_pairs(3));
  EXPECT_EQ(enabled(), (std::vector<int>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(driver->set_active_pairs(0).error().code, ErrorCode::kOutOfRange);
  EXPECT_EQ(driver->set_active_pairs(5).error().code, ErrorCode::kOutOfRange);
  ASSERT_TRUE(driver->stop());
  ASSERT_TRUE(driver->set_active_pairs(2));
  ASSERT_TRUE(driver->start());
  EXPECT_EQ(enabled(), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(state_->running(), 8) << "inactive pairs are started, but disabled";
}

TEST_F(NetDriverTest, ReconfigureAnnouncesEveryChangeAndDoesNotGrow) {
  const auto driver = must_create({.queue_size = 16});
  const std::size_t descriptors = open_descriptors();
  const std::size_t mappings = memory::Mapping::live_count();
  const std::pair<std::uint16_t, std::uint32_t> steps[] = {{1, 16}, {2, 16}, {1, 16}, {1, 32}};
  for (int i = 0; i < 250; ++i) {
    for (const auto& [pairs, size] : steps) {
      ASSERT_TRUE(driver->reconfigure(pairs, size));
      ASSERT_TRUE(driver->start());
      EXPECT_EQ(driver->reconfigure(1, 64).error().code, ErrorCode::kWrongState);
      EXPECT_EQ(state_->rings.size(), std::size_t{pairs} * 2);
      EXPECT_EQ(state_->rings.at(0).setup.size, size);
      // Both sides work on the same memory (H28).
      const auto ring = driver->queue(QueueIndex(0))->ring;
      ring.descriptors[0] = std::byte{0x5a};
      EXPECT_EQ(state_->at(state_->rings.at(0).setup.descriptors)[0], std::byte{0x5a});
      ASSERT_TRUE(driver->stop());
    }
  }
  ASSERT_TRUE(driver->reconfigure(1, 16));
  state_->rings.clear();
  state_->memory = {};
  EXPECT_EQ(open_descriptors(), descriptors);
  EXPECT_EQ(memory::Mapping::live_count(), mappings);
  EXPECT_EQ(driver->reconfigure(9, 16).error().code, ErrorCode::kOutOfRange);
  EXPECT_EQ(driver->reconfigure(1, 17).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(driver->queue_pairs(), 1);
  EXPECT_TRUE(driver->start());
}

TEST_F(NetDriverTest, ADriverThatGoesStopsItsDevice) {
  must_create({})->start();
  EXPECT_EQ(state_->running(), 0);
  state_->calls.clear();
  const auto driver = create({});
  ASSERT_TRUE((*driver)->start());
  state_->alive = false;
}

}  // namespace
}  // namespace sluice::net
