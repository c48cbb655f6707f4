// Look-up and copying behind DmaTable.
#include "memory/dma_table.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace sluice::memory {
namespace {

// The last of the sorted ranges that begins at or below `address`, or null.
const DmaRange* last_from(const std::vector<DmaRange>& sorted, std::uint64_t DmaRange::* start,
                          std::uint64_t address) {
  const auto after = std::ranges::upper_bound(sorted, address, {}, start);
  return after == sorted.begin() ? nullptr : &*(after - 1);
}

std::unexpected<Error> not_mapped(GuestAddress address) {
  return fail(ErrorCode::kBadAddress, "the range is not wholly inside one mapping for the device",
              static_cast<std::int64_t>(address.raw()));
}

}  // namespace

DmaTable::DmaTable(std::vector<DmaRange> ranges, std::vector<std::shared_ptr<const Mapping>> keep)
    : by_host_(std::move(ranges)), by_device_(by_host_), keep_(std::move(keep)) {
  std::ranges::sort(by_host_, {}, &DmaRange::host);
  std::ranges::sort(by_device_, {}, &DmaRange::device);
}

const DmaRange* DmaTable::find_host(const std::byte* data, std::uint64_t length) const {
  const DmaRange* const range =
      last_from(by_host_, &DmaRange::host, std::bit_cast<std::uintptr_t>(data));
  return range != nullptr && range->holds_host(data, length) ? range : nullptr;
}

const DmaRange* DmaTable::find_device(GuestAddress address, std::uint64_t length) const {
  const DmaRange* const range = last_from(by_device_, &DmaRange::device, address.raw());
  return range != nullptr && range->holds_device(address.raw(), length) ? range : nullptr;
}

bool DmaTable::needs_sync(GuestAddress address) const {
  const DmaRange* const range = find_device(address, 1);
  return range != nullptr && range->bounce != nullptr;
}

Status DmaTable::sync_for_device(GuestAddress address, std::uint64_t length) const {
  const DmaRange* const range = find_device(address, length);
  if (range == nullptr) return not_mapped(address);
  if (range->bounce == nullptr) return {};
  const std::uint64_t offset = address.raw() - range->device;
  std::memcpy(range->bounce + offset, range->bytes + offset, length);
  return {};
}

Status DmaTable::sync_for_cpu(GuestAddress address, std::uint64_t length) const {
  const DmaRange* const range = find_device(address, length);
  if (range == nullptr) return not_mapped(address);
  if (range->bounce == nullptr) return {};
  const std::uint64_t offset = address.raw() - range->device;
  std::memcpy(range->bytes + offset, range->bounce + offset, length);
  return {};
}

}  // namespace sluice::memory
