// Which regions stay, which come, which go.
#include "vhost/memory_table.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace sluice::vhost {
namespace {

using RegionPointer = std::shared_ptr<const memory::Region>;

memory::RegionRecord record_of(const MemoryRegion& region) {
  return {memory::GuestAddress(region.guest_address), region.size,
          memory::UserAddress(region.user_address), region.mmap_offset};
}

std::vector<RegionPointer> regions_of(const MemoryPointer& memory) {
  if (memory == nullptr) return {};
  return {memory->regions().begin(), memory->regions().end()};
}

// The mapped region that is the same bytes of the same file at the same addresses, if there is one.
RegionPointer find_same(const MemoryPointer& now, const memory::RegionRecord& record, int fd) {
  if (now == nullptr) return nullptr;
  struct stat info{};
  if (::fstat(fd, &info) != 0) return nullptr;
  const auto found = std::ranges::find_if(now->regions(), [&](const RegionPointer& region) {
    return region->record == record && region->file_device == info.st_dev &&
           region->file_inode == info.st_ino && !region->mapping.shrunk();
  });
  return found == now->regions().end() ? nullptr : *found;
}

Result<MemoryPointer> table_of(std::vector<RegionPointer> regions) {
  if (regions.empty()) return MemoryPointer();
  return memory::GuestMemory::create(std::move(regions));
}

// The address space of the process is shared by all front-ends: none may have it all.
Status check_total(std::uint64_t bytes, std::span<const MemoryRegion> more) {
  for (const MemoryRegion& region : more) {
    if (region.size > memory::GuestMemory::kMaxBytes - bytes) {
      return fail(ErrorCode::kOutOfRange, "the memory regions are larger than 1 TiB together");
    }
    bytes += region.size;
  }
  return {};
}

}  // namespace

Result<MemoryPointer> memory_replaced(const MemoryPointer& now,
                                      std::span<const MemoryRegion> regions,
                                      std::span<const UniqueFd> fds) {
  TRY(check_total(0, regions));
  std::vector<RegionPointer> next;
  for (std::size_t i = 0; i < regions.size(); ++i) {
    const memory::RegionRecord record = record_of(regions[i]);
    RegionPointer region = find_same(now, record, fds[i].get());
    if (region == nullptr) region = TRY(memory::Region::map(record, fds[i].get()));
    next.push_back(std::move(region));
  }
  return table_of(std::move(next));
}

Result<MemoryPointer> memory_added(const MemoryPointer& now, const MemoryRegion& region,
                                   const UniqueFd& fd) {
  // QEMU 7.2 adds each region once for every queue pair.
  if (find_same(now, record_of(region), fd.get()) != nullptr) return now;
  std::vector<RegionPointer> next = regions_of(now);
  if (next.size() >= memory::GuestMemory::kMaxRegions) {
    return fail(ErrorCode::kOutOfRange, "too many memory regions");
  }
  std::uint64_t bytes = 0;
  for (const RegionPointer& item : next) bytes += item->record.size;
  TRY(check_total(bytes, std::span(&region, 1)));
  next.push_back(TRY(memory::Region::map(record_of(region), fd.get())));
  return table_of(std::move(next));
}

Result<MemoryPointer> memory_removed(const MemoryPointer& now, const MemoryRegion& region) {
  std::vector<RegionPointer> next = regions_of(now);
  const memory::RegionRecord record = record_of(region);
  const auto found = std::ranges::find_if(next, [&](const RegionPointer& item) {
    return item->record.guest == record.guest && item->record.user == record.user &&
           item->record.size == record.size;
  });
  if (found == next.end()) return fail(ErrorCode::kNotFound, "no such memory region");
  next.erase(found);
  return table_of(std::move(next));
}

}  // namespace sluice::vhost
