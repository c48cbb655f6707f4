// `sluice bench pair` and `forward`: device and driver in two processes that meet over vhost-user
// sockets.
#pragma once

#include <chrono>
#include <vector>

#include "app/bench_case.h"
#include "base/error.h"

namespace sluice::app {

struct PairOptions {
  std::vector<BenchCase> cases;
  std::chrono::milliseconds window{1000};
  int device_core = 0;
  int driver_core = 1;
  bool json = false;
};

/// Measures one case: round trip, start, warm-up, window, stop, round trip.
[[nodiscard]] Result<BenchRow> measure_pair(const BenchCase& what, const PairOptions& options);

/// Measures all and prints a table as it goes, or one JSON document. Returns an ExitCode.
int run_pair(const PairOptions& options);

}  // namespace sluice::app
