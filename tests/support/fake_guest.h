// FakeGuest: guest memory of a test, mapped twice: as the guest sees it and as the device does.
//
// Guest-physical, user and host addresses all differ, so that code which mixes them up fails. The
// two views let a test write-protect what the device must not write (SPL-05, SPL-06).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "base/unique_fd.h"
#include "memory/guest_memory.h"
#include "memory/mapping.h"

namespace sluice::test {

class FakeGuest {
 public:
  struct RegionPlan {
    std::uint64_t guest;
    std::uint64_t size;
  };
  static constexpr std::uint64_t kBase = 0x4000'0000;  // Guest address of the first byte.
  static constexpr std::uint64_t kUserOffset = 0x7f00'0000'0000;  // User minus guest address.
  static constexpr std::uint64_t kDefaultSize = 4U << 20;

  /// One region of kDefaultSize bytes at kBase.
  FakeGuest();
  explicit FakeGuest(std::initializer_list<RegionPlan> plan);

  [[nodiscard]] const memory::GuestMemory& memory() const { return *memory_; }
  [[nodiscard]] std::shared_ptr<const memory::GuestMemory> shared_memory() const { return memory_; }

  /// Zeroed bytes in the first region, or in the region that `allocate_from` chose.
  std::uint64_t allocate(std::uint64_t size, std::uint64_t alignment = 16);
  /// Later allocations start at `address` (inside one region) and go up from there.
  void allocate_from(std::uint64_t address) { next_ = address; }

  /// True if every byte of the range lies in some region; of a range of length 0, its address.
  [[nodiscard]] bool contains(std::uint64_t address, std::uint64_t length) const;

  /// The guest's own view. Aborts the test program if the range is not wholly in one region.
  [[nodiscard]] std::byte* at(std::uint64_t address, std::uint64_t length = 1) const;
  /// The view that the device's pointers lie in.
  [[nodiscard]] std::byte* device_view(std::uint64_t address, std::uint64_t length = 1) const;
  /// Makes the device's view of the pages that hold [address, address + length) read-only.
  void protect_device_view(std::uint64_t address, std::uint64_t length, bool read_only) const;

  /// The file behind a region, to send it to a back-end.
  [[nodiscard]] int fd(std::size_t region = 0) const { return views_[region].fd.get(); }

  /// One word, read or written in one access, as a driver would.
  template <class T>
  [[nodiscard]] T read(std::uint64_t address) const {
    return __atomic_load_n(reinterpret_cast<T*>(at(address, sizeof(T))), __ATOMIC_ACQUIRE);
  }
  template <class T>
  void write(std::uint64_t address, T value) const {
    __atomic_store_n(reinterpret_cast<T*>(at(address, sizeof(T))), value, __ATOMIC_RELEASE);
  }
  void fill(std::uint64_t address, std::uint64_t length, std::uint8_t value) const;
  /// Ranges may run over adjacent regions.
  void put(std::uint64_t address, std::span<const std::byte> bytes) const;
  [[nodiscard]] std::vector<std::byte> get(std::uint64_t address, std::uint64_t length) const;

  [[nodiscard]] static memory::UserAddress user(std::uint64_t guest_address) {
    return memory::UserAddress(guest_address + kUserOffset);
  }

 private:
  struct View {
    RegionPlan plan;
    memory::Mapping mapping;
    UniqueFd fd;
  };
  std::vector<View> views_;
  std::shared_ptr<const memory::GuestMemory> memory_;
  std::uint64_t next_ = 0;
};

/// Bytes that differ at every place and with `seed`, to compare after a copy.
[[nodiscard]] std::vector<std::byte> pattern(std::size_t size, std::uint32_t seed);

}  // namespace sluice::test
