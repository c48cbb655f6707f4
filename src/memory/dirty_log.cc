// Marking pages in the bitmap of a front-end.
#include "memory/dirty_log.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace sluice::memory {

DirtyLog::DirtyLog(Mapping bitmap)
    : bitmap_(std::move(bitmap)), outside_(std::make_unique<std::uint64_t>(0)) {}

Result<DirtyLog> DirtyLog::map(int fd, std::uint64_t offset, std::uint64_t size) {
  if (size > kMaxBytes) {
    return fail(ErrorCode::kOutOfRange, "a dirty log of more than 1 GiB",
                static_cast<std::int64_t>(size));
  }
  return DirtyLog(TRY(Mapping::map_file(fd, offset, size)));
}

void DirtyLog::mark(GuestAddress address, std::uint64_t length) const {
  if (length == 0) return;
  const std::uint64_t room = std::numeric_limits<std::uint64_t>::max() - address.raw();
  const std::uint64_t first = address.raw() / kPage;
  const std::uint64_t last = (address.raw() + std::min(length - 1, room)) / kPage;
  const auto bytes = bitmap_.bytes();
  const std::uint64_t pages = std::uint64_t{bytes.size()} * 8;
  if (last >= pages) {
    const std::uint64_t beyond = last - std::max(first, pages) + 1;
    __atomic_fetch_add(outside_.get(), beyond, __ATOMIC_RELAXED);
  }
  // Never "only if clear": a plain look at the bit may overtake our write of the page, and the
  // front-end, which clears the bit and then copies the page, would miss that write. The locked
  // operation orders both. By bytes, since the bitmap's size and place need not suit words.
  for (std::uint64_t page = first; page < std::min(last + 1, pages); ++page) {
    auto* byte = reinterpret_cast<std::uint8_t*>(bytes.data()) + page / 8;
    __atomic_fetch_or(byte, static_cast<std::uint8_t>(1U << (page % 8)), __ATOMIC_SEQ_CST);
  }
}

std::uint64_t DirtyLog::outside() const {
  return __atomic_load_n(outside_.get(), __ATOMIC_RELAXED);
}

}  // namespace sluice::memory
