// PackedDriverRing: the driver side of a packed virtqueue. Contract: DriverRing in virtio/ring.h.
// Spec: virtio 1.3, 2.8.
//
// A buffer's record (token, slots, writable bytes) lives at its id. In order, the id is the slot of
// its first descriptor; else ids come from a free list. All of a descriptor is written each time:
// in a used one the address has no meaning (2.8.5), so a device may have put anything there.
//
// Invariants: free_slots() + slots of outstanding lists = size. The device is hostile: an id must
// belong to an outstanding list (PKD-18), and a batch must end at one (ORD-06).
#pragma once

#include <algorithm>
#include <array>
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
#include "virtio/packed_layout.h"
#include "virtio/ring.h"
#include "virtio/spec.h"

namespace sluice::virtio {

template <Order kOrder>
class PackedDriverRing {
 public:
  static constexpr Order kRingOrder = kOrder;

  /// Requires: the areas agree with config.position (a fresh ring: zeroed, both at kPackedStart).
  explicit PackedDriverRing(const RingConfig& config)
      : layout_(config),
        config_(config),
        tables_(config),
        lists_(config.size),
        free_(config.size),
        avail_(PackedPosition::decode(config.position.avail)),
        used_(PackedPosition::decode(config.position.used)),
        notified_(avail_) {
    if constexpr (kOrder == Order::kAny) {
      free_ids_.resize(config.size);
      std::iota(free_ids_.rbegin(), free_ids_.rend(), std::uint16_t{0});
    }
  }

  std::size_t offer(std::span<const Offer> offers) {
    if (error_) return 0;
    std::size_t offered = 0;
    PackedPosition first{};
    PackedTail first_tail{};
    for (const Offer& item : offers) {
      const std::size_t needed = tables_.slots(item.segments.size());
      if (needed == 0 || needed > free_) break;
      const PackedPosition head = avail_;
      const PackedTail tail = write_list(item);
      // The first list goes out last: the device looks at its slot, and finds the whole burst.
      if (offered == 0) {
        first = head;
        first_tail = tail;
      } else {
        layout_.publish_tail(head.slot(), tail);  // A, pairs with B (PKD-06).
      }
      ++offered;
    }
    if (offered > 0) layout_.publish_tail(first.slot(), first_tail);  // A, pairs with B
    outstanding_ += offered;
    return offered;
  }

  template <DeviceUse kUse>
  std::size_t offer_plain(std::size_t wanted, auto&& make) {
    if (error_) return 0;
    const std::size_t count = std::min<std::size_t>(wanted, free_);
    if (count == 0) return 0;
    constexpr bool kWrites = kUse == DeviceUse::kWrites;
    const PackedLayout layout = layout_;  // Copies, since what is stored could alias members.
    const PackedPosition first = avail_;
    PackedPosition at = first;
    PackedTail first_tail{};
    for (std::size_t i = 0; i < count; ++i) {
      const PlainOffer item = make(i);
      const std::uint16_t id = take_id(at.slot());
      const PackedTail tail{.len = item.length,
                            .id = id,
                            .flags = static_cast<std::uint16_t>(
                                PackedLayout::avail_bits(at.wrap()) | (kWrites ? kDescWrite : 0))};
      layout.write_address(at.slot(), item.address);
      if (i == 0) {  // Goes out last: see offer().
        first_tail = tail;
      } else {
        layout.publish_tail(at.slot(), tail);  // A, pairs with B (PKD-06).
      }
      lists_[id] = {item.token, kWrites ? item.length : 0, 1};
      at.advance(1, layout.size());
    }
    layout.publish_tail(first.slot(), first_tail);  // A, pairs with B
    avail_ = at;
    free_ -= static_cast<std::uint32_t>(count);
    outstanding_ += count;
    return count;
  }

  std::size_t collect(std::span<Collected> out) {
    if (error_) return 0;
    std::size_t collected = 0;
    if constexpr (kOrder == Order::kInOrder) collected = collect_single(out);
    for (; collected < out.size(); ++collected) {
      if constexpr (kOrder == Order::kInOrder) {
        if (!collect_in_order(out[collected])) break;
      } else {
        if (!collect_any(out[collected])) break;
      }
    }
    return collected;
  }

