// Both ends of ours against each other on random programs, with the invariants checked at every
// step: posted = used + held + free, each buffer once, in order, with its bytes and its length.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <numeric>
#include <vector>

#include "support/device_bench.h"
#include "support/driver_bench.h"
#include "support/random.h"
#include "support/ring_kinds.h"

namespace sluice::test {

/// One random program: who does how much is drawn anew for each seed (swarm testing).
template <class Kind>
class BothEnds {
 public:
  BothEnds(std::uint32_t size, std::uint32_t seed)
      : size_(size),
        random_(seed),
        ring_(guest_, size, seed % 2 == 0),
        device_(config()),
        driver_(seed % 3 == 0 ? with_tables(guest_, config()) : config()),
        tables_(seed % 3 == 0),
        pool_(guest_.allocate(kPool)) {
    for (std::uint32_t& weight : weights_) weight = 1 + random_.below(5);
    batches_ = Kind::kInOrder && random_.one_in(2);
  }

  void run(int steps) {
    for (int i = 0; i < steps && !testing::Test::HasFatalFailure(); ++i) step();
    drain();
  }

 private:
  static constexpr std::uint32_t kPool = 1U << 20;
  struct Buffer {
    std::uint32_t token;
    std::uint32_t pieces;
    std::uint32_t slots;
    std::uint64_t address;
    std::uint32_t length;
    std::uint32_t written;
    bool writable;
  };

  virtio::RingConfig config() const {
    virtio::RingConfig config = ring_.config();
    config.indirect = true;
    return config;
  }

  void step() {
    std::uint32_t draw = random_.below(std::accumulate(weights_.begin(), weights_.end(), 0U));
    std::size_t action = 0;
    while (draw >= weights_[action]) draw -= weights_[action++];
    switch (action) {
      case 0: offer(); break;
      case 1: take(); break;
      case 2: untake(); break;
      case 3: give_back(); break;
      default: collect(); break;
    }
    check();
  }

  // Pieces of a few bytes; the first four of a readable buffer hold its token.
  void offer() {
    const std::uint32_t burst = 1 + random_.below(8);
    std::vector<std::vector<virtio::OfferSegment>> segments(burst);
    std::vector<virtio::Offer> offers;
    std::vector<Buffer> added;
    for (auto& list : segments) {
      const std::uint32_t pieces = 1 + random_.below(std::min(size_, 4U));
      const bool writable = !batches_ && random_.one_in(2);
      if (next_ + 64 * pieces > kPool) next_ = 0;
      const std::uint64_t address = pool_ + next_;
      for (std::uint32_t i = 0; i < pieces; ++i) list.push_back({address + 64 * i, 64, writable});
      next_ += 64 * pieces;
      if (!writable) guest_.write(address, token_);
      const std::uint32_t slots = tables_ ? 1 : pieces;
      added.push_back({token_, pieces, slots, address, 64 * pieces, 0, writable});
      offers.push_back({list, token_++});
    }
    const std::size_t count = driver_.offer(offers);
    ASSERT_LE(count, offers.size());
    token_ -= static_cast<std::uint32_t>(offers.size() - count);
    for (std::size_t i = 0; i < count; ++i) posted_.push_back(added[i]);
    for (std::size_t i = 0; i < count; ++i) free_ -= added[i].slots;
    if (count < offers.size()) {
      ASSERT_GT(added[count].slots, free_) << "it would have fitted";
    }
  }

  void take() {
    arena_.clear();
    std::vector<virtio::Chain> out(1 + random_.below(16));
    out.resize(device_.take(guest_.memory(), out, arena_));
    for (const virtio::Chain& chain : out) {
      ASSERT_LT(held_.size(), posted_.size());
      const Buffer& expected = posted_[held_.size()];
      ASSERT_EQ(bytes_of(segments_of(chain, arena_)), expected.length);
      ASSERT_EQ(chain.data, guest_.device_view(expected.address));
      ASSERT_EQ(chain.readable_count, expected.writable ? 0 : expected.pieces);
      if (!expected.writable) {
        std::uint32_t token = 0;
        std::memcpy(&token, chain.data, sizeof token);
        ASSERT_EQ(token, expected.token);
      }
      held_.push_back(chain);
    }
  }

