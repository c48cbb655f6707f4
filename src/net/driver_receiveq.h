// DriverReceiveRing: a receiveq seen from the driver, for one kind of ring.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <utility>

#include "base/cache_line.h"
#include "base/check.h"
#include "net/driver_queue.h"
#include "net/driver_start.h"
#include "net/net_header.h"
#include "virtio/features.h"
#include "virtio/ring.h"

namespace sluice::net {

template <virtio::DriverRing Ring>
class DriverReceiveRing {
 public:
  explicit DriverReceiveRing(const DriverQueueStart& start)
      : ring_(start.ring),
        start_(start),
        header_size_(static_cast<std::uint32_t>(header_size(start.features))),
        mergeable_(start.features.has(virtio::Feature::kMrgRxbuf)) {
    ring_.set_interrupts(false);
    for (std::uint32_t first = 0; first < start.ring.size;) {
      const auto count = static_cast<std::uint32_t>(
          std::min<std::size_t>(kDriverBurstMax, start.ring.size - first));
      for (std::uint32_t i = 0; i < count; ++i) {
        collected_[i].token = start.own_buffers->numbers[first + i];
      }
      held_ = count;
      repost();
      first += count;
    }
  }

  std::size_t receive(std::span<DriverFrame> out) {
    if (ring_.error()) [[unlikely]]
      return 0;
    CHECK(held_ + out.size() <= collected_.size(), "frames are reposted before there are too many");
    const std::span<virtio::Collected> room = std::span(collected_).subspan(held_);
    const std::size_t count = ring_.collect(room.first(std::min(out.size(), kDriverBurstMax)));
    const std::span<const virtio::Collected> items = room.first(count);
    held_ += count;
    std::uint64_t bytes = 0;
    std::byte* const base = start_.buffers.data();  // Copies, since frames could alias members.
    const std::size_t stride = start_.buffer_stride;
    const std::uint32_t header_size = header_size_;
    // Without merging, num_buffers may be anything (5.1.6.4).
    const std::uint16_t counted = mergeable_ ? 0xffff : 0;
    std::uint16_t merge_left = merge_left_;
    for (const virtio::Collected& item : items) prefetch_for_read(base + item.token * stride);
    for (std::size_t i = 0; i < count; ++i) {
      const virtio::Collected item = items[i];
      DriverFrame& frame = out[i];
      std::byte* const start = base + item.token * stride;
      // Copied once, before anything in it is looked at: the device may write on (H25). A buffer
      // that continues a packet has no header; then the copy is not used.
      virtio::virtio_net_hdr_v1 header;
      std::memcpy(&header, start, sizeof header);
      std::atomic_signal_fence(std::memory_order_seq_cst);
      frame.data = start + header_size;
      frame.length = item.written - header_size;
      frame.token = item.token;
      frame.offload = {header.flags,    header.gso_type,   header.hdr_len,
                       header.gso_size, header.csum_start, header.csum_offset};
      frame.continues = 0;
      const bool merged = ((header.num_buffers ^ 1) & counted) != 0;
      if (merge_left != 0 || item.written < header_size || merged) [[unlikely]]
        merge_left = use_odd(item, header.num_buffers, merge_left, frame);
      bytes += frame.length;
    }
    merge_left_ = merge_left;
    counters_.packets.add(count);
    counters_.bytes.add(bytes);
    return count;
  }

  void repost() {
    // A ring that broke takes nothing: what is held stays so until recall().
    if (held_ == 0 || ring_.error()) return;
    const std::uint64_t base = start_.buffers_guest_address;
    const std::uint64_t stride = start_.buffer_stride;
    const auto size = static_cast<std::uint32_t>(start_.buffer_size);
    ring_.template offer_plain<virtio::DeviceUse::kWrites>(held_, [&](std::size_t i) {
      const std::uint32_t token = collected_[i].token;
      return virtio::PlainOffer{.address = base + token * stride, .length = size, .token = token};
    });
    held_ = 0;
    if (start_.kick != nullptr && ring_.should_notify()) {
      counters_.kicks.add();
      start_.kick->signal();
    }
  }

  void recall(const std::function<void(std::uint32_t)>& back) {
    if (std::exchange(recalled_, true)) return;  // The list may be another queue's by now.
    DriverBuffers& own = *start_.own_buffers;
    std::size_t count = 0;
    for (; count < held_; ++count) own.numbers[count] = collected_[count].token;
    ring_.recall([&](std::uint32_t token) {
      own.numbers[count++] = token;
      back(token);
    });
    CHECK(count == start_.ring.size, "each buffer is held or outstanding");
    own.stale = false;
    held_ = 0;
    merge_left_ = 0;
  }

  /// What the application has: for DriverTransmitRing::forward().
  [[nodiscard]] std::span<virtio::Collected> held() { return std::span(collected_).first(held_); }
  [[nodiscard]] const DriverQueueStart& start() const { return start_; }
  [[nodiscard]] const Ring& ring() const { return ring_; }
  [[nodiscard]] Ring& ring() { return ring_; }
  [[nodiscard]] const DriverCounters& counters() const { return counters_; }

 private:
  // A buffer that is part of a merged packet, or whose lengths cannot be. Returns how many buffers
  // of its packet follow.
  [[gnu::cold, gnu::noinline]] std::uint16_t use_odd(const virtio::Collected& item,
                                                     std::uint16_t num_buffers,
                                                     std::uint16_t merge_left, DriverFrame& frame) {
    if (merge_left != 0) {  // Payload goes on without a header of its own.
      frame.data -= header_size_;
      frame.length = item.written;
      frame.offload = {};
      return frame.continues = --merge_left;
    }
    if (item.written < header_size_) {
      counters_.bad_headers.add();
      frame.length = 0;
    }
    if (!mergeable_ || num_buffers == 1) return 0;
    // NET-09: a packet cannot take more buffers than there are.
    if (num_buffers == 0 || num_buffers > start_.ring.size) {
      counters_.bad_headers.add();
      return 0;
    }
    return frame.continues = static_cast<std::uint16_t>(num_buffers - 1);
  }

  Ring ring_;
  DriverQueueStart start_;
  std::uint32_t header_size_;
  bool mergeable_;
  bool recalled_ = false;
  std::uint16_t merge_left_ = 0;  // Buffers of the current packet still to come.
  std::size_t held_ = 0;          // Entries of collected_ that the application has.
  DriverCounters counters_;
  std::array<virtio::Collected, kDriverHeldMax> collected_{};
};

}  // namespace sluice::net
