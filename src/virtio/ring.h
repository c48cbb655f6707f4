// The contract of every virtqueue, whatever its format: Chain, RingConfig, and the concepts.
//
// Device side:  take() chains the driver made available, use them, give_back() in the same order,
//               ask should_notify() once. untake() puts the last ones back unseen.
// Driver side:  offer() buffers, collect() those used, ask should_notify() once per burst.
//
// Always in the order of availability, negotiated or not (DESIGN section 3, rule 3). Invariant,
// checked in every test: posted = used + held + free.
//
// A burst function takes a span, returns a count, never waits, logs or allocates, and publishes
// once. When a peer breaks the ring, take()/collect() stop before the bad entry and error() says
// why; nothing of the ring is touched afterwards.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/error.h"
#include "base/strong.h"
#include "memory/dirty_log.h"
#include "memory/guest_memory.h"
#include "virtio/used_record.h"

namespace sluice::virtio {

/// Whether VIRTIO_F_IN_ORDER was negotiated (virtio 1.3, 2.7.9 and 2.8.18).
enum class Order : bool { kAny, kInOrder };

/// Contiguous bytes of a chain, in our address space.
struct Segment {
  std::byte* data;
  std::uint32_t length;
};

/// Most segments of one chain. The specification allows a queue size's worth; like QEMU we stop at
/// 1024: no driver comes near, and scratch stays bounded.
inline constexpr std::size_t kChainSegmentsMax = 1024;

/// Room for the segments of one burst's chains. Scratch: never zero-filled.
struct SegmentArena {
  static constexpr std::size_t kSize = 4096;
  std::uint32_t count;
  std::array<Segment, kSize> segments;
  void clear() { count = 0; }
};

/// One buffer that the driver made available: readable segments first, then writable ones.
/// `data`/`length` are the first segment; a chain of one segment uses no arena.
struct Chain {
  std::byte* data;
  std::uint32_t length;
  std::uint16_t segment_count;   // 0 if all descriptors were empty.
  std::uint16_t readable_count;  // How many segments are device-readable; the rest is writable.
  std::uint32_t written;         // Set by the taker before give_back(): bytes written (2.7.8.2).
  std::uint16_t id;              // Split: head index. Packed: buffer id. Hostile as an index.
  std::uint16_t slots;           // Ring entries it takes: split 1, packed its descriptors.
  std::uint16_t first_segment;   // In the arena; only if segment_count > 1.

