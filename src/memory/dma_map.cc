// Mappings come and go; each change makes a new table.
#include "memory/dma_map.h"

#include <fcntl.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"

namespace sluice::memory {
namespace {

constexpr std::uint64_t kDmaPage = 4096;
constexpr std::uint64_t kDmaGuard = kDmaPage;  // Between regions, so that an overrun meets nothing.

std::uint64_t round_up(std::uint64_t value) {
  return (value + kDmaPage - 1) / kDmaPage * kDmaPage;
}

std::uint64_t number_of(std::span<const std::byte> bytes) {
  return std::bit_cast<std::uintptr_t>(bytes.data());
}

}  // namespace

DmaMap::DmaMap(const DmaWindow& window)
    : window_(window), table_(std::make_shared<const DmaTable>()) {
  CHECK(window.device.raw() % kDmaPage == 0 && window.user.raw() % kDmaPage == 0,
        "a window for regions begins at a page");
}

Status DmaMap::check(std::span<const std::byte> bytes) const {
  if (bytes.data() == nullptr) return fail(ErrorCode::kInvalidArgument, "there is no memory at 0");
  if (bytes.empty()) return fail(ErrorCode::kOutOfRange, "cannot map zero bytes for a device");
  if (bytes.size() > window_.size ||
      number_of(bytes) > std::numeric_limits<std::uint64_t>::max() - bytes.size()) {
    return fail(ErrorCode::kOutOfRange, "no device can be given so much memory");
  }
  const std::lock_guard guard(mutex_);
  for (const Entry& entry : entries_) {
    // Retired ones too: the device may still write there.
    const std::uint64_t start = number_of(entry.bytes);
    if (start < number_of(bytes) + bytes.size() && number_of(bytes) < start + entry.bytes.size()) {
      return fail(ErrorCode::kExists, "the memory is mapped for the device already",
                  static_cast<std::int64_t>(entry.id.raw()));
    }
  }
  if (entries_.size() >= kMappingsMax) {
    return fail(ErrorCode::kOutOfRange, "too many mappings for one device",
                static_cast<std::int64_t>(kMappingsMax));
  }
  return {};
}

Result<DmaMapping> DmaMap::map_shared(std::span<std::byte> bytes, int fd, std::uint64_t offset) {
  TRY(check(bytes));
  if (offset % kDmaPage != 0) {
    return fail(ErrorCode::kInvalidArgument, "shared memory begins at a page of its file",
                static_cast<std::int64_t>(offset));
  }
  // What we cannot map, no device can.
  TRY(Mapping::map_file(fd, offset, bytes.size()));
  UniqueFd file(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!file) return fail_errno("cannot duplicate a descriptor");
  return add({.id = {},
              .record = {.guest = {}, .size = bytes.size(), .user = {}, .offset = offset},
              .fd = std::move(file),
              .bytes = bytes,
              .bounce = nullptr});
}

Result<DmaMapping> DmaMap::map_bounced(std::span<std::byte> bytes) {
  TRY(check(bytes));
  auto area = TRY(Mapping::create_shared("sluice-bounce", bytes.size()));
  return add({.id = {},
              .record = {.guest = {}, .size = bytes.size(), .user = {}, .offset = 0},
              .fd = std::move(area.fd),
              .bytes = bytes,
              .bounce = std::make_shared<const Mapping>(std::move(area.mapping))});
}

Result<DmaMapping> DmaMap::add(Entry entry) {
  const std::lock_guard guard(mutex_);
  const std::optional<std::uint64_t> at = place(entry.record.size);
  if (!at) return fail(ErrorCode::kOutOfRange, "no device addresses are left for this size");
  cursor_ = *at + round_up(entry.record.size) + kDmaGuard;
  entry.id = DmaId(next_id_++);
  entry.record.guest = GuestAddress(window_.device.raw() + *at);
  entry.record.user = UserAddress(window_.user.raw() + *at);
  entry.slot = free_slot();
  const DmaMapping mapping{entry.id, entry.record.guest, entry.record.size,
                           entry.bounce != nullptr};
  const auto behind = std::ranges::upper_bound(entries_, entry.record.guest, {},
                                               [](const Entry& e) { return e.record.guest; });
  entries_.insert(behind, std::move(entry));
  publish();
  return mapping;
}

// An offset into the window. Next fit: what was given back last is given out last.
std::optional<std::uint64_t> DmaMap::place(std::uint64_t size) const {
  const std::optional<std::uint64_t> behind = place_from(cursor_, size);
  return behind ? behind : place_from(0, size);
}

// No sum wraps: offsets and sizes are bounded by the window's size.
std::optional<std::uint64_t> DmaMap::place_from(std::uint64_t at, std::uint64_t size) const {
  for (const Entry& entry : entries_) {
    const std::uint64_t start = entry.record.guest.raw() - window_.device.raw();
    const std::uint64_t end = start + round_up(entry.record.size) + kDmaGuard;
    if (end <= at) continue;
    if (at + size + kDmaGuard <= start) break;
    at = end;
  }
  if (at > window_.size || size > window_.size - at) return std::nullopt;
  return at;
}

unsigned DmaMap::free_slot() const {
  std::uint64_t taken = 0;
  for (const Entry& entry : entries_) taken |= std::uint64_t{1} << entry.slot;
  CHECK(~taken != 0, "check() bounds the number of mappings");
  return static_cast<unsigned>(std::countr_one(taken));
}

std::uint64_t DmaMap::held(unsigned slot) {
  std::uint64_t sum = 0;
  std::erase_if(holders_, [&](const std::weak_ptr<const Holds>& holder) {
    const auto holds = holder.lock();
    if (holds != nullptr) sum += holds->count[slot].load(std::memory_order_acquire);
    return holds == nullptr;
  });
  return sum;
}

Status DmaMap::retire(DmaId id) {
  const std::lock_guard guard(mutex_);
  const auto found = std::ranges::find(entries_, id, &Entry::id);
  if (found == entries_.end()) {
    return fail(ErrorCode::kNotFound, "no such mapping", static_cast<std::int64_t>(id.raw()));
  }
  if (const std::uint64_t count = held(found->slot); count != 0) {
    return fail(ErrorCode::kWrongState, "the device has buffers of the mapping",
                static_cast<std::int64_t>(count));
  }
  found->retired = true;
  publish();
  return {};
}

void DmaMap::settle() {
  const std::lock_guard guard(mutex_);
  std::erase_if(entries_, [](const Entry& entry) { return entry.retired; });
}

Status DmaMap::renew() {
  const std::lock_guard guard(mutex_);
  std::vector<Mapping::SharedMemory> areas;
  for (const Entry& entry : entries_) {
    if (entry.bounce == nullptr) continue;
    areas.push_back(TRY(Mapping::create_shared("sluice-bounce", entry.record.size)));
  }
  auto area = areas.begin();
  for (Entry& entry : entries_) {
    if (entry.bounce == nullptr) continue;
    entry.fd = std::move(area->fd);
    entry.bounce = std::make_shared<const Mapping>(std::move(area->mapping));
    ++area;
  }
  publish();
  return {};
}

void DmaMap::cancel(DmaId id) {
  const std::lock_guard guard(mutex_);
  std::erase_if(entries_, [id](const Entry& entry) { return entry.retired && entry.id == id; });
}

std::vector<DmaRegion> DmaMap::regions() const {
  const std::lock_guard guard(mutex_);
  std::vector<DmaRegion> regions;
  for (const Entry& entry : entries_) {
    if (!entry.retired) regions.push_back({entry.record, entry.fd.get()});
  }
  return regions;
}

std::size_t DmaMap::size() const {
  const std::lock_guard guard(mutex_);
  return static_cast<std::size_t>(std::ranges::count(entries_, false, &Entry::retired));
}

std::size_t DmaMap::retired() const {
  const std::lock_guard guard(mutex_);
  return static_cast<std::size_t>(std::ranges::count(entries_, true, &Entry::retired));
}

std::shared_ptr<const DmaTable> DmaMap::table() const {
  const std::lock_guard guard(mutex_);
  return table_;
}

// The number goes out last: who sees it and takes the mutex finds the table.
void DmaMap::publish() {
  std::vector<DmaRange> ranges;
  std::vector<std::shared_ptr<const Mapping>> keep;
  for (const Entry& entry : entries_) {
    if (entry.retired) continue;
    ranges.push_back({.host = number_of(entry.bytes),
                      .device = entry.record.guest.raw(),
                      .size = entry.record.size,
                      .bytes = entry.bytes.data(),
                      .bounce = entry.bounce == nullptr ? nullptr : entry.bounce->bytes().data(),
                      .mark = std::uint64_t{1} << entry.slot});
    if (entry.bounce != nullptr) keep.push_back(entry.bounce);
  }
  table_ = std::make_shared<const DmaTable>(std::move(ranges), std::move(keep));
  generation_.fetch_add(1, std::memory_order_release);
}

// --- DmaView -------------------------------------------------------------------------------------

DmaView::DmaView(std::shared_ptr<DmaMap> map, const DmaRange& own)
    : map_(std::move(map)), holds_(std::make_shared<DmaMap::Holds>()), own_(own) {
  CHECK(own.mark == 0, "a path's own range is never unmapped");
  if (map_ == nullptr) return;
  {
    const std::lock_guard guard(map_->mutex_);
    map_->holders_.emplace_back(holds_);
  }
  reload();
}

void DmaView::reload() {
  const std::lock_guard guard(map_->mutex_);
  generation_ = map_->generation_.load(std::memory_order_relaxed);
  table_ = map_->table_;
  last_ = {};
}

const DmaRange* DmaView::keep(const DmaRange* found) {
  if (found == nullptr) return nullptr;
  DmaRange& place = last_[oldest_];
  oldest_ ^= 1;
  place = *found;
  return &place;
}

}  // namespace sluice::memory
