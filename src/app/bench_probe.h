// What a figure means on this machine: pinning, the round trip between two cores, and the clock.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"

namespace sluice::app {

/// Pins the calling thread. Errors: kInvalidArgument if there is no such core for this process.
Status pin_to_core(int core);

/// The cores that the calling thread may use, in order.
[[nodiscard]] std::vector<int> permitted_cores();
/// "0-3,6". Requires: in order.
[[nodiscard]] std::string core_list(std::span<const int> cores);

/// Nanoseconds that a cache line takes from one core to the other and back: mean of some thousand
/// hand-overs between two threads pinned there. Takes about 20 ms. Requires two
/// different idle cores. Errors: those of pin_to_core(); kTimeout after some seconds.
[[nodiscard]] Result<double> round_trip_ns(int core_a, int core_b);

/// Ticks of the time-stamp counter a nanosecond, measured once. 0 where there is none.
[[nodiscard]] double ticks_per_ns();

}  // namespace sluice::app
