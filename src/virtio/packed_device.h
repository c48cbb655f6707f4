// PackedDeviceRing: the device side of a packed virtqueue. Contract: DeviceRing in virtio/ring.h.
// Spec: virtio 1.3, 2.8.
//
// Invariants: used_ is where the next used descriptor goes, avail_ where the next list starts;
// held_slots_ = avail_ - used_ in slots, never more than size. A driver that marks more available
// than the ring has is caught by that.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/error.h"
#include "memory/guest_memory.h"
#include "memory/shared.h"
#include "virtio/chain_reader.h"
#include "virtio/event_index.h"
#include "virtio/packed_layout.h"
#include "virtio/ring.h"
#include "virtio/spec.h"

namespace sluice::virtio {

template <Order kOrder>
class PackedDeviceRing {
 public:
  static constexpr Order kRingOrder = kOrder;

  explicit PackedDeviceRing(const RingConfig& config)
      : layout_(config),
        config_(config),
        avail_(PackedPosition::decode(config.position.avail)),
        used_(PackedPosition::decode(config.position.used)),
        signalled_(used_) {}

  std::size_t take(const memory::GuestMemory& memory, std::span<Chain> out, SegmentArena& arena) {
    if (error_) return 0;
    const std::size_t wanted = std::min(out.size(), kTakeMax);
    std::size_t taken = 0;
    while (taken < wanted) {
      taken += take_plain(memory, out.subspan(taken, wanted - taken));
      if (taken == wanted) break;
      if (!PackedLayout::is_avail(layout_.read_flags(avail_.slot()), avail_.wrap())) break;
      if (!take_slow(memory, out[taken], arena)) break;
      ++taken;
    }
    held_ += taken;
    return taken;
  }

  void untake(std::span<const Chain> tail) {
    for (const Chain& chain : tail) {
      avail_.retreat(chain.slots, layout_.size());
      held_slots_ -= chain.slots;
    }
    held_ -= tail.size();
    if (long_lists_ != 0) forget_long_lists(tail);
  }

  void give_back(std::span<const Chain> done, bool one_entry) {
    if (done.empty()) return;
    // Spec: virtio 1.3, 2.8.18: one descriptor for the batch, with the id of its last buffer, in
    // the slot of its first one, then on past all of them (ORD-04).
    bool single = false;
    if constexpr (kOrder == Order::kInOrder) single = one_entry && done.size() > 1;
    if (config_.used_record != nullptr) record_batch(done, single);
    // The first one goes out last (C): it publishes all (PKD-15).
    PackedPosition end = used_;
    end.advance(done.front().slots, layout_.size());
    std::uint32_t slots = done.front().slots;
    if (single) {
      for (const Chain& chain : done.subspan(1)) slots += chain.slots;
      end = used_;
      end.advance(slots, layout_.size());
    } else if (long_lists_ == 0) {
      slots = static_cast<std::uint32_t>(done.size());
      end = write_run(end, done.subspan(1));
    } else {
      for (const Chain& chain : done.subspan(1)) {
        layout_.publish_tail(end.slot(), used_tail(end.wrap(), chain));
        end.advance(chain.slots, layout_.size());
        slots += chain.slots;
      }
    }
    const Chain& shown = single ? done.back() : done.front();
    layout_.publish_tail(used_.slot(), used_tail(used_.wrap(), shown));
    if (long_lists_ != 0) [[unlikely]]
      forget_long_lists(done);
    // After the write: the front-end clears a bit before it copies the page, so a page that is
    // written after its mark could be missed.
    if (config_.log != nullptr) [[unlikely]]
      log_used(done, single);
    used_ = end;
    held_slots_ -= slots;
    held_ -= done.size();
  }

  bool should_notify() {
    const PackedPosition old = signalled_;
    const bool first = !signalled_valid_;  // EVI-08
    signalled_ = used_;
    signalled_valid_ = true;
    memory::full_barrier();  // F
    const PackedLayout::Event event = layout_.driver_event();
    if (event.flags == kRingEventFlagsDisable) return false;
    // DESC without EVENT_IDX, or a reserved value: a notification too many is harmless (EVI-06).
    if (event.flags != kRingEventFlagsDesc || !config_.event_idx || first) return true;
    return packed_event_passed(event.position, used_.encode(), old.encode(), layout_.size());
  }

