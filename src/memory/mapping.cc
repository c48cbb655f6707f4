// System calls behind Mapping, and the checks of what a peer asks us to map.
#include "memory/mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <limits>
#include <utility>

#include "base/elsewhere.h"
#include "base/foreign_fd.h"
#include "memory/fault_guard.h"

namespace sluice::memory {

namespace {

constinit std::atomic<std::size_t> live_mappings{0};

constexpr auto kHugetlbfsMagic = 0x958458F6U;  // <linux/magic.h> clashes with <sys/statfs.h>.
constexpr unsigned kNoExecSeal = 8;            // MFD_NOEXEC_SEAL; newer than Debian's glibc.
constexpr std::size_t kLargeMapping = 64U << 20;
constexpr std::uint64_t kHugePage = 2U << 20;  // Below this size huge pages cannot help.

std::uint64_t system_page() {
  static const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  return page;
}

// Asked before anything that can wait, as fstat can: a file of FUSE or of a network would let its
// owner stop our threads at each touch. Errors: kInvalidArgument.
Status check_lives_in_memory(int fd) {
  if (!lives_in_memory(fd)) {
    return fail(ErrorCode::kInvalidArgument,
                "the descriptor is no shared memory (memfd, tmpfs or hugetlbfs)", errno);
  }
  return {};
}

// Bytes of a page of the file. st_blksize would not do: tmpfs says 2 MiB there when it merely tries
// for huge pages, and then smaller offsets are legal.
Result<std::uint64_t> page_of(int fd) {
  struct statfs info{};
  if (::fstatfs(fd, &info) != 0) return fail_errno("cannot look at the file system");
  const bool huge = static_cast<std::uint32_t>(info.f_type) == kHugetlbfsMagic;
  return huge ? static_cast<std::uint64_t>(info.f_bsize) : system_page();
}

std::uint64_t round_up(std::uint64_t value, std::uint64_t page) {
  return (value + page - 1) / page * page;
}

struct Window {
  std::uint64_t start;   // Into the file; a multiple of the page.
  std::uint64_t length;  // Whole pages that hold what was asked for.
  std::uint64_t skip;    // From `start` to the first byte asked for.
  std::uint64_t page;
};

// All sums are safe once offset + size lies within the file: its size is below 2^63.
Result<Window> window_of(int fd, std::uint64_t offset, std::uint64_t size) {
  if (size == 0) return fail(ErrorCode::kOutOfRange, "cannot map zero bytes");
  if (offset > std::numeric_limits<std::uint64_t>::max() - size) {
    return fail(ErrorCode::kOutOfRange, "file offset plus size overflows");
  }
  struct stat info{};
  if (::fstat(fd, &info) != 0) return fail_errno("cannot look at the file");
  if (offset + size > static_cast<std::uint64_t>(info.st_size)) {
    return fail(ErrorCode::kOutOfRange, "the file is shorter than the mapping", info.st_size);
  }
  const std::uint64_t page = TRY(page_of(fd));
  const std::uint64_t start = offset / page * page;
  return Window{start, round_up(offset + size, page) - start, offset - start, page};
}

void* map_pages(std::uint64_t length, int flags, int fd, std::uint64_t offset) {
  return ::mmap(nullptr, length, PROT_READ | PROT_WRITE, flags, fd, static_cast<off_t>(offset));
}

// Freeing the pages of a large guest that ended before us takes a second for some GiB: not on the
// control thread, which has other guests to serve.
void unmap(std::byte* base, std::size_t length) {
  const bool large = length >= kLargeMapping;
  if (large && run_elsewhere([base, length] { ::munmap(base, length); })) return;
  ::munmap(base, length);
}

Result<UniqueFd> create_memfd(const char* name) {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  // Hosts may demand that memory files cannot be executed; old kernels do not know the flag.
  UniqueFd fd(::memfd_create(name, kFlags | kNoExecSeal));
  if (!fd && errno == EINVAL) fd = UniqueFd(::memfd_create(name, kFlags));
  if (!fd) return fail_errno("cannot create shared memory");
  return fd;
}

}  // namespace

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      base_(std::exchange(other.base_, nullptr)),
      mapped_(std::exchange(other.mapped_, 0)),
      guard_(std::exchange(other.guard_, nullptr)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  Mapping taken(std::move(other));
  std::swap(data_, taken.data_);
  std::swap(size_, taken.size_);
  std::swap(base_, taken.base_);
  std::swap(mapped_, taken.mapped_);
  std::swap(guard_, taken.guard_);
  return *this;
}

Mapping::~Mapping() {
  if (guard_ != nullptr) guard_remove(guard_);
  if (base_ == nullptr) return;
  unmap(base_, mapped_);
  live_mappings.fetch_sub(1, std::memory_order_relaxed);
}

Result<Mapping> Mapping::map_file(int fd, std::uint64_t offset, std::uint64_t size) {
  if (size == 0) return fail(ErrorCode::kOutOfRange, "cannot map zero bytes");
  TRY(check_lives_in_memory(fd));
  return map_own_file(fd, offset, size);
}

Result<Mapping> Mapping::map_own_file(int fd, std::uint64_t offset, std::uint64_t size) {
  const Window window = TRY(window_of(fd, offset, size));
  void* pages = map_pages(window.length, MAP_SHARED, fd, window.start);
  if (pages == MAP_FAILED) {
    if (errno == EACCES || errno == EPERM || errno == ENODEV) {
      return fail(ErrorCode::kInvalidArgument, "the file cannot be mapped for writing", errno);
    }
    return fail_errno("cannot map the file");
  }
  Mapping mapping;
  mapping.base_ = static_cast<std::byte*>(pages);
  mapping.mapped_ = window.length;
  mapping.data_ = mapping.base_ + window.skip;
  mapping.size_ = size;
  live_mappings.fetch_add(1, std::memory_order_relaxed);
  mapping.guard_ = TRY(guard_add({mapping.base_, mapping.mapped_, window.page}));
  // A core file of ours must not hold the secrets of guests, nor be as large as all of them.
  ::madvise(mapping.base_, mapping.mapped_, MADV_DONTDUMP);
  return mapping;
}

Result<Mapping::SharedMemory> Mapping::create_shared(const char* name, std::uint64_t size) {
  if (size == 0 || size > static_cast<std::uint64_t>(std::numeric_limits<off_t>::max())) {
    return fail(ErrorCode::kOutOfRange, "shared memory of this size is impossible");
  }
  UniqueFd fd = TRY(create_memfd(name));
  if (::ftruncate(fd.get(), static_cast<off_t>(size)) != 0) {
    return fail_errno("cannot size shared memory");
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return fail_errno("cannot seal shared memory");
  }
  Mapping mapping = TRY(map_file(fd.get(), 0, size));
  // Advice only: a kernel without huge pages for shared memory says no, and nothing changes.
  if (size >= kHugePage) ::madvise(mapping.base_, mapping.mapped_, MADV_HUGEPAGE);
  // Unlike a guest's memory, ours belongs in a core file.
  ::madvise(mapping.base_, mapping.mapped_, MADV_DODUMP);
  return SharedMemory{std::move(mapping), std::move(fd)};
}

Result<Mapping> Mapping::create_private(std::uint64_t size) {
  if (size == 0 || size > std::numeric_limits<std::uint64_t>::max() - system_page()) {
    return fail(ErrorCode::kOutOfRange, "private memory of this size is impossible");
  }
  const std::uint64_t length = round_up(size, system_page());
  void* pages = map_pages(length, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return fail_errno("cannot allocate private memory");
  Mapping mapping;
  mapping.base_ = static_cast<std::byte*>(pages);
  mapping.mapped_ = length;
  mapping.data_ = mapping.base_;
  mapping.size_ = size;
  live_mappings.fetch_add(1, std::memory_order_relaxed);
  if (size >= kHugePage) ::madvise(mapping.base_, mapping.mapped_, MADV_HUGEPAGE);
  return mapping;
}

bool Mapping::shrunk() const {
  return guard_ != nullptr && guard_tripped(guard_);
}

std::size_t Mapping::live_count() {
  return live_mappings.load(std::memory_order_relaxed);
}

}  // namespace sluice::memory
