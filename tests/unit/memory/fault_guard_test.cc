// Fault guard: a file that shrinks under us marks its mapping and harms nobody else (SEC-57).
#include "memory/fault_guard.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <numeric>
#include <thread>
#include <vector>

#include "memory/guest_memory.h"
#include "memory/mapping.h"
#include "support/page.h"
#include "tests/unit/memory/leaks.h"

namespace sluice::memory {
namespace {

using test::kPage;

struct File {
  UniqueFd fd;
  Mapping mapping;
};

File mapped_file(std::size_t pages) {
  UniqueFd fd(::memfd_create("test", MFD_CLOEXEC));
  EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(pages * kPage)), 0);
  auto mapping = Mapping::map_file(fd.get(), 0, pages * kPage);
  EXPECT_TRUE(mapping.has_value());
  return {std::move(fd), std::move(*mapping)};
}

void truncate_to(const File& file, std::size_t pages) {
  ASSERT_EQ(::ftruncate(file.fd.get(), static_cast<off_t>(pages * kPage)), 0);
}

TEST(FaultGuard, SEC_57_AReadBehindTheNewEndGivesZeroAndAMark) {
  const File file = mapped_file(4);
  std::ranges::fill(file.mapping.bytes(), std::byte{7});
  truncate_to(file, 1);
  EXPECT_FALSE(file.mapping.shrunk());
  EXPECT_EQ(file.mapping.bytes()[2 * kPage], std::byte{0});
  EXPECT_TRUE(file.mapping.shrunk());
  EXPECT_EQ(file.mapping.bytes()[0], std::byte{7}) << "the part that is left stays shared";
}

TEST(FaultGuard, SEC_57_AWriteBehindTheNewEndStaysPrivate) {
  const File file = mapped_file(4);
  truncate_to(file, 0);
  file.mapping.bytes()[3 * kPage + 5] = std::byte{1};
  EXPECT_TRUE(file.mapping.shrunk());
  EXPECT_EQ(file.mapping.bytes()[3 * kPage + 5], std::byte{1});
  truncate_to(file, 4);
  EXPECT_EQ(file.mapping.bytes()[3 * kPage + 5], std::byte{1}) << "growing again changes nothing";
}

TEST(FaultGuard, SEC_57_EveryPageMayFaultInAnyOrder) {
  const File file = mapped_file(64);
  truncate_to(file, 0);
  for (std::size_t i = 0; i < 64; ++i) {
    const std::size_t page = (63 - i * 29 % 64);
    file.mapping.bytes()[page * kPage + kPage - 1] = std::byte{1};
  }
  EXPECT_TRUE(file.mapping.shrunk());
}

TEST(FaultGuard, SEC_57_OtherMappingsAreNotMarked) {
  const File before = mapped_file(2);
  const File file = mapped_file(2);
  const File after = mapped_file(2);
  truncate_to(file, 0);
  EXPECT_EQ(file.mapping.bytes()[0], std::byte{0});
  EXPECT_TRUE(file.mapping.shrunk());
  EXPECT_FALSE(before.mapping.shrunk());
  EXPECT_FALSE(after.mapping.shrunk());
}

TEST(FaultGuard, TheMarkMovesWithTheMapping) {
  File file = mapped_file(2);
  truncate_to(file, 0);
  const Mapping moved = std::move(file.mapping);
  EXPECT_EQ(moved.bytes()[0], std::byte{0});
  EXPECT_TRUE(moved.shrunk());
}

TEST(FaultGuard, AReusedEntryStartsUnmarked) {
  {
    const File file = mapped_file(1);
    truncate_to(file, 0);
    EXPECT_EQ(file.mapping.bytes()[0], std::byte{0});
  }
  const File next = mapped_file(1);
  EXPECT_FALSE(next.mapping.shrunk());
}

TEST(FaultGuard, SEC_57_ReadersSurviveTruncationUnderLoad) {
  // Two readers walk the mapping over and over while its file shrinks page by page and, as far as
  // it is still mapped, grows again. Under the race detector this is a data race by design: the
  // bytes belong to a peer. So the readers use relaxed atomic loads.
  const File file = mapped_file(32);
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> total{0};
  const auto read_all = [&] {
    while (!stop.load(std::memory_order_relaxed)) {
      std::uint64_t sum = 0;
      for (std::byte& byte : file.mapping.bytes()) {
        sum += __atomic_load_n(reinterpret_cast<std::uint8_t*>(&byte), __ATOMIC_RELAXED);
      }
      total.fetch_add(sum + 1, std::memory_order_relaxed);
    }
  };
  std::vector<std::jthread> readers;
  readers.emplace_back(read_all);
  readers.emplace_back(read_all);
  for (std::size_t pages = 32; pages > 0; --pages) {
    const std::uint64_t before = total.load(std::memory_order_relaxed);
    truncate_to(file, pages - 1);
    if (pages % 4 == 0) truncate_to(file, pages);
    while (total.load(std::memory_order_relaxed) == before) std::this_thread::yield();
  }
  stop.store(true, std::memory_order_relaxed);
  readers.clear();
  EXPECT_TRUE(file.mapping.shrunk());
}

