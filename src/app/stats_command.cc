// One-shot totals, or rates between two looks.
#include "app/stats_command.h"

#include <charconv>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "app/report.h"
#include "app/show_commands.h"
#include "app/stats_view.h"

namespace sluice::app {
namespace {

using control::Json;

struct StatsFlags : AskFlags {
  std::string watch;  // Seconds, as text; CLI11 leaves it empty for a bare --watch.
  bool watching = false;
};

constexpr double kWatchMin = 0.1;
constexpr double kWatchMax = 3600.0;

std::optional<std::chrono::duration<double>> parse_interval(const std::string& text) {
  double seconds = 1.0;
  if (!text.empty()) {
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, seconds);
    if (error != std::errc{} || stop != end) return std::nullopt;
  }
  if (!(seconds >= kWatchMin && seconds <= kWatchMax)) return std::nullopt;
  return std::chrono::duration<double>(seconds);
}

int done(bool printed) {
  return static_cast<int>(printed ? ExitCode::kOk : ExitCode::kFailure);
}

// Until the switch goes away, or we are interrupted.
int watch(control::ControlClient& client, const StatsFlags& flags,
          std::chrono::duration<double> interval) {
  Json before;
  while (true) {
    auto now = ask(client, "stats", flags);
    if (!now) return now.error();
    bool printed = true;
    if (flags.json) {
      printed = print(control::dump(*now) + "\n");
    } else if (!before.is_null()) {
      printed = print(rates_text(before, *now) + "\n");
    }
    if (!printed) return done(false);
    before = std::move(*now);
    std::this_thread::sleep_for(interval);
  }
}

int stats(const StatsFlags& flags) {
  const auto interval = parse_interval(flags.watch);
  if (!interval) {
    return report(ExitCode::kUsage, "understand the command line",
                  "--watch cannot be '" + flags.watch + "'",
                  "--watch=SECONDS from 0.1 to 3600, or PORT before --watch");
  }
  auto client = connect(flags);
  if (!client) return client.error();
  if (flags.watching) return watch(*client, flags, *interval);
  const auto reply = ask(*client, "stats", flags);
  if (!reply) return reply.error();
  return done(print(flags.json ? control::dump_pretty(*reply) + "\n" : totals_text(*reply)));
}

}  // namespace

void add_stats_command(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand(
      "stats",
      "Shows packets, bytes and drops of each port since the start; drops by cause, where there "
      "are any.");
  const auto flags = std::make_shared<StatsFlags>();
  add_ask_flags(*command, *flags, "Only this port");
  command
      ->add_option("--watch", flags->watch,
                   "Show rates every S seconds (0.1 to 3600, default 1) until interrupted; "
                   "with --json the totals, one document a line")
      ->type_name("S")
      ->expected(0, 1);
  command->footer(
      "Examples:\n  sluice stats\n  sluice stats vm0 --watch=2\n"
      "  sluice stats --json | jq '.stats[] | {name, dropped: .to_driver.dropped}'");
  command->callback([command, flags, &action] {
    flags->watching = command->count("--watch") > 0;
    action = [flags] { return stats(*flags); };
  });
}

}  // namespace sluice::app
