// Random programs on a driver ring of ours opposite the reference device, with an account of every
// buffer: a queue of those offered, a queue of those used. The device uses one at a time, in any
// order unless it promised one, and then also in batches.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "support/driver_bench.h"
#include "support/random.h"
#include "support/ring_kinds.h"

namespace sluice::test {
namespace {

template <class Kind>
class DriverModel {
 public:
  DriverModel(std::uint32_t size, std::uint64_t seed)
      : size_(size), random_(seed), bench_(size, seed % 2 == 0, seed % 3 == 0), free_(size) {
    for (std::uint32_t& weight : weights_) weight = 1 + random_.below(6);
  }

  void run(int steps) {
    for (int i = 0; i < steps && !testing::Test::HasFatalFailure(); ++i) {
      step();
      check();
    }
  }

 private:
  struct Buffer {
    std::uint32_t token;
    std::vector<virtio::OfferSegment> segments;
    ReferenceChain chain;  // As the device took it.
    std::uint32_t written = 0;
    [[nodiscard]] std::uint32_t writable() const {
      std::uint32_t sum = 0;
      for (const auto& segment : segments) sum += segment.writable ? segment.length : 0;
      return sum;
    }
  };

  void step() {
    std::uint32_t total = 0;
    for (const std::uint32_t weight : weights_) total += weight;
    std::uint32_t draw = random_.below(total);
    std::size_t action = 0;
    while (draw >= weights_[action]) draw -= weights_[action++];
    switch (action) {
      case 0: return offer();
      case 1: return take();
      case 2: return use();
      case 3: return collect();
      default: return events();
    }
  }

  [[nodiscard]] std::size_t slots(const Buffer& buffer) const {
    const std::size_t pieces = buffer.segments.size();
    const bool table = bench_.config.indirect && pieces > 1 && pieces <= 20;
    return table ? 1 : pieces;
  }

  void offer() {
    std::vector<Buffer> wanted(1 + random_.below(4));
    std::vector<virtio::Offer> offers;
    const bool plain = random_.one_in(3);
    const bool writable = random_.one_in(2);
    for (Buffer& buffer : wanted) {
      buffer.token = static_cast<std::uint32_t>(random_.next());
      // Now and then more than a table takes.
      const std::uint32_t most = random_.one_in(8) ? 24 : 4;
      const std::uint32_t pieces = plain ? 1 : 1 + random_.below(std::min(size_, most));
      const std::uint32_t readable = plain ? (writable ? 0 : 1) : random_.below(pieces + 1);
      for (std::uint32_t i = 0; i < pieces; ++i) {
        const std::uint32_t length = 1 + random_.below(100);
        buffer.segments.push_back({bench_.buffer(length), length, i >= readable});
      }
      offers.push_back({buffer.segments, buffer.token});
    }
    std::size_t fit = 0;
    while (fit < wanted.size() && slots(wanted[fit]) <= free_) {
      free_ -= slots(wanted[fit]);
      ++fit;
    }
    ASSERT_EQ(plain ? offer_plain(wanted, writable) : bench_.driver.offer(offers), fit);
    for (std::size_t i = 0; i < fit; ++i) offered_.push_back(std::move(wanted[i]));
    if (fit > 0 && random_.one_in(2)) bench_.driver.should_notify();
  }

  std::size_t offer_plain(const std::vector<Buffer>& wanted, bool writable) {
    const auto make = [&](std::size_t i) {
      const virtio::OfferSegment& segment = wanted[i].segments[0];
      return virtio::PlainOffer{segment.address, segment.length, wanted[i].token};
    };
    using virtio::DeviceUse;
    auto& driver = bench_.driver;
    return writable ? driver.template offer_plain<DeviceUse::kWrites>(wanted.size(), make)
                    : driver.template offer_plain<DeviceUse::kReads>(wanted.size(), make);
  }

