// Mapping: owned pages. Anonymous shared memory to hand to a peer, or a file a peer handed to us.
//
// Every shared mapping is known to the fault guard (memory/fault_guard.h): when the file behind it
// is truncated, a touch gives zero pages and a mark instead of a dead process (SEC-57).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/error.h"
#include "base/unique_fd.h"

namespace sluice::memory {

struct GuardEntry;  // memory/fault_guard.h

class Mapping {
 public:
  Mapping() = default;
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();

  /// Maps `size` bytes of `fd` from `offset` on, shared, readable and writable. `offset` need not
  /// be a multiple of the page. The descriptor is not kept.
  /// Errors: kOutOfRange if size is 0, the sum overflows, or the file (fstat) is shorter;
  /// kInvalidArgument if `fd` cannot be mapped for writing or is not a file in memory (memfd,
  /// tmpfs, hugetlbfs): the owner of any other could stall us at each touch; kNoMemory, kSystem.
  [[nodiscard]] static Result<Mapping> map_file(int fd, std::uint64_t offset, std::uint64_t size);
  /// The same for a file that we made ourselves, on any file system. Never for a peer's.
  [[nodiscard]] static Result<Mapping> map_own_file(int fd, std::uint64_t offset,
                                                    std::uint64_t size);

  /// New zeroed shared memory with a descriptor that can be sent to a peer. The file is sealed
  /// against shrinking. Page size: the system's; THP where the kernel gives it.
  struct SharedMemory;
  [[nodiscard]] static Result<SharedMemory> create_shared(const char* name, std::uint64_t size);

  /// New zeroed private memory.
  [[nodiscard]] static Result<Mapping> create_private(std::uint64_t size);

  [[nodiscard]] std::span<std::byte> bytes() const { return {data_, size_}; }
  explicit operator bool() const { return data_ != nullptr; }
  /// True once a touch hit a part of the file that no longer exists. Threads: any.
  [[nodiscard]] bool shrunk() const;

  /// Bytes and number of mappings alive in this process, for leak tests.
  [[nodiscard]] static std::size_t live_count();

 private:
  std::byte* data_ = nullptr;  // First byte asked for.
  std::size_t size_ = 0;
  std::byte* base_ = nullptr;  // Page-aligned start of the mapping.
  std::size_t mapped_ = 0;
  GuardEntry* guard_ = nullptr;  // Null for private memory.
};

struct Mapping::SharedMemory {
  Mapping mapping;
  UniqueFd fd;
};

}  // namespace sluice::memory
