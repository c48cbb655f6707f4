// RawSplitRing: a split virtqueue as bytes at the offsets of virtio 1.3, 2.7; no code of ours.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "support/fake_guest.h"
#include "virtio/ring.h"

namespace sluice::test {

/// Literal 16-bit values to loop over.
using Words = std::initializer_list<std::uint16_t>;

/// One buffer piece of a chain: guest address, bytes, and who may write it.
struct Piece {
  std::uint64_t address;
  std::uint32_t length;
  bool writable = false;
  friend bool operator==(const Piece&, const Piece&) = default;
};

/// A split descriptor as the specification prints it (2.7.5).
struct SplitDescriptor {
  std::uint64_t addr;
  std::uint32_t len;
  std::uint16_t flags = 0;
  std::uint16_t next = 0;
};
inline constexpr std::uint16_t kNext = 1;
inline constexpr std::uint16_t kWrite = 2;
inline constexpr std::uint16_t kIndirect = 4;

/// Places a ring in guest memory and reads and writes its fields. The 16 bytes behind the driver
/// area and the device area are canaries.
class RawSplitRing {
 public:
  struct UsedElement {
    std::uint32_t id;
    std::uint32_t len;
    friend bool operator==(const UsedElement&, const UsedElement&) = default;
  };
  /// With `event_idx` the two event fields exist; without, canaries begin in their place (H23).
  RawSplitRing(FakeGuest& guest, std::uint32_t size, bool event_idx = false);

  [[nodiscard]] FakeGuest& guest() const { return *guest_; }
  [[nodiscard]] std::uint32_t size() const { return size_; }
  [[nodiscard]] std::uint64_t table() const { return table_; }
  [[nodiscard]] std::uint64_t avail() const { return avail_; }
  [[nodiscard]] std::uint64_t used() const { return used_; }

  void set_descriptor(std::uint32_t index, const SplitDescriptor& descriptor) const {
    put_descriptor(table_ + 16 * std::uint64_t{index}, descriptor);
  }
  [[nodiscard]] SplitDescriptor descriptor(std::uint32_t index) const;
  /// A descriptor anywhere: entries of indirect tables.
  void put_descriptor(std::uint64_t address, const SplitDescriptor& descriptor) const;

  void set_avail_flags(std::uint16_t flags) const { guest_->write(avail_, flags); }
  [[nodiscard]] std::uint16_t avail_flags() const { return guest_->read<std::uint16_t>(avail_); }
  void set_avail_index(std::uint16_t index) const { guest_->write(avail_ + 2, index); }
  [[nodiscard]] std::uint16_t avail_index() const {
    return guest_->read<std::uint16_t>(avail_ + 2);
  }
  void set_avail_entry(std::uint32_t slot, std::uint16_t head) const {
    guest_->write(avail_ + 4 + 2 * std::uint64_t{slot}, head);
  }
  [[nodiscard]] std::uint16_t avail_entry(std::uint32_t slot) const {
    return guest_->read<std::uint16_t>(avail_ + 4 + 2 * std::uint64_t{slot});
  }
  /// used_event: where the driver wants to be interrupted (2.7.7). Written by the driver.
  void set_used_event(std::uint16_t event) const { guest_->write(avail_ + 4 + 2 * size_, event); }
  [[nodiscard]] std::uint16_t used_event() const {
    return guest_->read<std::uint16_t>(avail_ + 4 + 2 * size_);
  }

  void set_used_flags(std::uint16_t flags) const { guest_->write(used_, flags); }
  [[nodiscard]] std::uint16_t used_flags() const { return guest_->read<std::uint16_t>(used_); }
  void set_used_index(std::uint16_t index) const { guest_->write(used_ + 2, index); }
  [[nodiscard]] std::uint16_t used_index() const { return guest_->read<std::uint16_t>(used_ + 2); }
  void set_used_entry(std::uint32_t slot, UsedElement element) const;
  [[nodiscard]] UsedElement used_entry(std::uint32_t slot) const;
  /// avail_event: where the device wants to be kicked (2.7.10). Written by the device.
  void set_avail_event(std::uint16_t event) const { guest_->write(used_ + 4 + 8 * size_, event); }
  [[nodiscard]] std::uint16_t avail_event() const {
    return guest_->read<std::uint16_t>(used_ + 4 + 8 * size_);
  }

  /// Writes `head` into the next free avail entry and moves the index by one.
  void publish(std::uint16_t head) const;
  /// The used ring filled with a value, so that each write of the device shows.
  void poison_used(std::uint8_t value) const;
  [[nodiscard]] bool canaries_intact() const;

  /// The ring as either end gets it, with pointers into the device's view.
  [[nodiscard]] virtio::RingConfig config() const;

 private:
  FakeGuest* guest_;
  std::uint32_t size_;
  bool event_idx_;
  std::uint64_t table_;
  std::uint64_t avail_;
  std::uint64_t used_;
};

}  // namespace sluice::test
