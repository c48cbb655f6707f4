// H05, H06, H07, H12 and SEC items of messages: descriptors, in-flight regions, logs, memory.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "memory/shared.h"
#include "support/raw_driver.h"
#include "support/vhost_bench.h"
#include "unit/memory/leaks.h"

namespace sluice::test {
namespace {

using vhost::InflightDescription;
using vhost::Message;
using vhost::Request;

constexpr std::uint64_t kHuge = std::numeric_limits<std::uint64_t>::max();

UniqueFd memfd(std::uint64_t size) {
  UniqueFd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(size)), 0);
  return fd;
}

Message with_fds(Message message, int fd, int count) {
  for (int i = 0; i < count; ++i) message.fds.push_back(copy_of(fd));
  return message;
}

TEST(VhostMessages, H05_SEC_02_SEC_07_SEC_10_RepeatedMessagesLeakNothing) {
  VhostBench bench;
  ASSERT_TRUE(bench.negotiate(kSplitFeatures));
  const TestEvent event;
  const LeakCheck leaks;
  const InflightDescription wanted{0, 0, 2, 128, 0};
  for (int i = 0; i < 5000; ++i) {
    bench.send(with_fds(Message(Request::kGetInflightFd).add(wanted), event.copy().get(), 0));
    bench.send(with_fds(Message(Request::kGetInflightFd).add(wanted), bench.guest.fd(), 8));
    bench.send(with_fds(Message(Request::kSetInflightFd).add(wanted), bench.guest.fd(), 8));
    bench.send(with_fds(VhostBench::state(Request::kSetVringNum, 0, 256), bench.guest.fd(), 1));
    bench.send(VhostBench::ring_fd(Request::kSetVringKick, 200, bench.kick.copy()));
    Message table = bench.mem_table();
    bench.send(with_fds(std::move(table), bench.guest.fd(), 2));
    EXPECT_TRUE(bench.accepted(VhostBench::ring_fd(Request::kSetVringCall, 0, UniqueFd())));
    EXPECT_TRUE(bench.accepted(VhostBench::state(Request::kSetVringNum, 0, 256)));
  }
  EXPECT_EQ(bench.device.complaint(), "");
}

TEST(VhostMessages, SEC_02_RepeatedDescriptorsReplaceEachOther) {
  VhostBench bench;
  ASSERT_TRUE(bench.negotiate(kSplitFeatures));
  bench.send(VhostBench::ring_fd(Request::kSetVringCall, 0, bench.call.copy()));
  bench.send(VhostBench::ring_fd(Request::kSetVringKick, 0, bench.kick.copy()));
  bench.send(VhostBench::ring_fd(Request::kSetVringErr, 0, bench.kick.copy()));
  const LeakCheck leaks;
  for (int i = 0; i < 10'000; ++i) {
    EXPECT_TRUE(bench.accepted(VhostBench::ring_fd(Request::kSetVringCall, 0, bench.call.copy())));
    EXPECT_TRUE(bench.accepted(VhostBench::ring_fd(Request::kSetVringKick, 0, bench.kick.copy())));
    EXPECT_TRUE(bench.accepted(VhostBench::ring_fd(Request::kSetVringErr, 0, bench.kick.copy())));
    EXPECT_TRUE(bench.accepted(bench.mem_table()));
  }
}

// What the message says, what the file has, and whether that can be.
struct InflightCase {
  InflightDescription description;
  std::uint64_t file_size;
  bool fine;
};

