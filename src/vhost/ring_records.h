// RingRecords: where the used positions of a port's packed rings outlive the process.
//
// Why: nothing in guest memory says where a packed ring stands, and QEMU only knows what it was
// told at the last orderly stop. So a daemon that was killed would start all rings at a wrong
// position, and the guest's network would be gone until it reboots. The ring writes each batch of
// used descriptors into its record before it writes the ring (virtio/used_record.h); the record
// lies in a small file, mapped shared, so SIGKILL loses nothing of it.
//
// A record counts for a ring that starts only if all of this holds:
//   1. It is live: set when the ring starts, cleared when the front-end stops the ring in order
//      (it then knows the position). A lost connection keeps it live: the front-end may come back.
//   2. Its fingerprint is the ring's: addresses, size, ring features, and which bytes of which
//      file hold the ring. A new guest has another memory file; so has a new memfd.
//   3. Ring memory agrees (vhost/packed_restart.h): a guest that rebooted while nobody served it
//      may have a fresh ring at the very same place.
//
// Losing the file loses no data, only the ability to go on after a crash.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/error.h"
#include "base/unique_fd.h"
#include "memory/mapping.h"
#include "virtio/ring.h"
#include "virtio/used_record.h"

namespace sluice::vhost {

/// What must be equal for a ring to be the one that a record speaks of.
struct RingFingerprint {
  std::uint64_t descriptors = 0;  // User addresses.
  std::uint64_t driver_area = 0;
  std::uint64_t device_area = 0;
  std::uint64_t file_device = 0;  // The file behind the descriptors' region,
  std::uint64_t file_inode = 0;
  std::uint64_t file_offset = 0;  // and where in it they lie.
  std::uint64_t region_size = 0;
  std::uint32_t size = 0;      // Entries.
  std::uint32_t features = 0;  // Those that change the ring's format.
  friend bool operator==(const RingFingerprint&, const RingFingerprint&) = default;
};
static_assert(sizeof(RingFingerprint) == 64);

/// Records of a port's rings in memory that outlives the process: the table alone.
class RecordTable {
 public:
  RecordTable() = default;
  /// Bytes of a table for `rings` rings.
  [[nodiscard]] static std::uint64_t bytes_for(std::uint16_t rings);
  /// Requires: `place` has bytes_for(rings) bytes and is aligned to 64.
  RecordTable(std::byte* place, std::uint16_t rings) : place_(place), rings_(rings) {}

  /// Does the memory hold a table of this version for as many rings?
  [[nodiscard]] bool valid() const;
  /// Makes it one, without live records.
  void clear();

  /// The record of `ring` if it is live for exactly this ring, else null. Copy it before it is
  /// looked at: a table may lie in memory that a peer can write.
  /// Requires: ring < rings() here and below.
  [[nodiscard]] virtio::UsedPositionRecord* find(std::uint16_t ring,
                                                 const RingFingerprint& fingerprint) const;
  /// Makes the record live: the ring starts idle at `position`.
  [[nodiscard]] virtio::UsedPositionRecord* begin(std::uint16_t ring,
                                                  const RingFingerprint& fingerprint,
                                                  std::uint16_t position) const;
  /// The front-end knows the position now, or wants no more of the ring.
  void end(std::uint16_t ring) const;

  [[nodiscard]] std::uint16_t rings() const { return rings_; }

 private:
  struct Header;
  struct Entry;
  [[nodiscard]] Header& header() const;
  [[nodiscard]] Entry& entry(std::uint16_t ring) const;

  std::byte* place_ = nullptr;
  std::uint16_t rings_ = 0;
};

/// A table in a file of ours.
class RingRecords {
  struct Key {};  // Only open() has one.

 public:
  /// Opens or makes the file `path` for `rings` rings and locks it for the life of the object.
  /// A file of another version or size starts anew.
  /// Errors: kExists if another process has it; kPermission if it belongs to another user or
  /// cannot be written; kNotFound if the directory is missing; kInvalidArgument if it is no plain
  /// file; kSystem.
  [[nodiscard]] static Result<std::shared_ptr<RingRecords>> open(const std::string& path,
                                                                 std::uint16_t rings);

  [[nodiscard]] const RecordTable& table() const { return table_; }

  RingRecords(Key, UniqueFd file, memory::Mapping mapping, std::uint16_t rings)
      : file_(std::move(file)),
        mapping_(std::move(mapping)),
        table_(mapping_.bytes().data(), rings) {}

 private:
  UniqueFd file_;  // Holds the lock.
  memory::Mapping mapping_;
  RecordTable table_;
};

}  // namespace sluice::vhost
