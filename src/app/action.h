// Action: what the parsed command line asks for. Parsing only chooses it; main() carries it out.
//
// So a command never runs inside the parser, and no exception of the parser's crosses its code.
#pragma once

#include <functional>

namespace sluice::app {

/// What every command ends with (sluice(1), EXIT STATUS).
enum class ExitCode : int {
  kOk = 0,
  kFailure = 1,   // Something failed while running.
  kUsage = 2,     // The command line or the configuration is wrong.
  kNoDaemon = 3,  // Nobody answers at the control socket.
};

/// Returns an ExitCode as a number.
using Action = std::function<int()>;

}  // namespace sluice::app