TEST(VhostMessages, H06_SEC_09_ForgedInflightMessagesAreRefused) {
  constexpr std::uint64_t kFile = 1U << 20;
  const std::vector<InflightCase> cases = {
      {{kFile, 0, 2, 128, 0}, kFile, true},
      {{kFile, 0, 0, 128, 0}, kFile, false},
      {{kFile, 0, 4, 128, 0}, kFile, false},  // Three rings there are.
      {{kFile, 0, 0xffff, 128, 0}, kFile, false},
      {{kFile, 0, 2, 0, 0}, kFile, false},
      {{kFile, 0, 2, 0xffff, 0}, kFile, false},
      {{kFile, 0, 2, 32768, 0}, kFile, false},  // Larger than the region.
      {{2 * 64, 0, 2, 128, 0}, kFile, false},
      {{0, 0, 2, 128, 0}, kFile, false},
      {{kFile, 0, 2, 128, 0}, 4096, false},  // The file is shorter than claimed.
      {{kFile, 64, 2, 128, 0}, kFile, false},
      {{kFile - 64, 64, 2, 128, 0}, kFile, true},
      {{kFile - 7, 7, 2, 128, 0}, kFile, false},  // Not aligned.
      {{kHuge, 0, 2, 128, 0}, kFile, false},
      {{kHuge - 4095, 8192, 2, 128, 0}, kFile, false},
      {{kFile, kHuge, 2, 128, 0}, kFile, false},
  };
  for (const bool early : {true, false}) {  // As the very first message, or when all is set up.
    const LeakCheck leaks;
    VhostBench bench;
    ASSERT_TRUE(early ? bench.greet() : bench.negotiate(kPackedFeatures));
    for (const InflightCase& test : cases) {
      Message message = Message(Request::kSetInflightFd).add(test.description);
      message = VhostBench::with_fd(std::move(message), memfd(test.file_size));
      EXPECT_EQ(bench.accepted(std::move(message)), test.fine)
          << test.description.mmap_size << " " << test.description.num_queues;
    }
  }
}

TEST(VhostMessages, H06_SEC_09_GetInflightChecksTheNumbersToo) {
  VhostBench bench;
  ASSERT_TRUE(bench.greet());
  const auto ask = [&](std::uint16_t queues, std::uint16_t size) {
    return bench.send(
        Message(Request::kGetInflightFd).add(InflightDescription{0, 0, queues, size, 0}));
  };
  for (const auto& [queues, size] :
       {std::pair<int, int>{0, 128}, {4, 128}, {0xffff, 128}, {2, 0}, {2, 32769}, {2, 0xffff}}) {
    const auto answer = ask(static_cast<std::uint16_t>(queues), static_cast<std::uint16_t>(size));
    ASSERT_TRUE(answer.has_value());
    EXPECT_TRUE(answer->payload.empty() && answer->fds.empty());
  }
  auto answer = ask(3, 32768);
  ASSERT_TRUE(answer.has_value());
  ASSERT_EQ(answer->fds.size(), 1U);
  EXPECT_EQ(answer->payload.size(), sizeof(InflightDescription));
  const auto made = answer->get<InflightDescription>();
  EXPECT_EQ(made.num_queues, 3);
  EXPECT_EQ(made.queue_size, 32768);
  EXPECT_EQ(made.mmap_offset, 0U);
  // What it made can be given back to it.
  Message set = Message(Request::kSetInflightFd).add(made);
  EXPECT_TRUE(bench.accepted(VhostBench::with_fd(std::move(set), std::move(answer->fds[0]))));
}

TEST(VhostMessages, GetInflightAnswersInTheLengthItWasAskedIn) {
  VhostBench bench;
  ASSERT_TRUE(bench.greet());
  Message message = Message(Request::kGetInflightFd).add(InflightDescription{0, 0, 1, 64, 0});
  message.payload.resize(vhost::kInflightShort);
  const auto answer = bench.send(std::move(message));
  EXPECT_EQ(answer->payload.size(), vhost::kInflightShort);
}

TEST(VhostMessages, H07_SEC_03_ADirtyLogThatCannotBeIsRefusedAndLoggingStaysAsItWas) {
  VhostBench bench;
  RawSplitDriver driver(bench.guest, DriverOptions{.size = 16});
  ASSERT_TRUE(bench.negotiate(kSplitFeatures));
  ASSERT_TRUE(bench.start_ring(1, driver, 0));
  const auto set_log = [&](std::uint64_t size, std::uint64_t offset, std::uint64_t file) {
    Message message = Message(Request::kSetLogBase).add(vhost::LogDescription{size, offset});
    const auto answer = bench.send(VhostBench::with_fd(std::move(message), memfd(file)));
    return answer && answer->payload.size() == 8 && answer->get<std::uint64_t>() == 0;
  };
  EXPECT_TRUE(set_log(4096, 0, 4096));
  ASSERT_TRUE(
      bench.accepted(VhostBench::number(Request::kSetFeatures, kSplitFeatures | kLogAllBit)));
  const auto* log = bench.device.queue(1).start.log.get();
  ASSERT_NE(log, nullptr);
  const LeakCheck leaks;
  EXPECT_FALSE(set_log(kHuge - 4095, 8192, 16384));
  EXPECT_FALSE(set_log(0, 0, 4096));
  EXPECT_FALSE(set_log(4096, 1, 4096));
  EXPECT_FALSE(set_log(8192, 0, 4096));
  EXPECT_FALSE(set_log(kHuge, 0, 4096));
  EXPECT_FALSE(set_log(4096, kHuge, 4096));
  EXPECT_EQ(bench.device.queue(1).start.log.get(), log);
  // A log that is valid and too short for the guest: pages beyond it are not written anywhere.
  log->mark(memory::GuestAddress(FakeGuest::kBase), 1);
  EXPECT_EQ(log->outside(), 1U);
}

