// Options of `sluice bench`, and the mistakes the parser cannot see.
#include "app/bench_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <bit>
#include <charconv>
#include <map>
#include <system_error>

#include "app/bench_probe.h"
#include "control/setting.h"

namespace sluice::app {
namespace {

using control::Problem;

const std::map<std::string, Direction> kDirections = {{"to-driver", Direction::kToDriver},
                                                      {"from-driver", Direction::kFromDriver},
                                                      {"loopback", Direction::kLoopback},
                                                      {"both", Direction::kBoth},
                                                      {"forward", Direction::kForward}};

bool contains(const std::vector<std::string>& words, const char* word) {
  return std::ranges::find(words, word) != words.end();
}

std::optional<Problem> check_one_core(const char* option, int core) {
  const std::vector<int> permitted = permitted_cores();
  if (std::ranges::find(permitted, core) != permitted.end()) return std::nullopt;
  return Problem{option, fmt::format("this process cannot use core {}", core),
                 "the cores are " + core_list(permitted)};
}

}  // namespace

// The parser's own checks repeat their lists in the help and word their complaints in its way.
CLI::Validator one_of(const std::vector<std::string>& words) {
  const auto check = [words](const std::string& text) {
    if (contains(words, text.c_str())) return std::string();
    return fmt::format("'{}' is none of {}", text, fmt::join(words, ", "));
  };
  return {check, ""};
}

CLI::Validator between(double least, double most) {
  const auto check = [least, most](const std::string& text) {
    double value = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error == std::errc{} && stop == end && value >= least && value <= most) {
      return std::string();
    }
    return fmt::format("'{}' is no number from {} to {}", text, least, most);
  };
  return {check, ""};
}

void add_size_options(CLI::App& command, BenchChoice& choice) {
  command
      .add_option("--size", choice.base.size,
                  "Length of a frame, without FCS (60 to 9000 bytes, default 64)")
      ->check(between(60, 9000))
      ->type_name("BYTES");
  command
      .add_option("--queue-size", choice.base.queue_size,
                  "Entries of a ring; split: a power of two (2 to 32768, default 256)")
      ->check(between(2, 32768))
      ->type_name("N");
}

void add_traffic_options(CLI::App& command, BenchChoice& choice) {
  command.add_flag("--imix", choice.base.imix,
                   "Frames of 64, 594 and 1518 bytes, 7:4:1, in the place of --size");
  command.add_flag("--touch", choice.base.touch,
                   "The receiver reads all of each frame, not headers only");
}

void add_case_options(CLI::App& command, BenchChoice& choice) {
  command.add_option("--queues", choice.base.queues, "Queue pairs (1 to 127, default 1)")
      ->check(between(1, 127))
      ->type_name("N");
  add_size_options(command, choice);
  command.add_flag("--one-used-entry", choice.base.one_used_entry,
                   "One used entry for a whole transmit burst; needs --order in-order");
}

void add_ring_format_option(CLI::App& command, BenchChoice& choice, bool several) {
  CLI::Option* ring =
      command
          .add_option("--ring", choice.rings,
                      fmt::format("Format of the ring: split or packed (default {})",
                                  several ? "both" : "split"))
          ->check(one_of({"split", "packed"}))
          ->type_name("FORMAT");
  if (!several) ring->expected(1);
}

void add_mergeable_option(CLI::App& command, BenchChoice& choice) {
  command
      .add_option("--mrg", choice.mrg,
                  "Mergeable receive buffers (MRG_RXBUF): on or off (default on)")
      ->check(one_of({"on", "off"}))
      ->type_name("on|off");
}

void add_ring_options(CLI::App& command, BenchChoice& choice, bool several) {
  add_ring_format_option(command, choice, several);
  CLI::Option* order =
      command
          .add_option("--order", choice.orders,
                      fmt::format("in-order negotiates IN_ORDER, any does not (default {})",
                                  several ? "both" : "any"))
          ->check(one_of({"any", "in-order"}))
          ->type_name("ORDER");
  if (!several) order->expected(1);
  add_mergeable_option(command, choice);
}

void add_window_options(CLI::App& command, BenchChoice& choice) {
  command
      .add_option("--seconds", choice.seconds,
                  fmt::format("Length of a window (0.05 to 60, default {})", choice.seconds))
      ->check(between(0.05, 60))
      ->type_name("S");
  command
      .add_option("--cores", choice.cores,
                  "Core of the device and core of the driver (default 0,1)")
      ->expected(2)
      ->delimiter(',')
      ->type_name("N");
  command.add_flag("--json", choice.json, "Print one JSON document");
}

CLI::Option& add_direction_option(CLI::App& command, BenchChoice& choice,
                                  const std::vector<std::string>& names, const char* help) {
  return *command.add_option("--direction", choice.directions, help)
              ->check(one_of(names))
              ->type_name("WAY");
}

std::vector<BenchCase> cases_of(const BenchChoice& choice) {
  std::vector<BenchCase> cases;
  for (const std::string& direction : choice.directions) {
    for (const std::string& ring : choice.rings) {
      for (const std::string& order : choice.orders) {
        BenchCase what = choice.base;
        what.direction = kDirections.at(direction);
        what.packed = ring == "packed";
        what.in_order = order == "in-order";
        what.mergeable = choice.mrg == "on";
        cases.push_back(what);
      }
    }
  }
  return cases;
}

Direction direction_of(const BenchChoice& choice) {
  return kDirections.at(choice.directions.front());
}

std::optional<Problem> check_cases(const BenchChoice& choice) {
  const std::uint32_t size = choice.base.queue_size;
  if (contains(choice.rings, "split") && !std::has_single_bit(size)) {
    return Problem{"--queue-size", fmt::format("a split ring cannot have {} entries", size),
                   fmt::format("--queue-size {}, or --ring packed", std::bit_ceil(size))};
  }
  if (choice.base.one_used_entry && contains(choice.orders, "any")) {
    return Problem{"--one-used-entry", "it needs buffers used in order", "--order in-order"};
  }
  return std::nullopt;
}

std::optional<Problem> check_cores(const BenchChoice& choice) {
  for (const int core : choice.cores) {
    if (auto problem = check_one_core("--cores", core)) return problem;
  }
  if (choice.cores[0] != choice.cores[1]) return std::nullopt;
  return Problem{"--cores", "two different cores are needed",
                 "two of the cores " + core_list(permitted_cores())};
}

std::optional<Problem> check_addresses(const BenchChoice& choice) {
  for (const auto& [option, text] :
       {std::pair("--mac", &choice.mac), std::pair("--peer-mac", &choice.peer_mac)}) {
    if (text->empty() || control::parse_mac(*text)) continue;
    return Problem{option, fmt::format("it cannot be {}", control::excerpt(*text)),
                   "give an address such as 02:00:00:00:00:01"};
  }
  return std::nullopt;
}

std::optional<Problem> check_core(const BenchChoice& choice) {
  return choice.core < 0 ? std::nullopt : check_one_core("--core", choice.core);
}

}  // namespace sluice::app
