// The command line of `sluice bench`.
#include "app/bench.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "app/bench_case.h"
#include "app/bench_device.h"
#include "app/bench_driver.h"
#include "app/bench_latency.h"
#include "app/bench_matrix.h"
#include "app/bench_options.h"
#include "app/bench_pair.h"
#include "app/report.h"
#include "control/setting.h"

namespace sluice::app {

namespace {

constexpr std::string_view kReading = "understand the command line";

// Requires: the checks found nothing.
PairOptions pair_options(const BenchChoice& choice) {
  PairOptions options;
  options.cases = cases_of(choice);
  options.window = std::chrono::milliseconds(static_cast<int>(choice.seconds * 1e3));
  options.device_core = choice.cores[0];
  options.driver_core = choice.cores[1];
  options.json = choice.json;
  return options;
}

void add_pair(CLI::App& bench, Action& action) {
  const auto choice = std::make_shared<BenchChoice>();
  CLI::App* command = bench.add_subcommand(
      "pair",
      "Packets a second between a device (port and worker of `sluice run`) and a driver, two\n"
      "processes on two cores, memory shared by descriptor.");
  add_ring_options(*command, *choice, true);
  add_case_options(*command, *choice);
  add_traffic_options(*command, *choice);
  add_direction_option(*command, *choice, {"to-driver", "from-driver", "loopback"},
                       "to-driver, from-driver or loopback (default all three)");
  add_window_options(*command, *choice);
  command->footer(
      "RTT is the round trip of one cache line between the two cores, before and after: figures\n"
      "with different STATE cannot be compared. In loopback a packet counts once a lap.\n\n"
      "Examples:\n  sluice bench pair --ring packed --order in-order\n"
      "  sluice bench pair --direction to-driver --size 1518 --seconds 5 --json");
  command->callback([&action, choice] {
    action = [choice] {
      if (const auto problem = check_cases(*choice)) return report(kReading, {*problem});
      if (const auto problem = check_cores(*choice)) return report(kReading, {*problem});
      return run_pair(pair_options(*choice));
    };
  });
}

void add_forward(CLI::App& bench, Action& action) {
  const auto choice = std::make_shared<BenchChoice>();
  choice->directions = {"forward"};
  CLI::App* command = bench.add_subcommand(
      "forward",
      "Packets a second through the switch between two drivers: the switch (two ports and the\n"
      "worker of `sluice run`) on one core, both drivers on the other.");
  add_ring_options(*command, *choice, true);
  add_case_options(*command, *choice);
  add_window_options(*command, *choice);
  command->footer(
      "Each driver sends back what it receives; counted are packets received, by both. Headers "
      "only\nare read.\n\n"
      "Examples:\n  sluice bench forward --ring packed\n  sluice bench forward --size 1518 --json");
  command->callback([&action, choice] {
    action = [choice] {
      if (const auto problem = check_cases(*choice)) return report(kReading, {*problem});
      if (const auto problem = check_cores(*choice)) return report(kReading, {*problem});
      return run_pair(pair_options(*choice));
    };
  });
}

void add_latency(CLI::App& bench, Action& action) {
  const auto choice = std::make_shared<BenchChoice>();
  const auto options = std::make_shared<LatencyOptions>();
  choice->directions = {"loopback"};
  CLI::App* command = bench.add_subcommand(
      "latency",
      "Time of a frame from a driver through the switch and back, at shares of the rate that the\n"
      "same ring sustains, and from idle, when worker and driver sleep.");
  add_ring_options(*command, *choice, true);
  add_size_options(*command, *choice);
  command
      ->add_option("--load", options->loads,
                   "Shares of the highest rate, per cent (1 to 100, default 10,50,90)")
      ->check(between(1, 100))
      ->delimiter(',')
      ->type_name("N,...");
  add_window_options(*command, *choice);
  command->footer(
      "Frames carry the time when they were due, so a sender that is late counts. From idle one\n"
      "frame leaves every 2 ms, wakes the worker by its kick, and the answer wakes the driver.\n\n"
      "Examples:\n  sluice bench latency --ring packed --order in-order\n"
      "  sluice bench latency --load 25,75 --json");
  command->callback([&action, choice, options] {
    action = [choice, options] {
      if (const auto problem = check_cases(*choice)) return report(kReading, {*problem});
      if (const auto problem = check_cores(*choice)) return report(kReading, {*problem});
      options->pair = pair_options(*choice);
      return run_latency(*options);
    };
  });
}

void add_matrix(CLI::App& bench, Action& action) {
  const auto choice = std::make_shared<BenchChoice>();
  const auto options = std::make_shared<MatrixOptions>();
  choice->seconds = 0.5;
  CLI::App* command = bench.add_subcommand(
      "matrix",
      "`pair` for every direction, number of queues and order, in one table for each format of "
      "the\n"
      "ring. All cells are measured in turn, several times: each sees the same times of the "
      "machine.");
  add_ring_format_option(*command, *choice, true);
  add_mergeable_option(*command, *choice);
  add_size_options(*command, *choice);
  command->add_option("--queues", options->queues, "Numbers of queue pairs (default 1,2,4)")
      ->check(between(1, 127))
      ->delimiter(',')
      ->type_name("N,...");
  command->add_option("--runs", options->runs, "Windows of each cell (1 to 1000, default 3)")
      ->check(between(1, 1000))
      ->type_name("N");
  add_window_options(*command, *choice);
  command
      ->add_option_function<std::string>(
          "--against", [options](const std::string&) { options->against_testpmd = true; },
          "Put a window of a testpmd pair (Debian's dpdk) behind each of ours, and print ratios")
      ->check(one_of({"testpmd"}))
      ->type_name("testpmd");
  command->add_option("--svg", options->svg, "Also draw the cells as bars into this file")
      ->type_name("FILE");
  command->footer(
      "Medians of the windows in the state (near or far cores) that most were in; the document "
      "has\n"
      "the cells of every state.\n\n"
      "Examples:\n  sluice bench matrix --ring packed --runs 5 --svg matrix.svg\n"
      "  sluice bench matrix --queues 1,2 --size 1518 --json\n"
      "  sluice bench matrix --against testpmd");
  command->callback([&action, choice, options] {
    action = [choice, options] {
      choice->orders = {"any"};
      if (const auto problem = check_cases(*choice)) return report(kReading, {*problem});
      if (const auto problem = check_cores(*choice)) return report(kReading, {*problem});
      options->pair = pair_options(*choice);
      options->rings.clear();
      for (const std::string& ring : choice->rings) options->rings.push_back(ring == "packed");
      options->base = cases_of(*choice).front();
      return run_matrix(*options);
    };
  });
}

void add_device(CLI::App& bench, Action& action) {
  const auto choice = std::make_shared<BenchChoice>();
  CLI::App* command = bench.add_subcommand(
      "device", "The device's end of a pair alone, for a driver that is not ours.");
  add_case_options(*command, *choice);
  add_traffic_options(*command, *choice);
  command->add_option("--socket", choice->socket, "Unix socket to listen on")
      ->required()
      ->type_name("PATH");
  add_direction_option(*command, *choice, {"to-driver", "from-driver", "loopback", "forward"},
                       "to-driver, from-driver, loopback, or forward, which opens a second port at "
                       "PATH.2 (default to-driver)")
      .expected(1);
  command->add_option("--core", choice->core, "Core of the worker (default -1: any)")
      ->type_name("N");
  command->add_flag("--sleep", choice->sleepy,
                    "The worker sleeps when there is nothing to do (adaptive polling)");
  command->footer(
      "Ends when its standard input closes. For each line it reads it prints the packets received\n"
      "so far, the time in nanoseconds, and the path.\n\n"
      "Examples:\n  sluice bench device --socket /tmp/d.sock --direction to-driver");
  command->callback([&action, choice] {
    action = [choice] {
      if (const auto problem = check_core(*choice)) return report(kReading, {*problem});
      BenchCase what = choice->base;
      what.direction = direction_of(*choice);
      return run_device_end({choice->socket, what, choice->core, choice->sleepy});
    };
  });
}

// Requires: check_addresses() found nothing.
net::MacAddress address_of(const std::string& text, net::MacAddress otherwise) {
  const auto parsed = control::parse_mac(text);
  if (!parsed) return otherwise;
  net::MacAddress mac{};
  for (std::size_t i = 0; i < mac.size(); ++i) mac[i] = std::to_integer<std::uint8_t>((*parsed)[i]);
  return mac;
}

// What FrontendSource says when nobody came carries the errno of its last attempt.
std::string why_not(const Error& error) {
  if (error.code != ErrorCode::kTimeout || error.detail <= 0) return describe(error);
  return fmt::format("{}: {}", error.text, std::strerror(static_cast<int>(error.detail)));
}

int run_driver(const BenchChoice& choice) {
  if (const auto problem = check_cases(choice)) return report(kReading, {*problem});
  if (const auto problem = check_core(choice)) return report(kReading, {*problem});
  if (const auto problem = check_addresses(choice)) return report(kReading, {*problem});
  DriverEndOptions options;
  options.socket = choice.socket;
  options.what = cases_of(choice).front();
  options.core = choice.core;
  options.swap_addresses = true;
  options.mac = address_of(choice.mac, options.mac);
  options.peer_mac = address_of(choice.peer_mac, options.peer_mac);
  auto driver = DriverEnd::create(options);
  if (!driver.has_value()) {
    return report(ExitCode::kFailure, "connect to " + choice.socket, why_not(driver.error()),
                  "sluice run --vhost-user " + choice.socket);
  }
  (*driver)->go();
  const auto length = std::chrono::duration<double>(choice.seconds);
  std::this_thread::sleep_for(length);
  (*driver)->stop();
  if (const auto error = (*driver)->error()) {
    return report(ExitCode::kFailure, "drive the ring", describe(*error), "");
  }
  const double sent = static_cast<double>((*driver)->sent());
  const double received = static_cast<double>((*driver)->received());
  if (choice.json) {
    const control::Json json{{"sent", (*driver)->sent()},
                             {"received", (*driver)->received()},
                             {"seconds", choice.seconds},
                             {"path", (*driver)->path()}};
    return print(json.dump(2) + "\n") ? 0 : 1;
  }
  return print(fmt::format("sent {:.0f} ({:.2f} Mpps), received {:.0f} ({:.2f} Mpps), path {}\n",
                           sent, sent / choice.seconds / 1e6, received,
                           received / choice.seconds / 1e6, (*driver)->path()))
             ? 0
             : 1;
}

void add_driver(CLI::App& bench, Action& action) {
  const auto choice = std::make_shared<BenchChoice>();
  choice->directions = {"both"};
  choice->rings = {"split"};
  choice->orders = {"any"};
  CLI::App* command = bench.add_subcommand(
      "driver", "The driver's end alone: sends and receives on any vhost-user back-end.");
  add_ring_options(*command, *choice, false);
  add_case_options(*command, *choice);
  command->add_option("--socket", choice->socket, "Unix socket to connect to")
      ->required()
      ->type_name("PATH");
  add_direction_option(*command, *choice, {"to-driver", "from-driver", "loopback", "both"},
                       "to-driver (receive only), from-driver (send only), both, or loopback (send "
                       "back what arrives) (default both)")
      .expected(1);
  command->add_option("--seconds", choice->seconds, "How long (0.05 to 86400, default 1)")
      ->check(between(0.05, 86400))
      ->type_name("S");
  command->add_option("--core", choice->core, "Core of the loop (default -1: any)")->type_name("N");
  command
      ->add_option("--mac", choice->mac,
                   "Source address of the frames sent (default 02:00:00:00:00:01)")
      ->type_name("MAC");
  command
      ->add_option("--peer-mac", choice->peer_mac,
                   "Destination address of the frames sent (default 02:00:00:00:00:02)")
      ->type_name("MAC");
  command->add_flag("--json", choice->json, "Print one JSON document");
  command->footer(
      "Examples:\n  sluice bench driver --socket /run/vm0.sock --seconds 5\n"
      "  sluice bench driver --socket /run/vm1.sock --direction loopback --ring packed");
  command->callback([&action, choice] { action = [choice] { return run_driver(*choice); }; });
}

}  // namespace

void add_bench_command(CLI::App& app, Action& action) {
  CLI::App* bench = app.add_subcommand(
      "bench", "Measures rings, ports and workers between two processes of this machine.");
  bench->require_subcommand(1);
  bench->footer("Examples:\n  sluice bench pair\n  sluice bench pair --help");
  add_pair(*bench, action);
  add_forward(*bench, action);
  add_latency(*bench, action);
  add_matrix(*bench, action);
  add_device(*bench, action);
  add_driver(*bench, action);
}

}  // namespace sluice::app
