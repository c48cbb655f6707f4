// ChainReader: turns the descriptors of one chain into segments, with every bound checked.
//
// The cold half of both device rings: chains of several descriptors, indirect tables, buffers that
// straddle two regions, and everything a hostile driver can write. A chain of one plain descriptor
// inside one region never comes here.
//
// Bounds: hops by the queue size (direct) or kChainSegmentsMax (indirect; Linux builds tables
// longer than a small queue), segments by kChainSegmentsMax, bytes by 2^32 - 1 (SPL-02, SPL-03,
// IND-05).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "base/error.h"
#include "memory/guest_memory.h"
#include "memory/shared.h"
#include "virtio/ring.h"
#include "virtio/spec.h"

namespace sluice::virtio {

/// Builds one chain in `arena`. Threads: the holder of the queue.
class ChainReader {
 public:
  ChainReader(const memory::GuestMemory& memory, memory::RegionHint& hint, SegmentArena& arena)
      : memory_(memory), hint_(hint), arena_(arena), first_(arena.count) {}

  /// Appends the buffer of one descriptor. A length of 0 is skipped, but its address is checked
  /// (SPL-15). Errors: kBadAddress; kRingCorrupt for readable after writable (SPL-04) and limits.
  Status add(std::uint64_t address, std::uint32_t length, bool writable);

  /// Appends all of an indirect table, split format: entries linked by `next` (2.7.5.3).
  /// Errors: kRingCorrupt for a bad length, loops, nesting; kBadAddress.
  Status add_split_table(std::uint64_t address, std::uint32_t bytes);

  /// The same, packed format: entries in sequence, only WRITE has a meaning (2.8.8).
  /// With `readable_only` WRITE has none either: DPDK's driver leaves stale ones in the tables of
  /// its transmitqs, where nothing is writable anyway.
  Status add_packed_table(std::uint64_t address, std::uint32_t bytes, bool readable_only = false);

  /// Fills in everything about segments; id and slots are the ring's.
  void finish(Chain& chain) const;

 private:
  Status check_table(std::uint64_t address, std::uint32_t bytes) const;
  Status read_entry(std::uint64_t address, std::span<std::byte, 16> out);

  const memory::GuestMemory& memory_;
  memory::RegionHint& hint_;
  SegmentArena& arena_;
  std::uint32_t first_;
  std::uint32_t readable_ = 0;
  std::uint64_t bytes_ = 0;
  bool writable_seen_ = false;
};

}  // namespace sluice::virtio