  /// In order only: as collect(), for callers that need neither tokens nor lengths.
  std::size_t collect_count(std::size_t max)
    requires(kOrder == Order::kInOrder)
  {
    // Every used descriptor is looked at all the same: a device may write that of the first buffer
    // of a burst last, as ours does, so a later one proves nothing.
    std::array<Collected, kRun> ignored;
    std::size_t collected = 0;
    while (collected < max) {
      const std::size_t wanted = std::min(kRun, max - collected);
      const std::size_t count = collect(std::span(ignored).first(wanted));
      collected += count;
      if (count < wanted) break;
    }
    return collected;
  }

  bool should_notify() {
    const PackedPosition old = notified_;
    const bool first = !notified_valid_;
    notified_ = avail_;
    notified_valid_ = true;
    memory::full_barrier();  // E
    const PackedLayout::Event event = layout_.device_event();
    if (event.flags == kRingEventFlagsDisable) return false;
    if (event.flags != kRingEventFlagsDesc || !config_.event_idx || first) return true;
    return packed_event_passed(event.position, avail_.encode(), old.encode(), layout_.size());
  }

  void set_interrupts(bool wanted) {
    PackedLayout::Event event{used_.encode(), kRingEventFlagsDisable};
    if (wanted) event.flags = config_.event_idx ? kRingEventFlagsDesc : kRingEventFlagsEnable;
    layout_.set_driver_event(event);
    memory::full_barrier();  // E: the caller looks at the ring again now (EVI-05).
  }

  void recall(auto&& back) {
    if constexpr (kOrder == Order::kInOrder) {
      for (PackedPosition at = used_; outstanding_ != 0; --outstanding_) {
        back(lists_[at.slot()].token);
        at.advance(lists_[at.slot()].slots, layout_.size());
      }
    } else {
      for (const ListRecord& list : lists_) {
        if (list.slots != 0) back(list.token);
      }
    }
    for (ListRecord& list : lists_) list.slots = 0;
    outstanding_ = 0;
    used_ = avail_;
    free_ = layout_.size();
    set_error({ErrorCode::kClosed, "the ring was reset", 0});
  }

  [[nodiscard]] bool has_used() const {
    return !error_ && outstanding_ > 0 &&
           (batch_pending_ ||
            PackedLayout::is_used(layout_.read_flags(used_.slot()), used_.wrap()));
  }
  [[nodiscard]] std::size_t free_slots() const { return free_; }
  [[nodiscard]] std::size_t outstanding() const { return outstanding_; }
  [[nodiscard]] RingPosition position() const { return {avail_.encode(), used_.encode()}; }
  [[nodiscard]] const std::optional<Error>& error() const { return error_; }

 private:
  static constexpr std::size_t kRun = 64;  // Buffers that collect_count() looks at in one go.
  struct ListRecord {
    std::uint32_t token = 0;
    std::uint32_t writable = 0;  // Bytes the device may write.
    std::uint16_t slots = 0;     // 0: not outstanding.
  };

  // Writes the table of the buffer's id, and of the one descriptor all but the tail.
  PackedTail write_indirect(const Offer& item) {
    const std::uint16_t id = take_id(avail_.slot());
    const IndirectTables::Place table = tables_.write_packed(id, item.segments);
    layout_.write_address(avail_.slot(), table.address);
    // Without NEXT (PKD-12). The id is the buffer's, as ever, and none of the table's (ORD-11).
    const PackedTail tail{.len = table.bytes,
                          .id = id,
                          .flags = static_cast<std::uint16_t>(
                              PackedLayout::avail_bits(avail_.wrap()) | kDescIndirect)};
    avail_.advance(1, layout_.size());
    --free_;
    lists_[id] = {item.token, table.writable, 1};
    return tail;
  }

  // Writes all of a list but the tail of its first descriptor, which it returns.
  PackedTail write_list(const Offer& item) {
    if (tables_.take(item.segments.size())) return write_indirect(item);
    const std::uint16_t id = take_id(avail_.slot());
    std::uint32_t writable = 0;
    PackedTail head{};
    for (std::size_t i = 0; i < item.segments.size(); ++i) {
      const OfferSegment& segment = item.segments[i];
      const bool last = i + 1 == item.segments.size();
      layout_.write_address(avail_.slot(), segment.address);
      const auto flags =
          static_cast<std::uint16_t>(PackedLayout::avail_bits(avail_.wrap()) |
                                     (last ? 0 : kDescNext) | (segment.writable ? kDescWrite : 0));
      const PackedTail tail{.len = segment.length, .id = id, .flags = flags};
      if (i == 0) {
        head = tail;
      } else {
        layout_.publish_tail(avail_.slot(), tail);
      }
      if (segment.writable) writable += segment.length;
      avail_.advance(1, layout_.size());
    }
    free_ -= static_cast<std::uint32_t>(item.segments.size());
    lists_[id] = {item.token, writable, static_cast<std::uint16_t>(item.segments.size())};
    return head;
  }

