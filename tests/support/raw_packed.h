// RawPackedRing: a packed virtqueue as bytes at the offsets of virtio 1.3, 2.8; no code of ours.
#pragma once

#include <cstdint>

#include "support/fake_guest.h"
#include "support/raw_split.h"
#include "virtio/ring.h"

namespace sluice::test {

/// A packed descriptor as the specification prints it (2.8.13).
struct PackedDescriptor {
  std::uint64_t addr;
  std::uint32_t len;
  std::uint16_t id;
  std::uint16_t flags;
  friend bool operator==(const PackedDescriptor&, const PackedDescriptor&) = default;
};
inline constexpr std::uint16_t kAvailBit = 1U << 7;
inline constexpr std::uint16_t kUsedBit = 1U << 15;

/// Flags of a descriptor that is available on a lap with this driver wrap counter (2.8.1).
[[nodiscard]] constexpr std::uint16_t available(bool wrap) {
  return wrap ? kAvailBit : kUsedBit;
}
/// Flags of one that is used on a lap with this device wrap counter.
[[nodiscard]] constexpr std::uint16_t used_on(bool wrap) {
  return wrap ? static_cast<std::uint16_t>(kAvailBit | kUsedBit) : std::uint16_t{0};
}

/// A place in a packed ring: slot and wrap counter. `advance` is the only arithmetic.
struct PackedPlace {
  std::uint32_t slot = 0;
  bool wrap = true;
  void advance(std::uint32_t by, std::uint32_t size) {
    slot += by;
    if (slot >= size) {
      slot -= size;
      wrap = !wrap;
    }
  }
  /// Bits 0-14 slot, bit 15 wrap, as events and SET_VRING_BASE have it.
  [[nodiscard]] std::uint16_t encoded() const {
    return static_cast<std::uint16_t>(slot | (wrap ? 0x8000U : 0U));
  }
  friend bool operator==(const PackedPlace&, const PackedPlace&) = default;
};

/// Places a ring in guest memory and reads and writes its fields; canaries behind all three areas.
class RawPackedRing {
 public:
  struct Event {
    std::uint16_t desc;
    std::uint16_t flags;
    friend bool operator==(const Event&, const Event&) = default;
  };
  RawPackedRing(FakeGuest& guest, std::uint32_t size, bool event_idx = false);

  [[nodiscard]] FakeGuest& guest() const { return *guest_; }
  [[nodiscard]] std::uint32_t size() const { return size_; }
  [[nodiscard]] std::uint64_t ring() const { return ring_; }
  [[nodiscard]] std::uint64_t driver_area() const { return driver_; }
  [[nodiscard]] std::uint64_t device_area() const { return device_; }

  /// Address, length and id first, the flags last, as a driver must (2.8.21.1).
  void set_descriptor(std::uint32_t slot, const PackedDescriptor& descriptor) const {
    put_descriptor(ring_ + 16 * std::uint64_t{slot}, descriptor);
  }
  void put_descriptor(std::uint64_t address, const PackedDescriptor& descriptor) const;
  [[nodiscard]] PackedDescriptor descriptor(std::uint32_t slot) const;
  [[nodiscard]] std::uint16_t flags(std::uint32_t slot) const {
    return guest_->read<std::uint16_t>(ring_ + 16 * std::uint64_t{slot} + 14);
  }
  void set_flags(std::uint32_t slot, std::uint16_t flags) const {
    guest_->write(ring_ + 16 * std::uint64_t{slot} + 14, flags);
  }

  /// Driver event suppression: what the driver wants to be told. Written by the driver.
  void set_driver_event(Event event) const { put_event(driver_, event); }
  [[nodiscard]] Event driver_event() const { return event_at(driver_); }
  /// Device event suppression: when the device wants to be kicked. Written by the device.
  void set_device_event(Event event) const { put_event(device_, event); }
  [[nodiscard]] Event device_event() const { return event_at(device_); }

  [[nodiscard]] bool canaries_intact() const;
  /// The ring as either end gets it, with pointers into the device's view, at its start.
  [[nodiscard]] virtio::RingConfig config() const;

 private:
  void put_event(std::uint64_t address, Event event) const;
  [[nodiscard]] Event event_at(std::uint64_t address) const;

  FakeGuest* guest_;
  std::uint32_t size_;
  bool event_idx_;
  std::uint64_t ring_;
  std::uint64_t driver_;
  std::uint64_t device_;
};

}  // namespace sluice::test
