// SplitDeviceRing: the device side of a split virtqueue. Contract: DeviceRing in virtio/ring.h.
// Spec: virtio 1.3, 2.7.
//
// Invariants: used_idx_ <= next_avail_ <= cached_avail_ in free-running 16-bit arithmetic, and
// cached_avail_ - used_idx_ <= size (SPL-08). held() = next_avail_ - used_idx_.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/cache_line.h"
#include "base/error.h"
#include "memory/guest_memory.h"
#include "memory/shared.h"
#include "virtio/chain_reader.h"
#include "virtio/event_index.h"
#include "virtio/ring.h"
#include "virtio/spec.h"
#include "virtio/split_layout.h"

namespace sluice::virtio {

template <Order kOrder>
class SplitDeviceRing {
 public:
  static constexpr Order kRingOrder = kOrder;

  explicit SplitDeviceRing(const RingConfig& config)
      : layout_(config),
        config_(config),
        next_avail_(config.position.avail),
        cached_avail_(config.position.avail),
        used_idx_(config.position.used) {}

  std::size_t take(const memory::GuestMemory& memory, std::span<Chain> out, SegmentArena& arena) {
    if (error_) return 0;
    const std::size_t count = ready(out.size());
    if (count == 0) return 0;
    std::array<std::uint16_t, kTakeMax> heads;
    for (std::size_t i = 0; i < count; ++i) {
      heads[i] = layout_.avail_entry(static_cast<std::uint16_t>(next_avail_ + i)).snapshot();
    }
    std::size_t taken = 0;
    for (; taken < count; ++taken) {
      const std::uint16_t head = heads[taken];
      if (head >= layout_.size()) [[unlikely]] {  // SPL-14
        set_error({ErrorCode::kRingCorrupt, "a head index is outside the descriptor table", head});
        break;
      }
      Chain& chain = out[taken];
      chain.id = head;
      chain.slots = 1;
      const virtq_desc descriptor = layout_.descriptor(head).snapshot();
      if ((descriptor.flags & (kDescNext | kDescIndirect)) == 0 && descriptor.len != 0) [[likely]] {
        chain.data = memory.translate(memory::GuestAddress(descriptor.addr), descriptor.len, hint_);
        chain.length = descriptor.len;
        chain.written = 0;
        chain.segment_count = 1;
        chain.readable_count = (descriptor.flags & kDescWrite) == 0 ? 1 : 0;
        if (chain.data != nullptr) [[likely]]
          continue;
      }
      if (!take_slow(memory, descriptor, chain, arena)) break;
    }
    next_avail_ = static_cast<std::uint16_t>(next_avail_ + taken);
    return taken;
  }

  void untake(std::span<const Chain> tail) {
    next_avail_ = static_cast<std::uint16_t>(next_avail_ - tail.size());
  }

  void give_back(std::span<const Chain> done, bool one_entry) {
    if (done.empty()) return;
    const std::uint16_t first = used_idx_;
    bool single = false;
    // Spec: virtio 1.3, 2.7.9: one entry for the batch, with the id of its last buffer, in the slot
    // of its first one (ORD-03).
    if constexpr (kOrder == Order::kInOrder) single = one_entry;
    if (single) {
      layout_.used_entry(first).store({done.back().id, done.back().written});
    } else {
      std::uint16_t index = first;
      for (const Chain& chain : done) {
        layout_.used_entry(index++).store({chain.id, chain.written});
      }
    }
    used_idx_ = static_cast<std::uint16_t>(first + done.size());
    layout_.used_idx().store_release(used_idx_);  // C, pairs with D
    // After the write: the front-end clears a bit before it copies the page (vhost-user,
    // "Migration"), so a page that is written after its mark could be missed.
    if (config_.log != nullptr) [[unlikely]]
      log_used(first, done.size());
  }

  bool should_notify() {
    const std::uint16_t old = signalled_used_;
    const bool first = !signalled_valid_;  // EVI-08: the first one after a start is never lost.
    signalled_used_ = used_idx_;
    signalled_valid_ = true;
    memory::full_barrier();  // F
    if (!config_.event_idx) {
      return (layout_.avail_flags().load_relaxed() & kAvailNoInterrupt) == 0;
    }
    return first || split_event_passed(layout_.used_event().load_relaxed(), used_idx_, old);
  }

  void set_kicks(bool wanted) {
    if (config_.event_idx) {
      // Spec: virtio 1.3, 2.7.10: with EVENT_IDX used.flags stays 0; a stale avail_event is how not
      // to be kicked.
      if (wanted) layout_.avail_event().store_relaxed(next_avail_);
    } else {
      layout_.used_flags().store_relaxed(wanted ? 0 : kUsedNoNotify);
    }
    if (config_.log != nullptr) [[unlikely]]
      log_event();
    memory::full_barrier();  // F: the caller looks at the ring again now (EVI-05).
  }

