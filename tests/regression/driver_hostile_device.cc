// H25: a driver never trusts length, buffer count or buffer number that a device writes.
//
// The device here is bytes in the ring. After each piece of nonsense the driver reads nothing
// beyond what it posted, gives each buffer out at most once, and either goes on or has stopped the
// queue with an error.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <set>
#include <vector>

#include "net/driver_memory.h"
#include "net/driver_queue.h"

namespace sluice::net {
namespace {

using virtio::Feature;
using virtio::FeatureSet;

constexpr std::uint32_t kSize = 16;

// The device's side of one ring, written byte by byte.
class RawDevice {
 public:
  RawDevice(const DriverMemory& memory, QueueIndex queue, bool packed)
      : ring_(memory.ring(queue)), base_(memory.bytes().data()), packed_(packed) {}

  /// The number by which the driver knows the buffer it offered as its `n`th.
  [[nodiscard]] std::uint32_t id(std::uint16_t n) const {
    if (packed_) return read<std::uint16_t>(ring_.descriptors + 16 * (n % kSize) + 12);
    return read<std::uint16_t>(ring_.driver_area + 4 + 2 * (n % kSize));
  }
  /// Its bytes. Call before the buffer is used.
  [[nodiscard]] std::byte* buffer(std::uint16_t n) const {
    const std::size_t slot = packed_ ? n % kSize : id(n);
    const auto guest = read<std::uint64_t>(ring_.descriptors + 16 * slot);
    return base_ + (guest - DriverMemory::kGuestBase);
  }
  void set_header(std::uint16_t n, std::uint16_t num_buffers) const {
    std::memset(buffer(n), 0, 12);
    std::memcpy(buffer(n) + 10, &num_buffers, sizeof num_buffers);
  }
  /// Says that buffer `id` was used, with `length` bytes written.
  void use(std::uint32_t id, std::uint32_t length) {
    if (packed_) {
      std::byte* const slot = ring_.descriptors + 16 * (used_ % kSize);
      const bool wrap = used_ / kSize % 2 == 0;
      const auto flags = static_cast<std::uint16_t>(2 | (wrap ? 0x8080 : 0));
      const auto short_id = static_cast<std::uint16_t>(id);
      std::memcpy(slot + 8, &length, sizeof length);
      std::memcpy(slot + 12, &short_id, sizeof short_id);
      std::memcpy(slot + 14, &flags, sizeof flags);
      ++used_;
      return;
    }
    std::byte* const element = ring_.device_area + 4 + 8 * (used_ % kSize);
    std::memcpy(element, &id, sizeof id);
    std::memcpy(element + 4, &length, sizeof length);
    ++used_;
    std::memcpy(ring_.device_area + 2, &used_, sizeof used_);
  }

 private:
  template <class T>
  static T read(const std::byte* from) {
    T value{};
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  virtio::RingConfig ring_;
  std::byte* base_;
  bool packed_;
  std::uint16_t used_ = 0;
};

struct Kind {
  FeatureSet features;
  const char* name;
};

class H25_DriverOfAHostileDevice : public ::testing::TestWithParam<Kind> {
 protected:
  H25_DriverOfAHostileDevice()
      : memory_(*DriverMemory::create({.queues = 2, .queue_size = kSize}, GetParam().features)),
        start_(memory_.start(QueueIndex(0))),
        receiveq_(DriverReceiveQueue::make(start_)),
        device_(memory_, QueueIndex(0), GetParam().features.has(Feature::kRingPacked)) {}

  [[nodiscard]] bool mergeable() const { return GetParam().features.has(Feature::kMrgRxbuf); }

