// What the fuzz targets of both device rings share: bytes become descriptors, tables, indices and
// calls, on a hostile guest memory of a few KiB. With the flipper a thread scribbles meanwhile.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "support/device_bench.h"
#include "support/fake_guest.h"
#include "support/fuzz_input.h"
#include "support/random.h"

namespace sluice::test {

inline void require(bool promise) {
  if (!promise) std::abort();
}

/// Three small regions: two that touch, a hole, a third. Made once; each input begins with zeroes.
class FuzzGuest {
 public:
  static constexpr std::uint64_t kPage = 4096;
  static constexpr std::uint64_t kFirst = FakeGuest::kBase;
  static constexpr std::uint64_t kSecond = kFirst + 3 * kPage;
  static constexpr std::uint64_t kThird = kSecond + 2 * kPage;

  static FakeGuest& fresh() {
    static FakeGuest guest{{kFirst, 3 * kPage}, {kSecond, kPage}, {kThird, kPage}};
    guest.fill(kFirst, 3 * kPage, 0);
    guest.fill(kSecond, kPage, 0);
    guest.fill(kThird, kPage, 0);
    guest.allocate_from(kFirst);
    return guest;
  }
  /// Mostly an address in or near the regions, sometimes any.
  static std::uint64_t address(FuzzInput& in) {
    if (in.chance(8)) return in.take<std::uint64_t>();
    return kFirst - 16 + in.take<std::uint16_t>() % (6 * kPage + 32);
  }
  static std::uint32_t length(FuzzInput& in) {
    return in.chance(8) ? in.take<std::uint32_t>() : in.take<std::uint16_t>() % 300;
  }
  static bool contains(const FakeGuest& guest, const virtio::Segment& segment) {
    const auto inside = [&](std::uint64_t start, std::uint64_t size) {
      const std::byte* const first = guest.device_view(start, size);
      return segment.data >= first && segment.data + segment.length <= first + size;
    };
    return inside(kFirst, 3 * kPage) || inside(kSecond, kPage) || inside(kThird, kPage);
  }
};

/// Writes words of a few kinds all over the first bytes of the guest, where the ring lies.
class Flipper {
 public:
  Flipper(const FakeGuest& guest, std::uint64_t seed, std::uint64_t bytes)
      : thread_([this, &guest, seed, bytes] {
          Random random(seed);
          while (!stop_.load(std::memory_order_relaxed)) {
            constexpr std::array<std::uint16_t, 8> kWords = {0,    1,      2,      4,
                                                             0x80, 0x8000, 0x4000, 0xffff};
            const std::uint64_t at = FuzzGuest::kFirst + random.below(bytes / 2) * 2;
            guest.write(at, kWords[random.below(kWords.size())]);
          }
        }) {}
  ~Flipper() {
    stop_ = true;
    thread_.join();
  }
  Flipper(const Flipper&) = delete;
  Flipper& operator=(const Flipper&) = delete;

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

/// The calls on a device ring, with everything that must hold whatever the guest wrote.
template <class Kind>
class DeviceCalls {
 public:
  DeviceCalls(FakeGuest& guest, const virtio::RingConfig& config)
      : guest_(guest),
        size_(config.size),
        device_(config),
        arena_(std::make_unique<virtio::SegmentArena>()) {}

  void call(FuzzInput& in) {
    switch (in.below(8)) {
      case 0: return untake(1 + in.below(4));
      case 1: return give_back(1 + in.below(8), in.chance(2));
      case 2: device_.should_notify(); return;
      case 3: device_.set_kicks(in.chance(2)); return;
      default: return take(1 + in.below(64));
    }
  }
  void finish() {
    while (!held_.empty()) give_back(64, false);
    check();
  }

 private:
  void take(std::size_t wanted) {
    const bool broken = device_.error().has_value();
    const auto before = device_.position();
    arena_->clear();
    std::vector<virtio::Chain> out(wanted);
    const std::size_t count = device_.take(guest_.memory(), out, *arena_);
    require(count <= wanted && (!broken || count == 0));
    require(!broken || device_.position() == before);
    require(arena_->count <= virtio::SegmentArena::kSize);
    for (std::size_t i = 0; i < count; ++i) {
      use(out[i]);
      held_.push_back(out[i]);
    }
    check();
  }

  // Reads what is readable, writes what is writable: all of it must be guest memory.
  void use(virtio::Chain& chain) {
    const auto segments = segments_of(chain, *arena_);
    require(segments.size() <= virtio::kChainSegmentsMax);
    require(chain.readable_count <= chain.segment_count);
    require(Kind::kPacked ? chain.slots >= 1 && chain.slots <= size_ : chain.id < size_);
    require(bytes_of(segments) <= 0xffff'ffffU);
    for (const virtio::Segment& segment : segments) {
      require(segment.length > 0 && FuzzGuest::contains(guest_, segment));
    }
    chain.written =
        static_cast<std::uint32_t>(bytes_of(std::span(segments).subspan(chain.readable_count)));
  }

  void untake(std::size_t count) {
    count = std::min(count, held_.size());
    std::vector<virtio::Chain> tail(held_.end() - static_cast<std::ptrdiff_t>(count), held_.end());
    device_.untake(tail);
    held_.resize(held_.size() - count);
    check();
  }
  void give_back(std::size_t count, bool one_entry) {
    count = std::min({count, held_.size(), virtio::kTakeMax});
    const auto end = held_.begin() + static_cast<std::ptrdiff_t>(count);
    const std::vector<virtio::Chain> head(held_.begin(), end);
    device_.give_back(head, one_entry);
    held_.erase(held_.begin(), end);
    check();
  }
  void check() {
    require(device_.held() == held_.size());
    require(held_.size() <= size_);
    require(!device_.error() || !device_.has_work());
    require(!device_.error() || device_.error()->text != nullptr);
  }

  FakeGuest& guest_;
  std::uint32_t size_;
  typename Kind::Device device_;
  std::unique_ptr<virtio::SegmentArena> arena_;
  std::deque<virtio::Chain> held_;
};

}  // namespace sluice::test
