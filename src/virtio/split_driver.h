// SplitDriverRing: the driver side of a split virtqueue. Contract: DriverRing in virtio/ring.h.
// Spec: virtio 1.3, 2.7.
//
// What we wrote into shared memory is never read back: a private copy of every descriptor stands
// for it, and a descriptor or avail entry that would not change is not written again. In order,
// with buffers that stay with their slot, the table is therefore written once, and per burst only
// avail.idx moves. In any order the same comes about with a device that keeps the order all the
// same: free descriptors queue up, so each is taken again for the buffer it was freed with.
//
// Invariants: free_slots() + slots of outstanding chains = size. A chain's private record (token,
// slots, writable bytes) lives at its head's index. The device is hostile: an id must be the head
// of an outstanding chain, an index may not run past what was offered (SPL-13, ORD-06).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "memory/shared.h"
#include "virtio/event_index.h"
#include "virtio/indirect_tables.h"
#include "virtio/ring.h"
#include "virtio/spec.h"
#include "virtio/split_layout.h"

namespace sluice::virtio {

template <Order kOrder>
class SplitDriverRing {
 public:
  static constexpr Order kRingOrder = kOrder;

  /// Requires: flags and indices in the areas agree with config.position (a fresh ring: zeroed).
  explicit SplitDriverRing(const RingConfig& config)
      : layout_(config),
        config_(config),
        tables_(config),
        table_(config.size, kNoDescriptor),
        avail_shadow_(config.size, kNoHead),
        chains_(config.size),
        free_(config.size),
        avail_idx_(config.position.avail),
        used_idx_(config.position.used),
        cached_used_(config.position.used) {
    if constexpr (kOrder == Order::kAny) {
      last_free_ = static_cast<std::uint16_t>(config.size - 1);
      free_next_.resize(config.size);
      std::iota(free_next_.begin(), free_next_.end(), std::uint16_t{1});
    }
  }

  std::size_t offer(std::span<const Offer> offers) {
    if (error_) return 0;
    std::size_t offered = 0;
    for (const Offer& item : offers) {
      const std::size_t needed = tables_.slots(item.segments.size());
      if (needed == 0 || needed > free_) break;
      const std::uint16_t head = write_chain(item);
      const auto index = static_cast<std::uint16_t>(avail_idx_ + offered);
      if (avail_shadow_[layout_.slot(index)] != head) {
        avail_shadow_[layout_.slot(index)] = head;
        layout_.avail_entry(index).store(head);
      }
      ++offered;
    }
    if (offered > 0) {
      avail_idx_ = static_cast<std::uint16_t>(avail_idx_ + offered);
      layout_.avail_idx().store_release(avail_idx_);  // A, pairs with B
    }
    return offered;
  }

  template <DeviceUse kUse>
  std::size_t offer_plain(std::size_t wanted, auto&& make) {
    if (error_) return 0;
    const std::size_t count = std::min<std::size_t>(wanted, free_);
    if (count == 0) return 0;
    constexpr bool kWrites = kUse == DeviceUse::kWrites;
    const SplitLayout layout = layout_;  // Copies, since what is stored could alias members.
    std::uint16_t head = next_free_;
    std::uint16_t index = avail_idx_;
    for (std::size_t i = 0; i < count; ++i) {
      const PlainOffer item = make(i);
      const std::uint16_t next = following(head);
      write_descriptor(head, {.addr = item.address,
                              .len = item.length,
                              .flags = kWrites ? kDescWrite : std::uint16_t{0},
                              .next = next});
      std::uint16_t& shadow = avail_shadow_[layout.slot(index)];
      if (shadow != head) {
        shadow = head;
        layout.avail_entry(index).store(head);
      }
      chains_[head] = {item.token, kWrites ? item.length : 0, 1};
      head = next;
      ++index;
    }
    next_free_ = head;
    free_ -= static_cast<std::uint32_t>(count);
    avail_idx_ = index;
    layout.avail_idx().store_release(index);  // A, pairs with B
    return count;
  }

  std::size_t collect(std::span<Collected> out) {
    if (error_) return 0;
    const std::size_t count = std::min(used_available(out.size()), out.size());
    std::size_t collected = 0;
    if constexpr (kOrder == Order::kInOrder) collected = collect_single(out.first(count));
    while (collected < count) {
      if constexpr (kOrder == Order::kInOrder) {
        if (!collect_in_order(out[collected])) break;
      } else {
        if (!collect_any(out[collected])) break;
      }
      ++collected;
    }
    return collected;
  }

  /// In order only: buffers come back in the order offered, so a caller that needs no lengths (of
  /// transmitted frames there are none) need not read the used ring at all: its index says it all.
  /// Collects at most `max` buffers and returns how many. Requires: collect() is not used on the
  /// same ring; it would look for entries where a batch that was half counted has none.
  std::size_t collect_count(std::size_t max)
    requires(kOrder == Order::kInOrder)
  {
    if (error_) return 0;
    const std::size_t count = std::min(used_available(max), max);
    for (std::size_t i = 0; i < count; ++i) release_chain(avail_shadow_[layout_.slot(used_idx_)]);
    batch_pending_ = false;
    return count;
  }

