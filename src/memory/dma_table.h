// DmaTable: what of our memory a device can reach, at one moment; an immutable look-up table.
//
// Two kinds of memory. What is shared as it is, device and owner see alike. Memory that cannot be
// shared has a bounce area of the same size, which the device sees in its place; sync_for_device()
// and sync_for_cpu() copy between the two.
//
// Invariants: ranges are not empty, overlap neither in our addresses nor in the device's, and no
// sum of start and size wraps. Addresses are numbers until they were found in a range.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/error.h"
#include "memory/address.h"
#include "memory/mapping.h"

namespace sluice::memory {

/// One mapping as a packet path sees it.
struct DmaRange {
  std::uint64_t host = 0;    // Our address of its first byte, as a number.
  std::uint64_t device = 0;  // The device's.
  std::uint64_t size = 0;    // Bytes.
  std::byte* bytes = nullptr;
  std::byte* bounce = nullptr;  // What the device sees in place of `bytes`; null: the same.
  std::uint64_t mark = 0;       // A bit of its own; 0 for what is never unmapped.

  [[nodiscard]] bool holds_host(const std::byte* data, std::uint64_t length) const {
    return inside(std::bit_cast<std::uintptr_t>(data) - host, length);
  }
  [[nodiscard]] bool holds_device(std::uint64_t address, std::uint64_t length) const {
    return inside(address - device, length);
  }
  /// Requires: holds_host(data, n) for some n.
  [[nodiscard]] std::uint64_t device_address(const std::byte* data) const {
    return device + (std::bit_cast<std::uintptr_t>(data) - host);
  }

 private:
  // An offset below the start has wrapped and is huge. Nothing is nowhere.
  [[nodiscard]] bool inside(std::uint64_t offset, std::uint64_t length) const {
    return length != 0 && offset < size && length <= size - offset;
  }
};

class DmaTable {
 public:
  DmaTable() = default;
  /// `keep`: the bounce areas, which live as long as a table that names them.
  DmaTable(std::vector<DmaRange> ranges, std::vector<std::shared_ptr<const Mapping>> keep);

  /// The range that holds all of `length` bytes at `data` (or at the device's `address`), or null.
  /// A length of 0 lies nowhere.
  [[nodiscard]] const DmaRange* find_host(const std::byte* data, std::uint64_t length) const;
  [[nodiscard]] const DmaRange* find_device(GuestAddress address, std::uint64_t length) const;

  /// Must accesses of the device and ours be kept apart by the two functions below? False for
  /// shared memory, where they do nothing, and for addresses outside.
  [[nodiscard]] bool needs_sync(GuestAddress address) const;
  /// What the owner wrote becomes what the device reads. Call before the buffer is offered.
  /// Errors: kBadAddress unless all of the range lies in one mapping.
  Status sync_for_device(GuestAddress address, std::uint64_t length) const;
  /// What the device wrote becomes what the owner reads; copied once, so a device that writes on
  /// changes nothing any more. Call after the buffer came back. Errors: as sync_for_device().
  Status sync_for_cpu(GuestAddress address, std::uint64_t length) const;

  [[nodiscard]] const std::vector<DmaRange>& ranges() const { return by_host_; }

 private:
  std::vector<DmaRange> by_host_;
  std::vector<DmaRange> by_device_;
  std::vector<std::shared_ptr<const Mapping>> keep_;
};

}  // namespace sluice::memory
