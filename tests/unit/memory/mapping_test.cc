// Mapping: what is mapped, what is refused, and that nothing stays behind either way.
#include "memory/mapping.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "support/page.h"
#include "tests/unit/memory/leaks.h"

namespace sluice::memory {
namespace {

using test::kMax;
using test::kPage;

UniqueFd memory_file(std::uint64_t size, unsigned flags = 0) {
  UniqueFd fd(::memfd_create("test", MFD_CLOEXEC | flags));
  EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(size)), 0);
  return fd;
}

// Maps and expects a refusal for the given cause, which leaves nothing open or mapped.
void expect_refusal(int fd, std::uint64_t offset, std::uint64_t size, ErrorCode code) {
  const test::LeakCheck leaks;
  const auto mapping = Mapping::map_file(fd, offset, size);
  ASSERT_FALSE(mapping.has_value()) << "offset " << offset << " size " << size;
  EXPECT_EQ(mapping.error().code, code) << mapping.error().text;
}

TEST(Mapping, IsEmptyByDefault) {
  const Mapping mapping;
  EXPECT_FALSE(mapping);
  EXPECT_TRUE(mapping.bytes().empty());
  EXPECT_FALSE(mapping.shrunk());
}

TEST(Mapping, ShowsTheFileFromAnyOffset) {
  const test::LeakCheck leaks;
  const UniqueFd fd = memory_file(3 * kPage);
  for (std::uint64_t at = 0; at < 3 * kPage; at += 16) {
    ASSERT_EQ(::pwrite(fd.get(), &at, sizeof at, static_cast<off_t>(at)), 8);
  }
  for (const std::uint64_t offset : {std::uint64_t{0}, std::uint64_t{16}, kPage - 16, kPage,
                                     kPage + 16, 2 * kPage - 16, 3 * kPage - 16}) {
    for (const std::uint64_t size : {std::uint64_t{16}, kPage, 3 * kPage - offset}) {
      if (offset + size > 3 * kPage) continue;
      const auto mapping = Mapping::map_file(fd.get(), offset, size);
      ASSERT_TRUE(mapping.has_value());
      ASSERT_EQ(mapping->bytes().size(), size);
      std::uint64_t first = 0;
      std::memcpy(&first, mapping->bytes().data(), sizeof first);
      EXPECT_EQ(first, offset);
      mapping->bytes().back() = std::byte{0x5A};
      char last = 0;
      ASSERT_EQ(::pread(fd.get(), &last, 1, static_cast<off_t>(offset + size - 1)), 1);
      EXPECT_EQ(last, 0x5A);
    }
  }
}

TEST(Mapping, OutlivesTheDescriptor) {
  UniqueFd fd = memory_file(kPage);
  const auto mapping = Mapping::map_file(fd.get(), 0, kPage);
  fd.reset();
  ASSERT_TRUE(mapping.has_value());
  mapping->bytes()[0] = std::byte{1};
  EXPECT_EQ(mapping->bytes()[0], std::byte{1});
}

TEST(Mapping, SEC_55_SizesAndOffsetsThatDoNotFitAreRefused) {
  const UniqueFd fd = memory_file(2 * kPage);
  EXPECT_TRUE(Mapping::map_file(fd.get(), 0, 2 * kPage).has_value());
  for (const std::uint64_t offset : {std::uint64_t{0}, kPage, 2 * kPage, kMax}) {
    expect_refusal(fd.get(), offset, 0, ErrorCode::kOutOfRange);
  }
  expect_refusal(fd.get(), 0, 2 * kPage + 1, ErrorCode::kOutOfRange);
  expect_refusal(fd.get(), 1, 2 * kPage, ErrorCode::kOutOfRange);
  expect_refusal(fd.get(), 2 * kPage, 1, ErrorCode::kOutOfRange);
  const std::uint64_t top = std::uint64_t{1} << 63;
  for (const std::uint64_t big : {kMax, kMax - 1, kMax - kPage, kMax - kPage + 1, top, top - 1}) {
    expect_refusal(fd.get(), 0, big, ErrorCode::kOutOfRange);
    expect_refusal(fd.get(), kPage, big, ErrorCode::kOutOfRange);
    expect_refusal(fd.get(), big, 1, ErrorCode::kOutOfRange);
    expect_refusal(fd.get(), big, kPage, ErrorCode::kOutOfRange);
    expect_refusal(fd.get(), big, big, ErrorCode::kOutOfRange);
  }
}

TEST(Mapping, SEC_55_SumsThatWrapIntoTheFileAreRefused) {
  const UniqueFd fd = memory_file(2 * kPage);
  expect_refusal(fd.get(), kMax - kPage + 1, 2 * kPage, ErrorCode::kOutOfRange);
  expect_refusal(fd.get(), 2 * kPage, kMax - kPage + 1, ErrorCode::kOutOfRange);
  expect_refusal(fd.get(), 1, kMax, ErrorCode::kOutOfRange);
}