  void untake() {
    if (held_.empty()) return;
    const std::size_t count = 1 + random_.below(held_.size());
    device_.untake(std::span(held_).last(count));
    held_.resize(held_.size() - count);
  }

  void give_back() {
    if (held_.empty()) return;
    const std::size_t count = 1 + random_.below(std::min<std::size_t>(held_.size(), 16));
    for (std::size_t i = 0; i < count; ++i) {
      Buffer& buffer = posted_.front();
      buffer.written = buffer.writable ? random_.below(buffer.length + 1) : 0;
      held_[i].written = buffer.written;
      used_.push_back(buffer);
      posted_.pop_front();
    }
    device_.give_back(std::span(held_).first(count), batches_);
    held_.erase(held_.begin(), held_.begin() + static_cast<std::ptrdiff_t>(count));
  }

  void collect() {
    std::vector<virtio::Collected> out(1 + random_.below(16));
    const std::size_t expected = std::min(out.size(), used_.size());
    ASSERT_EQ(driver_.has_used(), !used_.empty());
    ASSERT_EQ(driver_.collect(out), expected);
    for (std::size_t i = 0; i < expected; ++i) {
      ASSERT_EQ(out[i].token, used_.front().token);
      ASSERT_EQ(out[i].written, used_.front().written);
      free_ += used_.front().slots;
      used_.pop_front();
    }
  }

  void check() {
    ASSERT_EQ(driver_.error(), std::nullopt);
    ASSERT_EQ(device_.error(), std::nullopt);
    ASSERT_EQ(driver_.free_slots(), free_);
    ASSERT_EQ(driver_.outstanding(), posted_.size() + used_.size());
    ASSERT_EQ(device_.held(), held_.size());
    ASSERT_EQ(device_.has_work(), posted_.size() > held_.size());
  }

  void drain() {
    for (int i = 0; i < 100000 && (!posted_.empty() || !used_.empty()); ++i) {
      take();
      give_back();
      collect();
      if (testing::Test::HasFatalFailure()) return;
    }
    check();
    EXPECT_EQ(driver_.free_slots(), size_);
    EXPECT_EQ(driver_.position(), device_.position());
    EXPECT_TRUE(ring_.canaries_intact());
  }

  std::uint32_t size_;
  Random random_;
  FakeGuest guest_;
  typename Kind::RawRing ring_;
  typename Kind::Device device_;
  typename Kind::Driver driver_;
  bool tables_;  // Buffers of several pieces go out as indirect tables.
  std::uint64_t pool_;
  std::uint32_t next_ = 0;
  std::array<std::uint32_t, 5> weights_{};
  bool batches_ = false;
  virtio::SegmentArena arena_;
  std::uint32_t token_ = 1;
  std::size_t free_ = size_;
  std::deque<Buffer> posted_;        // Offered, not given back; the first held_.size() are held.
  std::vector<virtio::Chain> held_;  // In the device.
  std::deque<Buffer> used_;          // Given back, not collected.
};

template <class Kind>
class BothEndsContract : public testing::Test {};
TYPED_TEST_SUITE_P(BothEndsContract);

TYPED_TEST_P(BothEndsContract, RandomProgramsLoseAndDoubleNothing) {
  const std::vector<std::uint32_t> packed = {1, 2, 3, 5, 8, 13, 64, 255};
  const std::vector<std::uint32_t> split = {1, 2, 4, 8, 16, 32, 64, 256};
  for (std::uint32_t seed = 1; seed <= 160; ++seed) {
    const std::uint32_t size = (TypeParam::kPacked ? packed : split)[seed % 8];
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", size " << size);
    BothEnds<TypeParam>(size, seed).run(600);
    if (testing::Test::HasFailure()) return;
  }
}

REGISTER_TYPED_TEST_SUITE_P(BothEndsContract, RandomProgramsLoseAndDoubleNothing);

}  // namespace sluice::test
