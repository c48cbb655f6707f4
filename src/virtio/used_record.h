// UsedRecord: what a packed ring's successor needs to know when this process dies without notice.
//
// Nothing in guest memory tells where a packed ring stands. Before a batch of used descriptors is
// written, the batch goes into this record (a redo log), which lives where it survives the process.
// The batch becomes visible to the driver with the flags of its first descriptor. So after a crash:
//   - the descriptor at `old_used` reads used in that lap: the batch was published, `new_used`
//   holds;
//   - it still reads available: nobody saw the batch; it is written once more, whole, from the log.
// Scanning the ring's flags instead would not do: slots inside a list and slots skipped by a batch
// keep old flags that look available.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace sluice::virtio {

/// Most chains in one take() or give_back().
inline constexpr std::size_t kTakeMax = 64;

/// One used descriptor of the batch.
struct UsedLogEntry {
  std::uint32_t len;
  std::uint16_t id;
  std::uint16_t slots;  // Bit 15: WRITE flag. Bits 0-14: slots minus 1.
};

struct alignas(64) UsedPositionRecord {
  std::uint16_t old_used;  // Where the ring stood before the batch (15 bits slot, 1 bit wrap),
  std::uint16_t new_used;  // and after it. Equal: idle there, the log means nothing.
  std::uint32_t count;     // Entries of the log.
  std::array<UsedLogEntry, kTakeMax> log;

  /// Declares the ring idle at `position`.
  void reset(std::uint16_t position) {
    store(old_used, position);
    store(new_used, position);
    store(count, std::uint32_t{0});
  }
  /// Step 1, while the record still says "idle at `from`": begin, then the entries of the log.
  void begin(std::uint16_t from) {
    // `from` is where the last batch ended, so between these stores the record stays true.
    store(old_used, from);
    store(new_used, from);
    order();
  }
  void entry(std::size_t index, UsedLogEntry value) { log[index] = value; }
  /// Step 2: the log is whole; from here on the batch will be redone. Then write the descriptors.
  void commit(std::uint32_t entries, std::uint16_t to) {
    store(count, entries);
    order();
    store(new_used, to);
    order();
  }

 private:
  // The reader is another process, later; program order is all it needs, so single stores and
  // fences for the compiler are enough.
  template <class T>
  static void store(T& place, T value) {
    __atomic_store_n(&place, value, __ATOMIC_RELAXED);
  }
  static void order() { std::atomic_signal_fence(std::memory_order_seq_cst); }
};

}  // namespace sluice::virtio
