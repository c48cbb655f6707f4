// GuestMemory: the regions a front-end shares, and the only way from an address to a pointer.
//
// A table is immutable. A new memory table is a new object that keeps the unchanged regions mapped;
// whoever still works with the old one holds it by shared_ptr, so no pointer outlives its mapping.
//
// Invariants: regions are sorted by guest address, do not overlap (neither by guest nor by user
// address), are not empty, and no sum of start and size wraps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/error.h"
#include "memory/address.h"
#include "memory/mapping.h"

namespace sluice::memory {

/// What a front-end says of one region (vhost-user "memory region description").
struct RegionRecord {
  GuestAddress guest;
  std::uint64_t size = 0;  // Bytes.
  UserAddress user;
  std::uint64_t offset = 0;  // Bytes into the file.
  friend bool operator==(const RegionRecord&, const RegionRecord&) = default;
};

/// One mapped region.
struct Region {
  RegionRecord record;
  Mapping mapping;
  std::uint64_t file_device = 0;  // st_dev and st_ino name the memory across a reconnect.
  std::uint64_t file_inode = 0;

  /// Errors: those of Mapping::map_file; kOutOfRange if an address plus size wraps.
  [[nodiscard]] static Result<std::shared_ptr<const Region>> map(const RegionRecord& record,
                                                                 int fd);
};

/// Where the last translation hit; one per queue. Belongs to one GuestMemory only: reset it when
/// the table changes.
struct RegionHint {
  std::uint64_t guest = 0;
  std::uint64_t size = 0;
  std::byte* host = nullptr;
};

class GuestMemory {
 public:
  static constexpr std::size_t kMaxRegions = 509;  // As libvhost-user and rust-vmm allow.
  static constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 40;  // Of one front-end.

  /// Errors: kOutOfRange for more than kMaxRegions; kInvalidArgument for overlaps.
  [[nodiscard]] static Result<std::shared_ptr<const GuestMemory>> create(
      std::vector<std::shared_ptr<const Region>> regions);

  [[nodiscard]] std::span<const std::shared_ptr<const Region>> regions() const { return regions_; }

  /// The bytes at [address, address + length), or null unless all of them lie in one region. A
  /// length of 0 asks whether `address` itself is inside (SPL-15).
  [[nodiscard, gnu::always_inline]] std::byte* translate(GuestAddress address, std::uint64_t length,
                                                         RegionHint& hint) const {
    const std::uint64_t offset = address.raw() - hint.guest;
    if (offset < hint.size && length <= hint.size - offset) [[likely]] {
      return hint.host + offset;
    }
    return translate_slow(address, length, hint);
  }
  [[nodiscard]] std::byte* translate(GuestAddress address, std::uint64_t length) const;
  /// The same for a front-end virtual address (ring addresses).
  [[nodiscard]] std::byte* translate(UserAddress address, std::uint64_t length) const;

  /// How many bytes from `address` on lie in the region that holds it; 0 if none does. For ranges
  /// that go on in the next region: pieces are adjacent for the guest, not for us (SPL-17).
  [[nodiscard]] std::uint64_t contiguous(GuestAddress address) const;

  /// The way back, for dirty logging. `host` must have come from this table.
  [[nodiscard]] GuestAddress guest_address(const std::byte* host) const;

  /// True if the file behind any region shrank under us.
  [[nodiscard]] bool shrunk() const;

 private:
  explicit GuestMemory(std::vector<std::shared_ptr<const Region>> regions);
  [[nodiscard, gnu::cold, gnu::noinline]] std::byte* translate_slow(GuestAddress address,
                                                                    std::uint64_t length,
                                                                    RegionHint& hint) const;
  [[nodiscard]] const Region* find(GuestAddress address) const;

  std::vector<std::shared_ptr<const Region>> regions_;
  std::vector<std::uint64_t> starts_;   // Guest addresses, sorted: what the search touches.
  std::vector<const Region*> by_host_;  // Sorted by our own address, for guest_address().
};

}  // namespace sluice::memory
