// UniqueFd: each descriptor is closed exactly once, whoever owned it last.
#include "base/unique_fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <utility>

namespace sluice {
namespace {

bool is_open(int fd) {
  return ::fcntl(fd, F_GETFD) >= 0;
}

UniqueFd some_file() {
  return UniqueFd(::open("/dev/null", O_RDWR | O_CLOEXEC));
}

TEST(UniqueFd, IsEmptyByDefault) {
  const UniqueFd fd;
  EXPECT_FALSE(fd);
  EXPECT_EQ(fd.get(), -1);
}

TEST(UniqueFd, ClosesAtTheEndOfItsLife) {
  int number = -1;
  {
    const UniqueFd fd = some_file();
    ASSERT_TRUE(fd);
    number = fd.get();
    EXPECT_TRUE(is_open(number));
  }
  EXPECT_FALSE(is_open(number));
}

TEST(UniqueFd, OwnsDescriptorZeroToo) {
  // A daemon may run with its standard input closed, so 0 is a descriptor like any other.
  const UniqueFd kept(::fcntl(0, F_DUPFD_CLOEXEC, 3));
  if (!kept) GTEST_SKIP() << "no standard input to play with";
  {
    const UniqueFd zero(0);
    EXPECT_TRUE(zero);
  }
  EXPECT_FALSE(is_open(0));
  ASSERT_EQ(::dup2(kept.get(), 0), 0);
}

TEST(UniqueFd, MovingLeavesTheSourceEmpty) {
  UniqueFd first = some_file();
  const int number = first.get();
  const UniqueFd second = std::move(first);
  EXPECT_FALSE(first);  // NOLINT(bugprone-use-after-move): the promise under test.
  EXPECT_EQ(second.get(), number);
  EXPECT_TRUE(is_open(number));
}

TEST(UniqueFd, MoveAssignmentClosesWhatWasHeld) {
  UniqueFd first = some_file();
  UniqueFd second = some_file();
  const int closed = first.get();
  const int kept = second.get();
  first = std::move(second);
  EXPECT_FALSE(is_open(closed));
  EXPECT_EQ(first.get(), kept);
  EXPECT_TRUE(is_open(kept));
}

TEST(UniqueFd, SelfMoveKeepsTheDescriptor) {
  UniqueFd fd = some_file();
  const int number = fd.get();
  UniqueFd& alias = fd;
  fd = std::move(alias);
  EXPECT_EQ(fd.get(), number);
  EXPECT_TRUE(is_open(number));
}

TEST(UniqueFd, ReleaseGivesUpOwnership) {
  UniqueFd fd = some_file();
  const UniqueFd owner(fd.release());
  EXPECT_FALSE(fd);
  EXPECT_TRUE(is_open(owner.get()));
}

TEST(UniqueFd, DuplicateIsAnotherDescriptorOfTheSameFile) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  const auto copy = writer.duplicate();
  ASSERT_TRUE(copy.has_value());
  EXPECT_NE(copy->get(), writer.get());
  EXPECT_NE(::fcntl(copy->get(), F_GETFD) & FD_CLOEXEC, 0);
  writer.reset();
  char byte = 'x';
  EXPECT_EQ(::write(copy->get(), &byte, 1), 1);
  EXPECT_EQ(::read(reader.get(), &byte, 1), 1);
}

TEST(UniqueFd, DuplicateOfNothingFails) {
  const auto copy = UniqueFd().duplicate();
  ASSERT_FALSE(copy.has_value());
  EXPECT_EQ(copy.error().code, ErrorCode::kSystem);
  EXPECT_EQ(copy.error().detail, EBADF);
}

}  // namespace
}  // namespace sluice