TEST(FaultGuard, SEC_57_AGuestMemoryTableKnowsThatOneOfItsFilesShrank) {
  const test::LeakCheck leaks;
  const UniqueFd whole(::memfd_create("whole", MFD_CLOEXEC));
  const UniqueFd cut(::memfd_create("cut", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(whole.get(), kPage), 0);
  ASSERT_EQ(::ftruncate(cut.get(), kPage), 0);
  const auto first = Region::map({GuestAddress(0), kPage, UserAddress(0x10000), 0}, whole.get());
  const auto second = Region::map({GuestAddress(kPage), kPage, UserAddress(0x20000), 0}, cut.get());
  ASSERT_TRUE(first.has_value() && second.has_value());
  const auto memory = GuestMemory::create({*first, *second});
  ASSERT_TRUE(memory.has_value());
  ASSERT_EQ(::ftruncate(cut.get(), 0), 0);
  EXPECT_EQ(*(*memory)->translate(GuestAddress(0), 1), std::byte{0});
  EXPECT_FALSE((*memory)->shrunk());
  EXPECT_EQ(*(*memory)->translate(GuestAddress(kPage), 1), std::byte{0});
  EXPECT_TRUE((*memory)->shrunk());
}

TEST(FaultGuard, EntriesAreGivenBack) {
  const test::LeakCheck leaks;
  const UniqueFd fd(::memfd_create("test", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(fd.get(), kPage), 0);
  for (std::size_t i = 0; i < kGuardEntriesMax + 10; ++i) {
    ASSERT_TRUE(Mapping::map_file(fd.get(), 0, kPage).has_value()) << i;
  }
}

TEST(FaultGuard, AFullTableRefusesFurtherMappings) {
  const test::LeakCheck leaks;
  const UniqueFd fd(::memfd_create("test", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(fd.get(), kPage), 0);
  // Entries are taken without pages: this many mappings would reach the kernel's own limit first.
  std::vector<GuardEntry*> entries;
  for (std::size_t i = 0; i < kGuardEntriesMax; ++i) {
    const auto entry = guard_add({nullptr, 1, 1});
    if (!entry.has_value()) break;
    entries.push_back(*entry);
  }
  EXPECT_GT(entries.size(), kGuardEntriesMax - 100);
  const std::size_t alive = Mapping::live_count();
  const auto mapping = Mapping::map_file(fd.get(), 0, kPage);
  ASSERT_FALSE(mapping.has_value());
  EXPECT_EQ(mapping.error().code, ErrorCode::kNoMemory);
  EXPECT_EQ(Mapping::live_count(), alive);
  for (GuardEntry* entry : entries) guard_remove(entry);
  EXPECT_TRUE(Mapping::map_file(fd.get(), 0, kPage).has_value());
}

// The death tests start the program anew, so that in it the first mapping installs the handler.
class FaultGuardDeathTest : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  static constexpr int kReachedTheEnd = 7;

  // By the signal itself, or with the report of a sanitizer, whose handler was there before.
  static bool died_by_fault(int status) {
    return !testing::ExitedWithCode(0)(status) && !testing::ExitedWithCode(kReachedTheEnd)(status);
  }

  // Touches a file mapping that the guard does not know, behind its end.
  static void touch_foreign_mapping() {
    const UniqueFd fd(::memfd_create("foreign", MFD_CLOEXEC));
    void* pages = ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    __atomic_store_n(static_cast<char*>(pages), 'x', __ATOMIC_RELAXED);
    ::_exit(kReachedTheEnd);
  }
};

TEST_F(FaultGuardDeathTest, AFaultElsewhereEndsTheProcess) {
  const auto dies = [] {
    const File file = mapped_file(1);
    touch_foreign_mapping();
  };
  EXPECT_EXIT(dies(), died_by_fault, "");
}

TEST_F(FaultGuardDeathTest, AFaultElsewhereReachesTheHandlerThatWasThereBefore) {
  const auto runs = [] {
    struct sigaction action{};
    action.sa_handler = [](int) { ::_exit(42); };
    ::sigaction(SIGBUS, &action, nullptr);
    const File file = mapped_file(1);
    touch_foreign_mapping();
  };
  EXPECT_EXIT(runs(), testing::ExitedWithCode(42), "");
}

TEST_F(FaultGuardDeathTest, TheHandlerThatWasThereBeforeGetsTheAddress) {
  const auto runs = [] {
    struct sigaction action{};
    action.sa_sigaction = [](int number, siginfo_t* info, void*) {
      ::_exit(number == SIGBUS && info->si_code == BUS_ADRERR && info->si_addr != nullptr ? 43 : 1);
    };
    action.sa_flags = SA_SIGINFO;
    ::sigaction(SIGBUS, &action, nullptr);
    const File file = mapped_file(1);
    touch_foreign_mapping();
  };
  EXPECT_EXIT(runs(), testing::ExitedWithCode(43), "");
}

TEST_F(FaultGuardDeathTest, ASignalThatAProcessSentKeepsItsEffect) {
  const auto runs = [] {
    ::signal(SIGBUS, SIG_DFL);
    const File file = mapped_file(1);
    ::raise(SIGBUS);
    ::_exit(kReachedTheEnd);
  };
  EXPECT_EXIT(runs(), testing::KilledBySignal(SIGBUS), "");
}

TEST_F(FaultGuardDeathTest, ASignalThatWasIgnoredIsStillIgnored) {
  const auto runs = [] {
    ::signal(SIGBUS, SIG_IGN);
    const File file = mapped_file(1);
    ::raise(SIGBUS);
    ::_exit(44);
  };
  EXPECT_EXIT(runs(), testing::ExitedWithCode(44), "");
}

TEST_F(FaultGuardDeathTest, AMappingThatIsGoneIsNoLongerGuarded) {
  const auto dies = [] {
    std::byte* gone = nullptr;
    {
      const File file = mapped_file(1);
      gone = file.mapping.bytes().data();
    }
    const UniqueFd fd(::memfd_create("foreign", MFD_CLOEXEC));
    ::mmap(gone, kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd.get(), 0);
    __atomic_store_n(reinterpret_cast<char*>(gone), 'x', __ATOMIC_RELAXED);
    ::_exit(kReachedTheEnd);
  };
  EXPECT_EXIT(dies(), died_by_fault, "");
}

}  // namespace
}  // namespace sluice::memory
