// Fuzz target: the transmit path of a device: frames, headers and chains of a hostile driver.
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
#include "support/fuzz_input.h"
#include "support/raw_driver.h"

namespace {

using namespace sluice;
using namespace sluice::test;
using virtio::Feature;

// Bits of the input's first word choose what was negotiated.
virtio::FeatureSet draw_features(FuzzInput& in) {
  constexpr Feature kChoices[] = {Feature::kRingPacked,   Feature::kInOrder,   Feature::kEventIdx,
                                  Feature::kIndirectDesc, Feature::kMrgRxbuf,  Feature::kCsum,
                                  Feature::kHostTso4,     Feature::kHostTso6,  Feature::kHostUso,
                                  Feature::kHostEcn,      Feature::kHashReport};
  const auto bits = in.take<std::uint16_t>();
  virtio::FeatureSet features{Feature::kVersion1};
  for (std::size_t i = 0; i < std::size(kChoices); ++i) {
    if ((bits >> i & 1) != 0) features.add(kChoices[i]);
  }
  return features;
}

std::unique_ptr<RawDriver> make_driver(FakeGuest& guest, const virtio::FeatureSet& features,
                                       FuzzInput& in) {
  const bool packed = features.has(Feature::kRingPacked);
  const DriverOptions options{.size = packed ? 1 + in.below(20) : 1U << in.below(5),
                              .event_idx = features.has(Feature::kEventIdx),
                              .in_order = features.has(Feature::kInOrder),
                              .table_entries = 8};
  if (packed) return std::make_unique<RawPackedDriver>(guest, options);
  return std::make_unique<RawSplitDriver>(guest, options);
}

class TransmitFuzz {
 public:
  TransmitFuzz(FuzzInput& in, bool flip)
      : in_(in),
        guest_(FuzzGuest::fresh()),
        features_(draw_features(in)),
        driver_(make_driver(guest_, features_, in)),
        path_(make_path()) {
    if (flip) flipper_.emplace(guest_, in.take<std::uint8_t>(), 2 * FuzzGuest::kPage);
  }

  void run() {
    while (!in_.empty()) {
      switch (in_.below(5)) {
        case 0:
        case 1: post(); break;
        case 2: scribble(); break;
        case 3: path_.set_kicks(in_.chance(2)); break;
        default: pass();
      }
    }
    pass();
  }

 private:
  net::TransmitPath make_path() {
    net::QueueStart start;
    start.ring = driver_->config();
    start.features = features_;
    start.memory = guest_.shared_memory();
    return net::TransmitPath::make(start, {.one_used_entry = in_.chance(2)}, counters_);
  }

  void post() {
    std::vector<Piece> pieces(1 + in_.below(6));
    for (Piece& piece : pieces) {
      piece = {FuzzGuest::address(in_), FuzzGuest::length(in_), in_.chance(16)};
      if (in_.chance(2)) piece.address = FuzzGuest::kSecond + in_.take<std::uint8_t>();
    }
    driver_->post(pieces, in_.chance(4) ? Shape::kTable : Shape::kChained);
  }

  // Bytes where frames lie: headers come from here.
  void scribble() {
    const auto bytes = in_.bytes(1 + in_.below(40));
    const std::uint64_t at = FuzzGuest::kSecond + in_.take<std::uint8_t>();
    guest_.put(at, std::as_bytes(bytes));
  }

  void pass() {
    const std::uint64_t taken = counters_.packets.value();
    const std::uint64_t dropped = drops();
    const std::size_t count = path_.take(*burst_, 1 + in_.below(packet::kBurstMax));
    require(count == burst_->count && count <= packet::kBurstMax);
    require(counters_.packets.value() - taken == count + drops() - dropped);
    for (std::size_t i = 0; i < count; ++i) check(burst_->packets[i]);
    path_.release();
    driver_->reap();
  }

  void check(const packet::Packet& packet) {
    require(packet.length >= packet::kEthernetHeaderSize && packet.length <= packet::kFrameMax);
    require(inside(packet.data, packet.first_length));
    std::uint64_t sum = packet.first_length;
    for (const packet::Segment& segment : burst_->more_of(packet)) {
      require(inside(segment.data, segment.length));
      sum += segment.length;
    }
    require(sum == packet.length);
    require((packet.offload.flags & ~1) == 0);
    require(packet::offload_is_consistent(packet.offload, packet.length));
    require(packet.offload.none() || features_.has(Feature::kCsum));
    std::vector<std::byte> frame(packet.length);
    packet::copy_frame(*burst_, packet, 0, frame);
  }
  [[nodiscard]] bool inside(const std::byte* data, std::uint32_t length) const {
    return FuzzGuest::contains(guest_, {const_cast<std::byte*>(data), length});
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
  net::TransmitPath path_;
  std::unique_ptr<packet::Burst> burst_ = std::make_unique<packet::Burst>();
  std::optional<Flipper> flipper_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  FuzzInput in(data, size);
  const bool flip = in.take<std::uint8_t>() % 16 == 15;
  TransmitFuzz(in, flip).run();
  return 0;
}
