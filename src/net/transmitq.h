// TransmitQueue: a transmitq seen from the device. Takes the driver's frames as a burst of views.
// Spec: virtio 1.3, 5.1.6.2.
//
// The virtio header and the first bytes of each frame are copied out once, for the whole burst,
// before anything of them is looked at: the driver may change its memory at any time (SEC-13).
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "base/cache_line.h"
#include "memory/guest_memory.h"
#include "net/drop.h"
#include "net/net_header.h"
#include "net/path.h"
#include "net/transport.h"
#include "packet/offload.h"
#include "packet/packet.h"
#include "virtio/ring.h"

namespace sluice::net {

template <virtio::DeviceRing Ring>
class TransmitQueue {
 public:
  TransmitQueue(const QueueStart& start, const QueueOptions& options, DirectionCounters& counters)
      : ring_(readable_only(start.ring)),
        start_(start),
        rules_(OffloadRules::from_driver(start.features)),
        header_size_(static_cast<std::uint32_t>(header_size(start.features))),
        one_used_entry_(options.one_used_entry),
        counters_(counters) {}

  std::size_t take(packet::Burst& burst, std::size_t max) {
    burst.clear();
    arena_.clear();
    taken_ = ring_.take(*start_.memory, std::span(chains_).first(max), arena_);
    if (taken_ == 0) return 0;
    const auto chains = std::span<const virtio::Chain>(chains_).first(taken_);
    for (const virtio::Chain& chain : chains) prefetch_for_read(chain.data);
    const Sums sums = copy_heads(chains, burst);
    std::uint64_t bytes = sums.bytes;
    if (sums.marks != 0) [[unlikely]]
      bytes = accept_offloads(burst);
    counters_.packets.add(taken_);
    counters_.bytes.add(bytes);
    counters_.bursts.add();
    if (burst.count == 0) release();
    return burst.count;
  }

  void release() {
    ring_.give_back(std::span<const virtio::Chain>(chains_).first(taken_), one_used_entry_);
    if (taken_ != 0 && start_.call != nullptr && ring_.should_notify()) {
      counters_.notifications.add();
      start_.call->notify();
    }
    taken_ = 0;
  }

  void set_call(std::shared_ptr<Notifier> call) { start_.call = std::move(call); }
  [[nodiscard]] const Ring& ring() const { return ring_; }
  [[nodiscard]] Ring& ring() { return ring_; }

 private:
  [[nodiscard]] static virtio::RingConfig readable_only(virtio::RingConfig config) {
    config.readable_only = true;
    return config;
  }

  struct Sums {
    std::uint64_t bytes = 0;
    unsigned marks = 0;  // Not 0 if any packet has something left to be done to it.
  };

  // Makes a packet of each chain.
  [[gnu::noinline]] Sums copy_heads(std::span<const virtio::Chain> chains, packet::Burst& burst) {
    const std::uint32_t header_size = header_size_;
    std::uint32_t count = 0;
    Sums sums;
    for (const virtio::Chain& chain : chains) {
      packet::Packet& packet = burst.packets[count];
      if (is_plain(chain, header_size)) [[likely]] {
        // One segment that holds header and frame. NET-05: num_buffers is ignored here.
        const std::byte* const data = chain.data;
        const std::uint32_t length = chain.length - header_size;
        packet::Offload offload;
        std::memcpy(&offload, data, sizeof offload);
        packet::copy_16(packet.head.data(), data + header_size);
        // The copies must not be read from guest memory again (SPL-16).
        std::atomic_signal_fence(std::memory_order_seq_cst);
        packet.data = data + header_size;
        packet.length = length;
        packet.first_length = length;
        packet.more_first = 0;
        packet.more_count = 0;
        packet.offload = offload;
      } else if (!gather(chain, burst, packet)) {
        continue;
      }
      sums.marks |= unsigned{packet.offload.flags} | packet.offload.gso_type;
      sums.bytes += packet.length;
      ++count;
    }
    burst.count = count;
    return sums;
  }

