// ReferenceDevice: the device side of both ring formats, slow and word for word after virtio 1.3.
//
// It stands opposite our driver rings, and beside our device rings: same bytes in, same chains and
// same bytes out. It shares no code with the product, works on guest addresses, and keeps nothing
// but its two positions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "support/fake_guest.h"
#include "support/raw_packed.h"
#include "support/raw_split.h"
#include "virtio/ring.h"

namespace sluice::test {

/// A chain as the specification sees it. Empty pieces are left out.
struct ReferenceChain {
  std::uint16_t id = 0;
  std::uint32_t slots = 1;
  std::vector<Piece> pieces;

  [[nodiscard]] std::uint64_t writable_bytes() const {
    std::uint64_t sum = 0;
    for (const Piece& piece : pieces) sum += piece.writable ? piece.length : 0;
    return sum;
  }
};

class ReferenceDevice {
 public:
  virtual ~ReferenceDevice() = default;

  /// The next chain, or nothing if there is none or the ring is broken.
  std::optional<ReferenceChain> take();
  /// Undoes the last take().
  virtual void untake(const ReferenceChain& chain) = 0;
  /// Writes a used entry for each chain. Chains are given back in the order taken.
  virtual void give_back(const ReferenceChain& chain, std::uint32_t written) = 0;
  /// One used entry for all of them (virtio 1.3, 2.7.9 and 2.8.18).
  virtual void give_back_batch(std::span<const ReferenceChain> chains, std::uint32_t written) = 0;
  /// Does the driver want to know, of what was given back since the last call?
  virtual bool interrupt_due() = 0;
  virtual void want_kicks(bool wanted) = 0;

  [[nodiscard]] virtual virtio::RingPosition position() const = 0;
  [[nodiscard]] bool broken() const { return broken_; }
  /// Did anything unnegotiated but harmless happen?
  [[nodiscard]] std::uint64_t indirect_seen() const { return indirect_seen_; }

 protected:
  ReferenceDevice(FakeGuest& guest, std::uint32_t size, bool event_idx)
      : guest_(&guest), size_(size), event_idx_(event_idx) {}
  /// False: empty or broken.
  virtual bool read_chain(ReferenceChain& chain) = 0;
  bool fail() {
    broken_ = true;
    return false;
  }
  bool add_piece(ReferenceChain& chain, const Piece& piece);
  /// Are `bytes` a length a table may have, and is it all shared memory?
  [[nodiscard]] bool table_valid(std::uint64_t address, std::uint32_t bytes) const;

  FakeGuest* guest_;
  std::uint32_t size_;
  bool event_idx_;
  std::uint64_t indirect_seen_ = 0;

 private:
  std::uint64_t total_ = 0;
  std::uint32_t segments_ = 0;
  bool broken_ = false;
};

class ReferenceSplitDevice final : public ReferenceDevice {
 public:
  explicit ReferenceSplitDevice(const RawSplitRing& ring, bool event_idx = false,
                                std::uint16_t start = 0)
      : ReferenceDevice(ring.guest(), ring.size(), event_idx),
        ring_(ring),
        avail_(start),
        used_(start),
        signalled_(start) {}

  void untake(const ReferenceChain& chain) override;
  void give_back(const ReferenceChain& chain, std::uint32_t written) override;
  void give_back_batch(std::span<const ReferenceChain> chains, std::uint32_t written) override;
  bool interrupt_due() override;
  void want_kicks(bool wanted) override;
  [[nodiscard]] virtio::RingPosition position() const override { return {avail_, used_}; }

 private:
  bool read_chain(ReferenceChain& chain) override;
  bool read_table(ReferenceChain& chain, const SplitDescriptor& outer);
  [[nodiscard]] SplitDescriptor read_descriptor(std::uint64_t address) const;

  RawSplitRing ring_;
  std::uint16_t avail_;
  std::uint16_t used_;
  std::uint16_t signalled_;
};

class ReferencePackedDevice final : public ReferenceDevice {
 public:
  explicit ReferencePackedDevice(const RawPackedRing& ring, bool event_idx = false)
      : ReferenceDevice(ring.guest(), ring.size(), event_idx), ring_(ring) {}

  void untake(const ReferenceChain& chain) override;
  void give_back(const ReferenceChain& chain, std::uint32_t written) override;
  void give_back_batch(std::span<const ReferenceChain> chains, std::uint32_t written) override;
  bool interrupt_due() override;
  void want_kicks(bool wanted) override;
  [[nodiscard]] virtio::RingPosition position() const override {
    return {avail_.encoded(), used_.encoded()};
  }

 private:
  bool read_chain(ReferenceChain& chain) override;
  bool read_table(ReferenceChain& chain, const PackedDescriptor& outer);
  void write_used(const ReferenceChain& chain, std::uint32_t written);

  RawPackedRing ring_;
  PackedPlace avail_;
  PackedPlace used_;
  PackedPlace signalled_;
  std::uint32_t held_slots_ = 0;
  std::uint32_t since_signal_ = 0;
};

/// The chain's pieces as a device ring shows them: split where regions meet, host addresses.
[[nodiscard]] std::vector<virtio::Segment> expected_segments(const FakeGuest& guest,
                                                             const ReferenceChain& chain);

}  // namespace sluice::test
