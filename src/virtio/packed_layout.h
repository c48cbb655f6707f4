// The packed virtqueue in shared memory: one ring of descriptors that both sides write, and the two
// event suppression structures. Spec: virtio 1.3, 2.8.
//
//   driver                                     device
//   ------                                     ------
//   write addr, len, id of all descriptors     read flags                B acquire, pairs with A
//   write flags; first of a list A release     read addr, len, id
//   full barrier                E              write id, len of used descriptors
//   read device event flags                    write flags; first of a batch  C release, with D
//   read flags                  D acquire      full barrier              F
//   read id, len                               read driver event flags
//
// Without A/B the device reads an address that is not there yet (a 16-byte load is not atomic:
// PKD-14); without C/D the driver reads an id or length that is not there yet; without E/F a wish
// to be told is missed (EVI-04).
//
// len, id and flags share one aligned 8-byte word, so they are read and written as one. Under
// ThreadSanitizer flags are accessed apart, so that it can see A-D.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "memory/shared.h"
#include "virtio/ring.h"
#include "virtio/spec.h"

namespace sluice::virtio {

/// A slot and the wrap counter that goes with it. The wrap rule exists here only (PKD-03).
class PackedPosition {
 public:
  PackedPosition() = default;
  constexpr PackedPosition(std::uint16_t slot, bool wrap) : slot_(slot), wrap_(wrap) {}
  /// From 15 bits of slot and one of wrap counter, as events and SET_VRING_BASE carry it.
  [[nodiscard]] static constexpr PackedPosition decode(std::uint16_t raw) {
    return {static_cast<std::uint16_t>(raw & 0x7fff), (raw & 0x8000) != 0};
  }
  [[nodiscard]] constexpr std::uint16_t encode() const {
    return static_cast<std::uint16_t>(slot_ | (wrap_ ? 0x8000 : 0));
  }
  [[nodiscard]] constexpr std::uint16_t slot() const { return slot_; }
  [[nodiscard]] constexpr bool wrap() const { return wrap_; }

  /// Goes on by n <= size slots on a ring of `size`.
  constexpr void advance(std::uint32_t n, std::uint32_t size) {
    const std::uint32_t next = slot_ + n;
    const bool over = next >= size;
    slot_ = static_cast<std::uint16_t>(over ? next - size : next);
    wrap_ = wrap_ != over;
  }
  /// Goes on by one slot within a lap.
  constexpr void step() { ++slot_; }
  /// Goes back by n <= size slots.
  constexpr void retreat(std::uint32_t n, std::uint32_t size) {
    const bool under = n > slot_;
    slot_ = static_cast<std::uint16_t>(under ? slot_ + size - n : slot_ - n);
    wrap_ = wrap_ != under;
  }
  friend constexpr bool operator==(const PackedPosition&, const PackedPosition&) = default;

 private:
  std::uint16_t slot_ = 0;
  bool wrap_ = true;
};

/// len, id and flags of a descriptor.
struct PackedTail {
  std::uint32_t len;
  std::uint16_t id;
  std::uint16_t flags;
};

class PackedLayout {
 public:
  explicit PackedLayout(const RingConfig& config)
      : size_(config.size),
        ring_(config.descriptors),
        driver_event_(memory::shared_at<std::uint16_t>(config.driver_area)),
        device_event_(memory::shared_at<std::uint16_t>(config.device_area)) {}

  [[nodiscard]] std::uint32_t size() const { return size_; }

  /// AVAIL and USED bits of a descriptor that is available in the lap of `wrap` (2.8.1).
  [[nodiscard]] static constexpr std::uint16_t avail_bits(bool wrap) {
    return wrap ? kPackedAvail : kPackedUsed;
  }
  [[nodiscard]] static constexpr std::uint16_t used_bits(bool wrap) {
    return wrap ? kPackedAvail | kPackedUsed : 0;
  }
  static constexpr std::uint16_t kStateBits = kPackedAvail | kPackedUsed;
  [[nodiscard]] static constexpr bool is_avail(std::uint16_t flags, bool wrap) {
    return (flags & kStateBits) == avail_bits(wrap);
  }
  [[nodiscard]] static constexpr bool is_used(std::uint16_t flags, bool wrap) {
    return (flags & kStateBits) == used_bits(wrap);
  }

