// Random programs on a DriverVirtqueue opposite a device ring of ours: premapped, ordinary and own
// buffers, out and in, of one and several segments, shared and bounced, in one ring; with an
// account of every byte. Rings wrap many times, packed ones of sizes that are no power of two.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "support/fake_guest.h"
#include "support/random.h"
#include "support/virtqueue_bench.h"

namespace sluice::test {
namespace {

using net::DmaSegment;
using net::PremappedBuffer;

class VirtqueueProgram {
 public:
  VirtqueueProgram(const QueueKind& kind, std::uint32_t size, std::uint64_t seed)
      : kind_(kind), size_(size), random_(seed), bench_(kind, size), free_(size) {
    for (std::uint32_t i = 0; i < kChunks; ++i) chunks_.push_back(i);
  }

  void run(int steps) {
    for (int i = 0; i < steps && !testing::Test::HasFatalFailure(); ++i) {
      switch (random_.below(4)) {
        case 0:
        case 1: add(); break;
        case 2: use(); break;
        default: collect();
      }
      check();
    }
    while (!posted_.empty() && !testing::Test::HasFatalFailure()) {
      use();
      collect();
    }
    EXPECT_EQ(bench_.queue.free_slots(), size_);
    EXPECT_TRUE(bench_.map->retire(bench_.umem_mapping.id)) << "nothing is held any more";
    EXPECT_TRUE(bench_.map->retire(bench_.heap_mapping.id));
  }

 private:
  static constexpr std::uint32_t kChunks = 40;  // Each of one buffer, in each kind of memory.
  static constexpr std::uint32_t kChunk = 2000;
  struct Buffer {
    std::uint64_t token;
    std::uint32_t chunk;
    std::span<std::byte> memory;  // The chunk, as we see it.
    std::vector<std::span<std::byte>> pieces;
    std::vector<DmaSegment> segments;  // If premapped.
    bool in = false;
    std::size_t slots = 0;
    std::vector<std::byte> data;  // Out: what the device must read. In: what it wrote.
  };

  // A buffer of 1 to 4 pieces (now and then 24), somewhere in a chunk of some memory.
  Buffer make() {
    Buffer buffer;
    buffer.token = random_.next();
    buffer.chunk = chunks_.front();
    buffer.in = random_.one_in(2);
    const bool premapped = random_.one_in(2);
    const std::uint32_t place = random_.below(2);
    const std::uint64_t at = std::uint64_t{buffer.chunk} * kChunk;
    const std::span<std::byte> all = place == 0 ? bench_.umem : std::span(bench_.heap);
    buffer.memory = all.subspan(at, kChunk);
    const bool bounced_in = place == 1 && buffer.in && !premapped;
    const std::uint32_t most = bounced_in ? 1 : std::min(size_, random_.one_in(6) ? 24U : 4U);
    const std::uint32_t count = 1 + random_.below(most);
    for (std::uint32_t i = 0, used = 0; i < count; ++i) {
      const std::uint32_t gap = random_.below(10);
      const std::uint32_t length = 1 + random_.below(60);
      buffer.pieces.push_back(buffer.memory.subspan(used + gap, length));
      if (premapped) {
        const std::uint64_t offset = at + used + gap;
        buffer.segments.push_back(place == 0 ? bench_.in_umem(offset, length)
                                             : bench_.in_heap(offset, length));
      }
      used += gap + length;
    }
    const bool table = kind_.indirect && count > 1 && count <= 20;
    buffer.slots = table ? 1 : count;
    fill(buffer);
    return buffer;
  }
  void fill(Buffer& buffer) {
    std::ranges::copy(pattern(kChunk, static_cast<std::uint32_t>(random_.next())),
                      buffer.memory.begin());
    if (buffer.in) return;
    for (const auto piece : buffer.pieces) {
      buffer.data.insert(buffer.data.end(), piece.begin(), piece.end());
    }
    for (const DmaSegment& segment : buffer.segments) {
      ASSERT_TRUE(bench_.queue.memory().sync_for_device(segment.address, segment.length));
    }
  }

