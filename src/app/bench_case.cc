// Names and JSON of measurements.
#include "app/bench_case.h"

#include <numeric>

#include "switch/options.h"

namespace sluice::app {

namespace {

// Between the near state (about 80 ns) and the far one (from 240 ns) no round trip was ever seen on
// the machines this was written on; the middle is taken.
constexpr double kNearBelowNs = 160;

}  // namespace

std::string_view name_of(Direction direction) {
  switch (direction) {
    case Direction::kToDriver: return "to-driver";
    case Direction::kFromDriver: return "from-driver";
    case Direction::kLoopback: return "loopback";
    case Direction::kBoth: return "both";
    case Direction::kForward: return "forward";
  }
  return "";
}

virtio::FeatureSet BenchCase::features() const {
  using virtio::Feature;
  virtio::FeatureSet set{Feature::kVersion1};
  if (packed) set.add(Feature::kRingPacked);
  if (in_order) set.add(Feature::kInOrder);
  if (mergeable) set.add(Feature::kMrgRxbuf);
  return set;
}

double BenchCase::mean_size() const {
  if (!imix) return size;
  const auto& sizes = fabric::kImixSizes;
  return std::accumulate(sizes.begin(), sizes.end(), 0.0) / static_cast<double>(sizes.size());
}

std::string BenchCase::size_text() const {
  return imix ? "imix" : std::to_string(size);
}

std::string_view RoundTrip::state() const {
  const bool near_before = before_ns < kNearBelowNs;
  const bool near_after = after_ns < kNearBelowNs;
  if (near_before != near_after) return "mixed";
  return near_before ? "near" : "far";
}

control::Json BenchRow::json() const {
  return control::Json{
      {"case", name_of(what.direction)},
      {"ring", what.packed ? "packed" : "split"},
      {"order", what.in_order ? "in-order" : "any"},
      {"mrg", what.mergeable ? "on" : "off"},
      {"queues", what.queues},
      {"queue_size", what.queue_size},
      {"size", what.imix ? control::Json(what.mean_size()) : control::Json(what.size)},
      {"sizes", what.size_text()},
      {"touch", what.touch ? "full" : "header"},
      {"mpps", mpps},
      {"gbits", gbits()},
      {"ns", nanoseconds()},
      {"cycles", cycles},
      {"rtt_ns", round_trip.mean_ns()},
      {"rtt_before_ns", round_trip.before_ns},
      {"rtt_after_ns", round_trip.after_ns},
      {"state", round_trip.state()},
      {"device_path", device_path},
      {"driver_path", driver_path}};
}

}  // namespace sluice::app