  /// All segments, first one included.
  [[nodiscard]] std::span<const Segment> segments(const SegmentArena& arena) const {
    return std::span(arena.segments).subspan(first_segment, segment_count);
  }
};

/// Position of both ends of a ring, as SET_VRING_BASE carries it (vhost-user, "Vring state").
/// Split: free-running indices. Packed: bits 0-14 slot, bit 15 wrap counter.
struct RingPosition {
  std::uint16_t avail = 0;
  std::uint16_t used = 0;
  friend bool operator==(const RingPosition&, const RingPosition&) = default;
};
inline constexpr std::uint16_t kPackedStart = 0x8000;  // Slot 0, wrap counter 1 (2.8.1).

/// Most segments of a buffer that a driver ring of ours puts into an indirect table: as many as a
/// header and 64 KiB in pages take, and an odd number of cache lines, so that tables spread over
/// all cache sets.
inline constexpr std::size_t kIndirectSegmentsMax = 20;

/// Shared memory for a driver's indirect tables (virtio/indirect_tables.h): ours, and the device's
/// address of it. 16-byte aligned.
struct IndirectArea {
  std::byte* bytes = nullptr;
  std::uint64_t address = 0;
};

/// All a ring needs to start. Addresses are translated and checked by whoever fills it
/// (QueueConfig); they stay valid as long as the GuestMemory that the caller holds.
struct RingConfig {
  std::uint32_t size = 0;
  std::byte* descriptors = nullptr;  // Descriptor table / descriptor ring.
  std::byte* driver_area = nullptr;  // Avail ring / driver event suppression.
  std::byte* device_area = nullptr;  // Used ring / device event suppression.
  RingPosition position;
  bool event_idx = false;
  bool indirect = false;
  IndirectArea indirect_area;  // Driver side only; without it all buffers are chains.
  // Device side only:
  bool readable_only = false;                   // A transmitq: no buffer of it has a writable part.
  UsedPositionRecord* used_record = nullptr;    // Packed; null if nobody wants it.
  const memory::DirtyLog* log = nullptr;        // Null unless VHOST_F_LOG_ALL.
  const memory::GuestMemory* memory = nullptr;  // For the log.
  std::optional<memory::GuestAddress> log_used;  // Split: where used-ring writes are logged.
};

/// Counters of things a device tolerates although the driver should not do them.
struct RingOddities {
  std::uint64_t indirect_not_negotiated = 0;  // IND-01: Windows does it.
};

/// Contract of the device side. Threads: the holder of the queue only.
template <class R>
concept DeviceRing =
    requires(R ring, const R& view, const memory::GuestMemory& memory, std::span<Chain> out,
             std::span<const Chain> done, SegmentArena& arena) {
      // Takes up to out.size() (<= kTakeMax) chains; fewer if the arena fills up.
      { ring.take(memory, out, arena) } -> std::same_as<std::size_t>;
      // Puts the LAST chains taken back, as if never taken. `done` is a tail of what was taken.
      { ring.untake(done) } -> std::same_as<void>;
      // Gives back the FIRST chains held (<= kTakeMax), in the order taken. With `one_entry` (in
      // order only, all buffers read-only or exactly full; ORD-03..05) a single used entry stands
      // for all.
      { ring.give_back(done, true) } -> std::same_as<void>;
      // Must the driver be interrupted for what was given back since the last true? Full barrier.
      { ring.should_notify() } -> std::same_as<bool>;
      // Wish to be kicked, or not. After turning it on, look at has_work() again (EVI-05).
      { ring.set_kicks(true) } -> std::same_as<void>;
      { view.has_work() } -> std::same_as<bool>;
      { view.position() } -> std::same_as<RingPosition>;
      { view.held() } -> std::same_as<std::size_t>;
      { view.error() } -> std::same_as<const std::optional<Error>&>;
    };

/// A buffer the driver offers: one descriptor each, readable first. Addresses are what the device
/// understands (guest-physical for vhost-user).
struct OfferSegment {
  std::uint64_t address;
  std::uint32_t length;
  bool writable;
};
/// One buffer to offer. `token` comes back in collect().
struct Offer {
  std::span<const OfferSegment> segments;
  std::uint32_t token;
};
/// What the device does with a buffer.
enum class DeviceUse : bool { kReads, kWrites };
/// One buffer of one descriptor.
struct PlainOffer {
  std::uint64_t address;
  std::uint32_t length;
  std::uint32_t token;
};
/// One buffer that came back.
struct Collected {
  std::uint32_t token;
  std::uint32_t written;  // Clamped to what was posted as writable (SPL-12, SPL-13).
};

/// Contract of the driver side. The device is hostile: ids, lengths and counts are checked.
template <class R>
concept DriverRing =
    requires(R ring, const R& view, std::span<const Offer> offers, std::span<Collected> out) {
      // Makes as many as fit available, in order, and publishes once. Returns how many.
      { ring.offer(offers) } -> std::same_as<std::size_t>;
      { ring.collect(out) } -> std::same_as<std::size_t>;
      { ring.should_notify() } -> std::same_as<bool>;  // Must the device be kicked?
      // Once the device has let go of the ring (a reset): hands the token of every buffer that is
      // outstanding to the function, each once; in order, as they were offered. The ring is empty
      // then and does nothing more.
      {
        ring.recall([](std::uint32_t) {})
      } -> std::same_as<void>;
      { ring.set_interrupts(true) } -> std::same_as<void>;
      { view.has_used() } -> std::same_as<bool>;
      { view.free_slots() } -> std::same_as<std::size_t>;
      { view.outstanding() } -> std::same_as<std::size_t>;  // Buffers offered, not yet collected.
      { view.error() } -> std::same_as<const std::optional<Error>&>;
    };

}  // namespace sluice::virtio