  void add() {
    if (chunks_.empty()) return;
    Buffer buffer = make();
    auto& queue = bench_.queue;
    Status added;
    if (!buffer.segments.empty()) {
      added = buffer.in ? queue.add_inbuf_premapped(buffer.token, buffer.segments)
                        : queue.add_outbuf_premapped(buffer.token, buffer.segments);
    } else if (buffer.in) {
      added = queue.add_inbuf(buffer.token, buffer.pieces);
    } else {
      const std::vector<std::span<const std::byte>> pieces(buffer.pieces.begin(),
                                                           buffer.pieces.end());
      added = queue.add_outbuf(buffer.token, pieces);
    }
    ASSERT_EQ(added.has_value(), buffer.slots <= free_) << (added ? "" : added.error().text);
    if (!added) {
      ASSERT_EQ(added.error().code, ErrorCode::kWrongState);
      return;
    }
    free_ -= buffer.slots;
    chunks_.pop_front();
    posted_.push_back(std::move(buffer));
  }

  // The device uses some, one entry each, or in a batch what it must not measure.
  void use() {
    ASSERT_EQ(bench_.take() + used_, posted_.size());
    const std::size_t count = std::min<std::size_t>(bench_.held.size(), 1 + random_.below(5));
    bool batch = kind_.in_order && random_.one_in(2);
    for (std::size_t i = 0; i < count; ++i) batch = batch && !posted_[used_ + i].in;
    for (std::size_t i = 0; i < count; ++i) {
      Buffer& buffer = posted_[used_ + i];
      VirtqueueBench::Held& held = bench_.held[i];
      if (!buffer.in) {
        ASSERT_EQ(held.read(), buffer.data);
        continue;
      }
      std::size_t room = 0;
      for (const auto piece : buffer.pieces) room += piece.size();
      buffer.data = pattern(random_.below(room + 1), static_cast<std::uint32_t>(random_.next()));
      held.write(buffer.data);
    }
    if (count != 0) bench_.give_back(count, batch);
    used_ += count;
  }

  void collect() {
    const std::size_t most = random_.below(8);
    const auto back = bench_.collect(most);
    ASSERT_EQ(back.size(), std::min(most, used_));
    for (const net::ReturnedBuffer& one : back) {
      Buffer& buffer = posted_.front();
      ASSERT_EQ(one.token, buffer.token);
      ASSERT_EQ(one.written, buffer.in ? buffer.data.size() : 0);
      if (buffer.in) expect_written(buffer);
      free_ += buffer.slots;
      chunks_.push_back(buffer.chunk);
      posted_.pop_front();
      --used_;
    }
  }
  void expect_written(const Buffer& buffer) {
    for (const DmaSegment& segment : buffer.segments) {
      ASSERT_TRUE(bench_.queue.memory().sync_for_cpu(segment.address, segment.length));
    }
    std::vector<std::byte> seen;
    for (const auto piece : buffer.pieces) seen.insert(seen.end(), piece.begin(), piece.end());
    seen.resize(buffer.data.size());
    ASSERT_EQ(seen, buffer.data);
  }

  void check() {
    ASSERT_EQ(bench_.queue.free_slots(), free_);
    ASSERT_EQ(bench_.queue.outstanding(), posted_.size());
    ASSERT_EQ(bench_.queue.has_used(), used_ > 0);
    ASSERT_FALSE(bench_.queue.error() || bench_.device_error());
  }

  QueueKind kind_;
  std::uint32_t size_;
  Random random_;
  VirtqueueBench bench_;
  std::size_t free_;
  std::deque<std::uint32_t> chunks_;
  std::deque<Buffer> posted_;  // The device used the first used_ of them.
  std::size_t used_ = 0;
};

class VirtqueuePrograms : public testing::TestWithParam<QueueKind> {};

TEST_P(VirtqueuePrograms, KeepTheAccountOfEveryByteOnRingsThatWrap) {
  constexpr std::array<std::uint32_t, 6> kPackedSizes = {1, 3, 7, 8, 31, 100};
  constexpr std::array<std::uint32_t, 6> kSplitSizes = {1, 2, 8, 16, 32, 128};
  for (std::uint64_t seed = 1; seed <= 24; ++seed) {
    const auto& sizes = GetParam().packed ? kPackedSizes : kSplitSizes;
    const std::uint32_t size = sizes[seed % sizes.size()];
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", size " << size);
    VirtqueueProgram(GetParam(), size, seed).run(600);
    if (testing::Test::HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Rings, VirtqueuePrograms, testing::ValuesIn(QueueKind::all()),
                         [](const auto& kind) { return kind.param.name(); });

}  // namespace
}  // namespace sluice::test
