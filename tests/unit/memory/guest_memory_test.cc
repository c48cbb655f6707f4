// GuestMemory: which tables are valid, and every address at the edges of their regions.
#include "memory/guest_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <vector>

#include "support/page.h"
#include "tests/unit/memory/leaks.h"

namespace sluice::memory {
namespace {

using test::kMax;
using test::kPage;

constexpr std::uint64_t kUserShift = 0x7000'0000'0000;

using Regions = std::vector<std::shared_ptr<const Region>>;

struct Plan {
  std::uint64_t guest;
  std::uint64_t size;
  std::uint64_t user;
};

// All regions lie one behind the other in one file.
Regions regions_of(const std::vector<Plan>& plans) {
  std::uint64_t total = 0;
  for (const Plan& plan : plans) total += plan.size;
  const UniqueFd fd(::memfd_create("guest", MFD_CLOEXEC));
  EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(total)), 0);
  Regions regions;
  std::uint64_t offset = 0;
  for (const Plan& plan : plans) {
    const auto region = Region::map(
        {GuestAddress(plan.guest), plan.size, UserAddress(plan.user), offset}, fd.get());
    EXPECT_TRUE(region.has_value());
    if (region.has_value()) regions.push_back(*region);
    offset += plan.size;
  }
  return regions;
}

Regions shifted_regions_of(const std::vector<std::pair<std::uint64_t, std::uint64_t>>& ranges) {
  std::vector<Plan> plans;
  for (const auto& [guest, size] : ranges) plans.push_back({guest, size, guest + kUserShift});
  return regions_of(plans);
}

std::shared_ptr<const GuestMemory> table_of(Regions regions) {
  auto memory = GuestMemory::create(std::move(regions));
  EXPECT_TRUE(memory.has_value());
  return memory.has_value() ? *memory : nullptr;
}

ErrorCode refusal(Regions regions) {
  const auto memory = GuestMemory::create(std::move(regions));
  EXPECT_FALSE(memory.has_value());
  return memory.has_value() ? ErrorCode::kSystem : memory.error().code;
}

// The plain statement of what translation means.
std::byte* expected(const Regions& regions, std::uint64_t address, std::uint64_t length) {
  for (const auto& region : regions) {
    const std::uint64_t start = region->record.guest.raw();
    const std::uint64_t end = start + region->record.size;
    if (address < start || address >= end) continue;
    return length <= end - address ? region->mapping.bytes().data() + (address - start) : nullptr;
  }
  return nullptr;
}

TEST(GuestMemory, AnEmptyTableTranslatesNothing) {
  const auto memory = table_of({});
  RegionHint hint;
  EXPECT_EQ(memory->translate(GuestAddress(0), 0, hint), nullptr);
  EXPECT_EQ(memory->translate(GuestAddress(kMax), 1, hint), nullptr);
  EXPECT_EQ(memory->translate(UserAddress(0), 0), nullptr);
  EXPECT_EQ(memory->contiguous(GuestAddress(0)), 0U);
  EXPECT_FALSE(memory->shrunk());
}

TEST(GuestMemory, SEC_01_EveryRangeAtTheEdgesIsInsideOrRefused) {
  // Regions: at 0, two adjacent ones, one after a gap, one that ends just below 2^64.
  const std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges = {
      {0, kPage}, {0x10000, 2 * kPage}, {0x12000, kPage}, {0x20000, 100}};
  const Regions regions = shifted_regions_of(ranges);
  const auto memory = table_of(regions);
  std::vector<std::uint64_t> edges = {kMax, kMax - 1, std::uint64_t{1} << 63};
  for (const auto& [start, size] : ranges) {
    for (const std::uint64_t edge : {start, start + size}) {
      for (std::uint64_t step = 0; step < 3; ++step) edges.push_back(edge + step - 1);
    }
  }
  RegionHint hint;
  for (const std::uint64_t from : edges) {
    for (const std::uint64_t to : edges) {
      const std::uint64_t length = to - from;  // Wraps on purpose for half of the pairs.
      std::byte* const right = expected(regions, from, length);
      EXPECT_EQ(memory->translate(GuestAddress(from), length, hint), right);
      EXPECT_EQ(memory->translate(GuestAddress(from), length), right);
      EXPECT_EQ(memory->translate(UserAddress(from + kUserShift), length), right);
    }
  }
}

TEST(GuestMemory, SPL_15_LengthZeroAsksForTheAddress) {
  const auto memory = table_of(shifted_regions_of({{kPage, kPage}}));
  EXPECT_NE(memory->translate(GuestAddress(kPage), 0), nullptr);
  EXPECT_NE(memory->translate(GuestAddress(2 * kPage - 1), 0), nullptr);
  EXPECT_EQ(memory->translate(GuestAddress(2 * kPage), 0), nullptr);
  EXPECT_EQ(memory->translate(GuestAddress(kPage - 1), 0), nullptr);
}

