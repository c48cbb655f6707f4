// Random programs on a device ring of ours and on the reference device, each in its own memory.
// Same driver, same bytes: after every step the same chains were taken and the same bytes stand in
// the ring. Hostile programs also scribble over what a driver writes.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "support/device_bench.h"
#include "support/random.h"
#include "support/ring_kinds.h"

namespace sluice::test {
namespace {

constexpr std::uint64_t kRegion = 1U << 20;
constexpr std::uint64_t kBorder = FakeGuest::kBase + kRegion;  // Two regions meet here.
constexpr std::uint64_t kEnd = kBorder + kRegion;

// One of the two worlds: the driver's and the device's state are separate, the calls are the same.
template <class Kind>
struct World {
  explicit World(const DriverOptions& options)
      : guest{{FakeGuest::kBase, kRegion}, {kBorder, kRegion}}, driver(guest, options) {}

  FakeGuest guest;
  typename Kind::RawDriver driver;
};

template <class Kind>
class DeviceModel {
 public:
  DeviceModel(std::uint32_t size, std::uint64_t seed, bool hostile)
      : random_(seed),
        hostile_(hostile),
        options_(options(size, seed)),
        ours_(options_),
        model_(options_),
        ring_end_(ours_.guest.allocate(1, 16)),
        device_(ours_.driver.config()),
        reference_(model_.driver.ring(), options_.event_idx) {
    EXPECT_EQ(model_.guest.allocate(1, 16), ring_end_);
    for (std::uint32_t& weight : weights_) weight = 1 + random_.below(6);
    weights_[kScribble] = hostile ? 1 : 0;
    batches_ = Kind::kInOrder && random_.one_in(2);
  }

  void run(int steps) {
    for (int i = 0; i < steps && !device_.error() && !testing::Test::HasFatalFailure(); ++i) {
      step();
      compare();
    }
    if (device_.error()) check_stays_stopped();
  }
  [[nodiscard]] bool broke() const { return device_.error().has_value(); }

 private:
  enum Action : std::uint8_t {
    kPost,
    kTake,
    kUntake,
    kGiveBack,
    kReap,
    kEvents,
    kScribble,
    kCount
  };

  static DriverOptions options(std::uint32_t size, std::uint64_t seed) {
    return {.size = size,
            .event_idx = seed % 2 == 0,
            .in_order = Kind::kInOrder,
            .seed = static_cast<std::uint32_t>(seed)};
  }

  void step() {
    std::uint32_t total = 0;
    for (const std::uint32_t weight : weights_) total += weight;
    std::uint32_t draw = random_.below(total);
    std::size_t action = 0;
    while (draw >= weights_[action]) draw -= weights_[action++];
    switch (action) {
      case kPost: return post();
      case kTake: return take();
      case kUntake: return untake();
      case kGiveBack: return give_back();
      case kReap: return reap();
      case kEvents: return events();
      default: return scribble();
    }
  }

  // Addresses around the places where regions begin, meet and end.
  Piece draw_piece() {
    Piece piece{};
    switch (random_.below(hostile_ ? 6 : 4)) {
      case 0:
        piece = {FakeGuest::kBase + kRegion / 2 + random_.below(1000), random_.below(2000)};
        break;
      case 1: piece = {kBorder - 1 - random_.below(64), random_.below(200)}; break;
      case 2: piece = {kEnd - 100 - random_.below(64), random_.below(100)}; break;
      case 3: piece = {kBorder + random_.below(64), 0}; break;
      case 4: piece = {kEnd - random_.below(64), random_.below(100)}; break;
      default: piece = {random_.next() >> random_.below(64), random_.below(0x1'0000'0000U)}; break;
    }
    return piece;
  }

