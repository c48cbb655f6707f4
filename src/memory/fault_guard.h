// Fault guard: a shared mapping whose file shrinks gives zero pages and a mark, not a dead process.
//
// A peer may truncate the file behind its memory at any time; the next touch of ours raises
// SIGBUS (SEC-57). One handler for the process, installed with the first mapping, looks the
// address up in a fixed table. If it is ours, private zero pages replace the mapping from the
// faulting page to its end, the entry is marked, and the interrupted instruction runs again.
// Whoever uses the mapping asks for the mark between bursts and drops the peer. Every other SIGBUS
// goes to the handler that was there before, or has its default effect.
//
// A full tmpfs and a huge page pool that ran dry raise the same signal and are treated alike.
#pragma once

#include <cstddef>

#include "base/error.h"

namespace sluice::memory {

struct GuardEntry;

/// The pages that an entry stands for.
struct GuardRange {
  std::byte* base;     // A multiple of `page`.
  std::size_t length;  // Bytes; a multiple of `page`.
  std::size_t page;    // Bytes of one page of the file: 4 KiB, or a huge page.
};

/// Most shared mappings of one process: 64 front-ends with 509 regions each.
inline constexpr std::size_t kGuardEntriesMax = 32768;

/// Puts a mapping under guard. Errors: kNoMemory if the table is full; kSystem.
/// Threads: any.
[[nodiscard]] Result<GuardEntry*> guard_add(const GuardRange& range);

/// Ends the guard. Requires: nobody touches the mapping any more, and it is still mapped (else
/// another mapping could take its place under our mark).
/// Threads: any.
void guard_remove(GuardEntry* entry);

/// True once a touch found a page without a file behind it.
/// Threads: any.
[[nodiscard]] bool guard_tripped(const GuardEntry* entry);

}  // namespace sluice::memory
