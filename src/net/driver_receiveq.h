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
      for (std::uint32_t i = 0; i < count; ++i) collected_[i].token = first + i;
      held_ = count;
      repost();
      first += count;
    }
  }

  std::size_t receive(std::span<DriverFrame> out) {
    CHECK(held_ + out.size() <= collected_.size(), "frames are reposted before there are too many");
    const std::span<virtio::Collected> room = std::span(collected_).subspan(held_);
    const std::size_t count = ring_.collect(room.first(std::min(out.size(), kDriverBurstMax)));
    const std::span<const virtio::Collected> items = room.first(count);
    held_ += count;
    for (const virtio::Collected& item : items) prefetch_for_read(buffer(item.token));
    // Copied once, before anything in them is looked at: the device may write on (H25). A buffer
    // that continues a packet has no header; then the copy is not used.
    std::array<virtio::virtio_net_hdr_v1, kDriverBurstMax> headers;
    for (std::size_t i = 0; i < count; ++i) {
      std::memcpy(&headers[i], buffer(items[i].token), sizeof headers[i]);
    }
    std::atomic_signal_fence(std::memory_order_seq_cst);
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const virtio::Collected& item = items[i];
      std::byte* const start = buffer(item.token);
      DriverFrame& frame = out[i];
      frame.token = item.token;
      if (merge_left_ != 0) {  // Payload goes on without a header of its own.
        frame.data = start;
        frame.length = item.written;
        frame.offload = {};
        frame.continues = --merge_left_;
      } else {
        use_header(headers[i], item.written, frame);
        frame.data = start + header_size_;
      }
      bytes += frame.length;
    }
    counters_.packets.add(count);
    counters_.bytes.add(bytes);
    return count;
  }

  void repost() {
    if (held_ == 0) return;
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
    ring_.recall(back);
    held_ = 0;
    merge_left_ = 0;
  }

  [[nodiscard]] const Ring& ring() const { return ring_; }
  [[nodiscard]] Ring& ring() { return ring_; }
  [[nodiscard]] const DriverCounters& counters() const { return counters_; }

 private:
  void use_header(const virtio::virtio_net_hdr_v1& header, std::uint32_t written,
                  DriverFrame& frame) {
    frame.offload = {header.flags,    header.gso_type,   header.hdr_len,
                     header.gso_size, header.csum_start, header.csum_offset};
    frame.length = written > header_size_ ? written - header_size_ : 0;
    frame.continues = 0;
    if (written < header_size_) [[unlikely]]
      counters_.bad_headers.add();
    if (!mergeable_ || header.num_buffers == 1) [[likely]]
      return;
    // NET-09: a packet cannot take more buffers than there are.
    if (header.num_buffers == 0 || header.num_buffers > start_.ring.size) {
      counters_.bad_headers.add();
      return;
    }
    merge_left_ = static_cast<std::uint16_t>(header.num_buffers - 1);
    frame.continues = merge_left_;
  }

  [[nodiscard]] std::byte* buffer(std::uint32_t token) const {
    return start_.buffers.data() + token * start_.buffer_stride;
  }

  Ring ring_;
  DriverQueueStart start_;
  std::uint32_t header_size_;
  bool mergeable_;
  std::uint16_t merge_left_ = 0;  // Buffers of the current packet still to come.
  std::size_t held_ = 0;          // Entries of collected_ that the application has.
  DriverCounters counters_;
  std::array<virtio::Collected, kDriverHeldMax> collected_{};
};

}  // namespace sluice::net
