// `sluice bench latency`: how long a frame takes from a driver through the switch and back, under
// several loads, and when it finds everybody asleep.
#pragma once

#include <vector>

#include "app/bench_pair.h"

namespace sluice::app {

struct LatencyOptions {
  PairOptions pair;                       // One case for each kind of ring.
  std::vector<int> loads = {10, 50, 90};  // Per cent of the rate that the ring sustains.
};

/// Measures all and prints a table as it goes, or one JSON document. Returns an ExitCode.
int run_latency(const LatencyOptions& options);

}  // namespace sluice::app
