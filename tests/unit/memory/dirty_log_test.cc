// DirtyLog: the right bits, and never one outside the bitmap (SEC-03, H07).
#include "memory/dirty_log.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "support/page.h"
#include "tests/unit/memory/leaks.h"

namespace sluice::memory {
namespace {

using test::kMax;
using test::kPage;

constexpr std::uint8_t kPoison = 0xA5;

// A bitmap of `size` bytes at `offset` in a file that is poisoned everywhere else.
class Log {
 public:
  explicit Log(std::uint64_t size, std::uint64_t offset = 64)
      : size_(size), offset_(offset), fd_(::memfd_create("log", MFD_CLOEXEC)) {
    std::vector<std::uint8_t> all(offset + size + 64, kPoison);
    std::fill_n(all.begin() + static_cast<std::ptrdiff_t>(offset), size, std::uint8_t{0});
    EXPECT_EQ(::pwrite(fd_.get(), all.data(), all.size(), 0), static_cast<ssize_t>(all.size()));
    auto log = DirtyLog::map(fd_.get(), offset, size);
    EXPECT_TRUE(log.has_value());
    if (log.has_value()) log_ = std::make_unique<DirtyLog>(std::move(*log));
  }
  DirtyLog& operator*() { return *log_; }
  DirtyLog* operator->() { return log_.get(); }

  std::vector<std::uint64_t> pages() {
    std::vector<std::uint8_t> all(offset_ + size_ + 64);
    EXPECT_EQ(::pread(fd_.get(), all.data(), all.size(), 0), static_cast<ssize_t>(all.size()));
    std::vector<std::uint64_t> pages;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const bool inside = i >= offset_ && i < offset_ + size_;
      if (!inside) {
        EXPECT_EQ(all[i], kPoison) << "byte " << i << " lies outside the bitmap";
        continue;
      }
      for (std::uint64_t bit = 0; bit < 8; ++bit) {
        if ((all[i] >> bit & 1) != 0) pages.push_back((i - offset_) * 8 + bit);
      }
    }
    return pages;
  }

 private:
  std::uint64_t size_;
  std::uint64_t offset_;
  UniqueFd fd_;
  std::unique_ptr<DirtyLog> log_;
};

using Pages = std::vector<std::uint64_t>;

TEST(DirtyLog, MarksTheOneBitOfAPage) {
  Log log(2);
  log->mark(GuestAddress(9 * kPage + 17), 1);
  EXPECT_EQ(log.pages(), Pages{9});
  EXPECT_EQ(log->outside(), 0U);
}

TEST(DirtyLog, MarksEveryPageThatARangeTouches) {
  Log log(2);
  log->mark(GuestAddress(2 * kPage - 1), kPage + 2);
  EXPECT_EQ(log.pages(), (Pages{1, 2, 3}));
  log->mark(GuestAddress(5 * kPage), kPage);
  EXPECT_EQ(log.pages(), (Pages{1, 2, 3, 5}));
}

TEST(DirtyLog, MarksNothingForNoBytes) {
  Log log(2);
  log->mark(GuestAddress(kPage), 0);
  log->mark(GuestAddress(kMax), 0);
  EXPECT_TRUE(log.pages().empty());
  EXPECT_EQ(log->outside(), 0U);
}

TEST(DirtyLog, SEC_03_PagesBehindTheBitmapAreCountedNotWritten) {
  Log log(2);
  log->mark(GuestAddress(15 * kPage), kPage);
  EXPECT_EQ(log.pages(), Pages{15});
  log->mark(GuestAddress(16 * kPage), 1);
  EXPECT_EQ(log->outside(), 1U);
  log->mark(GuestAddress(14 * kPage), 4 * kPage);
  EXPECT_EQ(log->outside(), 3U);
  log->mark(GuestAddress(kMax), 1);
  EXPECT_EQ(log->outside(), 4U);
  EXPECT_EQ(log.pages(), (Pages{14, 15}));
}

TEST(DirtyLog, SEC_03_RangesThatWrapEndAtTheTop) {
  Log log(1);
  log->mark(GuestAddress(kMax), kMax);
  EXPECT_EQ(log->outside(), 1U);
  EXPECT_TRUE(log.pages().empty()) << "the range must not come round to page 0";
  log->mark(GuestAddress(7 * kPage), kMax);
  EXPECT_EQ(log.pages(), Pages{7});
  EXPECT_EQ(log->outside(), 1 + (kMax / kPage - 7));
}

TEST(DirtyLog, TheBitmapMayBeOfAnySizeAndPlace) {
  for (const std::uint64_t offset : {0UL, 1UL, 7UL, 4095UL, 4096UL}) {
    for (const std::uint64_t size : {1UL, 3UL, 8UL, 4097UL}) {
      Log log(size, offset);
      log->mark(GuestAddress(0), kMax);
      EXPECT_EQ(log.pages().size(), size * 8);
    }
  }
}

TEST(DirtyLog, H07_SizesThatTheFileDoesNotHaveAreRefused) {
  const test::LeakCheck leaks;
  const UniqueFd fd(::memfd_create("log", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(fd.get(), 4096), 0);
  const auto refused = [&](std::uint64_t size, std::uint64_t offset) {
    const auto log = DirtyLog::map(fd.get(), offset, size);
    return !log.has_value() && log.error().code == ErrorCode::kOutOfRange;
  };
  EXPECT_TRUE(refused(kMax - 4095, 8192));
  EXPECT_TRUE(refused(0, 0));
  EXPECT_TRUE(refused(4096, 1));
  EXPECT_TRUE(refused(4097, 0));
  EXPECT_TRUE(refused(1, 4096));
  EXPECT_TRUE(refused(kMax, kMax));
  EXPECT_FALSE(refused(4096, 0));
}

TEST(DirtyLog, ThreadsLoseNoBitOfTheirNeighbours) {
  // Two threads share each byte and run for long enough to meet. (ThreadSanitizer needs no luck.)
  constexpr std::uint64_t kPages = 8 * 262'144;
  Log log(kPages / 8);
  std::atomic<int> started{0};
  const auto mark = [&](std::uint64_t first) {
    started.fetch_add(1);
    while (started.load() != 2) std::this_thread::yield();
    for (std::uint64_t page = first; page < kPages; page += 2) {
      log->mark(GuestAddress(page * kPage), 1);
    }
  };
  {
    const std::jthread other(mark, 1);
    mark(0);
  }
  EXPECT_EQ(log.pages().size(), kPages);
}

}  // namespace
}  // namespace sluice::memory
