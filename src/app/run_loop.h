// The life of `sluice run` after its configuration is known: start, serve, stop, report.
#pragma once

#include <string>

#include "control/config.h"

namespace sluice::app {

/// What will be started, for people: ports with their sockets, forwarder, workers.
[[nodiscard]] std::string summary(const control::Config& config);

/// Runs a switch until a signal stops it. Returns the exit code, after messages about failures.
[[nodiscard]] int run_switch(const control::Config& config);

}  // namespace sluice::app
