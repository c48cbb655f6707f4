// `sluice stats`: counters of a running switch, once or again and again.
#pragma once

#include <CLI/App.hpp>

#include "app/action.h"

namespace sluice::app {

void add_stats_command(CLI::App& app, Action& action);

}  // namespace sluice::app
