// TransmitBench, ReceiveBench: the packet paths of a device opposite a driver that writes the
// bytes.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "net/drop.h"
#include "net/path.h"
#include "net/transport.h"
#include "packet/packet.h"
#include "support/counting_notifier.h"
#include "support/fake_guest.h"
#include "support/frame_builder.h"
#include "support/raw_driver.h"

namespace sluice::test {

/// Which of the four rings.
struct PathKind {
  bool packed = false;
  bool in_order = false;
};
inline constexpr PathKind kAllPathKinds[] = {{}, {false, true}, {true, false}, {true, true}};
[[nodiscard]] inline std::string kind_name(const testing::TestParamInfo<PathKind>& kind) {
  return std::string(kind.param.packed ? "Packed" : "Split") +
         (kind.param.in_order ? "InOrder" : "");
}

/// What both directions need: guest, driver, counters, and the record that starts a path.
class PathBench {
 public:
  PathBench(PathKind kind, const virtio::FeatureSet& more, std::uint32_t size);

  [[nodiscard]] std::uint64_t drops(net::DropCause cause) const {
    return counters.drops[static_cast<std::size_t>(cause)].value();
  }
  [[nodiscard]] std::uint64_t all_drops() const;
  /// Guest memory that nobody else uses until `kPool` bytes more were asked for.
  std::uint64_t buffer(std::uint32_t length);
  [[nodiscard]] net::QueueStart start() const;

  virtio::FeatureSet features;
  FakeGuest guest;
  std::unique_ptr<RawDriver> driver;
  net::DirectionCounters counters;
  std::shared_ptr<CountingNotifier> call = std::make_shared<CountingNotifier>();

 private:
  static constexpr std::uint64_t kPool = 3U << 20;
  std::uint64_t pool_;
  std::uint64_t pool_used_ = 0;
};

class TransmitBench : public PathBench {
 public:
  explicit TransmitBench(PathKind kind = {}, const virtio::FeatureSet& more = {},
                         std::uint32_t size = 256, const net::QueueOptions& options = {});

  /// Puts `bytes` (header and frame) into guest memory, cut at `cuts`, one piece a descriptor.
  std::vector<Piece> pieces_of(std::span<const std::byte> bytes,
                               std::span<const std::size_t> cuts = {});
  /// The driver transmits one chain.
  std::optional<std::uint16_t> send(std::span<const std::byte> bytes,
                                    std::span<const std::size_t> cuts = {},
                                    Shape shape = Shape::kChained);
  /// Takes a burst and copies its frames out.
  std::vector<OffloadedFrame> take(std::size_t max = packet::kBurstMax);
  /// Takes, copies, gives back.
  std::vector<OffloadedFrame> pass();

  net::TransmitPath path;
  std::unique_ptr<packet::Burst> burst = std::make_unique<packet::Burst>();
};

/// A header of `size` bytes followed by the frame.
[[nodiscard]] Bytes with_header(const packet::Offload& offload, std::span<const std::byte> frame,
                                std::size_t size = 12);
/// A frame without meaning of `size` bytes, different for each seed.
[[nodiscard]] Bytes plain_frame(std::size_t size, std::uint32_t seed = 1);

class ReceiveBench : public PathBench {
 public:
  /// A buffer that came back: all bytes the device says it wrote, and all that was posted.
  struct Received {
    std::uint16_t id;
    std::uint32_t length;
    Bytes bytes;
  };
  explicit ReceiveBench(PathKind kind = {}, const virtio::FeatureSet& more = {},
                        std::uint32_t size = 256, const net::QueueOptions& options = {});

  /// Posts one buffer of writable pieces, filled with 0xEE.
  std::optional<std::uint16_t> post(std::span<const std::uint32_t> lengths,
                                    Shape shape = Shape::kChained);
  std::optional<std::uint16_t> post(std::initializer_list<std::uint32_t> lengths) {
    return post(std::span(lengths.begin(), lengths.size()));
  }
  /// Delivers frames in one burst; each lies in `parts` pieces in the sender's memory.
  std::size_t deliver(std::span<const OffloadedFrame> frames, std::size_t parts = 1);
  std::size_t deliver(const Bytes& frame) {
    const OffloadedFrame one{frame, {}};
    return deliver(std::span(&one, 1));
  }
  /// Buffers used since the last call.
  std::vector<Received> received();
  /// The same, joined to packets by num_buffers; each is header (12 bytes) and frame.
  std::vector<Bytes> packets();

  net::ReceivePath path;

 private:
  std::map<std::uint16_t, std::vector<Piece>> posted_;
  std::unique_ptr<packet::Burst> burst_ = std::make_unique<packet::Burst>();
};

}  // namespace sluice::test
