// What a figure means on this machine: pinning, the round trip between two cores, and the clock.
#pragma once

#include <cstdint>

#include "base/error.h"

namespace sluice::app {

/// Pins the calling thread. Errors: kInvalidArgument if there is no such core for this process.
Status pin_to_core(int core);

/// Nanoseconds that a cache line takes from one core to the other and back: mean of some thousand
/// hand-overs between two threads pinned there. Takes about 20 ms. Requires idle cores.
[[nodiscard]] Result<double> round_trip_ns(int core_a, int core_b);

/// Ticks of the time-stamp counter a nanosecond, measured once. 0 where there is none.
[[nodiscard]] double ticks_per_ns();

}  // namespace sluice::app
