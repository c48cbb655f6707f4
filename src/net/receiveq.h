// ReceiveQueue: a receiveq seen from the device. Copies a burst into the driver's buffers.
// Spec: virtio 1.3, 5.1.6.3, 5.1.6.4.
//
// The usual packet (no marks, one piece, fits one buffer) is handled in deliver()'s loop; all
// others go through place(), which scatters any frame over any buffers, and complete(), which first
// does in software what the driver did not negotiate.
//
// Held between calls: nothing. Buffers taken and not filled go back unseen (untake).
#pragma once

#include <algorithm>
#include <array>
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
#include "net/software_offload.h"
#include "net/transport.h"
#include "packet/copy.h"
#include "packet/offload.h"
#include "packet/packet.h"
#include "virtio/ring.h"

namespace sluice::net {

/// Whether VIRTIO_NET_F_MRG_RXBUF was negotiated.
enum class RxBuffers : bool { kSingle, kMergeable };

template <virtio::DeviceRing Ring, RxBuffers kBuffers>
class ReceiveQueue {
 public:
  /// Most buffers merged for one packet. 64 KiB into the smallest buffers Linux posts is 44.
  static constexpr std::size_t kMergeMax = virtio::kTakeMax;

  ReceiveQueue(const QueueStart& start, const QueueOptions& options, DirectionCounters& counters)
      : ring_(start.ring),
        start_(start),
        rules_(OffloadRules::to_driver(start.features)),
        header_size_(static_cast<std::uint32_t>(header_size(start.features))),
        frame_max_(frame_max(options.mtu)),
        counters_(counters) {}

  std::size_t deliver(const packet::Burst& burst, std::span<const packet::PacketIndex> which) {
    arena_.clear();
    done_ = 0;
    dry_ = false;
    // All of each frame is read now; whoever made the burst looked at its first line only.
    for (const packet::PacketIndex index : which) {
      prefetch_for_read(burst.packets[index].data + kCacheLine);
    }
    have_ = ring_.take(*start_.memory, std::span(chains_).first(which.size()), arena_);
    for (std::size_t i = 0; i < std::min(have_, kAhead); ++i) prefetch(chains_[i]);
    std::uint64_t bytes = 0;
    const Limits limits{header_size_, frame_max_};  // Copies: frame bytes could alias members.
    for (std::size_t i = 0; i < which.size();) {
      i += deliver_plain(burst, which.subspan(i), limits, bytes);
      if (i == which.size()) break;
      const packet::Packet& packet = burst.packets[which[i++]];
      if (!dry_ && deliver_slow(burst, packet)) {
        bytes += packet.length;
        continue;
      }
      // Any other reason was counted where it was found.
      if (dry_) counters_.drop(ring_.error() ? DropCause::kRingBroken : DropCause::kNoBuffers);
      ++lost_;
    }
    const std::size_t delivered = which.size() - std::exchange(lost_, 0);
    finish(delivered, bytes);
    return delivered;
  }

  void set_call(std::shared_ptr<Notifier> call) { start_.call = std::move(call); }
  [[nodiscard]] const Ring& ring() const { return ring_; }
  [[nodiscard]] Ring& ring() { return ring_; }

 private:
  static constexpr std::size_t kAhead = 8;  // Buffers that are fetched before they are written.
  struct Limits {
    std::uint32_t header_size;
    std::uint32_t frame_max;
  };

  // The driver read what was in the buffers before, so they have to come from its core.
  static void prefetch(const virtio::Chain& chain) {
    if (chain.data == nullptr) [[unlikely]]
      return;  // All its descriptors are empty.
    prefetch_for_write(chain.data);
    prefetch_for_write(chain.data + kCacheLine);
  }

  // Delivers packets as long as they are plain and there are buffers. Returns how many.
  [[gnu::noinline]] std::size_t deliver_plain(const packet::Burst& burst,
                                              std::span<const packet::PacketIndex> which,
                                              const Limits limits, std::uint64_t& bytes) {
    const std::size_t count = std::min(which.size(), have_ - done_);
    const std::span<virtio::Chain> chains = std::span(chains_).subspan(done_, count);
    std::uint64_t sum = 0;
    std::size_t i = 0;
    for (; i < count; ++i) {
      const packet::Packet& packet = burst.packets[which[i]];
      if (!is_plain(packet, chains[i], limits)) [[unlikely]]
        break;
      if (i + kAhead < count) prefetch(chains[i + kAhead]);
      write_plain(packet, chains[i], limits.header_size);
      sum += packet.length;
    }
    done_ += i;
    bytes += sum;
    return i;
  }

