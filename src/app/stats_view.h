// Counters as tables: the same for `sluice stats`, for `sluice run` at its end, and for rates.
#pragma once

#include <string>

#include "control/views.h"

namespace sluice::app {

/// From the reply to the request `stats`: packets and bytes of each port and direction, then the
/// causes of drops that are not zero. Reads any JSON without failing.
[[nodiscard]] std::string totals_text(const control::Json& reply);

/// What came in against what became of it, in two lines: every packet taken is forwarded or
/// dropped for a cause, and every offer of a forwarded packet is delivered or dropped. True only
/// while nothing moves.
[[nodiscard]] std::string balance_text(const control::Json& reply);

/// Packets and bits per second of each port between two replies. Counters that went back (the
/// process was restarted) count as zero.
[[nodiscard]] std::string rates_text(const control::Json& before, const control::Json& now);

}  // namespace sluice::app
