// VirtqueueBench: a DriverVirtqueue opposite a device ring of ours, over a driver's own memory and
// what is mapped beside it; the device reaches regions that it was told of and nothing else.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "memory/dma_map.h"
#include "memory/guest_memory.h"
#include "net/driver_memory.h"
#include "net/driver_virtqueue.h"
#include "support/device_bench.h"
#include "virtio/packed_device.h"
#include "virtio/queue_config.h"
#include "virtio/split_device.h"

namespace sluice::test {

struct QueueKind {
  bool packed;
  bool in_order;
  bool indirect;

  [[nodiscard]] virtio::FeatureSet features() const {
    virtio::FeatureSet set = {virtio::Feature::kVersion1};
    if (packed) set.add(virtio::Feature::kRingPacked);
    if (in_order) set.add(virtio::Feature::kInOrder);
    if (indirect) set.add(virtio::Feature::kIndirectDesc);
    return set;
  }
  [[nodiscard]] std::string name() const {
    return std::string(packed ? "Packed" : "Split") + (in_order ? "InOrder" : "") +
           (indirect ? "Indirect" : "");
  }
  [[nodiscard]] static std::vector<QueueKind> all() {
    std::vector<QueueKind> kinds;
    for (int i = 0; i < 8; ++i) kinds.push_back({(i & 1) != 0, (i & 2) != 0, (i & 4) != 0});
    return kinds;
  }
};

class VirtqueueBench {
 public:
  /// A buffer that the device holds.
  struct Held {
    virtio::Chain chain;
    std::vector<virtio::Segment> segments;

    /// Its readable bytes.
    [[nodiscard]] std::vector<std::byte> read() const {
      std::vector<std::byte> bytes;
      for (std::size_t i = 0; i < chain.readable_count; ++i) {
        bytes.insert(bytes.end(), segments[i].data, segments[i].data + segments[i].length);
      }
      return bytes;
    }
    /// Fills its writable part from the start; the rest stays.
    void write(std::span<const std::byte> bytes) {
      chain.written = static_cast<std::uint32_t>(bytes.size());
      for (std::size_t i = chain.readable_count; i < segments.size() && !bytes.empty(); ++i) {
        const std::size_t here = std::min<std::size_t>(bytes.size(), segments[i].length);
        std::copy_n(bytes.begin(), here, segments[i].data);
        bytes = bytes.subspan(here);
      }
      ASSERT_TRUE(bytes.empty());
    }
  };

  explicit VirtqueueBench(const QueueKind& kind, std::uint32_t size = 8,
                          const net::DriverVirtqueue::Options& options = {})
      : features_(kind.features()),
        own_(*net::DriverMemory::create({.queues = 2, .queue_size = size}, features_)),
        start_(own_.start(net::QueueIndex(0))),
        umem_file_(*memory::Mapping::create_shared("umem", kUmemSize)),
        heap(kHeapSize) {
    umem = umem_file_.mapping.bytes();
    umem_mapping = *map->map_shared(umem, umem_file_.fd.get(), 0);
    heap_mapping = *map->map_bounced(heap);
    start_.dma = map;
    start_.kick = std::make_shared<const EventFd>(std::move(*EventFd::create()));
    share();
    const net::RingSetup setup = own_.setup(net::QueueIndex(0));
    const auto config = virtio::QueueConfig{.size = setup.size,
                                            .descriptors = setup.descriptors,
                                            .driver_area = setup.driver_area,
                                            .device_area = setup.device_area,
                                            .position = setup.position}
                            .layout(*memory_, features_);
    EXPECT_TRUE(config.has_value());
    emplace_device(kind, *config);
    queue = net::DriverVirtqueue::make(start_, options);
  }

  /// The device is told of the regions as they are now. Requires: it holds nothing.
  void share() {
    std::vector<std::shared_ptr<const memory::Region>> regions;
    const auto add = [&](const memory::RegionRecord& record, int fd) {
      regions.push_back(*memory::Region::map(record, fd));
    };
    add(own_.region().record, own_.region().fd);
    for (const memory::DmaRegion& region : map->regions()) add(region.record, region.fd);
    kept_.push_back(memory_);  // The ring lies in the first one.
    memory_ = *memory::GuestMemory::create(std::move(regions));
  }

