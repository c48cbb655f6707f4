// Fuzz target: the receive path of a device: frames and marks of any sender into buffers that a
// hostile driver posted. Without the flipper, no byte may change that was not posted as writable.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "fuzz/device_ring_fuzz.h"
#include "net/path.h"
#include "packet/offload.h"
#include "packet/packet.h"
#include "support/frame_builder.h"
#include "support/fuzz_input.h"
#include "support/raw_driver.h"

namespace {

using namespace sluice;
using namespace sluice::test;
using virtio::Feature;

constexpr std::uint64_t kBuffers = FuzzGuest::kFirst + 2 * FuzzGuest::kPage;  // Behind the rings.
constexpr std::uint64_t kBuffersSize = 2 * FuzzGuest::kPage;  // On both sides of a border.

virtio::FeatureSet draw_features(FuzzInput& in) {
  constexpr Feature kChoices[] = {
      Feature::kRingPacked, Feature::kInOrder,   Feature::kEventIdx,  Feature::kIndirectDesc,
      Feature::kMrgRxbuf,   Feature::kGuestCsum, Feature::kGuestTso4, Feature::kGuestTso6,
      Feature::kGuestUso4,  Feature::kGuestUso6, Feature::kGuestEcn,  Feature::kHashReport};
  const auto bits = in.take<std::uint16_t>();
  virtio::FeatureSet features{Feature::kVersion1};
  for (std::size_t i = 0; i < std::size(kChoices); ++i) {
    if ((bits >> i & 1) != 0) features.add(kChoices[i]);
  }
  return features;
}

class ReceiveFuzz {
 public:
  ReceiveFuzz(FuzzInput& in, bool flip)
      : in_(in),
        guest_(FuzzGuest::fresh()),
        features_(draw_features(in)),
        driver_(make_driver()),
        path_(make_path()),
        writable_(kBuffersSize, false) {
    guest_.fill(kBuffers, FuzzGuest::kPage, 0xEE);
    guest_.fill(FuzzGuest::kSecond, FuzzGuest::kPage, 0xEE);
    if (flip) flipper_.emplace(guest_, in.take<std::uint8_t>(), FuzzGuest::kPage);
  }

  void run() {
    while (!in_.empty()) {
      switch (in_.below(4)) {
        case 0:
        case 1: post(); break;
        case 2: path_.set_kicks(in_.chance(2)); break;
        default: deliver();
      }
    }
    deliver();
    if (!flipper_) check_bytes();
  }

 private:
  std::unique_ptr<RawDriver> make_driver() {
    const bool packed = features_.has(Feature::kRingPacked);
    const DriverOptions options{.size = packed ? 1 + in_.below(30) : 1U << in_.below(5),
                                .event_idx = features_.has(Feature::kEventIdx),
                                .in_order = features_.has(Feature::kInOrder)};
    if (packed) return std::make_unique<RawPackedDriver>(guest_, options);
    return std::make_unique<RawSplitDriver>(guest_, options);
  }
  net::ReceivePath make_path() {
    net::QueueStart start;
    start.ring = driver_->config();
    start.features = features_;
    start.memory = guest_.shared_memory();
    const auto mtu = static_cast<std::uint16_t>(in_.chance(2) ? 65535 : 68 + in_.below(200));
    return net::ReceivePath::make(start, {.mtu = mtu}, counters_);
  }

  void post() {
    std::vector<Piece> pieces(1 + in_.below(5));
    bool writable = in_.chance(2);
    for (Piece& piece : pieces) {
      const std::uint64_t offset = in_.take<std::uint16_t>() % kBuffersSize;
      const auto room = static_cast<std::uint32_t>(kBuffersSize - offset);
      piece = {kBuffers + offset, std::min(FuzzGuest::length(in_), room), writable};
      writable = writable || in_.chance(2);
      if (in_.chance(32)) piece.address = FuzzGuest::address(in_);
    }
    // Tables lie behind the ring, in its pages; those are few.
    const auto id = driver_->post(pieces);
    if (!id) return;
    for (const Piece& piece : pieces) mark(piece);
  }
  void mark(const Piece& piece) {
    if (!piece.writable) return;
    for (std::uint64_t i = 0; i < piece.length; ++i) {
      const std::uint64_t offset = piece.address + i - kBuffers;
      if (offset < kBuffersSize) writable_[offset] = true;
    }
  }

