// NetDriverTest: a NetDriver opposite a FakeDriverTransport.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "fake_driver_transport.h"
#include "net/net_driver.h"

namespace sluice::net {

/// A device that has everything.
class NetDriverTest : public ::testing::Test {
 protected:
  using State = FakeDriverTransport::State;
  NetDriverTest() {
    state_->offered.features =
        kDriverFeatures | virtio::FeatureSet{virtio::Feature::kMq, virtio::Feature::kMac};
    state_->offered.max_queue_pairs = 8;
  }
  Result<std::unique_ptr<NetDriver>> create(const NetDriverOptions& options) {
    return NetDriver::create(options, std::make_unique<FakeDriverTransport>(state_));
  }
  std::unique_ptr<NetDriver> must_create(const NetDriverOptions& options) {
    auto driver = create(options);
    EXPECT_TRUE(driver.has_value()) << (driver ? "" : driver.error().text);
    return driver ? std::move(*driver) : nullptr;
  }
  // What traffic leaves behind: every byte of every ring is used.
  void soil(const NetDriver& driver) {
    const auto bytes = driver.memory().bytes();
    std::fill(bytes.begin(), bytes.end(), std::byte{0xa5});
  }
  std::size_t calls_of(const std::string& name) const {
    return static_cast<std::size_t>(std::count(state_->calls.begin(), state_->calls.end(), name));
  }

  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace sluice::net
