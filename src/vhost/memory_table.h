// Changes of the memory a front-end shares: each yields a new GuestMemory, or leaves all as it was.
//
// Regions that stay keep their mapping, so a change costs only what changed, and pointers that
// others hold into the old table stay good until they let go of it. Null stands for "no memory".
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/error.h"
#include "base/unique_fd.h"
#include "memory/guest_memory.h"
#include "vhost/protocol.h"

namespace sluice::vhost {

using MemoryPointer = std::shared_ptr<const memory::GuestMemory>;

/// SET_MEM_TABLE: exactly `regions`, one descriptor each.
/// Errors: those of memory::Region::map and memory::GuestMemory::create.
[[nodiscard]] Result<MemoryPointer> memory_replaced(const MemoryPointer& now,
                                                    std::span<const MemoryRegion> regions,
                                                    std::span<const UniqueFd> fds);

/// ADD_MEM_REG. Errors: the same.
[[nodiscard]] Result<MemoryPointer> memory_added(const MemoryPointer& now,
                                                 const MemoryRegion& region, const UniqueFd& fd);

/// REM_MEM_REG: found by addresses and size; offset and descriptor mean nothing.
/// Errors: kNotFound.
[[nodiscard]] Result<MemoryPointer> memory_removed(const MemoryPointer& now,
                                                   const MemoryRegion& region);

}  // namespace sluice::vhost