  /// Receives once; each frame lies wholly within a buffer of its own that was posted.
  std::vector<DriverFrame> receive() {
    std::vector<DriverFrame> frames(kDriverBurstMax);
    frames.resize(receiveq_.receive(frames));
    std::set<std::uint32_t> tokens;
    for (const DriverFrame& frame : frames) {
      EXPECT_LT(frame.token, kSize);
      EXPECT_TRUE(tokens.insert(frame.token).second) << "given out twice";
      const std::byte* const buffer = start_.buffers.data() + frame.token * start_.buffer_stride;
      EXPECT_GE(frame.data, buffer);
      EXPECT_LE(frame.data + frame.length, buffer + start_.buffer_size);
    }
    EXPECT_EQ(receiveq_.outstanding() + frames.size(), kSize);
    return frames;
  }
  /// Nonsense of a kind that costs a packet only: afterwards all buffers are posted again and a
  /// good packet arrives.
  void expect_life(std::uint16_t next) {
    receiveq_.repost();
    EXPECT_EQ(receiveq_.outstanding(), kSize);
    EXPECT_FALSE(receiveq_.error());
    device_.set_header(next, 1);
    device_.use(device_.id(next), 72);
    const auto frames = receive();
    ASSERT_EQ(frames.size(), 1U);
    receiveq_.repost();
  }
  /// Nonsense that breaks the ring: nothing comes out of it any more.
  void expect_stopped() {
    ASSERT_TRUE(receiveq_.error());
    EXPECT_EQ(receiveq_.error()->code, ErrorCode::kRingCorrupt);
    receiveq_.repost();
    std::array<DriverFrame, 4> frames{};
    EXPECT_EQ(receiveq_.receive(frames), 0U);
    EXPECT_FALSE(receiveq_.has_frames());
  }