  void post() {
    std::vector<Piece> pieces(1 + random_.below(std::min(options_.size, 5U)));
    const std::size_t readable = batches_ ? pieces.size() : random_.below(pieces.size() + 1);
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      pieces[i] = draw_piece();
      pieces[i].writable = i >= readable;
    }
    const Shape shape = random_.one_in(3) ? Shape::kTable : Shape::kChained;
    ASSERT_EQ(ours_.driver.post(pieces, shape), model_.driver.post(pieces, shape));
  }

  // Always all there is: so our ring, which reads the avail index ahead, reads it as often as the
  // reference, which reads it for each chain.
  void take() {
    arena_->clear();
    std::vector<virtio::Chain> out(virtio::kTakeMax);
    out.resize(device_.take(ours_.guest.memory(), out, *arena_));
    std::vector<ReferenceChain> expected;
    while (expected.size() < virtio::kTakeMax) {
      auto chain = reference_.take();
      if (!chain) break;
      expected.push_back(std::move(*chain));
    }
    ASSERT_EQ(out.size(), expected.size());
    for (std::size_t i = 0; i < out.size(); ++i) {
      ASSERT_EQ(out[i].id, expected[i].id);
      ASSERT_TRUE(!Kind::kPacked || out[i].slots == expected[i].slots);
      const auto segments = segments_of(out[i], *arena_);
      ASSERT_TRUE(same_segments(segments, expected_segments(ours_.guest, expected[i])));
      ASSERT_EQ(bytes_of(std::span(segments).subspan(out[i].readable_count)),
                expected[i].writable_bytes());
      held_.push_back({out[i], expected[i]});
    }
  }

  void untake() {
    if (held_.empty()) return;
    const std::size_t count = 1 + random_.below(held_.size());
    std::vector<virtio::Chain> tail;
    for (std::size_t i = held_.size() - count; i < held_.size(); ++i) {
      tail.push_back(held_[i].ours);
    }
    device_.untake(tail);
    for (std::size_t i = 0; i < count; ++i) {
      reference_.untake(held_.back().model);
      held_.pop_back();
    }
  }

  void give_back() {
    if (held_.empty()) return;
    const std::size_t count = 1 + random_.below(std::min<std::size_t>(held_.size(), 8));
    std::vector<virtio::Chain> head;
    std::vector<ReferenceChain> model_head;
    for (std::size_t i = 0; i < count; ++i) {
      head.push_back(held_[i].ours);
      model_head.push_back(held_[i].model);
      head.back().written = static_cast<std::uint32_t>(
          random_.below(std::min<std::uint64_t>(model_head.back().writable_bytes() + 1, 5000)));
    }
    device_.give_back(head, batches_);
    if (batches_) {
      reference_.give_back_batch(model_head, head.back().written);
    } else {
      for (std::size_t i = 0; i < count; ++i) reference_.give_back(model_head[i], head[i].written);
    }
    held_.erase(held_.begin(), held_.begin() + static_cast<std::ptrdiff_t>(count));
    const bool ours = device_.should_notify();
    const bool expected = reference_.interrupt_due();
    ASSERT_TRUE(!asked_ || ours == expected) << ours << expected;
    asked_ = true;  // The first answer after a start may be a yes too many (EVI-08).
  }

  void reap() {
    const auto ours = ours_.driver.reap();
    const auto expected = model_.driver.reap();
    ASSERT_EQ(ours.size(), expected.size());
    ASSERT_TRUE(hostile_ || ours_.driver.complaint().empty()) << ours_.driver.complaint();
  }

  void events() {
    const bool wanted = random_.one_in(2);
    const std::uint32_t after = random_.below(options_.size);
    const bool precise = options_.event_idx && random_.one_in(2);
    for (RawDriver* driver :
         {static_cast<RawDriver*>(&ours_.driver), static_cast<RawDriver*>(&model_.driver)}) {
      if (precise) {
        driver->want_interrupt_after(after);
      } else {
        driver->want_interrupts(wanted);
      }
    }
    if (random_.one_in(2)) {
      device_.set_kicks(wanted);
      reference_.want_kicks(wanted);
    }
  }