TEST(GuestMemory, SPL_17_AdjacentRegionsAreNotContiguous) {
  const auto memory = table_of(shifted_regions_of({{kPage, kPage}, {2 * kPage, kPage}}));
  EXPECT_EQ(memory->translate(GuestAddress(2 * kPage - 1), 2), nullptr);
  EXPECT_EQ(memory->contiguous(GuestAddress(2 * kPage - 1)), 1U);
  EXPECT_EQ(memory->contiguous(GuestAddress(2 * kPage)), kPage);
  EXPECT_EQ(memory->contiguous(GuestAddress(kPage + 5)), kPage - 5);
  EXPECT_EQ(memory->contiguous(GuestAddress(kPage - 1)), 0U);
  EXPECT_EQ(memory->contiguous(GuestAddress(3 * kPage)), 0U);
}

TEST(GuestMemory, ARangeTooLongLeavesTheHintUsable) {
  const auto memory = table_of(shifted_regions_of({{0, kPage}, {kPage, kPage}}));
  RegionHint hint;
  EXPECT_EQ(memory->translate(GuestAddress(kPage + 1), kPage, hint), nullptr);
  EXPECT_NE(memory->translate(GuestAddress(kPage + 1), kPage - 1, hint), nullptr);
  EXPECT_EQ(memory->translate(GuestAddress(3 * kPage), 1, hint), nullptr);
  EXPECT_NE(memory->translate(GuestAddress(0), kPage, hint), nullptr);
}

TEST(GuestMemory, HoldsAsManyRegionsAsPromised) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;
  for (std::uint64_t i = 0; i < GuestMemory::kMaxRegions; ++i) {
    ranges.emplace_back(i * 2 * kPage, kPage);
  }
  std::mt19937_64 random(1);
  std::ranges::shuffle(ranges, random);
  Regions regions = shifted_regions_of(ranges);
  const auto memory = table_of(regions);
  RegionHint hint;
  for (int i = 0; i < 20'000; ++i) {
    const std::uint64_t address = random() % (GuestMemory::kMaxRegions * 2 * kPage + kPage);
    const std::uint64_t length = random() % (kPage + 2);
    std::byte* const right = expected(regions, address, length);
    ASSERT_EQ(memory->translate(GuestAddress(address), length, hint), right);
    ASSERT_EQ(memory->translate(GuestAddress(address), length), right);
    if (right != nullptr) {
      ASSERT_EQ(memory->guest_address(right), GuestAddress(address));
    }
  }
  regions.push_back(shifted_regions_of({{1U << 30, kPage}}).front());
  EXPECT_EQ(refusal(std::move(regions)), ErrorCode::kOutOfRange);
}

TEST(GuestMemory, RegionsAreSortedByGuestAddress) {
  const auto memory =
      table_of(shifted_regions_of({{8 * kPage, kPage}, {0, kPage}, {4 * kPage, kPage}}));
  ASSERT_EQ(memory->regions().size(), 3U);
  EXPECT_EQ(memory->regions()[0]->record.guest, GuestAddress(0));
  EXPECT_EQ(memory->regions()[1]->record.guest, GuestAddress(4 * kPage));
  EXPECT_EQ(memory->regions()[2]->record.guest, GuestAddress(8 * kPage));
}

TEST(GuestMemory, OverlapsByGuestAddressAreRefused) {
  const auto overlapping = [](std::uint64_t start, std::uint64_t size) {
    return refusal(regions_of({{10 * kPage, 4 * kPage, kUserShift}, {start, size, 0}}));
  };
  EXPECT_EQ(overlapping(10 * kPage, 4 * kPage), ErrorCode::kInvalidArgument);
  EXPECT_EQ(overlapping(9 * kPage, kPage + 1), ErrorCode::kInvalidArgument);
  EXPECT_EQ(overlapping(14 * kPage - 1, kPage), ErrorCode::kInvalidArgument);
  EXPECT_EQ(overlapping(11 * kPage, kPage), ErrorCode::kInvalidArgument);
  EXPECT_EQ(overlapping(0, 100 * kPage), ErrorCode::kInvalidArgument);
  table_of(regions_of({{10 * kPage, 4 * kPage, kUserShift}, {14 * kPage, kPage, 0}}));
  table_of(regions_of({{10 * kPage, 4 * kPage, kUserShift}, {9 * kPage, kPage, 0}}));
}