  void set_kicks(bool wanted) {
    PackedLayout::Event event{avail_.encode(), kRingEventFlagsDisable};
    if (wanted) event.flags = config_.event_idx ? kRingEventFlagsDesc : kRingEventFlagsEnable;
    layout_.set_device_event(event);
    if (config_.log != nullptr) [[unlikely]]
      log_bytes(config_.device_area, 4);
    memory::full_barrier();  // F: the caller looks at the ring again now (EVI-05).
  }

  [[nodiscard]] bool has_work() const {
    return !error_ && PackedLayout::is_avail(layout_.read_flags(avail_.slot()), avail_.wrap()) &&
           held_slots_ < layout_.size();
  }
  [[nodiscard]] RingPosition position() const { return {avail_.encode(), used_.encode()}; }
  [[nodiscard]] std::size_t held() const { return held_; }
  [[nodiscard]] const std::optional<Error>& error() const { return error_; }
  [[nodiscard]] const RingOddities& oddities() const { return oddities_; }

 private:
  // Takes lists of one descriptor in one region, until something else comes.
  std::size_t take_plain(const memory::GuestMemory& memory, std::span<Chain> out) {
    const std::size_t room = std::min(out.size(), layout_.size() - held_slots_);
    std::size_t taken = 0;
    while (taken < room) {
      const std::size_t run = std::min<std::size_t>(room - taken, layout_.size() - avail_.slot());
      const std::size_t count = take_run(memory, out.subspan(taken, run));
      avail_.advance(static_cast<std::uint32_t>(count), layout_.size());
      taken += count;
      if (count < run) break;
    }
    held_slots_ += taken;
    return taken;
  }

  // The same in one lap of the ring.
  std::size_t take_run(const memory::GuestMemory& memory, std::span<Chain> out) {
    constexpr std::uint16_t kLooked = PackedLayout::kStateBits | kDescNext | kDescIndirect;
    const PackedLayout layout = layout_;  // Copies, since what is stored could alias members.
    memory::RegionHint hint = hint_;
    const std::uint16_t bits = PackedLayout::avail_bits(avail_.wrap());
    std::uint16_t slot = avail_.slot();
    std::size_t taken = 0;
    for (Chain& chain : out) {
      const PackedTail tail = layout.peek_tail(slot, bits);  // B, pairs with A
      if ((tail.flags & kLooked) != bits || tail.len == 0) break;
      const memory::GuestAddress address(layout.read_address(slot));
      chain.data = memory.translate(address, tail.len, hint);
      if (chain.data == nullptr) [[unlikely]]
        break;
      chain.length = tail.len;
      chain.segment_count = 1;
      chain.readable_count = (tail.flags & kDescWrite) == 0 ? 1 : 0;
      chain.written = 0;
      chain.id = tail.id;
      chain.slots = 1;
      ++slot;
      ++taken;
    }
    hint_ = hint;
    return taken;
  }

  void advance_avail(std::uint32_t slots) {
    avail_.advance(slots, layout_.size());
    held_slots_ += slots;
    if (slots > 1) ++long_lists_;
  }

  [[nodiscard, gnu::always_inline]] static PackedTail used_tail(bool wrap, const Chain& chain) {
    // Spec: virtio 1.3, 2.8.5: WRITE says that len is meaningful (PKD-10).
    const bool wrote = chain.readable_count < chain.segment_count;
    return {.len = chain.written,
            .id = chain.id,
            .flags = static_cast<std::uint16_t>(PackedLayout::used_bits(wrap) |
                                                (wrote ? kDescWrite : 0))};
  }

  // Writes used descriptors of buffers of one slot each. Returns the place behind them.
  PackedPosition write_run(PackedPosition at, std::span<const Chain> done) const {
    const PackedLayout layout = layout_;
    while (!done.empty()) {
      const std::size_t run = std::min<std::size_t>(done.size(), layout.size() - at.slot());
      PackedPosition in = at;
      for (const Chain& chain : done.first(run)) {
        layout.publish_tail(in.slot(), used_tail(in.wrap(), chain));
        in.step();
      }
      at.advance(static_cast<std::uint32_t>(run), layout.size());
      done = done.subspan(run);
    }
    return at;
  }

