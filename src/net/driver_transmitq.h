// DriverTransmitRing: a transmitq seen from the driver, for one kind of ring.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <utility>
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
    free_ = start.own_buffers->numbers;
    free_.resize(start.ring.size);
    // NET-05: num_buffers is 0 in what a driver sends; a header without marks is all zero.
    for (const std::uint32_t token : free_) std::memset(buffer(token), 0, header_size_);
  }

  std::size_t reserve(std::span<DriverFrame> out) {
    const std::size_t count = make_room(std::min(out.size(), kDriverBurstMax));
    std::uint32_t place = next_;
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint32_t token = free_[place];
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

  template <class ReceiveRing>
  std::size_t forward(ReceiveRing& from, std::span<const DriverFrame> frames) {
    if (from.start().memory != start_.memory) return 0;
    const std::size_t room = make_room(std::min(frames.size(), kDriverBurstMax));
    const std::span<virtio::Collected> held = from.held();
    std::uint32_t place = next_;
    std::size_t at = 0;
    std::size_t count = 0;
    for (; count < room; ++count) {
      const DriverFrame& frame = frames[count];
      while (at < held.size() && held[at].token != frame.token) ++at;
      // Parts of a merged packet are told by what follows, or by having no header.
      if (at == held.size() || frame.continues != 0 ||
          frame.data != buffer(frame.token) + header_size_) {
        break;
      }
      std::swap(held[at++].token, free_[place]);
      place = following(place);
    }
    if (count == 0) return 0;
    start_.own_buffers->stale = from.start().own_buffers->stale = true;
    marked_any_ = true;  // The device wrote these headers.
    submit(frames.first(count));
    return count;
  }

  void recall(const std::function<void(std::uint32_t)>& back) {
    if (std::exchange(recalled_, true)) return;  // The list may be another queue's by now.
    DriverBuffers& own = *start_.own_buffers;
    if constexpr (kInOrder) {
      std::ranges::copy(free_, own.numbers.begin());
      ring_.recall(back);
    } else {
      std::size_t count = 0;
      for (std::uint32_t place = next_; count < ring_.free_slots(); place = following(place)) {
        own.numbers[count++] = free_[place];
      }
      ring_.recall([&](std::uint32_t token) {
        own.numbers[count++] = token;
        back(token);
      });
    }
    own.stale = false;
  }

  [[nodiscard]] const Ring& ring() const { return ring_; }
  [[nodiscard]] const DriverCounters& counters() const { return counters_; }

 private:
  static constexpr bool kInOrder = Ring::kRingOrder == virtio::Order::kInOrder;

  // Frees what the device has sent if there are fewer free buffers than `wanted`. Returns how many
  // of those there are.
  std::size_t make_room(std::size_t wanted) {
    if (const std::size_t free = ring_.free_slots(); free < wanted) reclaim(wanted - free);
    // A ring that broke sends nothing, so it has no room either.
    if (ring_.error()) [[unlikely]]
      return 0;
    return std::min(wanted, ring_.free_slots());
  }

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

  void write_marks(const DriverFrame& frame) {
    marked_any_ = true;
    std::byte* const header = buffer(frame.token);
    std::memset(header, 0, sizeof(virtio::virtio_net_hdr_v1));  // num_buffers too (NET-05).
    if (frame.offload.none()) [[likely]]
      return;
    // Spec: virtio 1.3, 5.1.6.2: a driver sends no DATA_VALID.
    packet::Offload marks = frame.offload;
    marks.flags &= virtio::kHdrNeedsCsum;
    std::memcpy(header, &marks, sizeof marks);
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
  std::uint32_t next_ = 0;           // Place in free_ of the next one to go out.
  std::uint32_t returned_ = 0;       // Any order: place where the next one to come back is entered.
  std::vector<std::uint32_t> free_;  // In order: the buffer of each slot; else a queue of the free.
  bool recalled_ = false;
  bool marked_any_ = false;  // Headers may hold marks, so each is written from now on.
  DriverCounters counters_;
  std::array<virtio::Collected, kDriverBurstMax> collected_{};
};

}  // namespace sluice::net