  // Frames with and without marks, in up to three pieces of the sender's memory.
  void deliver() {
    burst_->clear();
    const std::uint32_t count = 1 + in_.below(8);
    std::vector<OffloadedFrame> frames(count);
    std::vector<packet::PacketIndex> which;
    for (OffloadedFrame& frame : frames) {
      frame = draw_frame();
      add(frame);
      which.push_back(static_cast<packet::PacketIndex>(burst_->count - 1));
    }
    const std::uint64_t before = counters_.packets.value() + drops();
    const std::size_t delivered = path_.deliver(*burst_, which);
    require(delivered <= which.size());
    require(counters_.packets.value() + drops() - before == which.size());
    driver_->reap();
  }

  OffloadedFrame draw_frame() {
    if (in_.chance(2)) {
      return {std::vector<std::byte>(14 + in_.take<std::uint16_t>() % 3000, std::byte{0x55}), {}};
    }
    const auto kind = in_.take<std::uint8_t>();
    const FramePlan plan{.vlan_tags = kind & 1U,
                         .ipv6 = (kind & 2) != 0,
                         .udp = (kind & 4) != 0,
                         .payload = in_.take<std::uint16_t>() % 4000U};
    const bool segments = (kind & 8) != 0;
    const auto size =
        static_cast<std::uint16_t>(segments ? 1 + in_.take<std::uint16_t>() % 2000 : 0);
    OffloadedFrame frame = build_offloaded(plan, size);
    if ((kind & 0x30) == 0) {  // Other marks, as far as a sender's port lets them through.
      const auto other = in_.take<packet::Offload>();
      packet::Offload marks = other;
      marks.flags &= 1;
      if (packet::offload_is_consistent(marks, static_cast<std::uint32_t>(frame.bytes.size()))) {
        frame.offload = marks;
      }
    }
    return frame;
  }

  void add(const OffloadedFrame& frame) {
    packet::Packet& packet = burst_->packets[burst_->count++];
    const auto length = static_cast<std::uint32_t>(frame.bytes.size());
    packet.data = frame.bytes.data();
    packet.length = length;
    packet.first_length = 1 + in_.take<std::uint16_t>() % length;
    packet.more_first = static_cast<std::uint16_t>(burst_->more_count);
    packet.more_count = 0;
    for (std::uint32_t at = packet.first_length; at < length;) {
      const std::uint32_t part = packet.more_count == 0 ? (length - at + 1) / 2 : length - at;
      burst_->more[burst_->more_count++] = {frame.bytes.data() + at, part};
      ++packet.more_count;
      at += part;
    }
    packet.offload = frame.offload;
    packet.head = {};
    std::copy_n(frame.bytes.begin(), std::min<std::size_t>(packet::kHeadSize, length),
                packet.head.begin());
  }

  void check_bytes() const {
    for (std::uint64_t i = 0; i < kBuffersSize; ++i) {
      require(writable_[i] || *guest_.at(kBuffers + i) == std::byte{0xEE});
    }
  }
  [[nodiscard]] std::uint64_t drops() const {
    std::uint64_t sum = 0;
    for (const Counter& counter : counters_.drops) sum += counter.value();
    return sum;
  }

  FuzzInput& in_;
  FakeGuest& guest_;
  virtio::FeatureSet features_;
  std::unique_ptr<RawDriver> driver_;
  net::DirectionCounters counters_;
  net::ReceivePath path_;
  std::vector<bool> writable_;
  std::unique_ptr<packet::Burst> burst_ = std::make_unique<packet::Burst>();
  std::optional<Flipper> flipper_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  FuzzInput in(data, size);
  const bool flip = in.take<std::uint8_t>() % 16 == 15;
  ReceiveFuzz(in, flip).run();
  return 0;
}