TEST(GuestMemory, OverlapsByUserAddressAreRefused) {
  const auto overlapping = [](std::uint64_t start, std::uint64_t size) {
    return refusal(regions_of({{kUserShift, 4 * kPage, 10 * kPage}, {0, size, start}}));
  };
  EXPECT_EQ(overlapping(10 * kPage, 4 * kPage), ErrorCode::kInvalidArgument);
  EXPECT_EQ(overlapping(9 * kPage, kPage + 1), ErrorCode::kInvalidArgument);
  EXPECT_EQ(overlapping(14 * kPage - 1, kPage), ErrorCode::kInvalidArgument);
  table_of(regions_of({{kUserShift, 4 * kPage, 10 * kPage}, {0, kPage, 14 * kPage}}));
}

TEST(GuestMemory, SEC_55_AddressesThatWrapAreRefused) {
  const test::LeakCheck leaks;
  const UniqueFd fd(::memfd_create("guest", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(fd.get(), 2 * kPage), 0);
  const auto map = [&](std::uint64_t guest, std::uint64_t size, std::uint64_t user,
                       std::uint64_t offset) {
    const auto region =
        Region::map({GuestAddress(guest), size, UserAddress(user), offset}, fd.get());
    return region.has_value() ? 0 : static_cast<int>(region.error().code);
  };
  constexpr int kRefused = static_cast<int>(ErrorCode::kOutOfRange);
  EXPECT_EQ(map(0, kPage, 0, 0), 0);
  EXPECT_EQ(map(kMax, kPage, 0, 0), kRefused);
  EXPECT_EQ(map(0, kPage, kMax, 0), kRefused);
  EXPECT_EQ(map(0, kPage, 0, kMax), kRefused);
  EXPECT_EQ(map(0, kMax, 0, 0), kRefused);
  EXPECT_EQ(map(kMax, kMax, kMax, kMax), kRefused);
  EXPECT_EQ(map(0, 0, 0, 0), kRefused);
  EXPECT_EQ(map(kMax - kPage + 1, kPage, 0, 0), kRefused) << "an end of 2^64 wraps to 0";
  EXPECT_EQ(map(0, kPage, kMax - kPage + 1, 0), kRefused);
  EXPECT_EQ(map(kMax - kPage, kPage, kMax - kPage, 0), 0);
}

TEST(GuestMemory, TheHighestAddressesTranslate) {
  const auto memory = table_of(regions_of({{kMax - kPage, kPage, kMax - kPage}}));
  RegionHint hint;
  EXPECT_NE(memory->translate(GuestAddress(kMax - 1), 1, hint), nullptr);
  EXPECT_EQ(memory->translate(GuestAddress(kMax - 1), 2, hint), nullptr);
  EXPECT_EQ(memory->translate(GuestAddress(kMax), 0, hint), nullptr);
  EXPECT_EQ(memory->translate(GuestAddress(kMax - 1), kMax, hint), nullptr);
}

TEST(GuestMemory, RegionsMadeByHandMustBeMapped) {
  EXPECT_EQ(refusal({nullptr}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(refusal({std::make_shared<Region>()}), ErrorCode::kInvalidArgument);
  auto region = std::make_shared<Region>();
  region->record.size = kPage;
  EXPECT_EQ(refusal({region}), ErrorCode::kInvalidArgument);
  region->mapping = std::move(*Mapping::create_private(kPage));
  region->record.guest = GuestAddress(kMax);
  EXPECT_EQ(refusal({region}), ErrorCode::kOutOfRange);
  region->record.guest = GuestAddress(0);
  table_of({region});
}

TEST(GuestMemory, UnchangedRegionsStayMappedAcrossTables) {
  const test::LeakCheck leaks;
  const std::size_t before = Mapping::live_count();
  Regions regions = shifted_regions_of({{0, kPage}, {kPage, kPage}});
  auto first = table_of(regions);
  std::byte* const kept = first->translate(GuestAddress(0), 1);
  regions.pop_back();
  const auto second = table_of(regions);
  regions.clear();
  EXPECT_EQ(Mapping::live_count(), before + 2);
  first.reset();
  EXPECT_EQ(Mapping::live_count(), before + 1);
  EXPECT_EQ(second->translate(GuestAddress(0), 1), kept);
}

TEST(GuestMemory, RegionsKnowTheirFile) {
  const Regions regions = shifted_regions_of({{0, kPage}, {kPage, kPage}});
  const Regions other = shifted_regions_of({{0, kPage}});
  EXPECT_EQ(regions[0]->file_inode, regions[1]->file_inode);
  EXPECT_NE(regions[0]->file_inode, other[0]->file_inode);
}

TEST(GuestMemoryDeathTest, APointerFromElsewhereIsOurBug) {
  const auto memory = table_of(shifted_regions_of({{0, kPage}}));
  std::byte elsewhere{};
  EXPECT_DEATH((void)memory->guest_address(&elsewhere), "came from this memory table");
  std::byte* const end = memory->translate(GuestAddress(kPage - 1), 1) + 1;
  EXPECT_DEATH((void)memory->guest_address(end), "came from this memory table");
}

}  // namespace
}  // namespace sluice::memory