  // One word anywhere in the ring, of the values that break things.
  void scribble() {
    const std::uint64_t span = ring_end_ - FakeGuest::kBase;
    const std::uint64_t address = FakeGuest::kBase + random_.below(span / 2) * 2;
    const std::array<std::uint16_t, 10> words = {0,
                                                 1,
                                                 2,
                                                 4,
                                                 0x80,
                                                 0x8000,
                                                 0x8080,
                                                 0xffff,
                                                 static_cast<std::uint16_t>(options_.size),
                                                 random_.word()};
    const std::uint16_t word = words[random_.below(words.size())];
    ours_.guest.write(address, word);
    model_.guest.write(address, word);
  }

  void compare() {
    ASSERT_EQ(device_.position(), reference_.position());
    ASSERT_EQ(device_.held(), held_.size());
    ASSERT_EQ(device_.error().has_value(), reference_.broken());
    ASSERT_EQ(device_.oddities().indirect_not_negotiated, 0U);
    ASSERT_EQ(ours_.guest.get(FakeGuest::kBase, ring_end_ - FakeGuest::kBase),
              model_.guest.get(FakeGuest::kBase, ring_end_ - FakeGuest::kBase));
    ASSERT_TRUE(hostile_ || !device_.error()) << device_.error()->text;
  }

  void check_stays_stopped() {
    const auto position = device_.position();
    const auto before = ours_.guest.get(FakeGuest::kBase, ring_end_ - FakeGuest::kBase);
    std::vector<virtio::Chain> out(8);
    EXPECT_EQ(device_.take(ours_.guest.memory(), out, *arena_), 0U);
    EXPECT_FALSE(device_.has_work());
    EXPECT_EQ(device_.position(), position);
    EXPECT_EQ(ours_.guest.get(FakeGuest::kBase, ring_end_ - FakeGuest::kBase), before);
  }

  struct Held {
    virtio::Chain ours;
    ReferenceChain model;
  };
  Random random_;
  bool hostile_;
  DriverOptions options_;
  World<Kind> ours_;
  World<Kind> model_;
  std::uint64_t ring_end_;  // Rings lie from kBase to here; indirect tables behind.
  typename Kind::Device device_;
  typename Kind::Reference reference_;
  std::array<std::uint32_t, kCount> weights_{};
  bool batches_ = false;
  bool asked_ = false;
  std::unique_ptr<virtio::SegmentArena> arena_ = std::make_unique<virtio::SegmentArena>();
  std::deque<Held> held_;
};

template <class Kind>
class DeviceRingModel : public testing::Test {
 protected:
  static std::uint32_t size_of(std::uint64_t seed) {
    constexpr std::array<std::uint32_t, 8> kPackedSizes = {1, 2, 3, 4, 5, 7, 16, 33};
    constexpr std::array<std::uint32_t, 8> kSplitSizes = {1, 2, 4, 4, 8, 8, 16, 32};
    return (Kind::kPacked ? kPackedSizes : kSplitSizes)[seed % 8];
  }
};
using Kinds = testing::Types<SplitAny, SplitInOrder, PackedAny, PackedInOrder>;
TYPED_TEST_SUITE(DeviceRingModel, Kinds, KindNames);

TYPED_TEST(DeviceRingModel, AgreesWithTheSpecificationOnLegalPrograms) {
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    DeviceModel<TypeParam>(this->size_of(seed), seed, false).run(300);
    if (testing::Test::HasFailure()) return;
  }
}

TYPED_TEST(DeviceRingModel, SEC_08_AgreesWithTheSpecificationOnHostileProgramsUntilItStops) {
  int broke = 0;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    DeviceModel<TypeParam> model(this->size_of(seed), seed, true);
    model.run(200);
    broke += model.broke() ? 1 : 0;
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(broke, 200) << "programs that break nothing test nothing";
}

}  // namespace
}  // namespace sluice::test