  /// Takes all there is; how many the device holds now.
  std::size_t take() {
    while (true) {
      std::vector<virtio::Chain> chains(16);
      arena_->clear();
      chains.resize(std::visit([&](auto& device) { return device.take(*memory_, chains, *arena_); },
                               *device_));
      if (chains.empty()) return held.size();
      for (const auto& chain : chains) held.push_back({chain, segments_of(chain, *arena_)});
    }
  }
  /// Gives the first `count` back; with `one_entry` as a batch, if the ring knows such.
  void give_back(std::size_t count, bool one_entry = false) {
    std::vector<virtio::Chain> chains;
    for (std::size_t i = 0; i < count; ++i) chains.push_back(held[i].chain);
    std::visit([&](auto& device) { device.give_back(chains, one_entry); }, *device_);
    held.erase(held.begin(), held.begin() + static_cast<std::ptrdiff_t>(count));
  }
  [[nodiscard]] std::optional<Error> device_error() const {
    return std::visit([](const auto& device) { return device.error(); }, *device_);
  }
  void want_kicks(bool wanted) {
    std::visit([&](auto& device) { device.set_kicks(wanted); }, *device_);
  }
  std::vector<net::ReturnedBuffer> collect(std::size_t max = 64) {
    std::vector<net::ReturnedBuffer> out(max);
    out.resize(queue.collect(out));
    return out;
  }
  [[nodiscard]] const net::DriverQueueStart& start() const { return start_; }
  [[nodiscard]] net::DmaSegment in_umem(std::uint64_t offset, std::uint32_t length) const {
    return {memory::GuestAddress(umem_mapping.device.raw() + offset), length};
  }
  [[nodiscard]] net::DmaSegment in_heap(std::uint64_t offset, std::uint32_t length) const {
    return {memory::GuestAddress(heap_mapping.device.raw() + offset), length};
  }

  static constexpr std::uint64_t kUmemSize = 1U << 20;
  static constexpr std::uint64_t kHeapSize = 100'000;

 private:
  using AnyDevice = std::variant<virtio::SplitDeviceRing<virtio::Order::kAny>,
                                 virtio::SplitDeviceRing<virtio::Order::kInOrder>,
                                 virtio::PackedDeviceRing<virtio::Order::kAny>,
                                 virtio::PackedDeviceRing<virtio::Order::kInOrder>>;
  void emplace_device(const QueueKind& kind, const virtio::RingConfig& config) {
    if (kind.packed && kind.in_order) {
      device_.emplace(std::in_place_index<3>, config);
    } else if (kind.packed) {
      device_.emplace(std::in_place_index<2>, config);
    } else if (kind.in_order) {
      device_.emplace(std::in_place_index<1>, config);
    } else {
      device_.emplace(std::in_place_index<0>, config);
    }
  }

  virtio::FeatureSet features_;
  net::DriverMemory own_;
  net::DriverQueueStart start_;
  memory::Mapping::SharedMemory umem_file_;
  std::shared_ptr<const memory::GuestMemory> memory_;
  std::vector<std::shared_ptr<const memory::GuestMemory>> kept_;
  std::unique_ptr<virtio::SegmentArena> arena_ = std::make_unique<virtio::SegmentArena>();
  std::optional<AnyDevice> device_;

 public:
  std::shared_ptr<memory::DmaMap> map =
      std::make_shared<memory::DmaMap>(net::DriverMemory::kDmaWindow);
  std::span<std::byte> umem;    // Shared as it is.
  std::vector<std::byte> heap;  // Behind a bounce area.
  memory::DmaMapping umem_mapping;
  memory::DmaMapping heap_mapping;
  net::DriverVirtqueue queue;
  std::deque<Held> held;
};

}  // namespace sluice::test