  bool should_notify() {
    const std::uint16_t old = notified_avail_;
    const bool first = !notified_valid_;
    notified_avail_ = avail_idx_;
    notified_valid_ = true;
    memory::full_barrier();  // E
    if (!config_.event_idx) {
      return (layout_.used_flags().load_relaxed() & kUsedNoNotify) == 0;
    }
    return first || split_event_passed(layout_.avail_event().load_relaxed(), avail_idx_, old);
  }

  void set_interrupts(bool wanted) {
    if (config_.event_idx) {
      // A used_event just behind us is the farthest away: one interrupt in 65,536 buffers.
      layout_.used_event().store_relaxed(wanted ? used_idx_
                                                : static_cast<std::uint16_t>(used_idx_ - 1));
    } else {
      layout_.avail_flags().store_relaxed(wanted ? 0 : kAvailNoInterrupt);
    }
    memory::full_barrier();  // E: the caller looks at the ring again now (EVI-05).
  }

  void recall(auto&& back) {
    if constexpr (kOrder == Order::kInOrder) {
      for (std::uint16_t i = used_idx_; i != avail_idx_; ++i) {
        back(chains_[avail_shadow_[layout_.slot(i)]].token);
      }
    } else {
      for (const ChainRecord& chain : chains_) {
        if (chain.slots != 0) back(chain.token);
      }
    }
    for (ChainRecord& chain : chains_) chain.slots = 0;
    used_idx_ = cached_used_ = avail_idx_;
    free_ = layout_.size();
    set_error({ErrorCode::kClosed, "the ring was reset", 0});
  }

  [[nodiscard]] bool has_used() const {
    return !error_ && layout_.used_idx().load_relaxed() != used_idx_;
  }
  [[nodiscard]] std::size_t free_slots() const { return free_; }
  [[nodiscard]] std::size_t outstanding() const {
    return static_cast<std::uint16_t>(avail_idx_ - used_idx_);
  }
  [[nodiscard]] RingPosition position() const { return {avail_idx_, used_idx_}; }
  [[nodiscard]] const std::optional<Error>& error() const { return error_; }

 private:
  // What nobody writes, so that the first write of a slot always happens.
  static constexpr std::uint16_t kNoHead = 0xffff;
  static constexpr virtq_desc kNoDescriptor{
      .addr = ~0ULL, .len = 0, .flags = 0xffff, .next = 0xffff};
  struct ChainRecord {
    std::uint32_t token = 0;
    std::uint32_t writable = 0;  // Bytes the device may write.
    std::uint16_t slots = 0;     // 0: no outstanding chain starts here.
  };

  // Writes one descriptor that refers to the table of its slot.
  std::uint16_t write_indirect(const Offer& item) {
    const std::uint16_t head = next_free_;
    const IndirectTables::Place table = tables_.write_split(head, item.segments);
    next_free_ = following(head);
    write_descriptor(head, {.addr = table.address,
                            .len = table.bytes,
                            .flags = kDescIndirect,  // Without NEXT (IND-02).
                            .next = next_free_});
    --free_;
    chains_[head] = {item.token, table.writable, 1};
    return head;
  }

  // Writes the descriptors of one chain and returns its head.
  std::uint16_t write_chain(const Offer& item) {
    if (tables_.take(item.segments.size())) return write_indirect(item);
    const std::uint16_t head = next_free_;
    std::uint16_t at = head;
    std::uint32_t writable = 0;
    for (std::size_t i = 0; i < item.segments.size(); ++i) {
      const OfferSegment& segment = item.segments[i];
      const bool last = i + 1 == item.segments.size();
      // Spec: virtio 1.3, 2.7.9: in order, descriptor x links to x + 1, the last to 0 (ORD-01).
      const std::uint16_t next = following(at);
      write_descriptor(at, {.addr = segment.address,
                            .len = segment.length,
                            .flags = static_cast<std::uint16_t>(
                                (last ? 0 : kDescNext) | (segment.writable ? kDescWrite : 0)),
                            .next = next});
      if (segment.writable) writable += segment.length;
      at = next;
    }
    next_free_ = at;
    free_ -= static_cast<std::uint32_t>(item.segments.size());
    chains_[head] = {item.token, writable, static_cast<std::uint16_t>(item.segments.size())};
    return head;
  }

  [[nodiscard]] std::uint16_t following(std::uint16_t at) const {
    if constexpr (kOrder == Order::kInOrder)
      return layout_.slot(static_cast<std::uint16_t>(at + 1));
    return free_next_[at];
  }

  void write_descriptor(std::uint16_t at, const virtq_desc& value) {
    virtq_desc& copy = table_[at];
    if (copy.addr == value.addr && copy.len == value.len && copy.flags == value.flags &&
        copy.next == value.next) {
      return;
    }
    copy = value;
    layout_.descriptor(at).store(value);
  }