  [[nodiscard]] bool has_work() const {
    return !error_ && layout_.avail_idx().load_relaxed() != next_avail_;
  }
  [[nodiscard]] RingPosition position() const { return {next_avail_, used_idx_}; }
  [[nodiscard]] std::size_t held() const {
    return static_cast<std::uint16_t>(next_avail_ - used_idx_);
  }
  [[nodiscard]] const std::optional<Error>& error() const { return error_; }
  [[nodiscard]] const RingOddities& oddities() const { return oddities_; }

 private:
  // How many chains can be taken. The peer's index is read only when our copy is exhausted.
  std::size_t ready(std::size_t wanted) {
    auto count = static_cast<std::uint16_t>(cached_avail_ - next_avail_);
    if (count < wanted) {
      const std::uint16_t index = layout_.avail_idx().load_acquire();  // B, pairs with A
      const auto unused = static_cast<std::uint16_t>(index - used_idx_);
      count = static_cast<std::uint16_t>(index - next_avail_);
      if (unused > layout_.size() || count > unused) [[unlikely]] {  // SPL-08
        set_error({ErrorCode::kRingCorrupt, "the avail index jumped beyond the queue size", index});
        return 0;
      }
      cached_avail_ = index;
    }
    return std::min({std::size_t{count}, wanted, kTakeMax});
  }

  // Returns false if the chain cannot be taken now (arena full) or ever (error set).
  [[gnu::cold, gnu::noinline]] bool take_slow(const memory::GuestMemory& memory,
                                              const virtq_desc& head, Chain& chain,
                                              SegmentArena& arena) {
    if (SegmentArena::kSize - arena.count < kChainSegmentsMax) return false;
    ChainReader reader(memory, hint_, arena);
    const std::uint32_t rollback = arena.count;
    if (const Status walked = walk(reader, head); !walked.has_value()) {
      arena.count = rollback;
      set_error(walked.error());
      return false;
    }
    reader.finish(chain);
    return true;
  }

  Status walk(ChainReader& reader, virtq_desc descriptor) {
    for (std::uint32_t hops = 0; hops < layout_.size(); ++hops) {
      if ((descriptor.flags & kDescIndirect) != 0) {
        if ((descriptor.flags & kDescNext) != 0) {  // IND-02
          return fail(ErrorCode::kRingCorrupt, "a descriptor is both INDIRECT and NEXT");
        }
        if (!config_.indirect) ++oddities_.indirect_not_negotiated;
        return reader.add_split_table(descriptor.addr, descriptor.len);
      }
      TRY(reader.add(descriptor.addr, descriptor.len, (descriptor.flags & kDescWrite) != 0));
      if ((descriptor.flags & kDescNext) == 0) return {};
      if (descriptor.next >= layout_.size()) {  // SPL-14
        return fail(ErrorCode::kRingCorrupt, "a chain links outside the descriptor table",
                    descriptor.next);
      }
      descriptor = layout_.descriptor(descriptor.next).snapshot();
    }
    return fail(ErrorCode::kRingCorrupt, "a descriptor chain has a loop");  // SPL-03
  }

  [[gnu::cold]] void set_error(Error error) { error_ = error; }

  [[gnu::cold, gnu::noinline]] void log_used(std::uint16_t first, std::size_t count) const {
    if (!config_.log_used) return;
    const std::uint64_t base = config_.log_used->raw();
    for (std::size_t i = 0; i < count; ++i) {
      const auto offset = layout_.used_offset(static_cast<std::uint16_t>(first + i));
      config_.log->mark(memory::GuestAddress(base + offset), sizeof(virtq_used_elem));
    }
    config_.log->mark(memory::GuestAddress(base), 4);
  }
  [[gnu::cold, gnu::noinline]] void log_event() const {
    if (!config_.log_used) return;
    const std::uint64_t offset = config_.event_idx ? layout_.avail_event_offset() : 0;
    config_.log->mark(memory::GuestAddress(config_.log_used->raw() + offset), 2);
  }

  SplitLayout layout_;
  RingConfig config_;
  memory::RegionHint hint_;
  std::uint16_t next_avail_;
  std::uint16_t cached_avail_;
  std::uint16_t used_idx_;
  std::uint16_t signalled_used_ = 0;
  bool signalled_valid_ = false;
  std::optional<Error> error_;
  RingOddities oddities_;
};

static_assert(DeviceRing<SplitDeviceRing<Order::kAny>>);
static_assert(DeviceRing<SplitDeviceRing<Order::kInOrder>>);

}  // namespace sluice::virtio
