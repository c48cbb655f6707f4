// NetDriver::map_memory and unmap_memory: what the device is told, when, and what if it refuses.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "memory/mapping.h"
#include "net_driver_fixture.h"

namespace sluice::net {
namespace {

class DriverMapping : public NetDriverTest {
 protected:
  [[nodiscard]] bool device_has(const memory::DmaMapping& mapping) const {
    return std::ranges::find(state_->regions, mapping.device, &memory::RegionRecord::guest) !=
           state_->regions.end();
  }
  memory::Mapping::SharedMemory file_ = *memory::Mapping::create_shared("umem", 1 << 16);
  std::vector<std::byte> heap_ = std::vector<std::byte>(10'000);
};

TEST_F(DriverMapping, IsSharedAtEachStartIfTheDriverIsStopped) {
  const auto driver = must_create({});
  const auto mapping = driver->map_memory(file_.mapping.bytes(), file_.fd.get(), 0);
  const auto bounced = driver->map_memory(heap_);
  ASSERT_TRUE(mapping && bounced);
  EXPECT_EQ(calls_of("set_memory"), 0U);
  ASSERT_TRUE(driver->start());
  EXPECT_EQ(state_->regions.size(), 3U);
  EXPECT_TRUE(device_has(*mapping) && device_has(*bounced));
  ASSERT_TRUE(driver->stop());
  ASSERT_TRUE(driver->start());
  EXPECT_EQ(state_->regions.size(), 3U);
  EXPECT_EQ(calls_of("set_memory"), 0U);
}

TEST_F(DriverMapping, IsSharedAtOnceIfTheDriverRunsAndNoRingIsTouched) {
  const auto driver = must_create({});
  ASSERT_TRUE(driver->start());
  const auto before = state_->calls.size();
  const auto mapping = driver->map_memory(heap_);
  ASSERT_TRUE(mapping);
  EXPECT_TRUE(device_has(*mapping));
  ASSERT_TRUE(driver->unmap_memory(mapping->id));
  EXPECT_FALSE(device_has(*mapping));
  EXPECT_EQ(state_->calls.size(), before + 2) << "two set_memory, nothing else";
  EXPECT_EQ(calls_of("set_memory"), 2U);
  EXPECT_EQ(state_->running(), 2);
  EXPECT_EQ(driver->unmap_memory(mapping->id).error().code, ErrorCode::kNotFound);
}

TEST_F(DriverMapping, NeverCollidesWithTheDriversOwnMemory) {
  const auto driver = must_create({});
  const auto mapping = driver->map_memory(heap_);
  ASSERT_TRUE(mapping);
  const auto own = driver->memory().region().record;
  EXPECT_GT(mapping->device.raw(), own.guest.raw() + own.size);
  ASSERT_TRUE(driver->start()) << "the fake device looks for overlaps of both kinds of address";
}

TEST_F(DriverMapping, Q_15_ADeviceThatTakesNoMoreRegionsLeavesAllAsItWas) {
  state_->max_regions = 2;
  const auto driver = must_create({});
  ASSERT_TRUE(driver->start());
  const auto first = driver->map_memory(file_.mapping.bytes(), file_.fd.get(), 0);
  ASSERT_TRUE(first);
  const auto second = driver->map_memory(heap_);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kOutOfRange);
  EXPECT_EQ(driver->dma().size(), 1U);
  EXPECT_EQ(driver->dma().retired(), 0U);
  EXPECT_TRUE(driver->running());
  EXPECT_TRUE(device_has(*first));
  ASSERT_TRUE(driver->unmap_memory(first->id));
  EXPECT_TRUE(driver->map_memory(heap_)) << "now there is room";
}

TEST_F(DriverMapping, ARefusedMappingIsGoneAndTheOldRegionsAreSharedAgain) {
  const auto driver = must_create({});
  ASSERT_TRUE(driver->start());
  state_->fail_at = "set_memory";
  ASSERT_FALSE(driver->map_memory(heap_));
  EXPECT_EQ(calls_of("set_memory"), 2U);
  EXPECT_EQ(state_->regions.size(), 1U);
  EXPECT_TRUE(driver->running());
  EXPECT_EQ(driver->dma().size() + driver->dma().retired(), 0U);
  EXPECT_TRUE(driver->map_memory(heap_)) << "the memory is free for another try";
}

TEST_F(DriverMapping, ADeviceThatCannotGetItsRegionsBackIsBroken) {
  const auto driver = must_create({});
  const auto kept = driver->map_memory(file_.mapping.bytes(), file_.fd.get(), 0);
  ASSERT_TRUE(kept && driver->start());
  state_->fail_at = "set_memory";
  state_->max_regions = 0;
  ASSERT_FALSE(driver->map_memory(heap_));
  EXPECT_FALSE(driver->running());
  EXPECT_EQ(driver->start().error().code, ErrorCode::kWrongState);
  const auto next = std::make_shared<State>();
  next->offered = state_->offered;
  ASSERT_TRUE(driver->reconnect(std::make_unique<FakeDriverTransport>(next)));
  EXPECT_EQ(driver->dma().retired(), 0U);
  ASSERT_TRUE(driver->start());
  EXPECT_EQ(next->regions.size(), 2U) << "the driver's and the mapping that was kept";
}

TEST_F(DriverMapping, AnUnmappingThatFailsCanBeMadeAgain) {
  const auto driver = must_create({});
  const auto mapping = driver->map_memory(heap_);
  ASSERT_TRUE(mapping && driver->start());
  state_->fail_at = "set_memory";
  EXPECT_EQ(driver->unmap_memory(mapping->id).error().code, ErrorCode::kClosed);
  EXPECT_TRUE(device_has(*mapping));
  EXPECT_EQ(driver->dma().size(), 0U) << "no queue can offer it any more";
  EXPECT_EQ(driver->map_memory(heap_).error().code, ErrorCode::kExists);
  ASSERT_TRUE(driver->unmap_memory(mapping->id));
  EXPECT_FALSE(device_has(*mapping));
  EXPECT_TRUE(driver->map_memory(heap_));
}

TEST_F(DriverMapping, AStoppedDeviceMustLetGoToo) {
  const auto driver = must_create({});
  const auto mapping = driver->map_memory(heap_);
  ASSERT_TRUE(mapping && driver->start() && driver->stop());
  ASSERT_TRUE(driver->unmap_memory(mapping->id));
  EXPECT_EQ(calls_of("set_memory"), 1U);
  EXPECT_FALSE(device_has(*mapping));
}

TEST_F(DriverMapping, IsRefusedToBeUnmappedWhileBuffersOfItAreOutstanding) {
  const auto driver = must_create({});
  const auto mapping = driver->map_memory(heap_);
  ASSERT_TRUE(mapping && driver->start());
  const auto start = driver->queue(QueueIndex(0));
  ASSERT_TRUE(start && start->dma != nullptr);
  memory::DmaView view(start->dma, {});
  const std::uint64_t marks = view.find_device(mapping->device, 10)->mark;
  view.hold(marks);
  EXPECT_EQ(driver->unmap_memory(mapping->id).error().code, ErrorCode::kWrongState);
  EXPECT_TRUE(device_has(*mapping));
  EXPECT_EQ(calls_of("set_memory"), 0U);
  view.drop(marks);
  EXPECT_TRUE(driver->unmap_memory(mapping->id));
}

TEST_F(DriverMapping, ReconnectKeepsMappingsAtTheirAddresses) {
  const auto driver = must_create({});
  const auto mapping = driver->map_memory(heap_);
  ASSERT_TRUE(mapping && driver->start());
  const auto next = std::make_shared<State>();
  next->offered = state_->offered;
  ASSERT_TRUE(driver->reconnect(std::make_unique<FakeDriverTransport>(next)));
  ASSERT_TRUE(driver->start());
  ASSERT_EQ(next->regions.size(), 2U);
  EXPECT_EQ(next->regions[1].guest, mapping->device);
}

}  // namespace
}  // namespace sluice::net
