// DmaMap: what a device can reach, hostile arguments, bounce areas, and mappings that come and go.
#include "memory/dma_map.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "tests/unit/memory/leaks.h"

namespace sluice::memory {
namespace {

constexpr DmaWindow kWindow{GuestAddress(0x1000'0000), UserAddress(0x7000'0000'0000), 64U << 20};
constexpr std::uint64_t kHighest = std::numeric_limits<std::uint64_t>::max();

class DmaMapTest : public ::testing::Test {
 protected:
  static Mapping::SharedMemory shared(std::uint64_t size = 1 << 16) {
    auto made = Mapping::create_shared("dma-test", size);
    EXPECT_TRUE(made.has_value());
    return std::move(*made);
  }
  // A span that nobody may touch: only its numbers matter.
  static std::span<std::byte> numbers(std::uint64_t start, std::uint64_t size) {
    return {std::bit_cast<std::byte*>(start), size};
  }
  template <class T>
  static ErrorCode code(const Result<T>& result) {
    EXPECT_FALSE(result.has_value());
    return result.has_value() ? ErrorCode::kParse : result.error().code;
  }
  std::shared_ptr<DmaMap> map_ = std::make_shared<DmaMap>(kWindow);
};

TEST_F(DmaMapTest, SharedMemoryIsARegionOfItsOwnAtTheSameBytes) {
  const test::LeakCheck leaks;
  auto memory = shared();
  const auto bytes = memory.mapping.bytes().subspan(0x2000, 0x3000);
  const auto mapping = map_->map_shared(bytes, memory.fd.get(), 0x2000);
  ASSERT_TRUE(mapping.has_value());
  EXPECT_FALSE(mapping->bounced);
  EXPECT_EQ(mapping->size, 0x3000U);
  const auto regions = map_->regions();
  ASSERT_EQ(regions.size(), 1U);
  EXPECT_EQ(regions[0].record.guest, mapping->device);
  EXPECT_EQ(regions[0].record.size, 0x3000U);
  EXPECT_EQ(regions[0].record.offset, 0x2000U);
  EXPECT_EQ(regions[0].record.user.raw() - kWindow.user.raw(),
            mapping->device.raw() - kWindow.device.raw());
  // As the device maps it.
  auto device = Mapping::map_file(regions[0].fd, regions[0].record.offset, regions[0].record.size);
  ASSERT_TRUE(device.has_value());
  bytes[17] = std::byte{0x5a};
  EXPECT_EQ(device->bytes()[17], std::byte{0x5a});
  EXPECT_FALSE(map_->needs_sync(mapping->device));
  EXPECT_TRUE(map_->sync_for_device(mapping->device, 0x3000));
  EXPECT_TRUE(map_->sync_for_cpu(mapping->device, 0x3000));
  const auto* range = map_->table()->find_host(&bytes[17], 10);
  ASSERT_NE(range, nullptr);
  EXPECT_EQ(range->device_address(&bytes[17]), mapping->device.raw() + 17);
  map_.reset();
}

TEST_F(DmaMapTest, OtherMemoryIsCopiedBothWaysThroughABounceAreaRangeByRange) {
  const test::LeakCheck leaks;
  std::vector<std::byte> heap(10'000, std::byte{1});
  const auto mapping = map_->map_bounced(heap);
  ASSERT_TRUE(mapping.has_value());
  EXPECT_TRUE(mapping->bounced);
  const auto regions = map_->regions();
  ASSERT_EQ(regions.size(), 1U);
  auto device = Mapping::map_file(regions[0].fd, 0, regions[0].record.size);
  ASSERT_TRUE(device.has_value());
  const auto seen = device->bytes();
  EXPECT_EQ(std::ranges::count(seen, std::byte{0}), 10'000) << "nothing is seen before a sync";
  EXPECT_TRUE(map_->needs_sync(mapping->device));
  const auto at = [&](std::uint64_t offset) {
    return GuestAddress(mapping->device.raw() + offset);
  };
  ASSERT_TRUE(map_->sync_for_device(at(100), 50));
  EXPECT_EQ(std::ranges::count(seen, std::byte{1}), 50);
  EXPECT_EQ(seen[99], std::byte{0});
  EXPECT_EQ(seen[100], std::byte{1});
  EXPECT_EQ(seen[149], std::byte{1});
  std::ranges::fill(seen, std::byte{7});
  EXPECT_EQ(heap[9'999], std::byte{1});
  ASSERT_TRUE(map_->sync_for_cpu(at(9'990), 10));
  EXPECT_EQ(std::ranges::count(heap, std::byte{7}), 10);
  EXPECT_EQ(heap[9'989], std::byte{1});
  EXPECT_EQ(heap[9'990], std::byte{7});
  map_.reset();
}

TEST_F(DmaMapTest, RefusesMemoryThatIsNoneOrTooMuchOrWraps) {
  auto memory = shared();
  const int fd = memory.fd.get();
  const auto bytes = memory.mapping.bytes();
  EXPECT_EQ(code(map_->map_bounced({})), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(map_->map_bounced(bytes.first(0))), ErrorCode::kOutOfRange);
  EXPECT_EQ(code(map_->map_shared(bytes.first(0), fd, 0)), ErrorCode::kOutOfRange);
  EXPECT_EQ(code(map_->map_bounced(numbers(4096, kHighest))), ErrorCode::kOutOfRange);
  EXPECT_EQ(code(map_->map_bounced(numbers(4096, kWindow.size + 1))), ErrorCode::kOutOfRange);
  EXPECT_EQ(code(map_->map_bounced(numbers(kHighest - 4095, 8192))), ErrorCode::kOutOfRange);
  EXPECT_EQ(code(map_->map_shared(bytes, fd, kHighest - 4095)), ErrorCode::kOutOfRange);
  EXPECT_EQ(code(map_->map_shared(bytes, fd, 4096)), ErrorCode::kOutOfRange) << "behind the file";
  EXPECT_EQ(code(map_->map_shared(bytes, fd, 1 << 20)), ErrorCode::kOutOfRange);
  EXPECT_EQ(code(map_->map_shared(bytes.first(100), fd, 100)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(map_->size(), 0U);
  EXPECT_TRUE(map_->regions().empty());
}

TEST_F(DmaMapTest, RefusesDescriptorsThatAreNoSharedMemory) {
  auto memory = shared();
  const auto bytes = memory.mapping.bytes();
  EXPECT_EQ(code(map_->map_shared(bytes, -1, 0)), ErrorCode::kInvalidArgument);
  const UniqueFd zero(::open("/dev/zero", O_RDWR | O_CLOEXEC));
  EXPECT_EQ(code(map_->map_shared(bytes, zero.get(), 0)), ErrorCode::kInvalidArgument);
  // A file that only we may write would stop the device at its first write.
  const UniqueFd sealed(::memfd_create("sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(sealed.get(), 1 << 16), 0);
  ASSERT_EQ(::fcntl(sealed.get(), F_ADD_SEALS, F_SEAL_WRITE), 0);
  EXPECT_EQ(code(map_->map_shared(bytes, sealed.get(), 0)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(map_->size(), 0U);
}

TEST_F(DmaMapTest, RefusesMemoryThatOverlapsAMapping) {
  auto memory = shared();
  const auto bytes = memory.mapping.bytes();
  const auto mapping = map_->map_bounced(bytes.subspan(1000, 1000));
  ASSERT_TRUE(mapping.has_value());
  EXPECT_EQ(code(map_->map_bounced(bytes.subspan(1000, 1000))), ErrorCode::kExists);
  EXPECT_EQ(code(map_->map_bounced(bytes.subspan(1999, 1))), ErrorCode::kExists);
  EXPECT_EQ(code(map_->map_bounced(bytes.subspan(0, 1001))), ErrorCode::kExists);
  EXPECT_EQ(code(map_->map_shared(bytes, memory.fd.get(), 0)), ErrorCode::kExists);
  EXPECT_TRUE(map_->map_bounced(bytes.subspan(0, 1000)).has_value());
  EXPECT_TRUE(map_->map_bounced(bytes.subspan(2000, 1)).has_value());
  // A retired one counts until the device let go of it.
  ASSERT_TRUE(map_->retire(mapping->id));
  EXPECT_EQ(code(map_->map_bounced(bytes.subspan(1500, 1))), ErrorCode::kExists);
  map_->settle();
  EXPECT_TRUE(map_->map_bounced(bytes.subspan(1500, 1)).has_value());
}

TEST_F(DmaMapTest, AccessesOutsideAMappingAreErrors) {
  std::vector<std::byte> heap(8192);
  const auto mapping = map_->map_bounced(std::span(heap).subspan(1000, 5000));
  ASSERT_TRUE(mapping.has_value());
  const std::uint64_t at = mapping->device.raw();
  struct Case {
    std::uint64_t address;
    std::uint64_t length;
  };
  for (const Case& c : {Case{at - 1, 1},
                        {at - 1, 5002},
                        {at, 5001},
                        {at + 5000, 1},
                        {at + 4999, 2},
                        {at, 0},
                        {at, kHighest},
                        {at + 1, kHighest},
                        {at + 4999, kHighest - at},
                        {0, 1},
                        {kHighest, 1},
                        {kHighest, kHighest},
                        {at - 1, 0}}) {
    EXPECT_EQ(code(map_->sync_for_device(GuestAddress(c.address), c.length)),
              ErrorCode::kBadAddress)
        << c.address - at << " " << c.length;
    EXPECT_EQ(code(map_->sync_for_cpu(GuestAddress(c.address), c.length)), ErrorCode::kBadAddress);
    EXPECT_EQ(map_->table()->find_device(GuestAddress(c.address), c.length), nullptr);
  }
  EXPECT_FALSE(map_->needs_sync(GuestAddress(at - 1)));
  EXPECT_FALSE(map_->needs_sync(GuestAddress(at + 5000)));
  const auto table = map_->table();
  EXPECT_EQ(table->find_host(&heap[999], 1), nullptr);
  EXPECT_EQ(table->find_host(&heap[999], 2), nullptr);
  EXPECT_EQ(table->find_host(&heap[6000], 1), nullptr);
  EXPECT_EQ(table->find_host(&heap[5999], 2), nullptr);
  EXPECT_EQ(table->find_host(&heap[1000], 0), nullptr);
  EXPECT_EQ(table->find_host(&heap[1000], kHighest), nullptr);
  EXPECT_EQ(table->find_host(nullptr, 1), nullptr);
  EXPECT_NE(table->find_host(&heap[5999], 1), nullptr);
}

TEST_F(DmaMapTest, UnmappingKeepsTheOthersAsTheyAre) {
  std::vector<std::byte> heap(30'000);
  std::vector<DmaMapping> mappings;
  for (std::size_t i = 0; i < 3; ++i) {
    mappings.push_back(*map_->map_bounced(std::span(heap).subspan(i * 10'000, 10'000)));
  }
  const auto before = map_->regions();
  ASSERT_TRUE(map_->retire(mappings[1].id));
  EXPECT_TRUE(map_->retire(mappings[1].id)) << "twice is harmless";
  EXPECT_EQ(map_->size(), 2U);
  EXPECT_EQ(map_->retired(), 1U);
  EXPECT_EQ(code(map_->sync_for_cpu(mappings[1].device, 1)), ErrorCode::kBadAddress);
  map_->settle();
  EXPECT_EQ(map_->retired(), 0U);
  EXPECT_EQ(code(map_->retire(mappings[1].id)), ErrorCode::kNotFound);
  EXPECT_EQ(code(map_->retire(DmaId(999))), ErrorCode::kNotFound);
  const auto after = map_->regions();
  ASSERT_EQ(after.size(), 2U);
  EXPECT_EQ(after[0].record, before[0].record);
  EXPECT_EQ(after[0].fd, before[0].fd);
  EXPECT_EQ(after[1].record, before[2].record);
  EXPECT_EQ(after[1].fd, before[2].fd);
  const auto again = map_->map_bounced(std::span(heap).subspan(10'000, 10'000));
  ASSERT_TRUE(again.has_value());
  EXPECT_NE(again->device, mappings[1].device) << "an address is given again as late as can be";
  EXPECT_NE(again->id, mappings[1].id);
}

TEST_F(DmaMapTest, TakesSixtyFourMappingsAndSaysWhenItIsFull) {
  std::vector<std::byte> heap(65);
  std::vector<DmaMapping> mappings;
  for (std::size_t i = 0; i < DmaMap::kMappingsMax; ++i) {
    mappings.push_back(*map_->map_bounced(std::span(heap).subspan(i, 1)));
  }
  EXPECT_EQ(code(map_->map_bounced(std::span(heap).subspan(64, 1))), ErrorCode::kOutOfRange);
  ASSERT_TRUE(map_->retire(mappings[40].id));
  EXPECT_EQ(code(map_->map_bounced(std::span(heap).subspan(64, 1))), ErrorCode::kOutOfRange)
      << "the device may still have the retired one";
  map_->settle();
  EXPECT_TRUE(map_->map_bounced(std::span(heap).subspan(64, 1)).has_value());
}

TEST_F(DmaMapTest, AddressesAreFoundAgainWhenTheWindowWasUsedUp) {
  // Room for four of these with their guards, not for five.
  auto memory = shared(15U << 20);
  std::vector<DmaMapping> mappings;
  auto others = std::vector<Mapping::SharedMemory>();
  for (int i = 0; i < 4; ++i) {
    others.push_back(shared(15U << 20));
    mappings.push_back(*map_->map_shared(others.back().mapping.bytes(), others.back().fd.get(), 0));
  }
  EXPECT_EQ(code(map_->map_shared(memory.mapping.bytes(), memory.fd.get(), 0)),
            ErrorCode::kOutOfRange);
  ASSERT_TRUE(map_->retire(mappings[2].id));
  EXPECT_EQ(code(map_->map_shared(memory.mapping.bytes(), memory.fd.get(), 0)),
            ErrorCode::kOutOfRange)
      << "not before the device let go";
  map_->settle();
  const auto again = map_->map_shared(memory.mapping.bytes(), memory.fd.get(), 0);
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->device, mappings[2].device);
}

TEST_F(DmaMapTest, RenewGivesBouncedMemoryAnAreaThatTheFormerDeviceDoesNotHave) {
  const test::LeakCheck leaks;
  auto file = shared();
  std::vector<std::byte> heap(5000, std::byte{1});
  const auto kept = *map_->map_shared(file.mapping.bytes(), file.fd.get(), 0);
  const auto mapping = *map_->map_bounced(heap);
  DmaView view(map_, {});
  const auto before = map_->regions();
  auto former = *Mapping::map_file(before[1].fd, 0, 5000);
  ASSERT_TRUE(map_->sync_for_device(mapping.device, 5000));
  ASSERT_TRUE(map_->renew());
  view.refresh();
  std::ranges::fill(former.bytes(), std::byte{9});
  ASSERT_TRUE(view.table().sync_for_cpu(mapping.device, 5000));
  EXPECT_EQ(std::count(heap.begin(), heap.end(), std::byte{0}), 5000) << "all zero at first";
  const auto after = map_->regions();
  EXPECT_EQ(after[0].record, before[0].record);
  EXPECT_EQ(after[1].record, before[1].record);
  EXPECT_EQ(view.find_device(kept.device, 1)->bounce, nullptr);
  view = DmaView();
  map_.reset();
}

TEST_F(DmaMapTest, AMappingWithOutstandingBuffersIsNotRetired) {
  std::vector<std::byte> heap(2000);
  const auto a = *map_->map_bounced(std::span(heap).first(1000));
  const auto b = *map_->map_bounced(std::span(heap).subspan(1000));
  DmaView one(map_, {});
  auto two = std::make_unique<DmaView>(map_, DmaRange{});
  const std::uint64_t mark_a = one.find_device(a.device, 1)->mark;
  const std::uint64_t mark_b = one.find_device(b.device, 1)->mark;
  EXPECT_NE(mark_a, mark_b);
  one.hold(mark_a | mark_b);
  two->hold(mark_a);
  two->hold(mark_a);
  const Status refused = map_->retire(a.id);
  EXPECT_EQ(code(refused), ErrorCode::kWrongState);
  EXPECT_EQ(refused.error().detail, 3);
  one.drop(mark_a);
  EXPECT_EQ(map_->retire(a.id).error().detail, 2);
  EXPECT_EQ(code(map_->retire(b.id)), ErrorCode::kWrongState);
  two.reset();
  EXPECT_TRUE(map_->retire(a.id)) << "a path that is gone has nothing";
  one.drop(mark_b);
  EXPECT_TRUE(map_->retire(b.id));
}

TEST_F(DmaMapTest, AViewSeesChangesWhenItLooksForNews) {
  std::vector<std::byte> heap(3000);
  std::vector<std::byte> own(100);
  DmaView view(map_, {.host = std::bit_cast<std::uintptr_t>(own.data()),
                      .device = 0x1000,
                      .size = own.size(),
                      .bytes = own.data()});
  ASSERT_NE(view.find_host(&own[99], 1), nullptr);
  EXPECT_EQ(view.find_host(&own[99], 2), nullptr);
  EXPECT_EQ(view.find_host(heap.data(), 1), nullptr);
  const auto mapping = *map_->map_bounced(heap);
  EXPECT_EQ(view.find_host(heap.data(), 1), nullptr);
  view.refresh();
  for (int i = 0; i < 3; ++i) {  // By turns: neither hit disturbs the other.
    ASSERT_NE(view.find_host(&heap[10], 100), nullptr);
    EXPECT_EQ(view.find_host(&heap[10], 100)->device_address(&heap[10]), mapping.device.raw() + 10);
    ASSERT_NE(view.find_device(GuestAddress(0x1001), 10), nullptr);
    EXPECT_EQ(view.find_device(GuestAddress(0x1001), 10)->mark, 0U);
    ASSERT_NE(view.find_device(mapping.device, 3000), nullptr);
    EXPECT_EQ(view.find_device(mapping.device, 3001), nullptr);
  }
  // A stale view can still copy: the bounce area lives as long as somebody looks at it.
  ASSERT_TRUE(map_->retire(mapping.id));
  map_->settle();
  EXPECT_TRUE(view.table().sync_for_device(mapping.device, 3000));
  view.refresh();
  EXPECT_EQ(view.find_device(mapping.device, 1), nullptr);
  EXPECT_EQ(code(view.table().sync_for_device(mapping.device, 3000)), ErrorCode::kBadAddress);
}

TEST_F(DmaMapTest, AViewWithoutAMapHasItsOwnRangeOnly) {
  std::vector<std::byte> own(100);
  DmaView view(nullptr, {.host = std::bit_cast<std::uintptr_t>(own.data()),
                         .device = 0x1000,
                         .size = own.size(),
                         .bytes = own.data()});
  view.refresh();
  EXPECT_NE(view.find_host(own.data(), 100), nullptr);
  EXPECT_EQ(view.find_device(kWindow.device, 1), nullptr);
  EXPECT_EQ(DmaView().find_device(kWindow.device, 1), nullptr);
}

}  // namespace
}  // namespace sluice::memory
