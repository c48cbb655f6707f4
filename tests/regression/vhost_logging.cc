// H29: every page that a device ring writes is in the dirty log, by guest-physical address.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "support/raw_driver.h"
#include "support/vhost_bench.h"

namespace sluice::test {
namespace {

using vhost::Message;
using vhost::Request;

constexpr std::uint32_t kQueue = 1;
constexpr std::uint64_t kPage = 4096;

class DirtyLogging : public testing::TestWithParam<bool> {
 protected:
  static bool packed() { return GetParam(); }
  static std::uint64_t features() { return packed() ? kPackedFeatures : kSplitFeatures; }

  void SetUp() override {
    // Used ring or descriptors, and the event structures, on pages of their own.
    const DriverOptions options{.size = 512};
    bench_.guest.allocate(kPage);
    if (packed()) {
      driver_ = std::make_unique<RawPackedDriver>(bench_.guest, options);
    } else {
      driver_ = std::make_unique<RawSplitDriver>(bench_.guest, options);
    }
    ASSERT_TRUE(bench_.negotiate(features()));
    ASSERT_TRUE(bench_.start_ring(kQueue, *driver_, packed() ? 0x8000 : 0));
    ASSERT_TRUE(bench_.enable(kQueue));
  }
  // Shares a new zeroed bitmap that covers the guest.
  bool set_log() {
    UniqueFd file(::memfd_create("log", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    const std::uint64_t pages = (FakeGuest::kBase + FakeGuest::kDefaultSize) / kPage;
    EXPECT_EQ(::ftruncate(file.get(), static_cast<off_t>(pages / 8)), 0);
    Message message(Request::kSetLogBase);
    message.add(vhost::LogDescription{pages / 8, 0});
    log_ = *memory::Mapping::map_file(file.get(), 0, pages / 8);
    file_ = *file.duplicate();
    const auto answer = bench_.send(VhostBench::with_fd(std::move(message), std::move(file)));
    return answer && answer->get<std::uint64_t>() == 0;
  }
  bool set_logging(bool on) {
    if (!bench_.accepted(
            VhostBench::number(Request::kSetFeatures, features() | (on ? kLogAllBit : 0)))) {
      return false;
    }
    const virtio::RingConfig ring = driver_->config();
    const std::uint64_t used = bench_.guest.memory().guest_address(ring.device_area).raw();
    return bench_.accepted(
        VhostBench::addresses(kQueue, ring, bench_.guest, on ? vhost::kVringAddressLog : 0, used));
  }
  bool logged(std::uint64_t page) const {
    return ((static_cast<unsigned>(log_.bytes()[page / 8]) >> (page % 8)) & 1) != 0;
  }
  std::size_t logged_pages() const {
    std::size_t count = 0;
    for (const std::byte byte : log_.bytes()) {
      count += static_cast<std::size_t>(std::popcount(static_cast<unsigned>(byte)));
    }
    return count;
  }
  std::vector<std::byte> memory_now() const {
    return bench_.guest.get(FakeGuest::kBase, FakeGuest::kDefaultSize);
  }
  void post(int count) {
    for (int i = 0; i < count; ++i) {
      ASSERT_TRUE(driver_->post(Piece{FakeGuest::kBase, 64}).has_value());
    }
  }
  // Serves what is posted and returns how many pages changed; each must be logged.
  std::size_t serve_and_compare() {
    const auto before = memory_now();
    bench_.device.serve(kQueue);
    const auto after = memory_now();
    std::size_t changed = 0;
    for (std::uint64_t page = 0; page < FakeGuest::kDefaultSize / kPage; ++page) {
      if (std::memcmp(&before[page * kPage], &after[page * kPage], kPage) == 0) continue;
      ++changed;
      EXPECT_TRUE(logged(FakeGuest::kBase / kPage + page)) << "page " << page;
    }
    return changed;
  }

  VhostBench bench_;
  std::unique_ptr<RawDriver> driver_;
  UniqueFd file_;  // Of the bitmap.
  memory::Mapping log_;
};

TEST_P(DirtyLogging, H29_EveryPageThatTheRingWritesIsLogged) {
  ASSERT_TRUE(set_log());
  ASSERT_TRUE(set_logging(true));
  EXPECT_TRUE(bench_.backend->view().logging);
  for (int round = 0; round < 8; ++round) {
    post(300);
    EXPECT_GT(serve_and_compare(), 0U);
    ASSERT_EQ(driver_->reap().size(), 300U);
  }
  EXPECT_EQ(driver_->complaint(), "");
}

TEST_P(DirtyLogging, NothingIsLoggedBeforeAndAfter) {
  ASSERT_TRUE(set_log());
  post(10);
  bench_.device.serve(kQueue);
  EXPECT_EQ(logged_pages(), 0U);
  ASSERT_TRUE(set_logging(true));
  post(10);
  bench_.device.serve(kQueue);
  EXPECT_GT(logged_pages(), 0U);
  ASSERT_TRUE(set_logging(false));
  std::memset(log_.bytes().data(), 0, log_.bytes().size());
  post(10);
  bench_.device.serve(kQueue);
  EXPECT_EQ(logged_pages(), 0U);
  EXPECT_EQ(driver_->reap().size(), 30U);
  EXPECT_EQ(driver_->complaint(), "");
}

TEST_P(DirtyLogging, ANewBitmapTakesOverWhileLogging) {
  ASSERT_TRUE(set_log());
  ASSERT_TRUE(set_logging(true));
  post(10);
  bench_.device.serve(kQueue);
  ASSERT_TRUE(set_log());
  EXPECT_EQ(logged_pages(), 0U);
  post(10);
  EXPECT_GT(serve_and_compare(), 0U);
}

TEST_P(DirtyLogging, AStoppedRingWritesNothingAnyMore) {
  ASSERT_TRUE(set_log());
  ASSERT_TRUE(set_logging(true));
  post(10);
  ASSERT_TRUE(bench_.stop_ring(kQueue).has_value());
  std::memset(log_.bytes().data(), 0, log_.bytes().size());
  const auto before = memory_now();
  EXPECT_EQ(bench_.device.serve(kQueue), 0U);
  EXPECT_EQ(memory_now(), before);
  EXPECT_EQ(logged_pages(), 0U);
}

TEST_P(DirtyLogging, SEC_57_ABitmapThatShrinksIsNoticedWhenItIsWritten) {
#ifdef SLUICE_TSAN
  GTEST_SKIP() << "an atomic operation that faults does so inside ThreadSanitizer, with its locks";
#endif
  ASSERT_TRUE(set_log());
  ASSERT_TRUE(set_logging(true));
  ASSERT_EQ(::ftruncate(file_.get(), 0), 0);
  ASSERT_TRUE(driver_->post(Piece{bench_.guest.allocate(64), 64}).has_value());
  EXPECT_EQ(bench_.device.serve(kQueue), 1U);
  EXPECT_TRUE(bench_.backend->memory_shrunk());
}

INSTANTIATE_TEST_SUITE_P(Formats, DirtyLogging, testing::Bool(), [](const auto& test) {
  return std::string(test.param ? "Packed" : "Split");
});

}  // namespace
}  // namespace sluice::test