  std::uint16_t take_id(std::uint16_t slot) {
    if constexpr (kOrder == Order::kInOrder) {
      return slot;
    } else {
      const std::uint16_t id = free_ids_.back();
      free_ids_.pop_back();
      return id;
    }
  }

  // Reads the used descriptor at our position, if there is one that can be believed.
  [[nodiscard]] bool read_used(PackedTail& tail) {
    if (outstanding_ == 0) return false;
    tail = layout_.peek_tail(used_.slot(), PackedLayout::used_bits(used_.wrap()));  // D, with C
    if (!PackedLayout::is_used(tail.flags, used_.wrap())) return false;
    if (tail.id >= layout_.size() || lists_[tail.id].slots == 0) [[unlikely]] {  // PKD-18
      set_error({ErrorCode::kRingCorrupt, "the device used a buffer it does not hold", tail.id});
      return false;
    }
    return true;
  }

  bool collect_any(Collected& out) {
    PackedTail tail;
    if (!read_used(tail)) return false;
    out = {lists_[tail.id].token, written(tail, lists_[tail.id])};
    const std::uint16_t slots = release(tail.id);
    used_.advance(slots, layout_.size());
    free_ids_.push_back(tail.id);
    return true;
  }

  // Collects in order as long as each buffer has a used descriptor of its own.
  std::size_t collect_single(std::span<Collected> out) {
    if (batch_pending_) return 0;
    const PackedLayout layout = layout_;
    PackedPosition at = used_;
    const std::size_t limit = std::min(out.size(), outstanding_);
    std::uint32_t free = free_;
    std::size_t collected = 0;
    for (; collected < limit; ++collected) {
      const PackedTail tail =
          layout.peek_tail(at.slot(), PackedLayout::used_bits(at.wrap()));  // D, pairs with C
      if (!PackedLayout::is_used(tail.flags, at.wrap()) || tail.id != at.slot()) break;
      ListRecord& list = lists_[tail.id];
      out[collected] = {list.token, written(tail, list)};
      free += list.slots;
      at.advance(list.slots, layout.size());
      list.slots = 0;
    }
    used_ = at;
    free_ = free;
    outstanding_ -= collected;
    return collected;
  }

  // Spec: virtio 1.3, 2.8.18: one descriptor may stand for a batch; it names the last buffer, and
  // those before it were used completely (ORD-04..07). All outstanding lists lie in ring order from
  // used_ on, so the walk meets the one named.
  bool collect_in_order(Collected& out) {
    if (!batch_pending_) {
      if (!read_used(batch_)) return false;
      batch_pending_ = true;
    }
    const std::uint16_t id = used_.slot();
    if (lists_[id].slots == 0) [[unlikely]] {
      set_error({ErrorCode::kRingCorrupt, "the device used a buffer out of order", batch_.id});
      return false;
    }
    const bool last = id == batch_.id;
    out = {lists_[id].token, last ? written(batch_, lists_[id]) : lists_[id].writable};
    if (last) batch_pending_ = false;
    used_.advance(release(id), layout_.size());
    return true;
  }

  // Spec: virtio 1.3, 2.8.5: len means something only with WRITE (PKD-10).
  [[nodiscard]] static std::uint32_t written(const PackedTail& tail, const ListRecord& list) {
    return (tail.flags & kDescWrite) != 0 ? std::min(tail.len, list.writable) : 0;
  }

  std::uint16_t release(std::uint16_t id) {
    const std::uint16_t slots = lists_[id].slots;
    lists_[id].slots = 0;
    free_ += slots;
    --outstanding_;
    return slots;
  }

  [[gnu::cold]] void set_error(Error error) { error_ = error; }

  PackedLayout layout_;
  RingConfig config_;
  IndirectTables tables_;
  std::vector<ListRecord> lists_;        // By id.
  std::vector<std::uint16_t> free_ids_;  // Any order only.
  std::uint32_t free_;
  std::size_t outstanding_ = 0;
  PackedPosition avail_;
  PackedPosition used_;
  PackedPosition notified_;
  bool notified_valid_ = false;
  bool batch_pending_ = false;
  PackedTail batch_{};
  std::optional<Error> error_;
};

static_assert(DriverRing<PackedDriverRing<Order::kAny>>);
static_assert(DriverRing<PackedDriverRing<Order::kInOrder>>);

}  // namespace sluice::virtio
