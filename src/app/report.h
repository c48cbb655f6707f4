// Messages to the person: what failed, why, and what to try. The only form of an error message.
#pragma once

#include <string>
#include <string_view>

#include "app/action.h"
#include "base/error.h"
#include "control/problem.h"

namespace sluice::app {

/// Prints "sluice: cannot WHAT: CAUSE" and, if there is a cure, "  try: CURE" to stderr. Returns
/// `code` as main() returns it.
int report(ExitCode code, std::string_view what, std::string_view cause, std::string_view cure);

/// The same for each problem of a configuration.
int report(std::string_view what, const control::Problems& problems);

/// An Error in words: its text, and what its number says.
[[nodiscard]] std::string describe(const Error& error);

/// One line to stderr, with the time: for what happens while `sluice run` runs.
void log_event(std::string_view text);

/// Everything to stdout. False (after a message) if it cannot be written.
bool print(std::string_view text);

}  // namespace sluice::app