  [[nodiscard]] static bool is_plain(const packet::Packet& packet, const virtio::Chain& chain,
                                     const Limits& limits) {
    return chain.segment_count == 1 && chain.readable_count == 0 && packet.more_count == 0 &&
           packet.offload.none() && packet.length >= packet::kHeadSize &&
           packet.length <= limits.frame_max && chain.length >= limits.header_size + packet.length;
  }

  [[gnu::always_inline]] static void write_plain(const packet::Packet& packet, virtio::Chain& chain,
                                                 std::uint32_t header_size) {
    // A header without marks, and num_buffers 1 (NET-04) where it has that field.
    if (header_size == sizeof(virtio::virtio_net_hdr_v1)) [[likely]] {
      // Static: built in registers or on the stack, GCC 12 puts it together from parts, and the
      // load of the whole would wait until every store before it has reached the cache.
      static constexpr virtio::virtio_net_hdr_v1 kPlain{.num_buffers = 1};
      std::memcpy(chain.data, &kPlain, sizeof kPlain);
    } else {
      write_header(chain.data, header_size);
    }
    std::byte* const frame = chain.data + header_size;
    packet::copy_16(frame, packet.head.data());
    packet::copy_bytes(frame + packet::kHeadSize, packet.data + packet::kHeadSize,
                       packet.length - packet::kHeadSize);
    chain.written = header_size + packet.length;
  }

  // Fields behind num_buffers (hash) say "none".
  [[gnu::cold, gnu::noinline]] static void write_header(std::byte* place, std::uint32_t size) {
    std::array<std::byte, kHeaderSizeMax> header{};
    fill_header(header, {}, 1);
    std::memcpy(place, header.data(), size);
  }
  static void fill_header(std::array<std::byte, kHeaderSizeMax>& header,
                          const packet::Offload& offload, std::uint16_t buffers) {
    std::memcpy(header.data(), &offload, sizeof offload);
    std::memcpy(header.data() + sizeof offload, &buffers, sizeof buffers);
  }

  [[gnu::noinline]] bool deliver_slow(const packet::Burst& burst, const packet::Packet& packet) {
    if (!rules_.permits(packet.offload)) return complete(burst, packet);
    const bool whole = packet.offload.gso_type == virtio::kGsoNone;
    if (whole && packet.length > frame_max_) return drop(DropCause::kMtu);
    return place(burst, packet);
  }

  [[gnu::cold, gnu::noinline]] bool complete(const packet::Burst& burst,
                                             const packet::Packet& packet) {
    bool placed = true;
    // Counted once for the whole packet: a part that does not fit drops the rest with it.
    const auto why =
        offload_.complete(burst, packet, frame_max_, [&](std::span<const std::byte> frame) {
          return placed = place(burst, packet::linear_packet(frame));
        });
    return why ? drop(*why) : placed;
  }

  // Scatters one frame over one buffer, or several if merging was negotiated.
  [[gnu::cold, gnu::noinline]] bool place(const packet::Burst& burst,
                                          const packet::Packet& packet) {
    const std::uint64_t needed = std::uint64_t{header_size_} + packet.length;
    std::uint64_t room = 0;
    std::size_t buffers = 0;
    while (room < needed) {
      if (buffers == (kBuffers == RxBuffers::kMergeable ? kMergeMax : 1)) {
        return drop(DropCause::kBufferTooSmall);
      }
      if (!reserve(buffers + 1)) {
        dry_ = true;
        return false;
      }
      const std::uint64_t capacity = capacity_of(chains_[done_ + buffers]);
      if (buffers == 0 && capacity < header_size_) {  // NET-03: of no use to anyone: give it back.
        chains_[done_++].written = 0;
        return drop(DropCause::kBufferTooSmall);
      }
      room += capacity;
      ++buffers;
    }
    // The ring takes kTakeMax buffers at once, and the driver may see all of a packet or nothing
    // (NET-06): so no packet lies across that border.
    if (done_ + buffers > virtio::kTakeMax) publish();
    scatter(burst, packet, buffers);
    done_ += buffers;
    return true;
  }

