// DeviceBench: a device ring of ours opposite a driver that writes the bytes itself.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "support/fake_guest.h"
#include "support/raw_driver.h"
#include "virtio/ring.h"

namespace sluice::test {

/// A chain's segments, however many there are.
[[nodiscard]] inline std::vector<virtio::Segment> segments_of(const virtio::Chain& chain,
                                                              const virtio::SegmentArena& arena) {
  if (chain.segment_count == 0) return {};
  if (chain.segment_count == 1) return {{chain.data, chain.length}};
  const auto all = chain.segments(arena);
  return {all.begin(), all.end()};
}

[[nodiscard]] inline std::uint64_t bytes_of(std::span<const virtio::Segment> segments) {
  std::uint64_t sum = 0;
  for (const virtio::Segment& segment : segments) sum += segment.length;
  return sum;
}

[[nodiscard]] inline bool same_segments(std::span<const virtio::Segment> a,
                                        std::span<const virtio::Segment> b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].data != b[i].data || a[i].length != b[i].length) return false;
  }
  return true;
}

/// `Kind` is one of support/ring_kinds.h.
template <class Kind>
class DeviceBench {
 public:
  explicit DeviceBench(DriverOptions options = {})
      : driver(guest, in_order(options)),
        device(driver.config()),
        arena(std::make_unique<virtio::SegmentArena>()) {}

  /// Takes up to `max` chains into the arena, which is cleared first.
  std::vector<virtio::Chain> take(std::size_t max = virtio::kTakeMax) {
    arena->clear();
    return take_more(max);
  }
  /// The same without clearing the arena.
  std::vector<virtio::Chain> take_more(std::size_t max = virtio::kTakeMax) {
    std::vector<virtio::Chain> chains(max);
    chains.resize(device.take(guest.memory(), chains, *arena));
    return chains;
  }
  void give_back(std::span<const virtio::Chain> chains, bool one_entry = false) {
    device.give_back(chains, one_entry);
  }
  /// Takes all there is and gives it back as it is. Returns how many.
  std::size_t pass(bool one_entry = false) {
    std::size_t count = 0;
    for (auto chains = take(); !chains.empty(); chains = take()) {
      give_back(chains, one_entry);
      count += chains.size();
    }
    return count;
  }
  [[nodiscard]] std::vector<virtio::Segment> segments(const virtio::Chain& chain) const {
    return segments_of(chain, *arena);
  }

  /// Posts one buffer of `length` bytes at an address of its own.
  std::optional<std::uint16_t> post(std::uint32_t length, bool writable = false) {
    return driver.post({.address = buffer(length), .length = length, .writable = writable});
  }
  /// Bytes of guest memory; a long walk gets the same ones again.
  std::uint64_t buffer(std::uint32_t length) {
    if (pool_used_ + length > kPoolSize) pool_used_ = 0;
    const std::uint64_t address = pool_ + pool_used_;
    pool_used_ += length;
    return address;
  }

  FakeGuest guest;
  typename Kind::RawDriver driver;
  typename Kind::Device device;
  std::unique_ptr<virtio::SegmentArena> arena;

 private:
  static constexpr std::uint64_t kPoolSize = 1U << 20;
  static DriverOptions in_order(DriverOptions options) {
    options.in_order = Kind::kInOrder;
    return options;
  }
  std::uint64_t pool_ = guest.allocate(kPoolSize);
  std::uint64_t pool_used_ = 0;
};

}  // namespace sluice::test