  /// Flags first, the rest behind them (B or D). Requires: slot < size() here and below.
  [[nodiscard, gnu::always_inline]] PackedTail read_tail(std::uint16_t slot) const {
#ifdef SLUICE_TSAN
    const std::uint16_t flags = flag_word(slot).load_acquire();
    auto tail = std::bit_cast<PackedTail>(tail_word(slot).snapshot());
    tail.flags = flags;
    return tail;
#else
    return std::bit_cast<PackedTail>(tail_word(slot).load_acquire());
#endif
  }
  /// The same of a descriptor that may still be the peer's: nothing but flags holds until they are
  /// found in `state`. Under ThreadSanitizer, for which one word is several, nothing else is read.
  [[nodiscard, gnu::always_inline]] PackedTail peek_tail(
      std::uint16_t slot, [[maybe_unused]] std::uint16_t state) const {
#ifdef SLUICE_TSAN
    const std::uint16_t flags = flag_word(slot).load_acquire();
    if ((flags & kStateBits) != state) return {.len = 0, .id = 0, .flags = flags};
#endif
    return read_tail(slot);
  }
  [[nodiscard, gnu::always_inline]] std::uint16_t read_flags(std::uint16_t slot) const {
    return flag_word(slot).load_relaxed();
  }
  [[nodiscard, gnu::always_inline]] std::uint64_t read_address(std::uint16_t slot) const {
    return memory::shared_at<std::uint64_t>(place(slot))->snapshot();
  }
  [[gnu::always_inline]] void write_address(std::uint16_t slot, std::uint64_t address) const {
    memory::shared_at<std::uint64_t>(place(slot))->store(address);
  }
  /// Publishes a descriptor after all that was stored before (A or C).
  [[gnu::always_inline]] void publish_tail(std::uint16_t slot, PackedTail tail) const {
#ifdef SLUICE_TSAN
    memory::shared_at<std::uint32_t>(place(slot) + 8)->store(tail.len);
    memory::shared_at<std::uint16_t>(place(slot) + 12)->store(tail.id);
    flag_word(slot).store_release(tail.flags);
#else
    tail_word(slot).store_release(std::bit_cast<std::uint64_t>(tail));
#endif
  }

  /// Event structures: `desc` then `flags` (2.8.14). The half that is written last is flags, and it
  /// is read first, so a fresh flag never meets a stale position (PKD-17).
  struct Event {
    std::uint16_t position;
    std::uint16_t flags;
  };
  [[nodiscard]] Event driver_event() const { return read_event(driver_event_); }
  [[nodiscard]] Event device_event() const { return read_event(device_event_); }
  void set_driver_event(Event event) const { write_event(driver_event_, event); }
  void set_device_event(Event event) const { write_event(device_event_, event); }

  [[nodiscard]] std::byte* place(std::uint16_t slot) const {
    return ring_ + std::size_t{slot} * sizeof(pvirtq_desc);
  }

 private:
  static Event read_event(memory::Shared<std::uint16_t>* words) {
    const std::uint16_t flags = words[1].load_acquire();
    return {words[0].load_relaxed(), flags};
  }
  static void write_event(memory::Shared<std::uint16_t>* words, Event event) {
    words[0].store_relaxed(event.position);
    words[1].store_release(event.flags);
  }

  [[nodiscard]] memory::Shared<std::uint64_t>& tail_word(std::uint16_t slot) const {
    return *memory::shared_at<std::uint64_t>(place(slot) + 8);
  }
  [[nodiscard]] memory::Shared<std::uint16_t>& flag_word(std::uint16_t slot) const {
    return *memory::shared_at<std::uint16_t>(place(slot) + 14);
  }

  std::uint32_t size_;
  std::byte* ring_;
  memory::Shared<std::uint16_t>* driver_event_;
  memory::Shared<std::uint16_t>* device_event_;
};

}  // namespace sluice::virtio