TEST(VhostMessages, SetLogBaseIsAnsweredAlwaysAlsoWhenRefused) {
  VhostBench bench;
  ASSERT_TRUE(bench.greet());
  Message message = Message(Request::kSetLogBase).add(vhost::LogDescription{1U << 30, 0});
  const auto refused = bench.send(VhostBench::with_fd(std::move(message), memfd(4096)));
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->get<std::uint64_t>(), 1U);
}

// Windows into one file: each byte is reachable, and nothing else.
TEST(VhostMessages, H12_TheOffsetOfARegionIsObeyed) {
  VhostBench bench;
  ASSERT_TRUE(bench.greet());
  const LeakCheck leaks;
  struct Window {
    std::uint64_t guest, size, offset;
  };
  constexpr std::uint64_t kMiB = 1U << 20;
  const std::vector<Window> windows = {
      {0, 640 * 1024, 0}, {0xc0000, 3 * kMiB, 0xc0000}, {kMiB << 12, kMiB, 4 * kMiB + 0x123}};
  const UniqueFd file = memfd(8 * kMiB);
  Message table(Request::kSetMemTable);
  table.add(vhost::MemoryTable{3, 0});
  for (const Window& window : windows) {
    table.add(
        vhost::MemoryRegion{window.guest, window.size, window.guest + (1ULL << 45), window.offset});
    table.fds.push_back(copy_of(file.get()));
    for (const std::uint64_t at : {window.offset, window.offset + window.size - 1}) {
      const auto mark = static_cast<char>(at % 251);
      ASSERT_EQ(::pwrite(file.get(), &mark, 1, static_cast<off_t>(at)), 1);
    }
  }
  ASSERT_TRUE(bench.accepted(std::move(table)));
  const auto& memory = *bench.backend->rings().environment().memory;
  for (const Window& window : windows) {
    for (const std::uint64_t at : {std::uint64_t{0}, window.size - 1}) {
      std::byte* const place = memory.translate(memory::GuestAddress(window.guest + at), 1);
      ASSERT_NE(place, nullptr);
      EXPECT_EQ(*place, static_cast<std::byte>((window.offset + at) % 251));
    }
    EXPECT_EQ(memory.translate(memory::GuestAddress(window.guest), window.size + 1), nullptr);
  }
  bench.reconnect();
}

TEST(VhostMessages, SEC_55_SumsOfAMemoryTableMayNotOverflow) {
  VhostBench bench;
  ASSERT_TRUE(bench.greet());
  const LeakCheck leaks;
  const vhost::MemoryRegion good{0x1000, 0x1000, 0x2000, 0};
  for (int field = 0; field < 4; ++field) {
    for (const std::uint64_t value : {kHuge, kHuge - 1, kHuge - 0xfff, kHuge - 0x1000 + 2}) {
      vhost::MemoryRegion region = good;
      (field == 0   ? region.guest_address
       : field == 1 ? region.size
       : field == 2 ? region.user_address
                    : region.mmap_offset) = value;
      Message table(Request::kSetMemTable);
      table.add(vhost::MemoryTable{1, 0}).add(region);
      EXPECT_FALSE(bench.accepted(VhostBench::with_fd(std::move(table), memfd(0x2000))));
      Message add = Message(Request::kAddMemReg).add(vhost::SingleRegion{0, region});
      EXPECT_FALSE(bench.accepted(VhostBench::with_fd(std::move(add), memfd(0x2000))));
    }
  }
  EXPECT_EQ(bench.backend->view().memory_regions, 0U);
}

