// Puts the commands together and words the parser's complaints.
#include "app/cli.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <vector>

#include "app/action.h"
#include "app/bench.h"
#include "app/help.h"
#include "app/report.h"
#include "app/reset_command.h"
#include "app/run_command.h"
#include "app/show_commands.h"
#include "app/stats_command.h"
#include "control/nearest.h"
#include "control/version.h"

namespace sluice::app {
namespace {

constexpr const char* kDescription =
    "Sluice: a switch in user space for virtual machines and containers (vhost-user).";

constexpr const char* kFooter =
    "Examples:\n"
    "  sluice run --vhost-user /run/vm0.sock --vhost-user /run/vm1.sock\n"
    "  sluice stats --watch\n"
    "\n"
    "Exit status: 0 success; 1 something failed; 2 the command line or the configuration is\n"
    "wrong; 3 no running switch answers at the control socket.\n"
    "Each command has its own --help. Manual: sluice(1).";

constexpr std::size_t kColumnWidth = 34;

// The command that was being read when the parser stopped.
CLI::App& innermost(CLI::App& app) {
  CLI::App* at = &app;
  while (!at->get_subcommands().empty()) at = at->get_subcommands().front();
  return *at;
}

// "sluice port show".
std::string full_name(const CLI::App& command) {
  const std::string above =
      command.get_parent() == nullptr ? "" : full_name(*command.get_parent()) + " ";
  return above + command.get_name();
}

std::vector<std::string> words_of(CLI::App& command) {
  std::vector<std::string> words;
  for (const CLI::App* sub : command.get_subcommands([](CLI::App*) { return true; })) {
    words.push_back(sub->get_name());
  }
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) words.push_back("--" + name);
  }
  return words;
}

// Is `word` an option of `command`, or of one below it?
bool knows(CLI::App& command, const std::string& word) {
  if (command.get_option_no_throw(word) != nullptr) return true;
  return std::ranges::any_of(command.get_subcommands([](CLI::App*) { return true; }),
                             [&](CLI::App* sub) { return knows(*sub, word); });
}

// Says what is wrong with `word`, which the innermost command does not know, or which stands before
// the command that knows it.
int report_unknown(CLI::App& command, const std::string& word) {
  const std::string option = word.substr(0, word.find('='));
  CLI::App* top = &command;
  while (top->get_parent() != nullptr) top = top->get_parent();
  if (option.starts_with("--") && knows(*top, option)) {
    const bool here = command.get_option_no_throw(option) != nullptr;
    return report(
        ExitCode::kUsage, "understand the command line",
        here ? fmt::format("'{}' stands before the command", option)
             : fmt::format("{} has no option '{}'", full_name(command), option),
        here ? fmt::format("write it behind: {} {} ...", full_name(command), option)
             : fmt::format("{} --help; other commands have {}", full_name(command), option));
  }
  const std::vector<std::string> words = words_of(command);
  const std::vector<std::string_view> views(words.begin(), words.end());
  const std::string_view near = control::nearest(word.substr(0, word.find('=')), views);
  const bool flag = word.starts_with('-');
  return report(
      ExitCode::kUsage, "understand the command line",
      fmt::format("{} has no {} '{}'", full_name(command), flag ? "option" : "command", word),
      near.empty() ? fmt::format("{} --help", full_name(command))
                   : fmt::format("did you mean {}?", near));
}

// Options and commands that were not taken, in the order they stand. A word that follows an
// unknown option may be its value, so the option is the better culprit.
std::string culprit(const std::vector<std::string>& extras) {
  const auto flag =
      std::ranges::find_if(extras, [](const std::string& word) { return word.starts_with('-'); });
  return flag == extras.end() ? extras.front() : *flag;
}

// The parser's sentences for what is too few or too many, in better words.
std::string cause_of(const CLI::App& command, const CLI::ParseError& error) {
  const std::string text = error.what();
  if (error.get_name() == "RequiredError") {
    if (text.starts_with("--") || text.starts_with("PORT")) {
      return fmt::format("{} needs {}", full_name(command), text.substr(0, text.find(' ')));
    }
    return fmt::format("{} needs a command after it", full_name(command));
  }
  if (error.get_name() == "ArgumentMismatch") {
    const std::string option = text.substr(0, text.find(':'));
    if (text.find("At Most 1 required") != std::string::npos) {
      return fmt::format("{} is given more than once", option);
    }
    if (text.find("1 required") != std::string::npos) {
      return fmt::format("{} needs a value", option);
    }
  }
  return text;
}

int report_mistake(CLI::App& app, const CLI::ParseError& error) {
  CLI::App& command = innermost(app);
  const auto extras = app.remaining(/*recurse=*/true);
  if (!extras.empty()) {
    if (!command.get_subcommands([](CLI::App*) { return true; }).empty() ||
        culprit(extras).starts_with('-')) {
      return report_unknown(command, culprit(extras));
    }
    return report(ExitCode::kUsage, "understand the command line",
                  fmt::format("{} does not expect '{}'", full_name(command), extras.front()),
                  fmt::format("{} --help", full_name(command)));
  }
  return report(ExitCode::kUsage, "understand the command line", cause_of(command, error),
                fmt::format("{} --help", full_name(command)));
}

void add_version_command(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("version", "Prints the version of this program.");
  command->footer("Examples:\n  sluice version\n  sluice --version");
  command->callback([&action] {
    action = [] {
      return static_cast<int>(print(fmt::format("sluice {}\n", control::kVersion))
                                  ? ExitCode::kOk
                                  : ExitCode::kFailure);
    };
  });
}

}  // namespace

int run_cli(int argc, const char* const* argv) {
  CLI::App app(kDescription, "sluice");
  Action action;
  app.get_formatter()->column_width(kColumnWidth);
  app.set_version_flag("--version", fmt::format("sluice {}", control::kVersion),
                       "Print the version and exit");
  app.set_help_flag("-h,--help", "Print this help and exit");
  app.require_subcommand(1);
  app.footer(kFooter);
  add_run_command(app, action);
  add_show_commands(app, action);
  add_reset_command(app, action);
  add_stats_command(app, action);
  add_bench_command(app, action);
  add_version_command(app, action);
  // CLI11 reports by exception; it ends here, and no code of ours runs below parse().
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& wanted) {
    return print(wanted.get_name() == "CallForVersion" ? std::string(wanted.what()) + "\n"
                                                       : wrapped(app.help()))
               ? static_cast<int>(ExitCode::kOk)
               : static_cast<int>(ExitCode::kFailure);
  } catch (const CLI::ParseError& error) {
    return report_mistake(app, error);
  }
  return action ? action() : static_cast<int>(ExitCode::kUsage);
}

}  // namespace sluice::app
