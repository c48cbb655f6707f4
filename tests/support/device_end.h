// DeviceEnd: a device ring of ours on memory that a test writes by hand.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "support/device_bench.h"
#include "support/fake_guest.h"
#include "virtio/ring.h"

namespace sluice::test {

template <class Device>
class DeviceEnd {
 public:
  DeviceEnd(const FakeGuest& guest, const virtio::RingConfig& config)
      : ring(config), guest_(&guest), arena_(std::make_unique<virtio::SegmentArena>()) {}

  std::vector<virtio::Chain> take(std::size_t max = virtio::kTakeMax) {
    arena_->clear();
    std::vector<virtio::Chain> chains(max);
    chains.resize(ring.take(guest_->memory(), chains, *arena_));
    return chains;
  }
  /// Takes one chain and gives it back with `written`. False if there is none.
  bool use(std::uint32_t written = 0) {
    auto chains = take(1);
    if (chains.empty()) return false;
    chains[0].written = written;
    ring.give_back(chains, false);
    return true;
  }
  [[nodiscard]] std::vector<virtio::Segment> segments(const virtio::Chain& chain) const {
    return segments_of(chain, *arena_);
  }
  /// The code of the ring's error; fails the test if it has none or no text.
  [[nodiscard]] ErrorCode error_code() const {
    EXPECT_TRUE(ring.error().has_value());
    if (!ring.error()) return ErrorCode::kClosed;
    EXPECT_NE(ring.error()->text, nullptr);
    return ring.error()->code;
  }

  Device ring;

 private:
  const FakeGuest* guest_;
  std::unique_ptr<virtio::SegmentArena> arena_;
};

}  // namespace sluice::test
