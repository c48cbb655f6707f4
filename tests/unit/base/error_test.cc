// Errors as values, TRY, and the small integers of base.
#include "base/error.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/counter.h"
#include "base/strong.h"

namespace sluice {
namespace {

Result<int> half(int n) {
  if (n % 2 != 0) return fail(ErrorCode::kInvalidArgument, "odd", n);
  return n / 2;
}

Result<int> quarter(int n) {
  const int once = TRY(half(n));
  return TRY(half(once));
}

Status nothing(int n) {
  [[maybe_unused]] const int result = TRY(half(n));
  return {};
}

Result<std::unique_ptr<int>> boxed(int n) {
  auto box = TRY(Result<std::unique_ptr<int>>(std::make_unique<int>(n)));
  return box;
}

TEST(Error, TryYieldsTheValue) {
  EXPECT_EQ(quarter(8).value(), 2);
}

TEST(Error, TryReturnsTheErrorUnchanged) {
  const auto result = quarter(6);
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
  EXPECT_STREQ(result.error().text, "odd");
  EXPECT_EQ(result.error().detail, 3);
}

TEST(Error, TryTurnsAnErrorIntoAnotherResultType) {
  EXPECT_TRUE(nothing(2).has_value());
  EXPECT_EQ(nothing(3).error().detail, 3);
}

TEST(Error, TryMovesWhatCannotBeCopied) {
  EXPECT_EQ(*boxed(5).value(), 5);
}

TEST(Error, EveryCodeHasAName) {
  std::set<std::string_view> names;
  for (int code = 0; code <= static_cast<int>(ErrorCode::kParse); ++code) {
    names.insert(to_string(static_cast<ErrorCode>(code)));
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(ErrorCode::kParse) + 1);
  EXPECT_EQ(names.count("unknown error"), 0U);
}

TEST(Error, ErrnoChoosesTheCode) {
  errno = ENOMEM;
  EXPECT_EQ(fail_errno("x").error().code, ErrorCode::kNoMemory);
  errno = EPERM;
  EXPECT_EQ(fail_errno("x").error().code, ErrorCode::kPermission);
  errno = EACCES;
  EXPECT_EQ(fail_errno("x").error().code, ErrorCode::kPermission);
  errno = EIO;
  const Error error = fail_errno("x").error();
  EXPECT_EQ(error.code, ErrorCode::kSystem);
  EXPECT_EQ(error.detail, EIO);
}

TEST(CheckDeathTest, SaysWhatWasBroken) {
  EXPECT_DEATH(CHECK(1 == 2, "one is two"), "broken invariant.*one is two");
}

TEST(Counter, Adds) {
  Counter counter;
  counter.add();
  counter.add(41);
  EXPECT_EQ(counter.value(), 42U);
  counter.reset();
  EXPECT_EQ(counter.value(), 0U);
}

using Apples = Strong<struct ApplesTag, std::uint32_t>;
using Pears = Strong<struct PearsTag, std::uint32_t>;
static_assert(!std::is_convertible_v<Apples, std::uint32_t>);
static_assert(!std::is_convertible_v<std::uint32_t, Apples>);
static_assert(!std::is_constructible_v<Apples, Pears>);
static_assert(Apples(1) < Apples(2));
static_assert(Apples(3) == Apples(3));
static_assert(Apples().raw() == 0);

}  // namespace
}  // namespace sluice