TEST(Mapping, AnEmptyFileCannotBeMapped) {
  const UniqueFd fd = memory_file(0);
  expect_refusal(fd.get(), 0, 1, ErrorCode::kOutOfRange);
}

TEST(Mapping, DescriptorsWithoutMemoryAreRefused) {
  expect_refusal(-1, 0, kPage, ErrorCode::kInvalidArgument);
  const UniqueFd directory(::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  expect_refusal(directory.get(), 0, kPage, ErrorCode::kInvalidArgument);
  const UniqueFd zero(::open("/dev/zero", O_RDWR | O_CLOEXEC));
  expect_refusal(zero.get(), 0, kPage, ErrorCode::kInvalidArgument);
  const UniqueFd event(::eventfd(0, EFD_CLOEXEC));
  expect_refusal(event.get(), 0, kPage, ErrorCode::kInvalidArgument);
  const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  expect_refusal(socket.get(), 0, kPage, ErrorCode::kInvalidArgument);
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd reader(ends[0]);
  const UniqueFd writer(ends[1]);
  expect_refusal(reader.get(), 0, kPage, ErrorCode::kInvalidArgument);
}

// /proc is a file system that answers by running code, as FUSE is; a disk is one that waits.
TEST(Mapping, FilesThatCanMakeUsWaitAreRefused) {
  const UniqueFd proc(::open("/proc/self/comm", O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(proc);
  expect_refusal(proc.get(), 0, 1, ErrorCode::kInvalidArgument);

  std::string name = "sluice-mapping-test-XXXXXX";
  const UniqueFd disk(::mkstemp(name.data()));
  ASSERT_TRUE(disk);
  ASSERT_EQ(::unlink(name.c_str()), 0);
  ASSERT_EQ(::ftruncate(disk.get(), kPage), 0);
  struct statfs info{};
  ASSERT_EQ(::fstatfs(disk.get(), &info), 0);
  constexpr auto kTmpfs = 0x01021994;
  if (info.f_type == kTmpfs) GTEST_SKIP() << "the working directory is in memory";
  expect_refusal(disk.get(), 0, kPage, ErrorCode::kInvalidArgument);
}

TEST(Mapping, AFileOfOurOwnMayLieOnAnyFileSystem) {
  const test::LeakCheck leaks;
  std::string name = "sluice-mapping-test-XXXXXX";
  const UniqueFd disk(::mkstemp(name.data()));
  ASSERT_TRUE(disk);
  ASSERT_EQ(::unlink(name.c_str()), 0);
  ASSERT_EQ(::ftruncate(disk.get(), 2 * kPage), 0);
  {
    const auto mapping = Mapping::map_own_file(disk.get(), 16, kPage);
    ASSERT_TRUE(mapping.has_value());
    mapping->bytes()[0] = std::byte{0x77};
    char byte = 0;
    ASSERT_EQ(::pread(disk.get(), &byte, 1, 16), 1);
    EXPECT_EQ(byte, 0x77);
  }
  EXPECT_EQ(Mapping::map_own_file(disk.get(), 0, 0).error().code, ErrorCode::kOutOfRange);
  EXPECT_EQ(Mapping::map_own_file(disk.get(), 1, 2 * kPage).error().code, ErrorCode::kOutOfRange);
  EXPECT_EQ(Mapping::map_own_file(disk.get(), kMax, 2).error().code, ErrorCode::kOutOfRange);
  EXPECT_FALSE(Mapping::map_own_file(-1, 0, kPage).has_value());
}

TEST(Mapping, FilesThatCannotBeWrittenAreRefused) {
  const UniqueFd fd = memory_file(kPage, MFD_ALLOW_SEALING);
  const std::string path = "/proc/self/fd/" + std::to_string(fd.get());
  const UniqueFd read_only(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(read_only);
  expect_refusal(read_only.get(), 0, kPage, ErrorCode::kInvalidArgument);
  ASSERT_EQ(::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_WRITE), 0);
  expect_refusal(fd.get(), 0, kPage, ErrorCode::kInvalidArgument);
}

// A sparse file may be larger than the address space. Nothing of it is kept when mmap says no.
TEST(Mapping, MoreThanTheAddressSpaceIsNoMemory) {
  constexpr std::uint64_t kHuge = std::uint64_t{1} << 62;
  const UniqueFd fd = memory_file(kHuge);
  expect_refusal(fd.get(), 0, kHuge, ErrorCode::kNoMemory);
  expect_refusal(fd.get(), kPage + 1, kHuge - kPage - 1, ErrorCode::kNoMemory);
}

// Offsets into a file of huge pages are rounded to those pages. Without such pages on this machine
// the kernel says that it has none: not, that the arguments are wrong.
TEST(Mapping, AlignsToHugePages) {
  constexpr std::uint64_t kHugePage = 2U << 20;
  constexpr unsigned kHuge2MiB = 21U << 26;  // MFD_HUGE_2MB of <linux/memfd.h>.
  const UniqueFd fd(::memfd_create("test", MFD_CLOEXEC | MFD_HUGETLB | kHuge2MiB));
  if (!fd || ::ftruncate(fd.get(), 2 * kHugePage) != 0) {
    GTEST_SKIP() << "this kernel has no huge pages of 2 MiB";
  }
  for (const std::uint64_t offset : {std::uint64_t{0}, kPage, kHugePage + kPage}) {
    const auto mapping = Mapping::map_file(fd.get(), offset, kPage);
    if (mapping.has_value()) {
      mapping->bytes()[0] = std::byte{1};
      EXPECT_EQ(mapping->bytes()[0], std::byte{1});
    } else {
      EXPECT_EQ(mapping.error().code, ErrorCode::kNoMemory) << mapping.error().detail;
    }
  }
}

TEST(Mapping, MovingKeepsThePagesAndEmptiesTheSource) {
  const test::LeakCheck leaks;
  auto first = Mapping::create_private(kPage);
  auto second = Mapping::create_private(2 * kPage);
  ASSERT_TRUE(first.has_value() && second.has_value());
  const std::byte* const kept = second->bytes().data();
  const std::size_t alive = Mapping::live_count();
  *first = std::move(*second);
  EXPECT_EQ(Mapping::live_count(), alive - 1);
  EXPECT_FALSE(*second);  // NOLINT(bugprone-use-after-move): the promise under test.
  EXPECT_EQ(first->bytes().data(), kept);
  Mapping& alias = *first;
  *first = std::move(alias);
  EXPECT_EQ(first->bytes().data(), kept);
  const Mapping last(std::move(*first));
  EXPECT_EQ(last.bytes().size(), 2 * kPage);
  last.bytes().back() = std::byte{1};
}

TEST(SharedMemory, APeerSeesTheSameBytes) {
  const test::LeakCheck leaks;
  const auto memory = Mapping::create_shared("test", 3 * kPage + 5);
  ASSERT_TRUE(memory.has_value());
  EXPECT_EQ(memory->mapping.bytes().size(), 3 * kPage + 5);
  EXPECT_TRUE(std::ranges::all_of(memory->mapping.bytes(),
                                  [](std::byte byte) { return byte == std::byte{0}; }));
  const auto peer = Mapping::map_file(memory->fd.get(), 0, 3 * kPage + 5);
  ASSERT_TRUE(peer.has_value());
  peer->bytes()[3 * kPage] = std::byte{9};
  EXPECT_EQ(memory->mapping.bytes()[3 * kPage], std::byte{9});
}

TEST(SharedMemory, APeerCannotShrinkIt) {
  const auto memory = Mapping::create_shared("test", 2 * kPage);
  ASSERT_TRUE(memory.has_value());
  EXPECT_NE(::ftruncate(memory->fd.get(), 0), 0);
  EXPECT_NE(::ftruncate(memory->fd.get(), kPage), 0);
  EXPECT_NE(::fcntl(memory->fd.get(), F_ADD_SEALS, F_SEAL_WRITE), 0);
  EXPECT_NE(::fcntl(memory->fd.get(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(SharedMemory, ImpossibleSizesAreRefused) {
  const test::LeakCheck leaks;
  EXPECT_EQ(Mapping::create_shared("test", 0).error().code, ErrorCode::kOutOfRange);
  EXPECT_EQ(Mapping::create_shared("test", kMax).error().code, ErrorCode::kOutOfRange);
  EXPECT_FALSE(Mapping::create_shared("test", std::uint64_t{1} << 62).has_value());
  EXPECT_EQ(Mapping::create_private(0).error().code, ErrorCode::kOutOfRange);
  EXPECT_EQ(Mapping::create_private(kMax).error().code, ErrorCode::kOutOfRange);
  EXPECT_EQ(Mapping::create_private(kMax - kPage).error().code, ErrorCode::kNoMemory);
}

TEST(SharedMemory, LargeMemoryIsZeroAndWritable) {
  const auto memory = Mapping::create_shared("test", 8U << 20);
  ASSERT_TRUE(memory.has_value());
  EXPECT_EQ(memory->mapping.bytes()[5U << 20], std::byte{0});
  memory->mapping.bytes().back() = std::byte{1};
}

}  // namespace
}  // namespace sluice::memory
