// DriverTransmitRing: a transmitq seen from the driver, for one kind of ring.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <span>
#include <vector>

#include "base/cache_line.h"
#include "net/driver_queue.h"
#include "net/driver_start.h"
#include "net/net_header.h"
#include "virtio/ring.h"

namespace sluice::net {

template <virtio::DriverRing Ring>
class DriverTransmitRing {
 public:
  explicit DriverTransmitRing(const DriverQueueStart& start)
      : ring_(start.ring),
        start_(start),
        header_size_(static_cast<std::uint32_t>(header_size(start.features))),
        capacity_(static_cast<std::uint32_t>(start.buffer_size) - header_size_) {
    ring_.set_interrupts(false);
    if constexpr (!kInOrder) {
      free_.resize(start.ring.size);
      std::iota(free_.begin(), free_.end(), std::uint32_t{0});
    }
    // NET-05: num_buffers is 0 in what a driver sends; a header without marks is all zero.
    for (std::uint32_t i = 0; i < start.ring.size; ++i) std::memset(buffer(i), 0, header_size_);
  }

  std::size_t reserve(std::span<DriverFrame> out) {
    const std::size_t wanted = std::min(out.size(), kDriverBurstMax);
    if (const std::size_t free = ring_.free_slots(); free < wanted) reclaim(wanted - free);
    // A ring that broke sends nothing, so it has no room either.
    if (ring_.error()) [[unlikely]]
      return 0;
    const std::size_t count = std::min(wanted, ring_.free_slots());
    std::uint32_t place = next_;
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint32_t token = kInOrder ? place : free_[place];
      out[i].data = buffer(token) + header_size_;
      prefetch_for_write(buffer(token));
      prefetch_for_write(buffer(token) + kCacheLine);
      out[i].length = capacity_;
      out[i].token = token;
      out[i].offload = {};
      place = following(place);
    }
    return count;
  }

  void submit(std::span<const DriverFrame> frames) {
    std::uint64_t bytes = 0;
    const std::uint64_t base = start_.buffers_guest_address;
    const std::uint64_t stride = start_.buffer_stride;
    const std::uint32_t header = header_size_;
    const std::uint32_t capacity = capacity_;
    const std::size_t sent =
        ring_.template offer_plain<virtio::DeviceUse::kReads>(frames.size(), [&](std::size_t i) {
          const DriverFrame& frame = frames[i];
          if (!frame.offload.none() || marked_any_) [[unlikely]]
            write_marks(frame);
          const std::uint32_t length = std::min(frame.length, capacity);
          bytes += length;
          return virtio::PlainOffer{.address = base + frame.token * stride,
                                    .length = header + length,
                                    .token = frame.token};
        });
    next_ = static_cast<std::uint32_t>((next_ + sent) % start_.ring.size);
    counters_.packets.add(sent);
    counters_.bytes.add(bytes);
    if (sent != 0 && start_.kick != nullptr && ring_.should_notify()) {
      counters_.kicks.add();
      start_.kick->signal();
    }
  }

  void recall(const std::function<void(std::uint32_t)>& back) { ring_.recall(back); }

  [[nodiscard]] const Ring& ring() const { return ring_; }
  [[nodiscard]] const DriverCounters& counters() const { return counters_; }

 private:
  static constexpr bool kInOrder = Ring::kRingOrder == virtio::Order::kInOrder;

  void reclaim(std::size_t wanted) {
    if constexpr (kInOrder) {
      // Spec: virtio 1.3, 2.7.9, 2.8.18: what was offered first comes back first, so the ring need
      // not say which buffers these are.
      ring_.collect_count(wanted);
    } else {
      while (const std::size_t count = ring_.collect(collected_)) {
        for (std::size_t i = 0; i < count; ++i) {
          free_[returned_] = collected_[i].token;
          returned_ = following(returned_);
        }
        if (count < collected_.size()) break;
      }
    }
  }

  [[gnu::cold, gnu::noinline]] void write_marks(const DriverFrame& frame) {
    std::memcpy(buffer(frame.token), &frame.offload, sizeof frame.offload);
    marked_any_ = true;
  }

  [[nodiscard]] std::uint32_t following(std::uint32_t place) const {
    return place + 1 == start_.ring.size ? 0 : place + 1;
  }
  [[nodiscard]] std::byte* buffer(std::uint32_t token) const {
    return start_.buffers.data() + token * start_.buffer_stride;
  }

  Ring ring_;
  DriverQueueStart start_;
  std::uint32_t header_size_;
  std::uint32_t capacity_;
  // Buffers go out in turn: in order, that of the ring's slot; else the one longest free, so that
  // it meets the descriptor it had before (see virtio/split_driver.h).
  std::uint32_t next_ = 0;           // In order: buffer; else place in free_.
  std::uint32_t returned_ = 0;       // Any order: where the next free buffer is entered.
  std::vector<std::uint32_t> free_;  // Any order: a queue of buffers, as many places as buffers.
  bool marked_any_ = false;          // Headers may hold marks, so each is written from now on.
  DriverCounters counters_;
  std::array<virtio::Collected, kDriverBurstMax> collected_{};
};

}  // namespace sluice::net
