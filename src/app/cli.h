// The command line: all commands, their help, and what becomes of a mistake in it.
#pragma once

namespace sluice::app {

/// Parses the command line and carries it out. Returns an ExitCode as a number.
int run_cli(int argc, const char* const* argv);

}  // namespace sluice::app
