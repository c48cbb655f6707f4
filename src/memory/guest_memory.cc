// The checks that make a region table valid, and the searches that the last hit did not spare.
#include "memory/guest_memory.h"

#include <sys/stat.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "base/check.h"

namespace sluice::memory {

namespace {

bool wraps(std::uint64_t start, std::uint64_t size) {
  return size > std::numeric_limits<std::uint64_t>::max() - start;
}

Status check_region(const Region* region) {
  if (region == nullptr || region->record.size == 0 ||
      region->mapping.bytes().size() != region->record.size) {
    return fail(ErrorCode::kInvalidArgument, "a memory region is not mapped");
  }
  if (wraps(region->record.guest.raw(), region->record.size) ||
      wraps(region->record.user.raw(), region->record.size)) {
    return fail(ErrorCode::kOutOfRange, "address plus size of a memory region overflows");
  }
  return {};
}

// Requires: sorted by the address that `start` yields, and no region wraps.
template <class Regions, class Start>
bool overlap(const Regions& regions, Start start) {
  for (std::size_t i = 1; i < regions.size(); ++i) {
    if (start(*regions[i]) - start(*regions[i - 1]) < regions[i - 1]->record.size) return true;
  }
  return false;
}

std::uint64_t guest_start(const Region& region) {
  return region.record.guest.raw();
}
std::uint64_t user_start(const Region& region) {
  return region.record.user.raw();
}
const std::byte* host_start(const Region& region) {
  return region.mapping.bytes().data();
}

}  // namespace

Result<std::shared_ptr<const Region>> Region::map(const RegionRecord& record, int fd) {
  if (wraps(record.guest.raw(), record.size) || wraps(record.user.raw(), record.size)) {
    return fail(ErrorCode::kOutOfRange, "address plus size of a memory region overflows");
  }
  auto region = std::make_shared<Region>();
  region->record = record;
  region->mapping = TRY(Mapping::map_file(fd, record.offset, record.size));
  struct stat info{};
  if (::fstat(fd, &info) != 0) return fail_errno("cannot look at the file");
  region->file_device = info.st_dev;
  region->file_inode = info.st_ino;
  return region;
}

Result<std::shared_ptr<const GuestMemory>> GuestMemory::create(
    std::vector<std::shared_ptr<const Region>> regions) {
  if (regions.size() > kMaxRegions) {
    return fail(ErrorCode::kOutOfRange, "too many memory regions",
                static_cast<std::int64_t>(regions.size()));
  }
  for (const auto& region : regions) TRY(check_region(region.get()));
  const auto sort_by = [&](auto start) {
    std::ranges::sort(regions, {}, [start](const auto& region) { return start(*region); });
  };
  sort_by(user_start);
  if (overlap(regions, user_start)) {
    return fail(ErrorCode::kInvalidArgument, "memory regions overlap by user address");
  }
  sort_by(guest_start);
  if (overlap(regions, guest_start)) {
    return fail(ErrorCode::kInvalidArgument, "memory regions overlap by guest address");
  }
  // The constructor is private, so make_shared cannot call it.
  return std::shared_ptr<const GuestMemory>(new GuestMemory(std::move(regions)));
}

GuestMemory::GuestMemory(std::vector<std::shared_ptr<const Region>> regions)
    : regions_(std::move(regions)) {
  starts_.reserve(regions_.size());
  by_host_.reserve(regions_.size());
  for (const auto& region : regions_) {
    starts_.push_back(guest_start(*region));
    by_host_.push_back(region.get());
  }
  std::ranges::sort(by_host_, std::less{}, [](const Region* r) { return host_start(*r); });
}

// The last start that is not above the address. A step multiplies instead of branching: buffers
// that alternate between regions would mispredict every second step.
const Region* GuestMemory::find(GuestAddress address) const {
  const std::uint64_t* start = starts_.data();
  for (std::size_t left = starts_.size(); left > 1;) {
    const std::size_t half = left / 2;
    start += half * static_cast<std::size_t>(start[half] <= address.raw());
    left -= half;
  }
  if (starts_.empty()) return nullptr;
  // An address below all regions ends here at the first one, and its offset wraps to a huge number.
  const auto& region = *regions_[static_cast<std::size_t>(start - starts_.data())];
  return address.raw() - guest_start(region) < region.record.size ? &region : nullptr;
}

std::byte* GuestMemory::translate_slow(GuestAddress address, std::uint64_t length,
                                       RegionHint& hint) const {
  const Region* region = find(address);
  if (region == nullptr) return nullptr;
  hint = {guest_start(*region), region->record.size, region->mapping.bytes().data()};
  const std::uint64_t offset = address.raw() - hint.guest;
  return length <= hint.size - offset ? hint.host + offset : nullptr;
}

std::byte* GuestMemory::translate(GuestAddress address, std::uint64_t length) const {
  RegionHint none;
  return translate_slow(address, length, none);
}

std::byte* GuestMemory::translate(UserAddress address, std::uint64_t length) const {
  for (const auto& region : regions_) {
    const std::uint64_t offset = address.raw() - user_start(*region);
    if (offset < region->record.size && length <= region->record.size - offset) {
      return region->mapping.bytes().data() + offset;
    }
  }
  return nullptr;
}

std::uint64_t GuestMemory::contiguous(GuestAddress address) const {
  const Region* region = find(address);
  if (region == nullptr) return 0;
  return region->record.size - (address.raw() - guest_start(*region));
}

GuestAddress GuestMemory::guest_address(const std::byte* host) const {
  const auto after = std::ranges::upper_bound(by_host_, host, std::less{},
                                              [](const Region* r) { return host_start(*r); });
  CHECK(after != by_host_.begin(), "the pointer came from this memory table");
  const Region& region = **(after - 1);
  const auto offset = static_cast<std::uint64_t>(host - host_start(region));
  CHECK(offset < region.record.size, "the pointer came from this memory table");
  return GuestAddress(guest_start(region) + offset);
}

bool GuestMemory::shrunk() const {
  return std::ranges::any_of(regions_, [](const auto& region) { return region->mapping.shrunk(); });
}

}  // namespace sluice::memory
