// NetDriver: one queue is reset, stays so, or starts again at another size, while the others run.
#include "net_driver_fixture.h"

namespace sluice::net {
namespace {

using virtio::Feature;

TEST_F(NetDriverTest, OneQueueRestartsWhileTheOthersKeepTheirBytes) {
  const auto driver = must_create({.queue_pairs = 2});
  ASSERT_TRUE(driver->start());
  soil(*driver);
  ASSERT_TRUE(driver->restart_queue(QueueIndex(2)));
  EXPECT_EQ(calls_of("stop_queue"), 1U);
  EXPECT_EQ(state_->rings.at(2).starts, 2);
  EXPECT_EQ(state_->rings.at(1).starts, 1);
  EXPECT_EQ(driver->memory().ring(QueueIndex(1)).descriptors[0], std::byte{0xa5});
  EXPECT_EQ(driver->memory().ring(QueueIndex(3)).device_area[0], std::byte{0xa5});
  EXPECT_EQ(driver->restart_queue(QueueIndex(4)).error().code, ErrorCode::kOutOfRange);
  ASSERT_TRUE(driver->stop());
  EXPECT_EQ(driver->restart_queue(QueueIndex(0)).error().code, ErrorCode::kWrongState);
}

TEST_F(NetDriverTest, Q_02_ADeviceWithoutRingResetIsNeverAskedToStopOneQueue) {
  state_->offered.features.remove(Feature::kRingReset);
  const auto driver = must_create({});
  ASSERT_TRUE(driver->start());
  for (const Status& refused :
       {driver->reset_queue(QueueIndex(0)), driver->restart_queue(QueueIndex(0))}) {
    EXPECT_EQ(refused.error().code, ErrorCode::kNotNegotiated);
    EXPECT_EQ(refused.error().detail, static_cast<int>(Feature::kRingReset));
  }
  EXPECT_EQ(calls_of("stop_queue"), 0U);
  EXPECT_TRUE(driver->queue(QueueIndex(0)));
}

TEST_F(NetDriverTest, RST_05_AQueueRestartsWithAnotherSizeWithinItsLimit) {
  for (const bool packed : {false, true}) {
    NetDriverOptions options{.queue_size = 64, .queue_size_max = 256};
    if (packed) options.required = {Feature::kRingPacked};
    const auto driver = must_create(options);
    ASSERT_TRUE(driver->start());
    for (const std::uint32_t size : {256U, 2U, 128U}) {
      soil(*driver);
      ASSERT_TRUE(driver->restart_queue(QueueIndex(1), size));
      EXPECT_EQ(state_->rings.at(1).setup.size, size);
      EXPECT_EQ(driver->queue(QueueIndex(1))->ring.size, size);
      EXPECT_EQ(driver->queue(QueueIndex(1))->own_buffers->numbers.size(), 256U);
      EXPECT_EQ(driver->queue(QueueIndex(0))->ring.size, 64U);
    }
    EXPECT_EQ(driver->restart_queue(QueueIndex(1), 512).error().code, ErrorCode::kOutOfRange);
    EXPECT_EQ(driver->restart_queue(QueueIndex(1), 40'000).error().code,
              ErrorCode::kInvalidArgument);
    EXPECT_EQ(driver->restart_queue(QueueIndex(1), 100).has_value(), packed);
    // After a refusal the queue is stopped, and can be started.
    EXPECT_TRUE(driver->restart_queue(QueueIndex(1)));
    EXPECT_TRUE(driver->queue(QueueIndex(1)));
    ASSERT_TRUE(driver->stop());
  }
}

TEST_F(NetDriverTest, AQueueIsResizedWhileTheDriverIsStopped) {
  const auto driver = must_create({.queue_size = 64, .queue_size_max = 256});
  EXPECT_TRUE(driver->check_size(256));
  EXPECT_EQ(driver->check_size(512).error().code, ErrorCode::kOutOfRange);
  EXPECT_EQ(driver->check_size(512).error().detail, 256);
  EXPECT_EQ(driver->check_size(100).error().code, ErrorCode::kInvalidArgument);
  ASSERT_TRUE(driver->start());
  EXPECT_EQ(driver->resize_queue(QueueIndex(1), 128).error().code, ErrorCode::kWrongState);
  ASSERT_TRUE(driver->stop());
  EXPECT_EQ(driver->resize_queue(QueueIndex(2), 128).error().code, ErrorCode::kOutOfRange);
  EXPECT_EQ(driver->resize_queue(QueueIndex(1), 512).error().code, ErrorCode::kOutOfRange);
  ASSERT_TRUE(driver->resize_queue(QueueIndex(1), 128));
  ASSERT_TRUE(driver->start());
  EXPECT_EQ(state_->rings.at(1).setup.size, 128U);
  EXPECT_EQ(state_->rings.at(0).setup.size, 64U);
}

TEST_F(NetDriverTest, AQueueCanStayResetWhileTheOthersRun) {
  const auto driver = must_create({});
  ASSERT_TRUE(driver->start());
  ASSERT_TRUE(driver->reset_queue(QueueIndex(1)));
  ASSERT_TRUE(driver->reset_queue(QueueIndex(1))) << "harmless twice";
  EXPECT_EQ(calls_of("stop_queue"), 1U);
  EXPECT_EQ(driver->queue(QueueIndex(1)).error().code, ErrorCode::kWrongState);
  EXPECT_TRUE(driver->queue(QueueIndex(0)));
  ASSERT_TRUE(driver->restart_queue(QueueIndex(1)));
  EXPECT_EQ(calls_of("stop_queue"), 1U);
  ASSERT_TRUE(driver->stop());
}

TEST_F(NetDriverTest, RST_01_AQueueThatDidNotStopIsNeverCleaned) {
  const auto driver = must_create({});
  ASSERT_TRUE(driver->start());
  soil(*driver);
  state_->fail_at = "stop_queue";
  EXPECT_FALSE(driver->restart_queue(QueueIndex(0)));
  EXPECT_EQ(driver->memory().ring(QueueIndex(0)).descriptors[0], std::byte{0xa5});
  EXPECT_EQ(driver->queue(QueueIndex(0)).error().code, ErrorCode::kWrongState);
  EXPECT_TRUE(driver->queue(QueueIndex(1)));
  EXPECT_EQ(driver->restart_queue(QueueIndex(0)).error().code, ErrorCode::kWrongState);
  ASSERT_TRUE(driver->stop());
  EXPECT_TRUE(driver->start());
}

}  // namespace
}  // namespace sluice::net
