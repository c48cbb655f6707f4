// PackedDriverRing: the driver side of a packed virtqueue. Contract: DriverRing in virtio/ring.h.
// Spec: virtio 1.3, 2.8.
//
// A buffer's record (token, slots, writable bytes) lives at its id. Each slot has an id: in order,
// its own number; else what ids_ says. A list takes the id of its first slot, and its other slots'
// ids are spent with it, so the ids of outstanding lists are those of the slots [used_, avail_). A
// list that is used in turn leaves ids_ as it is; one used out of turn changes places in it. So a
// device that keeps the order, negotiated or not, costs no more than that.
//
// All of a descriptor is written each time: a used one's address means nothing (2.8.5).
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
#include <utility>
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
        slots_(config.size, 1),
        free_(config.size),
        avail_(PackedPosition::decode(config.position.avail)),
        used_(PackedPosition::decode(config.position.used)),
        notified_(avail_) {
    if constexpr (kOrder == Order::kAny) {
      ids_.resize(config.size);
      std::iota(ids_.begin(), ids_.end(), std::uint16_t{0});
      place_ = ids_;
      next_ = ids_;
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
    PackedPosition at = avail_;
    // The first one goes out last: see offer().
    const PackedTail first = write_plain<kUse>(make(0), at);
    at.advance(1, layout_.size());
    for (std::size_t i = 1; i < count;) {
      const std::size_t end = std::min<std::size_t>(count, i + layout_.size() - at.slot());
      const auto run = static_cast<std::uint32_t>(end - i);
      for (PackedPosition in = at; i < end; ++i, in.step()) {
        layout_.publish_tail(in.slot(), write_plain<kUse>(make(i), in));  // A, with B (PKD-06).
      }
      at.advance(run, layout_.size());
    }
    layout_.publish_tail(avail_.slot(), first);  // A, pairs with B
    avail_ = at;
    free_ -= static_cast<std::uint32_t>(count);
    outstanding_ += count;
    return count;
  }

  std::size_t collect(std::span<Collected> out) {
    if (error_) return 0;
    std::size_t collected = 0;
    if (long_lists_ == 0 && !batch_pending_) collected = collect_in_turn(out);
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
    for (PackedPosition at = used_; free_ < layout_.size(); ++free_) {
      const std::uint16_t id = id_of(at.slot());
      if (slots_[id] != 0) back(lists_[id].token);
      at.advance(1, layout_.size());
    }
    outstanding_ = 0;
    used_ = avail_;
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
  };

  [[nodiscard]] std::uint16_t id_of(std::uint16_t slot) const {
    if constexpr (kOrder == Order::kInOrder) return slot;
    return ids_[slot];
  }

  // Writes all of a buffer of one descriptor but its tail, which it returns.
  template <DeviceUse kUse>
  [[gnu::always_inline]] PackedTail write_plain(const PlainOffer& item, PackedPosition at) {
    constexpr bool kWrites = kUse == DeviceUse::kWrites;
    const std::uint16_t id = id_of(at.slot());
    layout_.write_address(at.slot(), item.address);
    lists_[id] = {item.token, kWrites ? item.length : 0};
    return {.len = item.length,
            .id = id,
            .flags = static_cast<std::uint16_t>(PackedLayout::avail_bits(at.wrap()) |
                                                (kWrites ? kDescWrite : 0))};
  }

  // Writes the table of the buffer's id, and of the one descriptor all but the tail.
  PackedTail write_indirect(const Offer& item) {
    const std::uint16_t id = id_of(avail_.slot());
    const IndirectTables::Place table = tables_.write_packed(id, item.segments);
    layout_.write_address(avail_.slot(), table.address);
    // Without NEXT (PKD-12). The id is the buffer's, as ever, and none of the table's (ORD-11).
    const PackedTail tail{.len = table.bytes,
                          .id = id,
                          .flags = static_cast<std::uint16_t>(
                              PackedLayout::avail_bits(avail_.wrap()) | kDescIndirect)};
    avail_.advance(1, layout_.size());
    --free_;
    lists_[id] = {item.token, table.writable};
    return tail;
  }

  // Writes all of a list but the tail of its first descriptor, which it returns.
  PackedTail write_list(const Offer& item) {
    if (tables_.take(item.segments.size())) return write_indirect(item);
    const std::uint16_t id = id_of(avail_.slot());
    std::uint32_t writable = 0;
    std::uint16_t former = id;
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
        former = spend_id(former);
      }
      if (segment.writable) writable += segment.length;
      avail_.advance(1, layout_.size());
    }
    free_ -= static_cast<std::uint32_t>(item.segments.size());
    lists_[id] = {item.token, writable};
    slots_[id] = static_cast<std::uint16_t>(item.segments.size());
    if (item.segments.size() > 1) ++long_lists_;
    return head;
  }

  // The slot at avail_ belongs to a list that began before: its id goes with that of the list's
  // former slot.
  std::uint16_t spend_id(std::uint16_t former) {
    const std::uint16_t id = id_of(avail_.slot());
    slots_[id] = 0;
    if constexpr (kOrder == Order::kAny) next_[former] = id;
    return id;
  }

  // Whether an outstanding list has this id.
  [[nodiscard]] bool is_outstanding(std::uint16_t id) const {
    if (id >= layout_.size() || slots_[id] == 0) return false;
    const std::uint32_t place = kOrder == Order::kAny ? place_[id] : id;
    const std::uint32_t first = used_.slot();
    const std::uint32_t ahead = place >= first ? place - first : place + layout_.size() - first;
    return ahead < layout_.size() - free_;
  }

  // Reads the used descriptor at our position, if there is one that can be believed.
  [[nodiscard]] bool read_used(PackedTail& tail) {
    if (outstanding_ == 0) return false;
    tail = layout_.peek_tail(used_.slot(), PackedLayout::used_bits(used_.wrap()));  // D, with C
    if (!PackedLayout::is_used(tail.flags, used_.wrap())) return false;
    if (!is_outstanding(tail.id)) [[unlikely]] {  // PKD-18
      set_error({ErrorCode::kRingCorrupt, "the device used a buffer it does not hold", tail.id});
      return false;
    }
    return true;
  }

  // Collects as long as buffers of one slot come back in turn, each with a used descriptor.
  std::size_t collect_in_turn(std::span<Collected> out) {
    const std::size_t limit = std::min(out.size(), outstanding_);
    std::size_t collected = 0;
    while (collected < limit) {
      const std::size_t run =
          std::min<std::size_t>(limit - collected, layout_.size() - used_.slot());
      const std::size_t count = collect_run(out.subspan(collected, run));
      used_.advance(static_cast<std::uint32_t>(count), layout_.size());
      collected += count;
      if (count < run) break;
    }
    free_ += static_cast<std::uint32_t>(collected);
    outstanding_ -= collected;
    return collected;
  }

  // The same in one lap of the ring.
  std::size_t collect_run(std::span<Collected> out) const {
    const PackedLayout layout = layout_;  // Copies, since what is stored could alias members.
    const ListRecord* const lists = lists_.data();
    const std::uint16_t bits = PackedLayout::used_bits(used_.wrap());
    std::uint16_t slot = used_.slot();
    std::size_t count = 0;
    for (Collected& item : out) {
      const PackedTail tail = layout.peek_tail(slot, bits);  // D, pairs with C
      const std::uint16_t id = id_of(slot);
      if ((tail.flags & PackedLayout::kStateBits) != bits || tail.id != id) break;
      item = {lists[id].token, written(tail, lists[id])};
      ++slot;
      ++count;
    }
    return count;
  }

  bool collect_any(Collected& out) {
    PackedTail tail;
    if (!read_used(tail)) return false;
    out = {lists_[tail.id].token, written(tail, lists_[tail.id])};
    release(tail.id);
    return true;
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
    if (slots_[id] == 0) [[unlikely]] {
      set_error({ErrorCode::kRingCorrupt, "the device used a buffer out of order", batch_.id});
      return false;
    }
    const bool last = id == batch_.id;
    out = {lists_[id].token, last ? written(batch_, lists_[id]) : lists_[id].writable};
    if (last) batch_pending_ = false;
    release(id);
    return true;
  }

  // Spec: virtio 1.3, 2.8.5: len means something only with WRITE (PKD-10).
  [[nodiscard]] static std::uint32_t written(const PackedTail& tail, const ListRecord& list) {
    return (tail.flags & kDescWrite) != 0 ? std::min(tail.len, list.writable) : 0;
  }

  // Frees the list of `id`, used at used_, and goes on behind it.
  void release(std::uint16_t id) {
    const std::uint16_t slots = slots_[id];
    if (slots > 1) --long_lists_;
    for (std::uint16_t i = 0; i < slots; ++i) {
      if constexpr (kOrder == Order::kAny) {
        put_id(id, used_.slot());
        slots_[id] = 1;
        id = next_[id];
      } else {
        slots_[used_.slot()] = 1;
      }
      used_.advance(1, layout_.size());
    }
    free_ += slots;
    --outstanding_;
  }

  // Gives a slot this id; the slot that had it gets the other's.
  void put_id(std::uint16_t id, std::uint16_t slot) {
    const std::uint16_t place = place_[id];
    std::swap(ids_[slot], ids_[place]);
    place_[ids_[place]] = place;
    place_[id] = slot;
  }

  [[gnu::cold]] void set_error(Error error) { error_ = error; }

  PackedLayout layout_;
  RingConfig config_;
  IndirectTables tables_;
  std::vector<ListRecord> lists_;     // By id.
  std::vector<std::uint16_t> slots_;  // By id: of its list; 1 if there is none, 0 if it is spent.
  std::vector<std::uint16_t> ids_;    // Any order: by slot.
  std::vector<std::uint16_t> place_;  // Any order: the slot of each id.
  std::vector<std::uint16_t> next_;   // Any order: by id of a list's slot, that of its next slot.
  std::uint32_t free_;
  std::size_t long_lists_ = 0;  // Outstanding lists of several slots.
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