  DriverMemory memory_;
  DriverQueueStart start_;
  DriverReceiveQueue receiveq_;
  RawDevice device_;
};

class H25_MergingDriver : public H25_DriverOfAHostileDevice {};  // Several buffers a packet.
class H25_SplitDriver : public H25_DriverOfAHostileDevice {};    // With a used index.

TEST_P(H25_DriverOfAHostileDevice, H25_LengthsOfTheFirstBufferAreClampedAndCounted) {
  std::uint16_t n = 0;
  for (const std::uint32_t length : {0U, 1U, 11U, 12U, 13U, 2368U, 2369U, 0x7fff'ffffU, ~0U}) {
    const std::uint64_t bad = receiveq_.counters().bad_headers.value();
    device_.set_header(n, 1);
    device_.use(device_.id(n), length);
    ++n;
    const auto frames = receive();
    ASSERT_EQ(frames.size(), 1U);
    const std::uint32_t posted = std::min(length, 2368U);
    EXPECT_EQ(frames[0].length, posted > 12 ? posted - 12 : 0) << length;
    EXPECT_EQ(receiveq_.counters().bad_headers.value() - bad, length < 12 ? 1U : 0U) << length;
    expect_life(n++);
  }
}

// A ring that broke has no room: what is sent on it would be counted and never leave.
TEST_P(H25_DriverOfAHostileDevice, H25_ATransmitqThatBrokeGivesNoBuffers) {
  if (!GetParam().features.has(Feature::kRingPacked) &&
      GetParam().features.has(Feature::kInOrder)) {
    return;  // Nobody looks at ids there: the index says it all.
  }
  const QueueIndex index(1);
  DriverTransmitQueue transmitq = DriverTransmitQueue::make(memory_.start(index));
  RawDevice device(memory_, index, GetParam().features.has(Feature::kRingPacked));
  std::array<DriverFrame, 8> frames{};
  ASSERT_EQ(transmitq.reserve(frames), frames.size());
  for (DriverFrame& frame : frames) frame.length = 60;
  transmitq.submit(frames);
  device.use(static_cast<std::uint16_t>(kSize + 7), 0);
  std::array<DriverFrame, kSize> more{};
  EXPECT_EQ(transmitq.reserve(more), 0U);
  EXPECT_TRUE(transmitq.error());
  EXPECT_EQ(transmitq.reserve(frames), 0U);
}

// A ring that breaks behind good frames: whatever the application did with these, each buffer has
// one owner afterwards.
TEST_P(H25_DriverOfAHostileDevice, H25_ARecallAfterABreakFindsEachBufferOnce) {
  for (const std::size_t forwarded : {0U, 1U, 2U}) {
    DriverMemory memory =
        *DriverMemory::create({.queues = 2, .queue_size = kSize}, GetParam().features);
    DriverReceiveQueue receiveq = DriverReceiveQueue::make(memory.start(QueueIndex(0)));
    DriverTransmitQueue transmitq = DriverTransmitQueue::make(memory.start(QueueIndex(1)));
    RawDevice device(memory, QueueIndex(0), GetParam().features.has(Feature::kRingPacked));
    for (std::uint16_t n = 0; n < 4; ++n) {
      device.set_header(n, 1);
      device.use(device.id(n), 72);
    }
    device.use(0xffff, 72);
    std::array<DriverFrame, kDriverBurstMax> frames{};
    ASSERT_EQ(receiveq.receive(frames), 4U);
    ASSERT_TRUE(receiveq.error());
    EXPECT_EQ(transmitq.forward(receiveq, std::span(frames).first(forwarded)), forwarded);
    for (int i = 0; i < 10; ++i) {  // An application that does not look at error().
      receiveq.repost();
      EXPECT_EQ(receiveq.receive(frames), 0U);
    }
    std::size_t back = 0;
    receiveq.recall([&](std::uint32_t) { ++back; });
    EXPECT_EQ(back, kSize - 4);
    transmitq.recall([](std::uint32_t) {});
    // A second recall changes nothing: another queue may have the list by then.
    memory.start(QueueIndex(0)).own_buffers->stale = true;
    receiveq.recall([](std::uint32_t) { ADD_FAILURE(); });
    EXPECT_TRUE(memory.start(QueueIndex(0)).own_buffers->stale);
    std::set<std::uint32_t> all;
    for (std::uint16_t i = 0; i < 2; ++i) {
      const DriverQueueStart start = memory.start(QueueIndex(i));
      all.insert(start.own_buffers->numbers.begin(), start.own_buffers->numbers.end());
    }
    EXPECT_EQ(all.size(), 2 * kSize) << "a buffer has two owners";
  }
}

TEST_P(H25_MergingDriver, H25_LengthsOfLaterBuffersAreClamped) {
  std::uint16_t n = 0;
  for (const std::uint32_t length : {0U, 11U, 12U, 2369U, ~0U}) {
    device_.set_header(n, 2);
    device_.use(device_.id(n), 2368);
    device_.use(device_.id(static_cast<std::uint16_t>(n + 1)), length);
    n = static_cast<std::uint16_t>(n + 2);
    const auto frames = receive();
    ASSERT_EQ(frames.size(), 2U);
    EXPECT_EQ(frames[0].continues, 1);
    EXPECT_EQ(frames[1].continues, 0);
    EXPECT_EQ(frames[1].length, std::min(length, 2368U));
    expect_life(n++);
  }
}

TEST_P(H25_DriverOfAHostileDevice, NET_09_H25_BufferCountsThatCannotBeAreCountedAndIgnored) {
  std::uint16_t n = 0;
  for (const int num_buffers : {0, 17, 18, 0x8000, 65535}) {
    const std::uint64_t bad = receiveq_.counters().bad_headers.value();
    device_.set_header(n, static_cast<std::uint16_t>(num_buffers));
    device_.use(device_.id(n), 72);
    ++n;
    const auto frames = receive();
    ASSERT_EQ(frames.size(), 1U);
    EXPECT_EQ(frames[0].continues, 0) << num_buffers;
    EXPECT_EQ(receiveq_.counters().bad_headers.value() - bad, mergeable() ? 1U : 0U);
    expect_life(n++);
  }
}

TEST_P(H25_DriverOfAHostileDevice, H25_OneBufferAndTwoUsedEntriesAreTwoPackets) {
  for (std::uint16_t n = 0; n < 2; ++n) {
    device_.set_header(n, 1);
    device_.use(device_.id(n), 72);
  }
  const auto frames = receive();
  ASSERT_EQ(frames.size(), 2U);
  EXPECT_EQ(frames[0].continues, 0);
  EXPECT_EQ(frames[1].continues, 0);
  expect_life(2);
}

TEST_P(H25_MergingDriver, H25_MoreBuffersAnnouncedThanUsedReadNothingUnused) {
  device_.set_header(0, 16);
  device_.use(device_.id(0), 2368);
  device_.use(device_.id(1), 2368);
  auto frames = receive();
  ASSERT_EQ(frames.size(), 2U);
  EXPECT_EQ(frames[1].continues, 14);
  // The rest never comes: what is received next counts as the rest, and then all is well again.
  receiveq_.repost();
  std::uint16_t n = 2;
  for (; n < 16; ++n) device_.use(device_.id(n), 100);
  frames = receive();
  ASSERT_EQ(frames.size(), 14U);
  EXPECT_EQ(frames.back().continues, 0);
  expect_life(n);
}

TEST_P(H25_DriverOfAHostileDevice, H25_ABufferNumberOutOfRangeStopsTheQueue) {
  device_.use(kSize, 72);
  EXPECT_TRUE(receive().empty());
  expect_stopped();
}

TEST_P(H25_DriverOfAHostileDevice, H25_TheLargestBufferNumberStopsTheQueue) {
  device_.use(~0U, 72);
  EXPECT_TRUE(receive().empty());
  expect_stopped();
}

TEST_P(H25_DriverOfAHostileDevice, H25_ABufferUsedTwiceIsGivenOutOnce) {
  device_.set_header(0, 1);
  const std::uint32_t first = device_.id(0);
  device_.use(first, 72);
  device_.use(first, 72);
  std::size_t frames = receive().size();
  EXPECT_EQ(frames, 1U);
  if (!receiveq_.error()) {
    std::array<DriverFrame, 4> more{};
    EXPECT_EQ(receiveq_.receive(more), 0U);
  }
  expect_stopped();
}

TEST_P(H25_SplitDriver, SPL_13_AUsedIndexBeyondWhatWasPostedStopsTheQueue) {
  const std::uint16_t index = kSize + 1;
  std::memcpy(start_.ring.device_area + 2, &index, sizeof index);
  EXPECT_TRUE(receive().empty());
  expect_stopped();
}

const Kind kSplit[] = {
    {{Feature::kVersion1}, "Split"},
    {{Feature::kVersion1, Feature::kInOrder}, "SplitInOrder"},
};
const Kind kPacked[] = {
    {{Feature::kVersion1, Feature::kRingPacked}, "Packed"},
    {{Feature::kVersion1, Feature::kRingPacked, Feature::kInOrder}, "PackedInOrder"},
};
const Kind kMerging[] = {
    {{Feature::kVersion1, Feature::kMrgRxbuf}, "SplitMerging"},
    {{Feature::kVersion1, Feature::kMrgRxbuf, Feature::kInOrder}, "SplitMergingInOrder"},
    {{Feature::kVersion1, Feature::kMrgRxbuf, Feature::kRingPacked}, "PackedMerging"},
    {{Feature::kVersion1, Feature::kMrgRxbuf, Feature::kRingPacked, Feature::kInOrder},
     "PackedMergingInOrder"},
};
std::string name_of_kind(const ::testing::TestParamInfo<Kind>& kind) {
  return kind.param.name;
}

INSTANTIATE_TEST_SUITE_P(Split, H25_DriverOfAHostileDevice, ::testing::ValuesIn(kSplit),
                         name_of_kind);
INSTANTIATE_TEST_SUITE_P(Packed, H25_DriverOfAHostileDevice, ::testing::ValuesIn(kPacked),
                         name_of_kind);
INSTANTIATE_TEST_SUITE_P(Merging, H25_DriverOfAHostileDevice, ::testing::ValuesIn(kMerging),
                         name_of_kind);
INSTANTIATE_TEST_SUITE_P(Merging, H25_MergingDriver, ::testing::ValuesIn(kMerging), name_of_kind);
INSTANTIATE_TEST_SUITE_P(Split, H25_SplitDriver, ::testing::ValuesIn(kSplit), name_of_kind);

}  // namespace
}  // namespace sluice::net
