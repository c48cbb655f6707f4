// InflightRegion: memory that the front-end keeps for the back-end's successor (INFLIGHT_SHMFD).
//
// The protocol's formats log single buffers, for back-ends that finish them in any order. We take
// and finish in order, always, so the set in flight is [used, avail) and needs no log:
//   split ring    nothing at all: `used` is in ring memory;
//   packed ring   `used` must outlive us. Behind the blocks that the protocol defines, a region
//                 made by us carries a RecordTable, the same as in the file of RingRecords.
// The protocol's blocks stay valid for a foreign successor: no buffer is ever marked in flight, and
// after an orderly stop the used position is in them. A region that a foreign back-end made has no
// table; then the position in its block is all there is.
//
//   [block of ring 0][block of ring 1]...[RecordTable]      each block a multiple of 64 bytes
//
// Everything in the region may be changed by the front-end at any time: values are copied, then
// checked. Spec: vhost-user, "Inflight I/O tracking".
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/unique_fd.h"
#include "memory/mapping.h"
#include "vhost/protocol.h"
#include "vhost/ring_records.h"

namespace sluice::vhost {

class InflightRegion {
  struct Key {};  // Only map() has one.

 public:
  /// Bytes of the protocol's block of a ring.
  [[nodiscard]] static std::uint64_t block_bytes(std::uint16_t queue_size, bool packed);

  struct Created {
    UniqueFd fd;
    InflightDescription description;
  };
  /// GET_INFLIGHT_FD: new zeroed memory with an empty table. Nothing of it stays with us.
  /// Errors: kOutOfRange for queues (1..rings_max) or queue size (1..32768); kSystem.
  [[nodiscard]] static Result<Created> create(const InflightDescription& wanted,
                                              std::uint16_t rings_max, bool packed);

  /// SET_INFLIGHT_FD. Errors: kOutOfRange as create(), or if the blocks do not fit into mmap_size
  /// or the file; kInvalidArgument if the region is not aligned to 64 bytes.
  [[nodiscard]] static Result<std::shared_ptr<InflightRegion>> map(
      int fd, const InflightDescription& description, std::uint16_t rings_max);

  /// The table of records, if the region is one of ours and has room for `ring`.
  [[nodiscard]] const RecordTable* table(std::uint16_t ring) const;
  /// Where a packed ring stands by the block that a foreign back-end kept: before and after its
  /// last batch, of which nobody knows whether it was published. Nothing if no back-end kept the
  /// block for a ring of `size` entries, or the region is ours.
  struct Positions {
    std::uint16_t old_used;  // 15 bits slot, one bit wrap counter.
    std::uint16_t new_used;
  };
  [[nodiscard]] std::optional<Positions> foreign_position(std::uint16_t ring,
                                                          std::uint32_t size) const;
  /// Keeps the block of a packed ring that was stopped in order at `position`.
  void note_stop(std::uint16_t ring, std::uint32_t size, std::uint16_t position) const;
  /// True once a touch hit a part of the file that no longer exists.
  [[nodiscard]] bool shrunk() const { return mapping_.shrunk(); }

  InflightRegion(Key, memory::Mapping mapping, const InflightDescription& description);

 private:
  [[nodiscard]] std::byte* packed_block(std::uint16_t ring) const;

  memory::Mapping mapping_;
  std::uint16_t queues_;
  std::uint16_t queue_size_;
  std::uint64_t stride_;  // From one packed block to the next.
  RecordTable table_;
  bool has_table_;
};

}  // namespace sluice::vhost
