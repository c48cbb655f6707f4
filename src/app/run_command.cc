// The command line of `sluice run`, its help, and how it becomes a configuration.
#include "app/run_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "app/bench_probe.h"
#include "app/help.h"
#include "app/report.h"
#include "app/run_loop.h"
#include "control/config_file.h"
#include "control/control_socket.h"
#include "control/keys.h"
#include "control/port_flag.h"

namespace sluice::app {
namespace {

using control::Config;
using control::Problems;

constexpr std::string_view kConfiguring = "use the configuration";

constexpr const char* kDescription = "Starts a switch and serves it until SIGINT or SIGTERM.";

constexpr std::string_view kExamples =
    "Examples:\n"
    "  Two virtual machines on one bridge:\n"
    "    sluice run --vhost-user /run/vm0.sock --vhost-user /run/vm1.sock\n"
    "  Two queues each, joined directly, two workers on cores 2 and 3:\n"
    "    sluice run --vhost-user a.sock,queues=2 --vhost-user b.sock,queues=2 \\\n"
    "               --forward patch --workers 2 --cores 2,3\n"
    "  A virtual machine behind another switch (DPDK's net_vhost, say):\n"
    "    sluice run --vhost-user vm0.sock --virtio-user /run/other.sock,queues=2\n"
    "  From a file, checked first:\n"
    "    sluice run --check sluice.toml && sluice run sluice.toml\n"
    "\n"
    "sluice.toml(5) describes the file. A second signal ends a stop that takes too long.";

// Reads each text of a repeated flag and appends it to `target`.
template <class T, class Parse>
void append(const std::vector<std::string>& texts, Parse parse, std::vector<T>& target,
            Problems& problems) {
  for (const std::string& text : texts) {
    auto parsed = parse(text);
    if (parsed) {
      target.push_back(std::move(*parsed));
    } else {
      problems.push_back(std::move(parsed.error()));
    }
  }
}

Problems apply_flags(const RunFlags& flags, Config& config) {
  Problems problems;
  for (const auto& [row, text] : flags.simple) {
    if (auto problem = control::apply_flag(config, control::config_keys()[row], text)) {
      problems.push_back(std::move(*problem));
    }
  }
  auto& fabric = config.fabric;
  append(flags.vhost_user, control::parse_vhost_user_flag, fabric.vhost_user, problems);
  append(flags.virtio_user, control::parse_virtio_user_flag, fabric.virtio_user, problems);
  append(flags.generators, control::parse_generator_flag, fabric.generators, problems);
  append(flags.sinks, control::parse_sink_flag, fabric.sinks, problems);
  append(flags.patches, control::parse_patch_flag, fabric.patches, problems);
  return problems;
}

// What the configuration alone cannot tell: which cores there are.
std::optional<control::Problem> check_cores(const Config& config) {
  const std::vector<int> permitted = permitted_cores();
  for (const int core : config.fabric.workers.cores) {
    if (std::ranges::find(permitted, core) != permitted.end()) continue;
    return control::Problem{"cores", fmt::format("this process cannot use core {}", core),
                            "the cores are " + core_list(permitted)};
  }
  return std::nullopt;
}

int run(const RunFlags& flags) {
  auto config = make_config(flags);
  if (!config) return report(kConfiguring, config.error());
  if (flags.print_config) {
    return print(control::to_toml(*config)) ? 0 : static_cast<int>(ExitCode::kFailure);
  }
  if (const auto problem = check_cores(*config)) return report(kConfiguring, {*problem});
  if (config->control.empty()) config->control = control::default_control_path();
  if (flags.check) {
    return print("the configuration is right\n" + summary(*config))
               ? 0
               : static_cast<int>(ExitCode::kFailure);
  }
  return run_switch(*config);
}

void add_port_flags(CLI::App& command, RunFlags& flags) {
  const auto add = [&command](const char* name, std::vector<std::string>& texts,
                              const char* placeholder, const char* help) {
    command.add_option(name, texts, help)
        ->type_name(placeholder)
        ->allow_extra_args(false)
        ->group("Ports (each may be repeated)");
  };
  add("--vhost-user", flags.vhost_user, "PATH[,KEY=VALUE]",
      "A virtio-net device for a virtual machine or container, served at a Unix socket");
  add("--virtio-user", flags.virtio_user, "PATH[,KEY=VALUE]",
      "A virtio-net driver for a device that another switch serves at a Unix socket");
  add("--generator", flags.generators, "name=NAME[,KEY=VALUE]",
      "Makes frames without end, for tests and benchmarks");
  add("--sink", flags.sinks, "name=NAME[,KEY=VALUE]", "Takes and counts frames");
  add("--patch", flags.patches, "NAME,NAME",
      "With --forward patch: joins these two ports (without it: the first and second, ...)");
}

void add_simple_flags(CLI::App& command, std::vector<std::string>& texts) {
  Config defaults;
  const auto keys = control::config_keys();
  texts.resize(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto& setting = keys[i].setting;
    // The only default that depends on who asks.
    if (setting.flag == "control") defaults.control = control::default_control_path();
    command
        .add_option(fmt::format("--{}", setting.flag), texts[i],
                    help_text(setting, keys[i].slot(defaults)))
        ->type_name(std::string(setting.placeholder))
        ->group("Switch");
  }
}

}  // namespace

std::expected<Config, Problems> make_config(const RunFlags& flags) {
  Config config;
  std::string text;
  if (!flags.file.empty()) {
    auto read = control::read_config_text(flags.file);
    if (!read) return std::unexpected(Problems{read.error()});
    text = std::move(*read);
    auto parsed = control::parse_config(text, flags.file);
    if (!parsed) return std::unexpected(std::move(parsed.error()));
    config = std::move(*parsed);
  }
  Problems problems = apply_flags(flags, config);
  if (problems.empty()) {
    problems = control::check(config);
    control::find_places(problems, text, flags.file);
  }
  if (!problems.empty()) return std::unexpected(std::move(problems));
  return config;
}

void add_run_command(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("run", kDescription);
  const auto flags = std::make_shared<RunFlags>();
  const auto texts = std::make_shared<std::vector<std::string>>();
  command->add_option("FILE", flags->file, "Configuration file; flags add to it and win over it")
      ->type_name("");
  add_port_flags(*command, *flags);
  add_simple_flags(*command, *texts);
  command->add_flag("--check", flags->check, "Only say whether the configuration is right");
  command->add_flag("--print-config", flags->print_config,
                    "Only write the configuration as a file to stdout");
  command->footer(port_keys_help() + "\n" + std::string(kExamples));
  command->callback([command, flags, texts, &action] {
    const auto keys = control::config_keys();
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (command->count(fmt::format("--{}", keys[i].setting.flag)) > 0) {
        flags->simple.emplace_back(i, (*texts)[i]);
      }
    }
    action = [flags] { return run(*flags); };
  });
}

}  // namespace sluice::app
