// DirtyLog: which guest pages the device wrote, for live migration (vhost-user, "Migration").
//
// The front-end gives a bitmap, one bit a 4096-byte page of guest-physical memory. Every write of
// ours into guest memory marks its pages before it is published to the driver.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/error.h"
#include "memory/address.h"
#include "memory/mapping.h"

namespace sluice::memory {

class DirtyLog {
 public:
  static constexpr std::uint64_t kPage = 4096;
  static constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 30;  // Of the bitmap.

  /// Maps `size` bytes of bitmap at `offset` of `fd`. Errors: those of Mapping::map_file.
  [[nodiscard]] static Result<DirtyLog> map(int fd, std::uint64_t offset, std::uint64_t size);

  /// Marks all pages of [address, address + length). Pages beyond the bitmap are left out and
  /// counted in `outside()`. Threads: any (atomic or).
  void mark(GuestAddress address, std::uint64_t length) const;
  [[nodiscard]] std::uint64_t outside() const;
  /// True once a mark hit a part of the file that no longer exists. Threads: any.
  [[nodiscard]] bool shrunk() const { return bitmap_.shrunk(); }

 private:
  explicit DirtyLog(Mapping bitmap);
  Mapping bitmap_;
  std::unique_ptr<std::uint64_t> outside_;
};

}  // namespace sluice::memory
