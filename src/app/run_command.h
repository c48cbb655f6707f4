// `sluice run`: starts a switch from a file, from flags, or from both.
#pragma once

#include <CLI/App.hpp>
#include <expected>
#include <string>
#include <utility>
#include <vector>

#include "app/action.h"
#include "control/config.h"
#include "control/problem.h"

namespace sluice::app {

/// The command line of `sluice run`, as texts.
struct RunFlags {
  std::string file;
  std::vector<std::string> vhost_user;
  std::vector<std::string> virtio_user;
  std::vector<std::string> generators;
  std::vector<std::string> sinks;
  std::vector<std::string> patches;
  /// Of the simple flags: number of the row in control::config_keys(), and text.
  std::vector<std::pair<std::size_t, std::string>> simple;
  bool check = false;
  bool print_config = false;
};

/// The configuration that the file and the flags make together: flags add ports and pairs to
/// those of the file, and replace its single values. Checked as a whole.
[[nodiscard]] std::expected<control::Config, control::Problems> make_config(const RunFlags& flags);

void add_run_command(CLI::App& app, Action& action);

}  // namespace sluice::app