// One front-end must not use up the address space of the process.
TEST(VhostMessages, MoreThanATebibyteOfMemoryIsRefusedBeforeItIsMapped) {
  VhostBench bench;
  ASSERT_TRUE(bench.negotiate(kSplitFeatures));
  constexpr std::uint64_t kTebibyte = 1ULL << 40;
  const auto add = [&](std::uint64_t size) {
    const vhost::MemoryRegion region{1ULL << 44, size, 1ULL << 45, 0};
    Message message = Message(Request::kAddMemReg).add(vhost::SingleRegion{0, region});
    return bench.accepted(VhostBench::with_fd(std::move(message), memfd(size)));
  };
  EXPECT_FALSE(add(2 * kTebibyte));
  EXPECT_FALSE(add(kTebibyte)) << "with what is there already";
  EXPECT_TRUE(add(0x1000));
  const vhost::MemoryRegion all{1ULL << 44, kTebibyte + 1, 1ULL << 45, 0};
  Message table(Request::kSetMemTable);
  table.add(vhost::MemoryTable{1, 0}).add(all);
  EXPECT_FALSE(bench.accepted(VhostBench::with_fd(std::move(table), memfd(2 * kTebibyte))));
  Message log = Message(Request::kSetLogBase).add(vhost::LogDescription{1ULL << 31, 0});
  EXPECT_FALSE(bench.accepted(VhostBench::with_fd(std::move(log), memfd(1ULL << 31))));
}

TEST(VhostMessages, AMemoryTableThatSaysMoreThanItHoldsIsRefused) {
  VhostBench bench;
  ASSERT_TRUE(bench.greet());
  for (const std::uint32_t count : {1U, 8U, 9U, 0x10000U, 0xffffffffU}) {
    Message table(Request::kSetMemTable);
    table.add(vhost::MemoryTable{count, 0});
    for (std::uint32_t i = 0; i < std::min(count, 8U); ++i) {
      table.fds.push_back(copy_of(bench.guest.fd()));
    }
    EXPECT_FALSE(bench.accepted(std::move(table))) << count;
  }
}

TEST(VhostMessages, OverlappingRegionsAreRefused) {
  VhostBench bench;
  ASSERT_TRUE(bench.negotiate(kSplitFeatures));
  for (const bool by_guest : {true, false}) {
    vhost::MemoryRegion region = bench.region(0);
    (by_guest ? region.user_address : region.guest_address) += 1ULL << 40;
    Message add = Message(Request::kAddMemReg).add(vhost::SingleRegion{0, region});
    EXPECT_FALSE(bench.accepted(VhostBench::with_fd(std::move(add), copy_of(bench.guest.fd()))));
  }
  EXPECT_EQ(bench.backend->view().memory_regions, 1U);
}

TEST(VhostMessages, SEC_33_ADescriptorThatCannotBeMappedIsClosed) {
  VhostBench bench;
  ASSERT_TRUE(bench.greet());
  const TestEvent event;
  const LeakCheck leaks;
  for (int i = 0; i < 100; ++i) {
    Message add = Message(Request::kAddMemReg).add(vhost::SingleRegion{0, bench.region(0)});
    EXPECT_FALSE(bench.accepted(VhostBench::with_fd(std::move(add), event.copy())));
  }
}

TEST(VhostMessages, FiveHundredAndNineRegionsAndNotOneMore) {
  VhostBench bench;
  ASSERT_TRUE(bench.greet());
  const LeakCheck leaks;
  const UniqueFd file = memfd(510 * 4096);
  const auto message = [&](Request request, std::uint64_t index) {
    return Message(request).add(
        vhost::SingleRegion{0, {index * 8192, 4096, (1ULL << 40) + index * 8192, index * 4096}});
  };
  for (std::uint64_t i = 0; i < 509; ++i) {
    ASSERT_TRUE(
        bench.accepted(VhostBench::with_fd(message(Request::kAddMemReg, i), copy_of(file.get()))));
  }
  EXPECT_FALSE(
      bench.accepted(VhostBench::with_fd(message(Request::kAddMemReg, 509), copy_of(file.get()))));
  EXPECT_EQ(bench.backend->view().memory_regions, 509U);
  EXPECT_FALSE(bench.accepted(message(Request::kRemMemReg, 509)));
  for (std::uint64_t i = 0; i < 509; ++i) {
    // One descriptor is allowed and means nothing.
    Message remove = message(Request::kRemMemReg, i);
    if (i % 2 == 0) remove.fds.push_back(copy_of(file.get()));
    ASSERT_TRUE(bench.accepted(std::move(remove)));
  }
  EXPECT_EQ(bench.backend->view().memory_regions, 0U);
}

