// DriverMemory: where rings and buffers lie, and how a ring looks at its start.
#include "net/driver_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>
#include <vector>

#include "virtio/queue_config.h"

namespace sluice::net {
namespace {

using virtio::Feature;
using virtio::FeatureSet;

DriverMemory must_create(const DriverMemory::Geometry& geometry, const FeatureSet& features) {
  auto memory = DriverMemory::create(geometry, features);
  EXPECT_TRUE(memory.has_value());
  return std::move(*memory);
}

TEST(DriverMemory, AreasOfRingsShareNoCacheLine) {
  for (const FeatureSet& features : {FeatureSet{}, FeatureSet{Feature::kRingPacked}}) {
    const DriverMemory memory = must_create({.queues = 6, .queue_size = 2}, features);
    std::set<std::size_t> lines;
    for (std::uint16_t i = 0; i < 6; ++i) {
      const auto ring = memory.ring(QueueIndex(i));
      for (const std::byte* area : {ring.descriptors, ring.driver_area, ring.device_area}) {
        const auto at = static_cast<std::size_t>(area - memory.bytes().data());
        EXPECT_EQ(at % 64, 0U);
        EXPECT_TRUE(lines.insert(at / 64).second);
      }
    }
  }
}

TEST(DriverMemory, NoAreaOrPoolOverlapsAnother) {
  for (const FeatureSet& features : {FeatureSet{}, FeatureSet{Feature::kRingPacked}}) {
    for (const std::uint32_t lead : {0U, 2U, 52U}) {
      const DriverMemory memory = must_create(
          {.queues = 4, .queue_size = 128, .buffer_stride = 192, .buffer_lead = lead}, features);
      const auto sizes = virtio::QueueConfig::area_sizes(128, features);
      std::vector<std::pair<const std::byte*, std::uint64_t>> areas;
      for (std::uint16_t i = 0; i < 4; ++i) {
        const DriverQueueStart start = memory.start(QueueIndex(i));
        areas.emplace_back(start.ring.descriptors, sizes.descriptors);
        areas.emplace_back(start.ring.driver_area, sizes.driver_area);
        areas.emplace_back(start.ring.device_area, sizes.device_area);
        ASSERT_EQ(start.own_buffers->numbers.size(), 128U);
        for (const std::uint32_t number : start.own_buffers->numbers) {
          areas.emplace_back(start.buffers.data() + std::size_t{number} * 192, 192);
        }
      }
      std::sort(areas.begin(), areas.end());
      for (std::size_t i = 0; i + 1 < areas.size(); ++i) {
        EXPECT_LE(areas[i].first + areas[i].second, areas[i + 1].first);
      }
      EXPECT_GE(areas.front().first, memory.bytes().data());
      EXPECT_LE(areas.back().first + areas.back().second,
                memory.bytes().data() + memory.bytes().size());
    }
  }
}

TEST(DriverMemory, TheTwoAddressSpacesAreNeitherEqualNorPointers) {
  const DriverMemory memory = must_create({.queues = 2, .queue_size = 4}, {});
  const auto region = memory.region();
  EXPECT_EQ(region.record.size, memory.bytes().size());
  EXPECT_NE(region.record.guest.raw(), region.record.user.raw());
  EXPECT_NE(region.record.guest.raw(), 0U);
  const RingSetup setup = memory.setup(QueueIndex(1));
  const auto ring = memory.ring(QueueIndex(1));
  EXPECT_EQ(setup.descriptors.raw() - region.record.user.raw(),
            static_cast<std::uint64_t>(ring.descriptors - memory.bytes().data()));
  const auto start = memory.start(QueueIndex(1));
  EXPECT_EQ(start.buffers_guest_address - region.record.guest.raw(),
            static_cast<std::uint64_t>(start.buffers.data() - memory.bytes().data()));
}

TEST(DriverMemory, CleaningOneRingLeavesTheOthersAndAllBuffersAlone) {
  const DriverMemory memory = must_create({.queues = 2, .queue_size = 8}, {});
  const auto bytes = memory.bytes();
  std::fill(bytes.begin(), bytes.end(), std::byte{0xa5});
  memory.clean(QueueIndex(0));
  const auto mine = memory.ring(QueueIndex(0));
  EXPECT_TRUE(std::all_of(mine.descriptors, mine.descriptors + 8 * 16,
                          [](std::byte b) { return b == std::byte{0}; }));
  const auto other = memory.ring(QueueIndex(1));
  EXPECT_TRUE(std::all_of(other.descriptors, other.descriptors + 8 * 16,
                          [](std::byte b) { return b == std::byte{0xa5}; }));
  for (std::uint16_t i = 0; i < 2; ++i) {
    const auto buffers = memory.start(QueueIndex(i)).buffers;
    EXPECT_TRUE(std::all_of(buffers.begin(), buffers.end(),
                            [](std::byte b) { return b == std::byte{0xa5}; }));
  }
}

TEST(DriverMemory, EVI_01_ANewSplitRingWithEventIndexHasNoFlags) {
  const DriverMemory memory = must_create({.queues = 2, .queue_size = 8}, {Feature::kEventIdx});
  const auto ring = memory.ring(QueueIndex(0));
  std::uint16_t words[3 + 8] = {};
  std::memcpy(words, ring.driver_area, sizeof words);
  EXPECT_EQ(words[0], 0);        // flags
  EXPECT_EQ(words[1], 0);        // idx
  EXPECT_EQ(words[10], 0xffff);  // used_event: the entry passed last, as far off as can be.
}

TEST(DriverMemory, ANewSplitRingWithoutEventIndexAsksForNoInterrupts) {
  const DriverMemory memory = must_create({.queues = 2, .queue_size = 8}, {});
  EXPECT_EQ(memory.ring(QueueIndex(0)).driver_area[0], std::byte{1});
  EXPECT_EQ(memory.ring(QueueIndex(0)).position, virtio::RingPosition{});
}

TEST(DriverMemory, PKD_03_ANewPackedRingStartsWithBothWrapCountersOne) {
  const DriverMemory memory = must_create({.queues = 2, .queue_size = 7}, {Feature::kRingPacked});
  const auto ring = memory.ring(QueueIndex(0));
  EXPECT_EQ(ring.position.avail, 0x8000);
  EXPECT_EQ(ring.position.used, 0x8000);
  const std::uint8_t disable[] = {0, 0, 1, 0};
  EXPECT_EQ(std::memcmp(ring.driver_area, disable, sizeof disable), 0);
  EXPECT_EQ(memory.setup(QueueIndex(0)).position, ring.position);
}

}  // namespace
}  // namespace sluice::net
