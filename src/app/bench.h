// `sluice bench`: measures rings, ports and workers between two processes of this machine.
#pragma once

#include <CLI/App.hpp>

#include "app/action.h"

namespace sluice::app {

/// Adds the command `bench` to `app`. Its callback puts what is to be done into `action`, which
/// must live until the command line is parsed.
void add_bench_command(CLI::App& app, Action& action);

}  // namespace sluice::app
