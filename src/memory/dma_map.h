// DmaMap: registers memory for a device, so that its addresses are in hand before any buffer of it
// is offered (premapped buffers); DmaView: the same as a packet path sees it.
//
// The map says which regions are to be shared with the device; whoever speaks to the device shares
// them (net::NetDriver). So a mapping ends in two steps: retire(), then, once the device has let go
// of it, settle(). Only then its addresses are free, and they are taken again as late as can be.
//
// Threads: map, retire and settle belong to one control thread; all else to any. A packet path has
// a DmaView of its own, which looks for news once a burst.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/strong.h"
#include "base/unique_fd.h"
#include "memory/dma_table.h"
#include "memory/guest_memory.h"
#include "memory/mapping.h"

namespace sluice::memory {

/// Names a mapping; never given twice by one map.
using DmaId = Strong<struct DmaIdTag, std::uint64_t>;

/// One registered range: byte i of it is at `device` + i for the device.
struct DmaMapping {
  DmaId id;
  GuestAddress device;
  std::uint64_t size = 0;
  bool bounced = false;  // sync_for_device() and sync_for_cpu() are needed.
};

/// Memory to share with the device. The descriptor is borrowed: valid until settle().
struct DmaRegion {
  RegionRecord record;
  int fd = -1;
};

/// Where a map may place its regions, in both of the names that vhost-user has for memory.
struct DmaWindow {
  GuestAddress device;
  UserAddress user;
  std::uint64_t size = 0;
};

class DmaMap {
 public:
  static constexpr std::size_t kMappingsMax = 64;

  /// Requires: the window begins at a page and no sum in it wraps.
  explicit DmaMap(const DmaWindow& window);
  DmaMap(const DmaMap&) = delete;
  DmaMap& operator=(const DmaMap&) = delete;

  /// Registers memory that is shared as it is: `bytes` are a shared mapping of `fd` from `offset`
  /// on. The device gets the same file; `fd` itself is not kept.
  /// Requires: `bytes` stay mapped until unmapped here.
  /// Errors: kExists if a byte of it is registered already; kOutOfRange for no bytes, an end
  /// behind that of the file or of the address space, and more than kMappingsMax mappings;
  /// kInvalidArgument for null, an offset within a page, and a file that is not shared memory
  /// (memfd, tmpfs, hugetlbfs) or cannot be written; kNoMemory, kSystem.
  [[nodiscard]] Result<DmaMapping> map_shared(std::span<std::byte> bytes, int fd,
                                              std::uint64_t offset);
  /// Registers any other memory, behind a bounce area that begins all zero: nothing of `bytes` is
  /// seen by the device before sync_for_device(). Errors: as map_shared(), without those of files.
  [[nodiscard]] Result<DmaMapping> map_bounced(std::span<std::byte> bytes);

  /// Takes a mapping out of regions() and of every look-up. Retiring twice is harmless.
  /// Requires: nobody offers buffers of it any more. Errors: kNotFound; kWrongState if buffers of
  /// it are outstanding (`detail` says how many).
  Status retire(DmaId id);
  /// The device has nothing but regions(): what was retired is gone.
  void settle();
  /// Another device takes the place of one that may still write: every bounce area is a new one,
  /// all zero, at the same address. (Memory that is shared as it is cannot be exchanged.) What
  /// device and owner are to see alike must be copied again. Errors: kNoMemory, kSystem; then all
  /// is as it was.
  Status renew();
  /// The device never had this one, which was retired: it alone is gone.
  void cancel(DmaId id);

  /// What the device is to have, by address.
  [[nodiscard]] std::vector<DmaRegion> regions() const;
  /// Mappings that can be used / that were retired and not settled.
  [[nodiscard]] std::size_t size() const;
  [[nodiscard]] std::size_t retired() const;

  /// The table of this moment; see DmaTable for what can be asked of it.
  [[nodiscard]] std::shared_ptr<const DmaTable> table() const;
  [[nodiscard]] bool needs_sync(GuestAddress address) const { return table()->needs_sync(address); }
  Status sync_for_device(GuestAddress address, std::uint64_t length) const {
    return table()->sync_for_device(address, length);
  }
  Status sync_for_cpu(GuestAddress address, std::uint64_t length) const {
    return table()->sync_for_cpu(address, length);
  }

