// The file behind RingRecords: opened with suspicion, locked, laid out by cache lines.
#include "vhost/ring_records.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <utility>

#include "base/check.h"
#include "memory/shared.h"

namespace sluice::vhost {

namespace {
constexpr std::uint64_t kMagic = 0x3154'4f50'4543'4c53;  // "SLCEPOT1"
}

struct RecordTable::Header {
  std::uint64_t magic;
  std::uint32_t record_size;
  std::uint32_t rings;
  std::byte padding[48];
};

struct alignas(64) RecordTable::Entry {
  RingFingerprint fingerprint;
  std::uint64_t live;
  std::byte padding[56];
  virtio::UsedPositionRecord record;  // On lines of its own: the only part written per batch.
};

namespace {

constexpr std::uint64_t kLive = 0x6c69'7665;  // Not a value that zeroed or torn pages show.

Status check_file(int fd) {
  struct stat info{};
  if (::fstat(fd, &info) != 0) return fail_errno("cannot look at the ring record file");
  if (!S_ISREG(info.st_mode)) {
    return fail(ErrorCode::kInvalidArgument, "the ring record file is not a plain file");
  }
  if (info.st_uid != ::geteuid()) {
    return fail(ErrorCode::kPermission, "the ring record file belongs to another user");
  }
  // Whoever may write to the directory could have put a file there that is ours, but no record.
  if (info.st_nlink > 1) {
    return fail(ErrorCode::kInvalidArgument, "the ring record file has other names (hard links)");
  }
  std::uint64_t magic = 0;
  if (::pread(fd, &magic, sizeof magic, 0) > 0 && magic != 0 && magic != kMagic) {
    return fail(ErrorCode::kInvalidArgument, "the file holds something else than ring records");
  }
  return {};
}

Result<UniqueFd> open_file(const std::string& path) {
  // No link is followed: the directory may be one that others can write to.
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  if (!fd) {
    switch (errno) {
      case ENOENT:
        return fail(ErrorCode::kNotFound, "the directory of the ring record file does not exist");
      case EACCES:
      case EPERM:
      case EROFS: return fail(ErrorCode::kPermission, "cannot write the ring record file", errno);
      case ENOTDIR:
        return fail(ErrorCode::kNotFound,
                    "a part of the ring record file's path is not a directory");
      case ELOOP:
      case EISDIR:
      case ENXIO:
        return fail(ErrorCode::kInvalidArgument, "the ring record file is not a plain file");
      default: return fail_errno("cannot open the ring record file");
    }
  }
  TRY(check_file(fd.get()));
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return fail_errno("cannot lock the ring record file");
    return fail(ErrorCode::kExists, "another process uses the ring record file");
  }
  return fd;
}

// Brings the file to `size` bytes; a file of another size is emptied first, so that nothing of
// another layout remains. The blocks are allocated: a full disk must fail here, not at a touch.
Status bring_to_size(int fd, std::uint64_t size) {
  struct stat info{};
  if (::fstat(fd, &info) != 0) return fail_errno("cannot look at the ring record file");
  if (static_cast<std::uint64_t>(info.st_size) != size && ::ftruncate(fd, 0) != 0) {
    return fail_errno("cannot empty the ring record file");
  }
  if (const int error = ::posix_fallocate(fd, 0, static_cast<off_t>(size)); error != 0) {
    return fail(ErrorCode::kSystem, "cannot allocate the ring record file", error);
  }
  return {};
}

}  // namespace

RecordTable::Header& RecordTable::header() const {
  static_assert(sizeof(Header) == 64 && sizeof(Entry) % 64 == 0);
  return *static_cast<Header*>(static_cast<void*>(place_));
}

RecordTable::Entry& RecordTable::entry(std::uint16_t ring) const {
  CHECK(ring < rings_, "a ring has its record");
  void* const place = place_ + sizeof(Header) + ring * sizeof(Entry);
  return *static_cast<Entry*>(place);
}

std::uint64_t RecordTable::bytes_for(std::uint16_t rings) {
  return sizeof(Header) + rings * sizeof(Entry);
}

bool RecordTable::valid() const {
  const Header found = header();
  return found.magic == kMagic && found.rings == rings_ &&
         found.record_size == sizeof(virtio::UsedPositionRecord);
}

void RecordTable::clear() {
  for (std::uint16_t ring = 0; ring < rings_; ++ring) end(ring);
  header() = {kMagic, sizeof(virtio::UsedPositionRecord), rings_, {}};
}

virtio::UsedPositionRecord* RecordTable::find(std::uint16_t ring,
                                              const RingFingerprint& fingerprint) const {
  Entry& found = entry(ring);
  if (found.live != kLive || found.fingerprint != fingerprint) return nullptr;
  return &found.record;
}

virtio::UsedPositionRecord* RecordTable::begin(std::uint16_t ring,
                                               const RingFingerprint& fingerprint,
                                               std::uint16_t position) const {
  // A kill between any two of these stores leaves a record that is not live, or a whole one. The
  // reader is a later process, so the order of the program is all it takes.
  Entry& mine = entry(ring);
  end(ring);
  mine.fingerprint = fingerprint;
  mine.record.reset(position);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  __atomic_store_n(&mine.live, kLive, __ATOMIC_RELEASE);
  return &mine.record;
}

void RecordTable::end(std::uint16_t ring) const {
  __atomic_store_n(&entry(ring).live, std::uint64_t{0}, __ATOMIC_RELEASE);
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

Result<std::shared_ptr<RingRecords>> RingRecords::open(const std::string& path,
                                                       std::uint16_t rings) {
  UniqueFd fd = TRY(open_file(path));
  const std::uint64_t size = RecordTable::bytes_for(rings);
  TRY(bring_to_size(fd.get(), size));
  memory::Mapping mapping = TRY(memory::Mapping::map_own_file(fd.get(), 0, size));
  auto records = std::make_shared<RingRecords>(Key(), std::move(fd), std::move(mapping), rings);
  if (!records->table_.valid()) records->table_.clear();
  return records;
}

}  // namespace sluice::vhost