// QEMU 7.2 adds each region once for every queue pair.
TEST(VhostMessages, TheSameRegionAddedTwiceIsOneRegion) {
  VhostBench bench;
  ASSERT_TRUE(bench.greet());
  for (int pair = 0; pair < 2; ++pair) {
    Message add = Message(Request::kAddMemReg).add(vhost::SingleRegion{0, bench.region(0)});
    EXPECT_TRUE(bench.accepted(VhostBench::with_fd(std::move(add), copy_of(bench.guest.fd()))));
  }
  EXPECT_EQ(bench.backend->view().memory_regions, 1U);
  // Another file at the same addresses is another region, and overlaps.
  Message add = Message(Request::kAddMemReg).add(vhost::SingleRegion{0, bench.region(0)});
  EXPECT_FALSE(bench.accepted(VhostBench::with_fd(std::move(add), memfd(FakeGuest::kDefaultSize))));
  // It removes each once for every queue pair, too.
  for (int pair = 0; pair < 2; ++pair) {
    const auto remove = vhost::SingleRegion{0, bench.region(0)};
    EXPECT_TRUE(bench.accepted(Message(Request::kRemMemReg).add(remove)));
    EXPECT_EQ(bench.backend->view().memory_regions, 0U);
  }
  vhost::SingleRegion other{0, bench.region(0)};
  other.region.size -= 4096;
  EXPECT_FALSE(bench.accepted(Message(Request::kRemMemReg).add(other)));
}

TEST(VhostMessages, ARingWhoseRegionGoesStopsAndReturnsWithIt) {
  VhostBench bench;
  RawSplitDriver driver(bench.guest, DriverOptions{.size = 16});
  const TestEvent error;
  ASSERT_TRUE(bench.negotiate(kSplitFeatures));
  ASSERT_TRUE(bench.accepted(VhostBench::ring_fd(Request::kSetVringErr, 1, error.copy())));
  ASSERT_TRUE(bench.start_ring(1, driver, 0));
  ASSERT_TRUE(driver.post(Piece{bench.guest.allocate(64), 64}).has_value());
  EXPECT_EQ(bench.device.serve(1), 1U);
  const vhost::SingleRegion region{0, bench.region(0)};
  ASSERT_TRUE(bench.accepted(Message(Request::kRemMemReg).add(region)));
  EXPECT_FALSE(bench.device.queue(1).running);
  EXPECT_EQ(error.take(), 1U);
  Message add = Message(Request::kAddMemReg).add(region);
  ASSERT_TRUE(bench.accepted(VhostBench::with_fd(std::move(add), copy_of(bench.guest.fd()))));
  EXPECT_TRUE(bench.device.queue(1).running);
  ASSERT_TRUE(driver.post(Piece{bench.guest.allocate(64), 64}).has_value());
  EXPECT_EQ(bench.device.serve(1), 1U);
  EXPECT_EQ(driver.reap().size(), 2U);
}

TEST(VhostMessages, SEC_57_MemoryThatShrinksUnderARunningRingIsNoticed) {
  VhostBench bench;
  const UniqueFd file = memfd(1U << 20);
  ASSERT_TRUE(bench.greet());
  Message add =
      Message(Request::kAddMemReg).add(vhost::SingleRegion{0, {0, 1U << 20, 1ULL << 40, 0}});
  ASSERT_TRUE(bench.accepted(VhostBench::with_fd(std::move(add), copy_of(file.get()))));
  EXPECT_FALSE(bench.backend->memory_shrunk());
  ASSERT_EQ(::ftruncate(file.get(), 4096), 0);
  const auto& memory = *bench.backend->rings().environment().memory;
  std::byte* const place = memory.translate(memory::GuestAddress(1U << 19), 1);
  EXPECT_EQ(memory::shared_at<std::uint8_t>(place)->snapshot(), 0);
  EXPECT_TRUE(bench.backend->memory_shrunk());
}

}  // namespace
}  // namespace sluice::test
