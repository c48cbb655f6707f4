// BenchCase: what one measurement of `sluice bench` is about; and its result.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "control/views.h"
#include "virtio/features.h"

namespace sluice::app {

/// kForward: from one driver through the switch to another.
enum class Direction : std::uint8_t { kToDriver, kFromDriver, kLoopback, kBoth, kForward };

[[nodiscard]] std::string_view name_of(Direction direction);

struct BenchCase {
  bool packed = false;
  bool in_order = false;
  bool mergeable = true;
  Direction direction = Direction::kToDriver;
  std::uint16_t queues = 1;
  std::uint32_t queue_size = 256;  // As testpmd's default.
  std::uint32_t size = 64;         // Frame bytes.
  bool imix = false;               // Sizes of fabric::kImixSizes by turns instead.
  bool touch = false;              // The receiver reads all of each frame, not headers only.
  bool one_used_entry = false;

  /// Bytes of a frame, on the average.
  [[nodiscard]] double mean_size() const;
  /// "imix", or the number.
  [[nodiscard]] std::string size_text() const;
  /// The ring features that make a driver and a device meet on exactly this path.
  [[nodiscard]] virtio::FeatureSet features() const;
};

/// Round trip of a cache line between the two cores, which says how far apart they are.
struct RoundTrip {
  double before_ns = 0;
  double after_ns = 0;
  /// "near", "far", or "mixed" if the two differ in that.
  [[nodiscard]] std::string_view state() const;
  [[nodiscard]] double mean_ns() const { return (before_ns + after_ns) / 2; }
};

struct BenchRow {
  BenchCase what;
  double mpps = 0;  // At the receiver; in loopback laps (one hop each way) a second.
  RoundTrip round_trip;
  double cycles = 0;  // TSC cycles a packet.
  std::string device_path;
  std::string driver_path;

  [[nodiscard]] double gbits() const { return mpps * what.mean_size() * 8 / 1e3; }
  [[nodiscard]] double nanoseconds() const { return mpps > 0 ? 1e3 / mpps : 0; }
  [[nodiscard]] control::Json json() const;
};

}  // namespace sluice::app
