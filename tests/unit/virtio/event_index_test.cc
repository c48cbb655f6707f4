// Both event tests against a predicate that walks the entries one by one, for every input there is.
#include "virtio/event_index.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace sluice::virtio {
namespace {

constexpr std::uint16_t u16(std::uint32_t value) {
  return static_cast<std::uint16_t>(value);
}

// Virtio 1.3, 2.7.7.1: entries old, old + 1, ... new - 1 were passed. Was `event` one of them?
bool walked_past(std::uint16_t event, std::uint16_t new_index, std::uint16_t old_index) {
  for (std::uint16_t entry = old_index; entry != new_index; ++entry) {
    if (entry == event) return true;
  }
  return false;
}

TEST(EventIndex, EVI_03_SplitAgreesWithAWalkForEveryIndexAndSmallBursts) {
  for (std::uint32_t old_index = 0; old_index < 0x10000; ++old_index) {
    for (std::uint32_t burst = 0; burst <= 3; ++burst) {
      const std::uint16_t new_index = u16(old_index + burst);
      // Events around both ends; the rest of the circle is the next test's.
      for (std::uint32_t near = 0; near < 12; ++near) {
        const std::uint16_t event = u16(old_index + near - 4);
        ASSERT_EQ(split_event_passed(event, new_index, u16(old_index)),
                  walked_past(event, new_index, u16(old_index)))
            << event << " " << new_index << " " << old_index;
      }
    }
  }
}

TEST(EventIndex, EVI_03_SplitAgreesWithAWalkForEveryEventAndBurst) {
  constexpr std::uint16_t kOld[] = {0, 1, 0x7fff, 0x8000, 0xfff0, 0xffff};
  constexpr std::uint32_t kBursts[] = {0, 1, 2, 64, 255, 256, 32768, 65535};
  for (const std::uint16_t old_index : kOld) {
    for (const std::uint32_t burst : kBursts) {
      const std::uint16_t new_index = u16(old_index + burst);
      std::vector<bool> passed(0x10000, false);
      for (std::uint32_t i = 0; i < burst; ++i) passed[u16(old_index + i)] = true;
      for (std::uint32_t event = 0; event < 0x10000; ++event) {
        ASSERT_EQ(split_event_passed(u16(event), new_index, old_index), passed[event])
            << event << " " << new_index << " " << old_index;
      }
    }
  }
}

// A place of a packed ring as bits 0-14 slot, bit 15 wrap, and the step to the next one.
std::uint16_t next_place(std::uint16_t place, std::uint32_t size) {
  const std::uint32_t slot = (place & 0x7fffU) + 1;
  const std::uint32_t wrap = place & 0x8000U;
  return slot == size ? u16(wrap ^ 0x8000U) : u16(slot | wrap);
}

TEST(EventIndex, PKD_16_PackedAgreesWithAWalkForEveryPlaceOfSmallRings) {
  for (std::uint32_t size = 1; size <= 8; ++size) {
    std::vector<std::uint16_t> places;
    std::uint16_t place = 0x8000;
    for (std::uint32_t i = 0; i < 2 * size; ++i) {
      places.push_back(place);
      place = next_place(place, size);
    }
    ASSERT_EQ(place, 0x8000) << "two laps lead back to the start";
    for (const std::uint16_t from : places) {
      std::uint16_t to = from;
      for (std::uint32_t passed = 0; passed <= size; ++passed, to = next_place(to, size)) {
        for (const std::uint16_t event : places) {
          bool expected = false;
          std::uint16_t walk = from;
          for (std::uint32_t i = 0; i < passed; ++i, walk = next_place(walk, size)) {
            expected = expected || walk == event;
          }
          ASSERT_EQ(packed_event_passed(event, to, from, size), expected)
              << "size " << size << " from " << from << " to " << to << " event " << event;
        }
      }
    }
  }
}

TEST(EventIndex, PKD_16_PackedAgreesWithAWalkOnTheLargestRings) {
  for (const std::uint32_t size : {32767U, 32768U}) {
    for (const std::uint32_t start : {0U, 1U, size - 2, size - 1}) {
      for (const std::uint32_t wrap : {0U, 0x8000U}) {
        const std::uint16_t from = u16(start | wrap);
        std::uint16_t to = from;
        for (int i = 0; i < 5; ++i) to = next_place(to, size);
        std::uint16_t event = from;
        for (std::uint32_t i = 0; i < 2 * size; ++i, event = next_place(event, size)) {
          ASSERT_EQ(packed_event_passed(event, to, from, size), i < 5) << size << " " << event;
        }
      }
    }
  }
}

// The driver's event is a word of its choice. Whatever it holds, the answer is one of two and the
// computation stays defined (UBSan would tell).
TEST(EventIndex, PKD_16_AnyEventOutsideTheRingIsJustNotPassed) {
  for (std::uint32_t size = 1; size <= 8; ++size) {
    for (std::uint32_t event = 0; event < 0x10000; ++event) {
      if ((event & 0x7fff) < size) continue;
      EXPECT_FALSE(packed_event_passed(u16(event), 0x8000, 0x8000, size));
    }
  }
}

}  // namespace
}  // namespace sluice::virtio
