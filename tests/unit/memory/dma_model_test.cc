// DmaMap beside a simple model, over random programs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "memory/dma_map.h"
#include "support/random.h"
#include "tests/unit/memory/leaks.h"

namespace sluice::memory {
namespace {

constexpr DmaWindow kModelWindow{GuestAddress(0x1000'0000), UserAddress(0x7000'0000'0000),
                                 1U << 20};

// A model: every byte of an arena knows its mapping. Random maps, unmaps and look-ups must agree.
class DmaModel {
 public:
  explicit DmaModel(std::uint64_t seed) : random_(seed), map_(kModelWindow) {}

  void step() {
    switch (random_.below(5)) {
      case 0:
      case 1: add(); break;
      case 2: retire(); break;
      case 3: settle(); break;
      default: look();
    }
  }

 private:
  static constexpr std::uint64_t kArena = 1 << 16;
  struct Known {
    std::uint64_t start;
    DmaMapping mapping;
    bool retired = false;
  };
  [[nodiscard]] const Known* at(std::uint64_t place) const {
    for (const auto& [id, known] : known_) {
      if (place >= known.start && place - known.start < known.mapping.size) return &known;
    }
    return nullptr;
  }

  void add() {
    const std::uint64_t start = random_.below(kArena);
    const std::uint64_t size = 1 + random_.below(std::min<std::uint64_t>(kArena - start, 5000));
    bool free = known_.size() < DmaMap::kMappingsMax;
    for (std::uint64_t i = start; i < start + size; ++i) free = free && at(i) == nullptr;
    const auto made = map_.map_bounced(std::span(arena_).subspan(start, size));
    ASSERT_EQ(made.has_value(), free);
    if (!made) return;
    for (const auto& [id, known] : known_) {
      ASSERT_NE(id, made->id.raw());
      const std::uint64_t other = known.mapping.device.raw();
      ASSERT_TRUE(made->device.raw() + size <= other ||
                  other + known.mapping.size <= made->device.raw());
    }
    ASSERT_GE(made->device, kModelWindow.device);
    ASSERT_LE(made->device.raw() + size, kModelWindow.device.raw() + kModelWindow.size);
    known_[made->id.raw()] = {start, *made};
  }
  void retire() {
    const std::uint64_t id = random_.below(next_guess());
    const auto found = known_.find(id);
    ASSERT_EQ(map_.retire(DmaId(id)).has_value(), found != known_.end());
    if (found != known_.end()) found->second.retired = true;
  }
  void settle() {
    map_.settle();
    std::erase_if(known_, [](const auto& item) { return item.second.retired; });
  }
  void look() {
    const std::uint64_t place = random_.below(kArena);
    const std::uint64_t length = random_.below(200);
    const Known* known = at(place);
    const bool inside = known != nullptr && !known->retired && length != 0 &&
                        place - known->start + length <= known->mapping.size;
    const auto table = map_.table();
    const DmaRange* range = table->find_host(&arena_[place], length);
    ASSERT_EQ(range != nullptr, inside);
    ASSERT_EQ(map_.regions().size(), map_.size());
    ASSERT_EQ(map_.size() + map_.retired(), known_.size());
    if (!inside) return;
    const GuestAddress device(known->mapping.device.raw() + (place - known->start));
    ASSERT_EQ(range->device_address(&arena_[place]), device.raw());
    ASSERT_EQ(table->find_device(device, length)->host, range->host);
    // Out and home again.
    arena_[place] = std::byte(random_.below(256));
    const std::byte there = arena_[place];
    ASSERT_TRUE(map_.sync_for_device(device, length));
    arena_[place] = std::byte{0};
    ASSERT_TRUE(map_.sync_for_cpu(device, length));
    ASSERT_EQ(arena_[place], there);
  }
  std::uint64_t next_guess() const { return known_.empty() ? 3 : known_.rbegin()->first + 2; }

  test::Random random_;
  std::vector<std::byte> arena_ = std::vector<std::byte>(kArena);
  DmaMap map_;
  std::map<std::uint64_t, Known> known_;
};

TEST(DmaMapModel, RandomMappingsComeAndGoAsASimpleModelSays) {
  const test::LeakCheck leaks;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    DmaModel model(seed);
    for (int i = 0; i < 400 && !testing::Test::HasFatalFailure(); ++i) model.step();
  }
}

}  // namespace
}  // namespace sluice::memory