  // A frame shorter than the head that is copied, or in several pieces, takes the long way.
  [[nodiscard]] static bool is_plain(const virtio::Chain& chain, std::uint32_t header_size) {
    return chain.segment_count == 1 && chain.readable_count == 1 &&
           chain.length >= header_size + packet::kHeadSize &&
           chain.length <= header_size + packet::kFrameMax;
  }

  // Builds a packet from a chain of any framing (NET-07, NET-08). False: dropped and counted.
  [[gnu::cold, gnu::noinline]] bool gather(const virtio::Chain& chain, packet::Burst& burst,
                                           packet::Packet& packet) {
    const std::span<const virtio::Segment> segments = readable(chain);
    std::uint64_t total = 0;
    for (const virtio::Segment& segment : segments) total += segment.length;
    if (total < header_size_ + packet::kEthernetHeaderSize) {
      return drop(DropCause::kShortChain);
    }
    if (total > header_size_ + packet::kFrameMax) return drop(DropCause::kTooLong);

    packet.length = static_cast<std::uint32_t>(total - header_size_);
    packet.more_first = static_cast<std::uint16_t>(burst.more_count);
    packet.more_count = 0;
    packet.first_length = 0;
    packet.head = {};
    std::array<std::byte, kHeaderSizeMax> header;
    std::size_t header_have = 0;
    std::size_t head_have = 0;
    for (virtio::Segment segment : segments) {
      const std::size_t part = std::min<std::size_t>(header_size_ - header_have, segment.length);
      std::memcpy(header.data() + header_have, segment.data, part);
      header_have += part;
      segment.data += part;
      segment.length -= static_cast<std::uint32_t>(part);
      if (segment.length == 0) continue;
      const std::size_t peek = std::min<std::size_t>(packet::kHeadSize - head_have, segment.length);
      std::memcpy(packet.head.data() + head_have, segment.data, peek);
      head_have += peek;
      append(segment, burst, packet);
    }
    std::memcpy(&packet.offload, header.data(), sizeof packet.offload);
    return true;
  }

  static void append(const virtio::Segment& segment, packet::Burst& burst, packet::Packet& packet) {
    if (packet.first_length == 0) {
      packet.data = segment.data;
      packet.first_length = segment.length;
      return;
    }
    // Room is guaranteed: Burst::kMoreMax is SegmentArena::kSize, which bounded the segments.
    static_assert(packet::Burst::kMoreMax >= virtio::SegmentArena::kSize);
    burst.more[burst.more_count++] = {segment.data, segment.length};
    ++packet.more_count;
  }

  [[nodiscard]] std::span<const virtio::Segment> readable(const virtio::Chain& chain) {
    if (chain.segment_count == 1) {
      single_ = {chain.data, chain.length};
      return std::span(&single_, chain.readable_count);
    }
    return chain.segments(arena_).first(chain.readable_count);
  }

  // Drops what the rules refuse and closes the gaps. Returns the bytes that are left.
  [[gnu::cold, gnu::noinline]] std::uint64_t accept_offloads(packet::Burst& burst) {
    std::uint64_t bytes = 0;
    std::uint32_t kept = 0;
    for (std::uint32_t i = 0; i < burst.count; ++i) {
      packet::Packet& packet = burst.packets[i];
      if (!rules_.accept(packet.offload, packet.length)) {
        drop(DropCause::kBadOffload);
        continue;
      }
      if (kept != i) burst.packets[kept] = burst.packets[i];
      bytes += packet.length;
      ++kept;
    }
    burst.count = kept;
    return bytes;
  }

  bool drop(DropCause cause) {
    counters_.drop(cause);
    return false;
  }

  Ring ring_;
  QueueStart start_;
  OffloadRules rules_;
  std::uint32_t header_size_;
  bool one_used_entry_;
  DirectionCounters& counters_;
  std::size_t taken_ = 0;
  virtio::Segment single_{};
  std::array<virtio::Chain, virtio::kTakeMax> chains_;
  virtio::SegmentArena arena_;
};

}  // namespace sluice::net
