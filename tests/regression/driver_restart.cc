// H13, H28: after a reset or another configuration, device and driver begin at the same place in
// the same memory, and nothing of an earlier life is left.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "net/net_driver.h"
#include "support/backend_thread.h"
#include "support/driver_pair.h"
#include "support/scripted_backend.h"
#include "vhost/frontend.h"
#include "virtio/queue_config.h"

namespace sluice::vhost {
namespace {

using net::NetDriver;
using net::NetDriverOptions;
using net::QueueIndex;
using test::BackendThread;
using test::DriverPair;
using test::ScriptedBackend;
using virtio::Feature;
using virtio::FeatureSet;

FeatureSet kind(bool packed) {
  return packed ? FeatureSet{Feature::kRingPacked} : FeatureSet{};
}

class DriverRestart : public ::testing::TestWithParam<bool> {
 protected:
  [[nodiscard]] std::unique_ptr<Frontend> meet() {
    auto frontend = Frontend::adopt(backend_.start(), {});
    EXPECT_TRUE(frontend);
    return std::move(*frontend);
  }
  std::unique_ptr<NetDriver> create(NetDriverOptions options) {
    options.required = kind(GetParam());
    auto driver = NetDriver::create(options, meet());
    EXPECT_TRUE(driver);
    return std::move(*driver);
  }
  // Both directions of every pair, and as many packets as go round the ring more than once.
  void exchange(NetDriver& driver, std::size_t count) {
    for (std::uint16_t pair = 0; pair < driver.queue_pairs(); ++pair) {
      DriverPair queues(driver, pair);
      const std::size_t receiveq = std::size_t{pair} * 2;
      const std::size_t before = backend_.served(receiveq + 1);
      backend_.allow(receiveq, count, 72);
      backend_.allow(receiveq + 1, count, 0);
      std::size_t sent = 0;
      ASSERT_TRUE(test::wait_for([&] {
        sent += queues.send(count - sent);
        return sent == count && backend_.served(receiveq + 1) == before + count;
      }));
      ASSERT_EQ(queues.receive(count), count);
    }
  }

  BackendThread backend_;
};

TEST_P(DriverRestart, H13_BothDirectionsWorkAfterEveryReset) {
  const auto driver = create({.queue_size = 256});
  for (int cycle = 0; cycle < 3; ++cycle) {
    ASSERT_TRUE(driver->start());
    exchange(*driver, 256);  // Every receive buffer was used once.
    ASSERT_TRUE(driver->reset());
  }
  // Once more after the back-end was replaced, which is what a restore looks like from here.
  backend_.stop();
  ASSERT_TRUE(driver->reconnect(meet()));
  ASSERT_TRUE(driver->start());
  exchange(*driver, 600);
  EXPECT_EQ(backend_.with_device([](auto& device) { return device.complaint(); }), "");
}

TEST_P(DriverRestart, H28_EveryChangeOfConfigurationIsAnnouncedBeforeUse) {
  const auto driver = create({.queue_size = 256});
  ASSERT_TRUE(driver->start());
  exchange(*driver, 300);
  const std::size_t mappings = memory::Mapping::live_count();
  const std::pair<std::uint16_t, std::uint32_t> steps[] = {{1, 256}, {2, 256}, {1, 256},
                                                           {1, 512}, {2, 512}, {1, 256}};
  for (const bool restart : {false, true}) {
    for (const auto& [pairs, size] : steps) {
      if (restart) backend_.stop();
      EXPECT_EQ(driver->stop().has_value(), !restart);
      if (restart) {
        ASSERT_TRUE(driver->reconnect(meet()));
      }
      ASSERT_TRUE(driver->reconfigure(pairs, size));
      ASSERT_TRUE(driver->start());
      EXPECT_EQ(driver->queue(QueueIndex(0))->ring.size, size);
      exchange(*driver, 2 * std::size_t{size} + 1);
      EXPECT_EQ(backend_.view().memory_bytes, driver->memory().bytes().size());
    }
  }
  EXPECT_EQ(memory::Mapping::live_count(), mappings);
  EXPECT_EQ(backend_.with_device([](auto& device) { return device.complaint(); }), "");
}

TEST_P(DriverRestart, H28_AThousandReconfigurationsDoNotGrow) {
  const auto driver = create({.queue_size = 16});
  ASSERT_TRUE(driver->start());
  const std::size_t mappings = memory::Mapping::live_count();
  for (int i = 0; i < 500; ++i) {
    ASSERT_TRUE(driver->stop());
    ASSERT_TRUE(driver->reconfigure(i % 2 == 0 ? 2 : 1, i % 4 < 2 ? 32 : 16));
    ASSERT_TRUE(driver->start());
    if (i % 50 == 0) exchange(*driver, 70);
  }
  ASSERT_TRUE(driver->stop());
  ASSERT_TRUE(driver->reconfigure(1, 16));
  ASSERT_TRUE(driver->start());
  exchange(*driver, 70);
  EXPECT_EQ(memory::Mapping::live_count(), mappings);
}

INSTANTIATE_TEST_SUITE_P(Formats, DriverRestart, ::testing::Bool(),
                         [](const auto& format) { return format.param ? "Packed" : "Split"; });

// The same seen on the wire and in memory, by a back-end that shares no code with the product.
TEST(DriverRestartOnTheWire, H13_TheBaseIsZeroAndTheRingCleanAfterEveryReset) {
  for (const bool packed : {false, true}) {
    ScriptedBackend backend;
    backend.features = 1ULL << 30 | 1ULL << 32 | 1ULL << 34;
    backend.protocol_features = 1 << 3 | 1 << 13 | 1 << 16;
    auto frontend = Frontend::adopt(backend.start(), {});
    ASSERT_TRUE(frontend);
    auto driver = NetDriver::create({.required = kind(packed)}, std::move(*frontend));
    ASSERT_TRUE(driver);
    for (int cycle = 1; cycle <= 4; ++cycle) {
      ASSERT_TRUE((*driver)->start());
      const virtio::RingConfig ring = (*driver)->memory().ring(QueueIndex(0));
      const auto sizes = virtio::QueueConfig::area_sizes(ring.size, (*driver)->features());
      const auto clean = [](const std::byte* from, std::uint64_t bytes) {
        return std::all_of(from, from + bytes, [](std::byte b) { return b == std::byte{0}; });
      };
      EXPECT_TRUE(clean(ring.descriptors, sizes.descriptors));
      EXPECT_TRUE(clean(ring.device_area, sizes.device_area));
      EXPECT_TRUE(clean(ring.driver_area + 4, sizes.driver_area - 4));
      std::size_t bases = 0;
      for (const auto& entry : backend.log()) {
        if (entry.id != 10) continue;  // SET_VRING_BASE
        std::uint32_t base = 1;
        std::memcpy(&base, entry.payload.data() + 4, sizeof base);
        EXPECT_EQ(base, packed ? 0x8000'8000U : 0U);
        ++bases;
      }
      EXPECT_EQ(bases, 2U * static_cast<std::size_t>(cycle));
      // 256 receive buffers are posted, and the device used them all.
      const DriverPair pair(**driver);
      std::fill_n(ring.device_area, sizes.device_area, std::byte{1});
      ASSERT_TRUE((*driver)->reset());
    }
  }
}

}  // namespace
}  // namespace sluice::vhost
