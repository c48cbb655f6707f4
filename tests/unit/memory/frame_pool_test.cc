// FramePool: frames apart from each other, the warmest first, and none twice.
#include "memory/frame_pool.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <set>
#include <vector>

#include "base/cache_line.h"
#include "tests/unit/memory/leaks.h"

namespace sluice::memory {
namespace {

FramePool pool_of(std::uint32_t count, std::uint32_t bytes) {
  auto pool = FramePool::create(count, bytes);
  EXPECT_TRUE(pool.has_value());
  return std::move(*pool);
}

TEST(FramePool, GivesEachFrameOnce) {
  const test::LeakCheck leaks;
  FramePool pool = pool_of(10, 100);
  EXPECT_EQ(pool.available(), 10U);
  std::set<std::byte*> frames;
  for (int i = 0; i < 10; ++i) frames.insert(pool.take());
  EXPECT_EQ(frames.size(), 10U);
  EXPECT_EQ(frames.count(nullptr), 0U);
  EXPECT_EQ(pool.take(), nullptr);
  EXPECT_EQ(pool.available(), 0U);
  for (std::byte* frame : frames) pool.give_back(frame);
  EXPECT_EQ(pool.available(), pool.size());
}

TEST(FramePool, TheLastGivenBackIsTheNextTaken) {
  FramePool pool = pool_of(4, 100);
  std::byte* const first = pool.take();
  std::byte* const second = pool.take();
  pool.give_back(first);
  pool.give_back(second);
  EXPECT_EQ(pool.take(), second);
  EXPECT_EQ(pool.take(), first);
}

TEST(FramePool, TakesAndGivesInBulk) {
  FramePool pool = pool_of(5, 64);
  std::array<std::byte*, 4> some{};
  std::array<std::byte*, 4> more{};
  EXPECT_EQ(pool.take(std::span(some)), 4U);
  EXPECT_EQ(pool.take(std::span(more)), 1U);
  EXPECT_EQ(pool.take(std::span(more).subspan(1)), 0U);
  pool.give_back(std::span<std::byte* const>(some));
  pool.give_back(more[0]);
  EXPECT_EQ(pool.available(), 5U);
}

TEST(FramePool, FramesAreAnOddNumberOfLinesApart) {
  for (const std::uint32_t bytes : {1U, 64U, 65U, 2048U, 2304U, 4096U, 65'593U}) {
    FramePool pool = pool_of(3, bytes);
    EXPECT_GE(pool.frame_bytes(), bytes);
    EXPECT_EQ(pool.frame_bytes() % kCacheLine, 0U);
    EXPECT_EQ(pool.frame_bytes() / kCacheLine % 2, 1U);
    std::byte* const first = pool.take();
    EXPECT_EQ(pool.take() - first, static_cast<std::ptrdiff_t>(pool.frame_bytes()));
    first[0] = std::byte{1};
    pool.bytes().back() = std::byte{1};
  }
}

TEST(FramePool, ImpossiblePoolsAreRefused) {
  const test::LeakCheck leaks;
  constexpr std::uint32_t kMax = std::numeric_limits<std::uint32_t>::max();
  EXPECT_EQ(FramePool::create(0, 64).error().code, ErrorCode::kOutOfRange);
  EXPECT_EQ(FramePool::create(64, 0).error().code, ErrorCode::kOutOfRange);
  EXPECT_EQ(FramePool::create(1, kMax).error().code, ErrorCode::kOutOfRange);
  EXPECT_EQ(FramePool::create(kMax, kMax - 128).error().code, ErrorCode::kNoMemory);
}

TEST(FramePoolDeathTest, GivingBackTooOftenIsOurBug) {
  FramePool pool = pool_of(1, 64);
  std::byte* frame = pool.take();
  pool.give_back(frame);
  EXPECT_DEATH(pool.give_back(frame), "given back once");
  EXPECT_DEATH(pool.give_back(std::span<std::byte* const>(&frame, 1)), "given back once");
}

}  // namespace
}  // namespace sluice::memory