  // The device takes each buffer as it was offered, in the order it was.
  void take() {
    while (auto chain = bench_.device.take()) {
      ASSERT_LT(taken_, offered_.size());
      Buffer& buffer = offered_[taken_++];
      ASSERT_EQ(chain->pieces.size(), buffer.segments.size());
      for (std::size_t i = 0; i < chain->pieces.size(); ++i) {
        ASSERT_EQ(chain->pieces[i].address, buffer.segments[i].address);
        ASSERT_EQ(chain->pieces[i].length, buffer.segments[i].length);
        ASSERT_EQ(chain->pieces[i].writable, buffer.segments[i].writable);
      }
      buffer.chain = std::move(*chain);
    }
    ASSERT_EQ(taken_, offered_.size()) << "what was offered is available";
    ASSERT_FALSE(bench_.device.broken());
  }

  void use() {
    const std::size_t count = std::min<std::size_t>(taken_, 1 + random_.below(5));
    if (count == 0) return;
    if (Kind::kInOrder && random_.one_in(2)) {
      std::vector<ReferenceChain> batch;
      for (std::size_t i = 0; i < count; ++i) batch.push_back(offered_[i].chain);
      const std::uint32_t last = random_.below(offered_[count - 1].writable() + 1);
      bench_.device.give_back_batch(batch, last);
      for (std::size_t i = 0; i < count; ++i) {
        offered_.front().written = i + 1 == count ? last : offered_.front().writable();
        move_to_used(0);
      }
      return;
    }
    for (std::size_t i = 0; i < count; ++i) {
      // A device that did not promise the order may use any that it holds.
      const std::size_t which = Kind::kInOrder ? 0 : random_.below(taken_);
      Buffer& buffer = offered_[which];
      // Now and then more than there was room for: it must be clamped.
      const std::uint32_t reported = random_.below(buffer.writable() + 20);
      buffer.written = std::min(reported, buffer.writable());
      bench_.device.give_back(buffer.chain, reported);
      move_to_used(which);
    }
  }
  void move_to_used(std::size_t which) {
    used_.push_back(std::move(offered_[which]));
    offered_.erase(offered_.begin() + static_cast<std::ptrdiff_t>(which));
    --taken_;
  }

  void collect() {
    const std::size_t most = random_.below(8);
    const auto back = bench_.collect(most);
    ASSERT_EQ(back.size(), std::min(most, used_.size()));
    for (const virtio::Collected& one : back) {
      ASSERT_EQ(one.token, used_.front().token);
      ASSERT_EQ(one.written, used_.front().written);
      free_ += slots(used_.front());
      used_.pop_front();
    }
  }

  void events() {
    bench_.driver.set_interrupts(random_.one_in(2));
    bench_.device.want_kicks(random_.one_in(2));
    bench_.device.interrupt_due();
  }

  void check() {
    ASSERT_EQ(bench_.driver.error(), std::nullopt);
    ASSERT_EQ(bench_.driver.free_slots(), free_);
    ASSERT_EQ(bench_.driver.outstanding(), offered_.size() + used_.size());
    ASSERT_EQ(bench_.driver.has_used(), !used_.empty());
    ASSERT_TRUE(bench_.ring.canaries_intact());
  }

  std::uint32_t size_;
  Random random_;
  DriverBench<Kind> bench_;
  std::size_t free_;
  std::array<std::uint32_t, 5> weights_{};
  std::deque<Buffer> offered_;  // The device holds the first taken_ of them.
  std::size_t taken_ = 0;
  std::deque<Buffer> used_;
};

template <class Kind>
class DriverRingModel : public testing::Test {};
using Kinds = testing::Types<SplitAny, SplitInOrder, PackedAny, PackedInOrder>;
TYPED_TEST_SUITE(DriverRingModel, Kinds, KindNames);

TYPED_TEST(DriverRingModel, KeepsTheAccountOnEveryProgram) {
  constexpr std::array<std::uint32_t, 8> kPackedSizes = {1, 2, 3, 4, 5, 7, 16, 255};
  constexpr std::array<std::uint32_t, 8> kSplitSizes = {1, 2, 4, 4, 8, 8, 16, 256};
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    DriverModel<TypeParam>((TypeParam::kPacked ? kPackedSizes : kSplitSizes)[seed % 8], seed)
        .run(400);
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace sluice::test
