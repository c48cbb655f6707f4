// Shared<T>: values go in and out whole, and a released value carries what was written before it.
#include "memory/shared.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <thread>

namespace sluice::memory {
namespace {

struct alignas(16) Descriptor {
  std::uint64_t address;
  std::uint32_t length;
  std::uint16_t flags;
  std::uint16_t next;
  friend bool operator==(const Descriptor&, const Descriptor&) = default;
};

struct Pair {
  std::uint16_t first;
  std::uint16_t second;
  friend bool operator==(const Pair&, const Pair&) = default;
};

struct Odd {
  std::uint8_t bytes[3];
};

static_assert(sizeof(Shared<Descriptor>) == sizeof(Descriptor));
static_assert(alignof(Shared<Descriptor>) == alignof(Descriptor));
static_assert(sizeof(Shared<Odd>) == 3);
static_assert(!std::is_convertible_v<Shared<std::uint16_t>, std::uint16_t>);
static_assert(!std::is_copy_constructible_v<Shared<std::uint16_t>>);

TEST(Shared, IntegersComeOutAsTheyWentIn) {
  Shared<std::uint64_t> word;
  word.store(0x0123456789ABCDEF);
  EXPECT_EQ(word.snapshot(), 0x0123456789ABCDEFU);
  word.store_release(1);
  EXPECT_EQ(word.load_acquire(), 1U);
  word.store_relaxed(2);
  EXPECT_EQ(word.load_relaxed(), 2U);
}

TEST(Shared, RecordsComeOutAsTheyWentIn) {
  Shared<Descriptor> descriptor;
  const Descriptor value{0xFEDCBA9876543210, 0x89ABCDEF, 0x1234, 0x5678};
  descriptor.store(value);
  EXPECT_EQ(descriptor.snapshot(), value);
  Shared<Pair> pair;
  pair.store({1, 2});
  EXPECT_EQ(pair.snapshot(), (Pair{1, 2}));
  Shared<Odd> odd;
  odd.store({{7, 8, 9}});
  EXPECT_EQ(odd.snapshot().bytes[2], 9);
}

TEST(Shared, StoringTouchesNothingBeside) {
  std::array<Shared<Pair>, 3> pairs;
  for (auto& pair : pairs) pair.store({0xAAAA, 0xBBBB});
  pairs[1].store({0, 0});
  EXPECT_EQ(pairs[0].snapshot(), (Pair{0xAAAA, 0xBBBB}));
  EXPECT_EQ(pairs[2].snapshot(), (Pair{0xAAAA, 0xBBBB}));
}

TEST(Shared, AReleasedIndexCarriesTheRecordsBeforeIt) {
  // The ring protocol in small. ThreadSanitizer sees plain record accesses here, so a missing
  // barrier in store_release() or load_acquire() is a report.
  constexpr std::uint16_t kRecords = 2000;
  std::array<Shared<Descriptor>, kRecords> records;
  Shared<std::uint16_t> index;
  index.store(0);
  std::jthread writer([&] {
    for (std::uint16_t i = 0; i < kRecords; ++i) {
      records[i].store({i, std::uint32_t{i} * 3, i, static_cast<std::uint16_t>(i + 1)});
      index.store_release(static_cast<std::uint16_t>(i + 1));
    }
  });
  for (std::uint16_t seen = 0; seen < kRecords;) {
    const std::uint16_t available = index.load_acquire();
    for (; seen < available; ++seen) {
      const Descriptor value = records[seen].snapshot();
      ASSERT_EQ(value.address, seen);
      ASSERT_EQ(value.length, seen * 3U);
    }
  }
}

}  // namespace
}  // namespace sluice::memory
