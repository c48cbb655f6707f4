// What the fuzz targets of both driver rings share: offers and collects under a hostile device,
// with an account of every buffer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "fuzz/device_ring_fuzz.h"
#include "support/fuzz_input.h"
#include "virtio/indirect_tables.h"

namespace sluice::test {

/// By the mode of an input: with indirect tables, which the device may write to as well.
[[nodiscard]] inline virtio::RingConfig fuzz_tables(FakeGuest& guest, virtio::RingConfig config,
                                                    bool indirect) {
  const std::uint64_t bytes = virtio::IndirectTables::area_size(config.size);
  if (!indirect || bytes > 2 * FuzzGuest::kPage) return config;
  guest.allocate_from(FuzzGuest::kFirst + FuzzGuest::kPage);
  const std::uint64_t address = guest.allocate(bytes);
  config.indirect = true;
  config.indirect_area = {guest.at(address, bytes), address};
  return config;
}

template <class Kind>
class DriverCalls {
 public:
  explicit DriverCalls(const virtio::RingConfig& config)
      : size_(config.size), tables_(config.indirect), driver_(config) {}

  void call(FuzzInput& in) {
    switch (in.below(6)) {
      case 0: driver_.should_notify(); break;
      case 1: driver_.set_interrupts(in.chance(2)); break;
      case 2:
      case 3: collect(in.below(16)); break;
      default: offer(in);
    }
    check();
  }

 private:
  struct Buffer {
    std::uint32_t slots;
    std::uint64_t writable;
  };

  void offer(FuzzInput& in) {
    std::vector<virtio::OfferSegment> segments(in.below(4));
    const bool table = tables_ && segments.size() > 1 && segments.size() <= size_;
    Buffer buffer{table ? 1 : static_cast<std::uint32_t>(segments.size()), 0};
    for (std::size_t i = 0; i < segments.size(); ++i) {
      const bool writable = i > 0 || segments.size() == 1;
      segments[i] = {in.take<std::uint64_t>(), in.take<std::uint16_t>(), writable};
      if (writable) buffer.writable += segments[i].length;
    }
    const virtio::Offer one{segments, next_};
    const bool broken = driver_.error().has_value();
    const auto plain = [&](std::size_t) {
      return virtio::PlainOffer{segments[0].address, segments[0].length, next_};
    };
    const std::size_t count =
        segments.size() == 1 ? driver_.template offer_plain<virtio::DeviceUse::kWrites>(1, plain)
                             : driver_.offer(std::span(&one, 1));
    const bool fits = !segments.empty() && buffer.slots <= free_;
    require(count == (fits && !broken ? 1U : 0U));
    if (count == 0) return;
    outstanding_[next_++] = buffer;
    free_ -= buffer.slots;
  }

  void collect(std::size_t most) {
    const bool broken = driver_.error().has_value();
    std::vector<virtio::Collected> out(most);
    const std::size_t count = driver_.collect(out);
    require(count <= most && (!broken || count == 0));
    for (std::size_t i = 0; i < count; ++i) {
      const auto found = outstanding_.find(out[i].token);
      require(found != outstanding_.end());  // Each buffer comes back once.
      require(out[i].written <= found->second.writable);
      require(!Kind::kInOrder || found == outstanding_.begin());
      free_ += found->second.slots;
      outstanding_.erase(found);
    }
  }

  void check() {
    require(driver_.free_slots() == free_);
    require(driver_.outstanding() == outstanding_.size());
    require(!driver_.error() || !driver_.has_used());
  }

  std::uint32_t size_;
  bool tables_;  // Buffers of several segments take one slot.
  typename Kind::Driver driver_;
  std::uint32_t next_ = 0;
  std::size_t free_ = size_;
  std::map<std::uint32_t, Buffer> outstanding_;  // By token, hence by age.
};

}  // namespace sluice::test