  [[gnu::noinline]] void forget_long_lists(std::span<const Chain> lists) {
    for (const Chain& chain : lists) long_lists_ -= chain.slots > 1 ? 1 : 0;
  }

  // Spec of the record: virtio/used_record.h.
  void record_batch(std::span<const Chain> done, bool single) const {
    UsedPositionRecord& record = *config_.used_record;
    record.begin(used_.encode());
    std::uint32_t slots = 0;
    std::uint32_t count = 0;
    for (const Chain& chain : done) {
      const bool wrote = chain.readable_count < chain.segment_count;
      record.entry(count++, {chain.written, chain.id,
                             static_cast<std::uint16_t>((chain.slots - 1) | (wrote ? 0x8000 : 0))});
      slots += chain.slots;
    }
    PackedPosition end = used_;
    end.advance(slots, layout_.size());
    if (single) {
      record.log[0] = record.log[count - 1];
      count = 1;
    }
    record.commit(count, end.encode());
  }

  // Returns false if the list cannot be taken now (arena full) or ever (error set).
  [[gnu::cold, gnu::noinline]] bool take_slow(const memory::GuestMemory& memory, Chain& chain,
                                              SegmentArena& arena) {
    if (held_slots_ >= layout_.size()) {
      set_error({ErrorCode::kRingCorrupt, "more descriptors are available than the ring has"});
      return false;
    }
    if (SegmentArena::kSize - arena.count < kChainSegmentsMax) return false;
    ChainReader reader(memory, hint_, arena);
    const std::uint32_t rollback = arena.count;
    if (const Status walked = walk(reader, chain); !walked.has_value()) {
      arena.count = rollback;
      set_error(walked.error());
      return false;
    }
    reader.finish(chain);
    advance_avail(chain.slots);
    return true;
  }

  // Spec: virtio 1.3, 2.8.6: a list occupies consecutive slots; the id is in the last one (PKD-07).
  Status walk(ChainReader& reader, Chain& chain) {
    PackedPosition at = avail_;
    const std::uint32_t room = layout_.size() - static_cast<std::uint32_t>(held_slots_);
    for (std::uint32_t hops = 1; hops <= room; ++hops) {
      const PackedTail tail = layout_.read_tail(at.slot());
      const std::uint64_t address = layout_.read_address(at.slot());
      chain.id = tail.id;
      chain.slots = static_cast<std::uint16_t>(hops);
      if ((tail.flags & kDescIndirect) != 0) {
        if (hops > 1 || (tail.flags & kDescNext) != 0) {  // PKD-12
          return fail(ErrorCode::kRingCorrupt, "an indirect descriptor is part of a list");
        }
        if (!config_.indirect) ++oddities_.indirect_not_negotiated;
        return reader.add_packed_table(address, tail.len, config_.readable_only);
      }
      TRY(reader.add(address, tail.len, (tail.flags & kDescWrite) != 0));
      if ((tail.flags & kDescNext) == 0) return {};
      at.advance(1, layout_.size());
    }
    return fail(ErrorCode::kRingCorrupt, "a descriptor list is longer than the ring");
  }

  [[gnu::cold]] void set_error(Error error) { error_ = error; }

  [[gnu::cold, gnu::noinline]] void log_bytes(const std::byte* place, std::uint64_t length) const {
    config_.log->mark(config_.memory->guest_address(place), length);
  }
  [[gnu::cold, gnu::noinline]] void log_used(std::span<const Chain> done, bool single) const {
    PackedPosition at = used_;
    for (const Chain& chain : single ? done.first(1) : done) {
      log_bytes(layout_.place(at.slot()), sizeof(pvirtq_desc));
      at.advance(chain.slots, layout_.size());
    }
  }

  PackedLayout layout_;
  RingConfig config_;
  memory::RegionHint hint_;
  PackedPosition avail_;
  PackedPosition used_;
  PackedPosition signalled_;
  bool signalled_valid_ = false;
  std::size_t held_slots_ = 0;
  std::size_t held_ = 0;
  std::size_t long_lists_ = 0;  // Held lists of several slots.
  std::optional<Error> error_;
  RingOddities oddities_;
};

static_assert(DeviceRing<PackedDeviceRing<Order::kAny>>);
static_assert(DeviceRing<PackedDeviceRing<Order::kInOrder>>);

}  // namespace sluice::virtio
