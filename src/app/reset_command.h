// The command `queue reset`.
#pragma once

#include <CLI/App.hpp>

#include "app/action.h"

namespace sluice::app {

/// Requires: the command `queue` is there.
void add_reset_command(CLI::App& app, Action& action);

}  // namespace sluice::app
