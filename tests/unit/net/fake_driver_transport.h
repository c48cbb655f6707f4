// A device for NetDriver tests that holds the driver to the order of steps, maps its memory and
// looks at every ring the moment it is started.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "memory/guest_memory.h"
#include "memory/mapping.h"
#include "net/driver_transport.h"
#include "virtio/queue_config.h"

namespace sluice::net {

class FakeDriverTransport final : public DriverTransport {
 public:
  struct Ring {
    RingSetup setup;
    bool running = false;
    bool enabled = false;
    int starts = 0;
  };
  // What tests set and look at; outlives the transport, which the driver owns.
  struct State {
    DeviceOffer offered;
    std::vector<std::byte> config;
    bool serves_config = false;
    std::string fail_at;  // Name of the call that fails.
    std::map<int, Ring> rings;
    virtio::FeatureSet features;
    memory::Mapping memory;
    std::uint64_t user_base = 0;
    std::uint64_t guest_base = 0;
    std::vector<memory::RegionRecord> regions;  // As shared last.
    std::size_t max_regions = 8;
    std::vector<std::string> calls;
    bool alive = true;

    std::byte* at(memory::UserAddress address) const {
      return memory.bytes().data() + (address.raw() - user_base);
    }
    int running() const {
      return static_cast<int>(
          std::count_if(rings.begin(), rings.end(), [](auto& r) { return r.second.running; }));
    }
  };

  explicit FakeDriverTransport(std::shared_ptr<State> state) : state_(std::move(state)) {}

  Result<DeviceOffer> offer() override {
    TRY(step("offer"));
    return state_->offered;
  }

  Status start(const DeviceStart& start) override {
    TRY(step("start"));
    EXPECT_EQ(state_->running(), 0) << "started while rings run";
    EXPECT_TRUE(state_->offered.features.contains(start.features));
    TRY(take(start.regions));
    const SharedRegion& region = start.regions[0];
    state_->features = start.features;
    state_->user_base = region.record.user.raw();
    state_->guest_base = region.record.guest.raw();
    state_->memory =
        TRY(memory::Mapping::map_file(region.fd, region.record.offset, region.record.size));
    state_->rings.clear();
    for (const RingSetup& ring : start.rings) start_ring(ring);
    return {};
  }

  Status set_memory(std::span<const SharedRegion> regions) override {
    TRY(step("set_memory"));
    return take(regions);
  }

  Status start_queue(const RingSetup& ring) override {
    TRY(step("start_queue"));
    start_ring(ring);
    return {};
  }

  Result<virtio::RingPosition> stop_queue(QueueIndex queue) override {
    TRY(step("stop_queue"));
    Ring& ring = state_->rings.at(queue.raw());
    ring.running = false;
    return virtio::RingPosition{.avail = 77, .used = 77};  // Old news: nobody may go on from it.
  }

  Status enable_queue(QueueIndex queue, bool enabled) override {
    TRY(step(enabled ? "enable" : "disable"));
    state_->rings.at(queue.raw()).enabled = enabled;
    return {};
  }

  Status reset() override {
    TRY(step("reset"));
    for (auto& [index, ring] : state_->rings) ring.running = false;
    return {};
  }

  Result<std::size_t> read_config(std::uint32_t offset, std::span<std::byte> out) override {
    if (!state_->serves_config) return fail(ErrorCode::kNotNegotiated, "no configuration space");
    if (offset >= state_->config.size()) return 0;
    const std::size_t n = std::min(out.size(), state_->config.size() - offset);
    std::copy_n(state_->config.begin() + offset, n, out.begin());
    return n;
  }
  Status set_mtu(std::uint16_t) override { return {}; }
  bool connected() override { return state_->alive; }
  std::uint64_t config_changes() override { return 0; }

 private:
  Status step(const char* name) {
    state_->calls.emplace_back(name);
    if (state_->fail_at == name) {
      state_->fail_at.clear();
      return fail(ErrorCode::kClosed, "the fake device was told to fail");
    }
    return {};
  }

  // Regions must be mappable and lie apart.
  Status take(std::span<const SharedRegion> regions) {
    if (regions.size() > state_->max_regions) return fail(ErrorCode::kOutOfRange, "few regions");
    std::vector<std::shared_ptr<const memory::Region>> mapped;
    state_->regions.clear();
    for (const SharedRegion& region : regions) {
      mapped.push_back(TRY(memory::Region::map(region.record, region.fd)));
      state_->regions.push_back(region.record);
    }
    EXPECT_TRUE(memory::GuestMemory::create(std::move(mapped)).has_value()) << "regions overlap";
    return {};
  }

  void start_ring(const RingSetup& setup) {
    Ring& ring = state_->rings[setup.queue.raw()];
    EXPECT_FALSE(ring.running) << "ring started twice";
    ring.setup = setup;
    ring.running = true;
    ring.enabled = setup.enabled;
    ++ring.starts;
    expect_clean(setup);
  }

  // A ring that starts holds nothing but the wish for silence (H13).
  void expect_clean(const RingSetup& setup) {
    const bool packed = state_->features.has(virtio::Feature::kRingPacked);
    const auto sizes = virtio::QueueConfig::area_sizes(setup.size, state_->features);
    const std::uint16_t start = packed ? 0x8000 : 0;
    EXPECT_EQ(setup.position.avail, start);
    EXPECT_EQ(setup.position.used, start);
    EXPECT_EQ(non_zero(setup.descriptors, 0, sizes.descriptors), 0U);
    EXPECT_EQ(non_zero(setup.device_area, 0, sizes.device_area), 0U);
    std::uint64_t quiet = 0;  // Where the driver area says "no interrupts".
    std::uint16_t value = 1;
    if (packed) {
      quiet = 2;
    } else if (state_->features.has(virtio::Feature::kEventIdx)) {
      quiet = sizes.driver_area - 2;
      value = 0xffff;
    }
    std::uint16_t seen = 0;
    std::memcpy(&seen, state_->at(setup.driver_area) + quiet, sizeof seen);
    EXPECT_EQ(seen, value);
    EXPECT_EQ(non_zero(setup.driver_area, 0, quiet), 0U);
    EXPECT_EQ(non_zero(setup.driver_area, quiet + 2, sizes.driver_area), 0U);
  }

  std::size_t non_zero(memory::UserAddress area, std::uint64_t from, std::uint64_t to) const {
    const std::byte* bytes = state_->at(area);
    return static_cast<std::size_t>(
        std::count_if(bytes + from, bytes + to, [](std::byte b) { return b != std::byte{0}; }));
  }

  std::shared_ptr<State> state_;
};

}  // namespace sluice::net
