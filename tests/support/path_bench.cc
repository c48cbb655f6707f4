// TransmitBench, ReceiveBench.
#include "support/path_bench.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "support/fake_guest.h"

namespace sluice::test {

namespace {

virtio::FeatureSet negotiated(PathKind kind, const virtio::FeatureSet& more) {
  virtio::FeatureSet features = more;
  if (kind.packed) features.add(virtio::Feature::kRingPacked);
  if (kind.in_order) features.add(virtio::Feature::kInOrder);
  return features;
}

}  // namespace

PathBench::PathBench(PathKind kind, const virtio::FeatureSet& more, std::uint32_t size)
    : features(negotiated(kind, more)), pool_(guest.allocate(kPool)) {
  const DriverOptions options{.size = size,
                              .event_idx = features.has(virtio::Feature::kEventIdx),
                              .in_order = kind.in_order};
  if (kind.packed) {
    driver = std::make_unique<RawPackedDriver>(guest, options);
  } else {
    driver = std::make_unique<RawSplitDriver>(guest, options);
  }
}

std::uint64_t PathBench::all_drops() const {
  return std::accumulate(
      counters.drops.begin(), counters.drops.end(), std::uint64_t{0},
      [](std::uint64_t sum, const Counter& counter) { return sum + counter.value(); });
}

std::uint64_t PathBench::buffer(std::uint32_t length) {
  if (pool_used_ + length > kPool) pool_used_ = 0;
  const std::uint64_t address = pool_ + pool_used_;
  pool_used_ += length;
  return address;
}

net::QueueStart PathBench::start() const {
  net::QueueStart start;
  start.ring = driver->config();
  start.features = features;
  start.memory = guest.shared_memory();
  start.call = call;
  return start;
}

TransmitBench::TransmitBench(PathKind kind, const virtio::FeatureSet& more, std::uint32_t size,
                             const net::QueueOptions& options)
    : PathBench(kind, more | virtio::FeatureSet{virtio::Feature::kVersion1}, size),
      path(net::TransmitPath::make(start(), options, counters)) {}

std::vector<Piece> TransmitBench::pieces_of(std::span<const std::byte> bytes,
                                            std::span<const std::size_t> cuts) {
  std::vector<Piece> pieces;
  std::size_t from = 0;
  const auto add = [&](std::size_t to) {
    const auto length = static_cast<std::uint32_t>(to - from);
    const std::uint64_t address = buffer(length + 1) + 1;  // Never adjacent to the last one.
    guest.put(address, bytes.subspan(from, length));
    pieces.push_back({address, length});
    from = to;
  };
  for (const std::size_t cut : cuts) add(cut);
  add(bytes.size());
  return pieces;
}

std::optional<std::uint16_t> TransmitBench::send(std::span<const std::byte> bytes,
                                                 std::span<const std::size_t> cuts, Shape shape) {
  return driver->post(pieces_of(bytes, cuts), shape);
}

std::vector<OffloadedFrame> TransmitBench::take(std::size_t max) {
  std::vector<OffloadedFrame> frames;
  const std::size_t count = path.take(*burst, max);
  EXPECT_EQ(count, burst->count);
  for (std::size_t i = 0; i < count; ++i) {
    const packet::Packet& packet = burst->packets[i];
    Bytes bytes(packet.length);
    packet::copy_frame(*burst, packet, 0, bytes);
    frames.push_back({std::move(bytes), packet.offload});
  }
  return frames;
}

std::vector<OffloadedFrame> TransmitBench::pass() {
  auto frames = take();
  path.release();
  return frames;
}

Bytes with_header(const packet::Offload& offload, std::span<const std::byte> frame,
                  std::size_t size) {
  Bytes bytes(size);
  std::memcpy(bytes.data(), &offload, sizeof offload);
  bytes.insert(bytes.end(), frame.begin(), frame.end());
  return bytes;
}

Bytes plain_frame(std::size_t size, std::uint32_t seed) {
  return pattern(size, seed);
}

ReceiveBench::ReceiveBench(PathKind kind, const virtio::FeatureSet& more, std::uint32_t size,
                           const net::QueueOptions& options)
    : PathBench(kind, more | virtio::FeatureSet{virtio::Feature::kVersion1}, size),
      path(net::ReceivePath::make(start(), options, counters)) {}

std::optional<std::uint16_t> ReceiveBench::post(std::span<const std::uint32_t> lengths,
                                                Shape shape) {
  std::vector<Piece> pieces;
  for (const std::uint32_t length : lengths) {
    const std::uint64_t address = buffer(length + 1) + 1;
    guest.fill(address, length, 0xEE);
    pieces.push_back({address, length, true});
  }
  const auto id = driver->post(pieces, shape);
  if (id) posted_[*id] = pieces;
  return id;
}

std::size_t ReceiveBench::deliver(std::span<const OffloadedFrame> frames, std::size_t parts) {
  burst_->clear();
  std::vector<packet::PacketIndex> which;
  for (const OffloadedFrame& frame : frames) {
    packet::Packet& packet = burst_->packets[burst_->count];
    const auto length = static_cast<std::uint32_t>(frame.bytes.size());
    const auto part = static_cast<std::uint32_t>((length + parts - 1) / parts);
    packet.data = frame.bytes.data();
    packet.length = length;
    packet.first_length = std::min(part, length);
    packet.more_first = static_cast<std::uint16_t>(burst_->more_count);
    packet.more_count = 0;
    for (std::uint32_t at = packet.first_length; at < length; at += part) {
      burst_->more[burst_->more_count++] = {frame.bytes.data() + at, std::min(part, length - at)};
      ++packet.more_count;
    }
    packet.offload = frame.offload;
    packet.head = {};
    std::memcpy(packet.head.data(), frame.bytes.data(),
                std::min<std::size_t>(packet::kHeadSize, length));
    which.push_back(static_cast<packet::PacketIndex>(burst_->count++));
  }
  return path.deliver(*burst_, which);
}

std::vector<ReceiveBench::Received> ReceiveBench::received() {
  std::vector<Received> all;
  for (const Returned& returned : driver->reap()) {
    Received one{returned.id, returned.length, {}};
    for (const Piece& piece : posted_[returned.id]) {
      const Bytes part = guest.get(piece.address, piece.length);
      one.bytes.insert(one.bytes.end(), part.begin(), part.end());
    }
    EXPECT_LE(one.length, one.bytes.size()) << "more written than posted";
    all.push_back(std::move(one));
  }
  EXPECT_EQ(driver->complaint(), "");
  return all;
}

std::vector<Bytes> ReceiveBench::packets() {
  std::vector<Bytes> packets;
  std::uint16_t left = 0;
  for (const Received& one : received()) {
    if (left == 0) {
      EXPECT_GE(one.length, 12U);
      std::memcpy(&left, one.bytes.data() + 10, sizeof left);
      EXPECT_GE(left, 1);
      packets.emplace_back();
    }
    if (left > 0) --left;
    packets.back().insert(packets.back().end(), one.bytes.begin(),
                          one.bytes.begin() + static_cast<std::ptrdiff_t>(one.length));
  }
  EXPECT_EQ(left, 0) << "num_buffers says more buffers than were used";
  return packets;
}

}  // namespace sluice::test