  // How many buffers the device used; stops the ring if that is more than were offered.
  std::size_t used_available(std::size_t wanted) {
    auto count = static_cast<std::uint16_t>(cached_used_ - used_idx_);
    if (count < wanted) {
      cached_used_ = layout_.used_idx().load_acquire();  // D, pairs with C
      count = static_cast<std::uint16_t>(cached_used_ - used_idx_);
      if (count > outstanding()) [[unlikely]] {
        set_error({ErrorCode::kRingCorrupt, "the used index ran past the buffers offered", count});
        return 0;
      }
    }
    return count;
  }

  bool collect_any(Collected& out) {
    const virtq_used_elem element = layout_.used_entry(used_idx_).snapshot();
    if (element.id >= layout_.size() || chains_[element.id].slots == 0) [[unlikely]] {  // SPL-13
      set_error({ErrorCode::kRingCorrupt, "the device used a buffer it does not hold", element.id});
      return false;
    }
    const auto head = static_cast<std::uint16_t>(element.id);
    out = {chains_[head].token, std::min(element.len, chains_[head].writable)};  // SPL-12
    release_chain(head);
    return true;
  }

  // Collects in order as long as each buffer has a used entry of its own.
  std::size_t collect_single(std::span<Collected> out) {
    if (batch_pending_) return 0;
    const SplitLayout layout = layout_;
    std::uint16_t used = used_idx_;
    std::uint32_t free = free_;
    std::size_t collected = 0;
    for (Collected& item : out) {
      const virtq_used_elem element = layout.used_entry(used).snapshot();
      const std::uint16_t head = avail_shadow_[layout.slot(used)];
      if (element.id != head) break;
      ChainRecord& chain = chains_[head];
      item = {chain.token, std::min(element.len, chain.writable)};
      free += chain.slots;
      chain.slots = 0;
      ++used;
      ++collected;
    }
    used_idx_ = used;
    free_ = free;
    return collected;
  }

  // Spec: virtio 1.3, 2.7.9: one entry may stand for a batch; it names the last buffer, and those
  // before it were used completely (ORD-05..07). A device that writes each entry is a batch of one.
  bool collect_in_order(Collected& out) {
    const std::uint16_t head = avail_shadow_[layout_.slot(used_idx_)];
    if (!batch_pending_) {
      const virtq_used_elem element = layout_.used_entry(used_idx_).snapshot();
      if (!names_outstanding(element.id)) [[unlikely]] {
        set_error(
            {ErrorCode::kRingCorrupt, "the device used a buffer it does not hold", element.id});
        return false;
      }
      batch_last_ = static_cast<std::uint16_t>(element.id);
      batch_len_ = element.len;
      batch_pending_ = true;
    }
    const bool last = head == batch_last_;
    out = {chains_[head].token,
           last ? std::min(batch_len_, chains_[head].writable) : chains_[head].writable};
    if (last) batch_pending_ = false;
    release_chain(head);
    return true;
  }

  // The batch must end at a buffer that is used already, else the walk would not end (ORD-06).
  [[nodiscard]] bool names_outstanding(std::uint32_t id) const {
    if (id == avail_shadow_[layout_.slot(used_idx_)]) [[likely]]
      return true;
    if (id >= layout_.size() || chains_[id].slots == 0) return false;
    const auto used = static_cast<std::uint16_t>(cached_used_ - used_idx_);
    for (std::uint16_t i = 1; i < used; ++i) {
      if (avail_shadow_[layout_.slot(static_cast<std::uint16_t>(used_idx_ + i))] == id) return true;
    }
    return false;
  }

  void release_chain(std::uint16_t head) {
    ChainRecord& chain = chains_[head];
    if constexpr (kOrder == Order::kAny) {
      std::uint16_t last = head;
      for (std::uint16_t i = 1; i < chain.slots; ++i) last = free_next_[last];
      if (free_ == 0) {
        next_free_ = head;
      } else {
        free_next_[last_free_] = head;
      }
      last_free_ = last;
    }
    free_ += chain.slots;
    chain.slots = 0;
    used_idx_ = static_cast<std::uint16_t>(used_idx_ + 1);
  }

  [[gnu::cold]] void set_error(Error error) { error_ = error; }

  SplitLayout layout_;
  RingConfig config_;
  IndirectTables tables_;
  std::vector<virtq_desc> table_;            // Private copy of the descriptor table.
  std::vector<std::uint16_t> avail_shadow_;  // Private copy of avail.ring: heads by availability.
  std::vector<ChainRecord> chains_;          // By head.
  std::vector<std::uint16_t> free_next_;     // Any order: free descriptors, linked.
  std::uint32_t free_;
  std::uint16_t next_free_ = 0;
  std::uint16_t last_free_ = 0;
  std::uint16_t avail_idx_;
  std::uint16_t used_idx_;
  std::uint16_t cached_used_;
  std::uint16_t notified_avail_ = 0;
  bool notified_valid_ = false;
  bool batch_pending_ = false;
  std::uint16_t batch_last_ = 0;
  std::uint32_t batch_len_ = 0;
  std::optional<Error> error_;
};

static_assert(DriverRing<SplitDriverRing<Order::kAny>>);
static_assert(DriverRing<SplitDriverRing<Order::kInOrder>>);

}  // namespace sluice::virtio