  // Spec: virtio 1.3, 5.1.6.4: each buffer but the last is filled completely (NET-06).
  void scatter(const packet::Burst& burst, const packet::Packet& packet, std::size_t buffers) {
    std::array<std::byte, kHeaderSizeMax> header{};
    // Fields without a flag mean nothing: they are not passed on from one guest to another.
    const packet::Offload marks = packet.offload.none() ? packet::Offload{} : packet.offload;
    fill_header(header, marks, static_cast<std::uint16_t>(buffers));
    std::size_t at = 0;  // In header and frame together.
    const std::size_t end = header_size_ + packet.length;
    for (std::size_t i = 0; i < buffers; ++i) {
      virtio::Chain& chain = chains_[done_ + i];
      const std::size_t start = at;
      for (const virtio::Segment& segment : writable(chain)) {
        std::span<std::byte> out(segment.data, std::min<std::size_t>(segment.length, end - at));
        if (at < header_size_) {
          const std::size_t part = std::min<std::size_t>(header_size_ - at, out.size());
          std::memcpy(out.data(), header.data() + at, part);
          at += part;
          out = out.subspan(part);
        }
        packet::copy_frame(burst, packet, at - header_size_, out);
        at += out.size();
      }
      chain.written = static_cast<std::uint32_t>(at - start);
    }
  }

  // Sees to it that `count` buffers beyond done_ are at hand.
  bool reserve(std::size_t count) {
    while (have_ - done_ < count) {
      if (have_ == chains_.size()) publish();
      const std::size_t more =
          ring_.take(*start_.memory, std::span(chains_).subspan(have_), arena_);
      if (more == 0) return false;
      have_ += more;
    }
    return true;
  }

  // Gives back what is filled before the burst ends, to make room.
  void publish() {
    flush();
    std::copy(chains_.begin() + static_cast<std::ptrdiff_t>(done_),
              chains_.begin() + static_cast<std::ptrdiff_t>(have_), chains_.begin());
    have_ -= done_;
    done_ = 0;
  }

  // Gives back what is filled, in the portions the ring takes. Where they meet, so do packets.
  void flush() {
    if (start_.log != nullptr) [[unlikely]]
      log_written();
    const auto filled = std::span<const virtio::Chain>(chains_).first(done_);
    for (std::size_t i = 0; i < filled.size(); i += virtio::kTakeMax) {
      ring_.give_back(filled.subspan(i, std::min(virtio::kTakeMax, filled.size() - i)), false);
    }
    flushed_ |= done_ != 0;
  }

  void finish(std::size_t delivered, std::uint64_t bytes) {
    ring_.untake(std::span<const virtio::Chain>(chains_).subspan(done_, have_ - done_));
    flush();
    counters_.packets.add(delivered);
    counters_.bytes.add(bytes);
    counters_.bursts.add(delivered != 0 ? 1 : 0);
    if (std::exchange(flushed_, false) && start_.call != nullptr && ring_.should_notify()) {
      counters_.notifications.add();
      start_.call->notify();
    }
  }

  [[nodiscard]] std::span<const virtio::Segment> writable(const virtio::Chain& chain) {
    if (chain.segment_count == 1) {
      single_ = {chain.data, chain.length};
      return std::span(&single_, std::size_t{1} - chain.readable_count);
    }
    return chain.segments(arena_).subspan(chain.readable_count);
  }
  [[nodiscard]] std::uint64_t capacity_of(const virtio::Chain& chain) {
    std::uint64_t bytes = 0;
    for (const virtio::Segment& segment : writable(chain)) bytes += segment.length;
    return bytes;
  }

  [[gnu::cold, gnu::noinline]] void log_written() {
    for (const virtio::Chain& chain : std::span<const virtio::Chain>(chains_).first(done_)) {
      std::uint32_t left = chain.written;
      for (const virtio::Segment& segment : writable(chain)) {
        const std::uint32_t part = std::min(left, segment.length);
        if (part != 0) start_.log->mark(start_.memory->guest_address(segment.data), part);
        left -= part;
      }
    }
  }

  bool drop(DropCause cause) {
    counters_.drop(cause);
    return false;
  }
  Ring ring_;
  QueueStart start_;
  OffloadRules rules_;
  std::uint32_t header_size_;
  std::uint32_t frame_max_;  // Bytes of the longest frame without GSO that the driver takes.
  DirectionCounters& counters_;
  std::size_t have_ = 0;  // Chains taken, ...
  std::size_t done_ = 0;  // ... and how many of them are filled.
  bool dry_ = false;      // The driver has no buffer left: do not ask the ring again this burst.
  bool flushed_ = false;
  std::size_t lost_ = 0;  // Packets of this burst that were dropped.
  virtio::Segment single_{};
  SoftwareOffload offload_;
  std::array<virtio::Chain, 2 * virtio::kTakeMax> chains_;
  virtio::SegmentArena arena_;
};

}  // namespace sluice::net
