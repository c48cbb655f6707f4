// Requests at the control socket: one JSON object in, one out (docs/control.md).
//
//   {"request": "stats", "port": "vm0"}  ->  {"stats": [...], "time_ns": ...}
//   anything that is wrong               ->  {"error": {"code": ..., "text": ..., "try": ...}}
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "control/views.h"

namespace sluice::control {

/// The reply, one line without newline, to one line from a client. Never fails: what cannot be
/// answered is answered by an error. This is for questions: see control/orders.h for the others.
[[nodiscard]] std::string answer_request(std::string_view line, const Views& views);

/// The reply to a line that is too long to be looked at.
[[nodiscard]] std::string too_long_reply();

/// Names of all requests, in the order of the documentation.
[[nodiscard]] std::vector<std::string_view> request_names();

/// The request that resets a queue (control/orders.h).
inline constexpr std::string_view kResetQueue = "reset_queue";

/// A reply that says what is wrong and what to try.
[[nodiscard]] Json error_json(std::string_view code, std::string_view text, std::string_view cure);
/// That none of `ports` has this name.
[[nodiscard]] Json unknown_port(const std::vector<fabric::PortView>& ports,
                                const std::string& name);

/// The line for a request, with a port's name unless `port` is empty.
[[nodiscard]] std::string request_line(std::string_view name, std::string_view port);

}  // namespace sluice::control
