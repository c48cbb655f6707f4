// What the commands of `sluice bench` have in common on their command lines, and what becomes of
// it.
#pragma once

#include <CLI/App.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/bench_case.h"
#include "control/problem.h"

namespace sluice::app {

/// What the options of a command leave open is measured in every form.
struct BenchChoice {
  std::vector<std::string> rings = {"split", "packed"};
  std::vector<std::string> orders = {"any", "in-order"};
  std::string mrg = "on";
  std::vector<std::string> directions = {"to-driver", "from-driver", "loopback"};
  BenchCase base;
  double seconds = 1;
  std::string socket;
  int core = -1;
  bool sleepy = false;
  bool json = false;
  std::vector<int> cores = {0, 1};
  std::string mac;
  std::string peer_mac;
};

/// One of these words.
[[nodiscard]] CLI::Validator one_of(const std::vector<std::string>& words);
/// Numbers from `least` to `most`.
[[nodiscard]] CLI::Validator between(double least, double most);

/// --size, --queue-size.
void add_size_options(CLI::App& command, BenchChoice& choice);
/// --imix, --touch.
void add_traffic_options(CLI::App& command, BenchChoice& choice);
/// --size, --queue-size, --queues and --one-used-entry.
void add_case_options(CLI::App& command, BenchChoice& choice);
/// --ring. `several`: each format may be measured, else one only.
void add_ring_format_option(CLI::App& command, BenchChoice& choice, bool several);
/// --mrg.
void add_mergeable_option(CLI::App& command, BenchChoice& choice);
/// --ring, --order, --mrg. `several`: each ring and order may be measured, else one only.
void add_ring_options(CLI::App& command, BenchChoice& choice, bool several);
/// --seconds, of a window, with the default that `choice` has; --cores; --json.
void add_window_options(CLI::App& command, BenchChoice& choice);
/// --direction, one of `names`; `help` describes them.
CLI::Option& add_direction_option(CLI::App& command, BenchChoice& choice,
                                  const std::vector<std::string>& names, const char* help);

[[nodiscard]] std::vector<BenchCase> cases_of(const BenchChoice& choice);
/// The direction that was chosen, of a command that takes only one.
[[nodiscard]] Direction direction_of(const BenchChoice& choice);

/// What cannot be measured so: rings, orders and queue sizes against each other.
[[nodiscard]] std::optional<control::Problem> check_cases(const BenchChoice& choice);
/// Of --cores: two of them, different, and both at this process's command.
[[nodiscard]] std::optional<control::Problem> check_cores(const BenchChoice& choice);
/// Of --mac and --peer-mac.
[[nodiscard]] std::optional<control::Problem> check_addresses(const BenchChoice& choice);
/// Of --core.
[[nodiscard]] std::optional<control::Problem> check_core(const BenchChoice& choice);

}  // namespace sluice::app