 private:
  friend class DmaView;
  // How many buffers one packet path has outstanding, by mark. Written by its holder only.
  struct Holds {
    std::array<std::atomic<std::uint32_t>, kMappingsMax> count{};
  };
  struct Entry {
    DmaId id;
    RegionRecord record;
    UniqueFd fd;
    std::span<std::byte> bytes;
    std::shared_ptr<const Mapping> bounce;
    unsigned slot = 0;
    bool retired = false;
  };

  Status check(std::span<const std::byte> bytes) const;
  Result<DmaMapping> add(Entry entry);
  [[nodiscard]] std::optional<std::uint64_t> place(std::uint64_t size) const;
  [[nodiscard]] std::optional<std::uint64_t> place_from(std::uint64_t at, std::uint64_t size) const;
  [[nodiscard]] unsigned free_slot() const;
  [[nodiscard]] std::uint64_t held(unsigned slot);
  void publish();

  DmaWindow window_;
  mutable std::mutex mutex_;    // Of what follows.
  std::vector<Entry> entries_;  // By device address.
  std::uint64_t cursor_ = 0;    // Into the window: where the next region is tried first.
  std::uint64_t next_id_ = 1;
  std::shared_ptr<const DmaTable> table_;
  std::vector<std::weak_ptr<const Holds>> holders_;
  std::atomic<std::uint64_t> generation_{0};  // Of table_; read without the mutex.
};

/// A packet path's end of a DmaMap: translation by the ranges hit last, then by search; and an
/// account of what is outstanding in which mapping, so that none is unmapped under the device.
/// Threads: one at a time.
class DmaView {
 public:
  DmaView() = default;
  /// `own` is one more range, which is always there. `map` may be null.
  DmaView(std::shared_ptr<DmaMap> map, const DmaRange& own);
  // Not copied: the account has one writer.
  DmaView(DmaView&&) = default;
  DmaView& operator=(DmaView&&) = default;
  DmaView(const DmaView&) = delete;
  DmaView& operator=(const DmaView&) = delete;
  ~DmaView() = default;

  /// Looks for mappings that came or went. Ranges found before are void. Call once a burst.
  void refresh() {
    if (map_ == nullptr) return;
    if (map_->generation_.load(std::memory_order_acquire) != generation_) [[unlikely]]
      reload();
  }
  /// The range that holds all of the bytes, or null.
  [[nodiscard]] const DmaRange* find_host(const std::byte* data, std::uint64_t length) {
    if (last_[0].holds_host(data, length)) return &last_[0];
    if (last_[1].holds_host(data, length)) return &last_[1];
    if (own_.holds_host(data, length)) return &own_;
    return keep(table_->find_host(data, length));
  }
  [[nodiscard]] const DmaRange* find_device(GuestAddress address, std::uint64_t length) {
    if (last_[0].holds_device(address.raw(), length)) return &last_[0];
    if (last_[1].holds_device(address.raw(), length)) return &last_[1];
    if (own_.holds_device(address.raw(), length)) return &own_;
    return keep(table_->find_device(address, length));
  }
  [[nodiscard]] const DmaTable& table() const { return *table_; }

  /// A buffer that lies in the mappings of `marks` is outstanding / came back.
  void hold(std::uint64_t marks) { count(marks, 1); }
  void drop(std::uint64_t marks) { count(marks, ~std::uint32_t{0}); }

 private:
  void count(std::uint64_t marks, std::uint32_t change) {
    for (; marks != 0; marks &= marks - 1) {
      auto& counter = holds_->count[static_cast<std::size_t>(std::countr_zero(marks))];
      counter.store(counter.load(std::memory_order_relaxed) + change, std::memory_order_release);
    }
  }
  [[gnu::cold, gnu::noinline]] void reload();
  [[nodiscard]] const DmaRange* keep(const DmaRange* found);

  std::shared_ptr<DmaMap> map_;
  std::shared_ptr<const DmaTable> table_ = std::make_shared<const DmaTable>();
  std::shared_ptr<DmaMap::Holds> holds_;
  std::uint64_t generation_ = 0;
  DmaRange own_;
  std::array<DmaRange, 2> last_{};  // Hit last: headers and data may lie in two mappings, by turns.
  std::size_t oldest_ = 0;
};

}  // namespace sluice::memory
