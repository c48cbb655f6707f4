// Config: everything `sluice run` can be told, whether by flags or by a file.
#pragma once

#include <chrono>
#include <string>

#include "control/problem.h"
#include "switch/options.h"

namespace sluice::control {

struct Config {
  fabric::SwitchOptions fabric;
  std::string control;                     // Control socket; empty: default_control_path().
  std::chrono::seconds stats_interval{0};  // Between lines of counters on stderr; 0: none.
};

/// The name a port goes by: the one given, else the socket's file name without ".sock".
[[nodiscard]] std::string effective_name(const fabric::VhostUserOptions& port);
[[nodiscard]] std::string effective_name(const fabric::VirtioUserOptions& port);

/// Checks what no single key can tell: names, paths and pairs against each other. `where` of a
/// problem is the key's place in the file form, such as "vhost_user[1].name".
[[nodiscard]] Problems check(const Config& config);

}  // namespace sluice::control
