// The table of guarded mappings and the SIGBUS handler that reads it.
//
// The handler may interrupt any thread anywhere, so it takes no lock: each entry is a sequence
// lock of atomics. An entry is written under the mutex only, and never while its own mapping can
// fault: it is filled before the first touch and emptied after the last.
#include "memory/fault_guard.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <mutex>

namespace sluice::memory {

struct GuardEntry {
  std::atomic<std::uint32_t> sequence{0};  // Odd while the entry changes.
  std::atomic<bool> tripped{false};
  std::atomic<std::uintptr_t> start{0};
  std::atomic<std::uintptr_t> end{0};  // 0: the entry is free.
  std::atomic<std::uintptr_t> page{0};
};

namespace {

constinit std::array<GuardEntry, kGuardEntriesMax> entries{};
constinit std::atomic<std::size_t> entries_used{0};  // No entry from here on was ever taken.
constinit std::mutex entries_mutex;
constinit std::size_t first_free = 0;   // Under the mutex: all entries before it are taken.
constinit bool installed = false;       // Under the mutex.
constinit struct sigaction previous{};  // Written once, before the handler is installed.

static_assert(std::atomic<std::uintptr_t>::is_always_lock_free, "the handler must not lock");

void write_entry(GuardEntry& entry, std::uintptr_t start, std::uintptr_t end, std::uintptr_t page) {
  const std::uint32_t sequence = entry.sequence.load(std::memory_order_relaxed);
  entry.sequence.store(sequence + 1, std::memory_order_seq_cst);
  entry.start.store(start, std::memory_order_seq_cst);
  entry.end.store(end, std::memory_order_seq_cst);
  entry.page.store(page, std::memory_order_seq_cst);
  entry.sequence.store(sequence + 2, std::memory_order_seq_cst);
}

struct Found {
  GuardEntry* entry = nullptr;
  std::uintptr_t start = 0;
  std::uintptr_t end = 0;
  std::uintptr_t page = 0;
};

// An entry that changes while we look belongs to a mapping that nobody can touch now, so it is not
// the one that faulted.
Found find_entry(std::uintptr_t address) {
  const std::size_t used = entries_used.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < used; ++i) {
    GuardEntry& entry = entries[i];
    const std::uint32_t before = entry.sequence.load(std::memory_order_seq_cst);
    const Found found{&entry, entry.start.load(std::memory_order_seq_cst),
                      entry.end.load(std::memory_order_seq_cst),
                      entry.page.load(std::memory_order_seq_cst)};
    const bool steady = before % 2 == 0 && entry.sequence.load(std::memory_order_seq_cst) == before;
    if (steady && address >= found.start && address < found.end) return found;
  }
  return {};
}

// The bare system call: sanitizers intercept mmap(), and what they do then is not safe in a signal
// handler.
bool put_zero_pages(std::uintptr_t start, std::uintptr_t end) {
  const long result = ::syscall(SYS_mmap, start, end - start, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
  return result != -1;
}

// Only "no such page" is ours. Memory that failed in hardware (BUS_MCEERR_*) and unaligned accesses
// keep their meaning.
bool repair(const siginfo_t& info) {
  if (info.si_code != BUS_ADRERR) return false;
  const auto address = reinterpret_cast<std::uintptr_t>(info.si_addr);
  const Found found = find_entry(address);
  if (found.entry == nullptr) return false;
  // Replacing a part makes one mapping more; the whole never does, should the process be at its
  // limit of mappings.
  const std::uintptr_t page_start = address / found.page * found.page;
  if (!put_zero_pages(page_start, found.end) && !put_zero_pages(found.start, found.end)) {
    return false;
  }
  found.entry->tripped.store(true, std::memory_order_release);
  return true;
}

void pass_on(int number, siginfo_t* info, void* context) {
  if ((previous.sa_flags & SA_SIGINFO) != 0 && previous.sa_sigaction != nullptr) {
    previous.sa_sigaction(number, info, context);
    return;
  }
  if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
    previous.sa_handler(number);
    return;
  }
  // A signal that another process sent may be ignored; a fault may not.
  const bool sent = info->si_code <= 0;
  if (sent && previous.sa_handler == SIG_IGN) return;
  struct sigaction fallback{};
  fallback.sa_handler = SIG_DFL;
  ::sigaction(number, &fallback, nullptr);
  if (sent) ::raise(number);  // A fault needs no help: its instruction runs again and ends us.
}

void handle_sigbus(int number, siginfo_t* info, void* context) {
  const int saved = errno;
  if (!repair(*info)) pass_on(number, info, context);
  errno = saved;
}

Status install_handler() {
  if (installed) return {};
  if (::sigaction(SIGBUS, nullptr, &previous) != 0) return fail_errno("cannot read SIGBUS action");
  struct sigaction action{};
  action.sa_sigaction = handle_sigbus;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  ::sigemptyset(&action.sa_mask);
  if (::sigaction(SIGBUS, &action, nullptr) != 0) return fail_errno("cannot handle SIGBUS");
  installed = true;
  return {};
}

GuardEntry* take_free_entry() {
  const auto is_free = [](const GuardEntry& entry) {
    return entry.end.load(std::memory_order_relaxed) == 0;
  };
  while (first_free < entries.size() && !is_free(entries[first_free])) ++first_free;
  if (first_free == entries.size()) return nullptr;
  if (first_free >= entries_used.load(std::memory_order_relaxed)) {
    entries_used.store(first_free + 1, std::memory_order_release);
  }
  return &entries[first_free];
}

}  // namespace

Result<GuardEntry*> guard_add(const GuardRange& range) {
  const std::lock_guard lock(entries_mutex);
  TRY(install_handler());
  GuardEntry* entry = take_free_entry();
  if (entry == nullptr) return fail(ErrorCode::kNoMemory, "too many shared mappings");
  entry->tripped.store(false, std::memory_order_relaxed);
  const auto start = reinterpret_cast<std::uintptr_t>(range.base);
  write_entry(*entry, start, start + range.length, range.page);
  return entry;
}

void guard_remove(GuardEntry* entry) {
  const std::lock_guard lock(entries_mutex);
  write_entry(*entry, 0, 0, 0);
  first_free = std::min(first_free, static_cast<std::size_t>(entry - entries.data()));
}

bool guard_tripped(const GuardEntry* entry) {
  return entry->tripped.load(std::memory_order_acquire);
}

}  // namespace sluice::memory
