// Asking, and laying out what comes back.
#include "app/show_commands.h"

#include <fmt/format.h>

#include <array>
#include <memory>

#include "app/json.h"
#include "app/report.h"
#include "app/table.h"
#include "control/requests.h"

namespace sluice::app {
namespace {

using control::Json;

constexpr std::string_view kAsking = "ask the running switch";

std::string ports_text(const Json& reply) {
  Table table({{"PORT"},
               {"KIND"},
               {"STATE"},
               {"QUEUES", Align::kRight},
               {"MTU", Align::kRight},
               {"SESSIONS", Align::kRight},
               {"MEMORY", Align::kRight},
               {"SOCKET"},
               {"LAST ERROR"}});
  for (const Json& port : member(reply, "ports")) {
    table.add({text(port, "name"), text(port, "kind"), text(port, "state"),
               text(port, "queue_pairs"), text(port, "mtu"), text(port, "sessions"),
               in_bytes(number(port, "memory_bytes")), text(port, "path"),
               text(port, "last_error")});
  }
  return table.text();
}

// Everything about one port, a line each.
std::string port_text(const Json& reply) {
  std::string out;
  for (const Json& port : member(reply, "ports")) {
    if (!port.is_object()) continue;
    for (const auto& [name, value] : port.items()) {
      const std::string words = text(port, name);
      out += fmt::format("{:<18} {}\n", name, words.empty() ? "-" : words);
    }
  }
  return out;
}

// A position of a packed ring is a slot and, in bit 15, the wrap counter: shown as SLOT/WRAP.
std::string position_text(const Json& queue, std::string_view name) {
  constexpr std::uint64_t kWrap = 0x8000;
  if (member(queue, name).is_null() || text(queue, "ring") != "packed") return text(queue, name);
  const std::uint64_t value = number(queue, name);
  return fmt::format("{}/{}", value % kWrap, value / kWrap);
}

std::string queues_text(const Json& reply) {
  Table table({{"PORT"},
               {"QUEUE", Align::kRight},
               {"KIND"},
               {"STATE"},
               {"PATH"},
               {"SIZE", Align::kRight},
               {"AVAIL", Align::kRight},
               {"USED", Align::kRight},
               {"PACKETS", Align::kRight},
               {"DROPPED", Align::kRight},
               {"ERROR"}});
  for (const Json& queue : member(reply, "queues")) {
    const Json& counters = member(queue, "counters");
    table.add({text(queue, "port"), text(queue, "index"), text(queue, "kind"), text(queue, "state"),
               text(queue, "path"), text(queue, "size"), position_text(queue, "avail"),
               position_text(queue, "used"), text(counters, "packets"), text(counters, "dropped"),
               text(queue, "error")});
  }
  return table.text();
}

std::string fdb_text(const Json& reply) {
  Table table({{"MAC"}, {"PORT"}, {"AGE", Align::kRight}, {"KIND"}});
  for (const Json& entry : member(reply, "fdb")) {
    table.add({text(entry, "mac"), text(entry, "port"), text(entry, "age_seconds") + " s",
               member(entry, "static") == true ? "configured" : "learned"});
  }
  std::string out = table.text();
  if (member(reply, "truncated") == true) {
    out += fmt::format("(the first of {})\n", text(reply, "entries"));
  }
  return out;
}

std::string workers_text(const Json& reply) {
  constexpr double kPercent = 100.0;
  Table table({{"WORKER", Align::kRight},
               {"CORE", Align::kRight},
               {"POLL"},
               {"ITERATIONS", Align::kRight},
               {"BUSY", Align::kRight},
               {"SLEEPS", Align::kRight},
               {"QUEUES"}});
  for (const Json& worker : member(reply, "workers")) {
    const auto all = static_cast<double>(number(worker, "iterations"));
    const auto busy = static_cast<double>(number(worker, "busy_iterations"));
    table.add({text(worker, "id"), text(worker, "core"), text(worker, "poll"),
               text(worker, "iterations"),
               fmt::format("{:.1f} %", all > 0 ? busy / all * kPercent : 0.0),
               text(worker, "sleeps"), text(worker, "queues")});
  }
  return table.text();
}

struct Show {
  const char* subject;
  const char* subject_help;
  const char* request;
  const char* port_help;  // Null: the command takes no port.
  const char* help;
  const char* examples;
  std::string (*text)(const Json& reply);
  std::string (*port_text)(const Json& reply);  // If a port is named.
};

constexpr std::array<Show, 4> kShows = {{
    {"port", "Ports of the running switch", "ports", "Only this port, with all that is known of it",
     "Shows each port: its socket, state, sessions and the memory its driver shares.",
     "Examples:\n  sluice port show\n  sluice port show vm0 --json", ports_text, port_text},
    {"queue", "Virtqueues of the ports", "queues", "Only the queues of this port",
     "Shows each virtqueue: its state, the code path chosen for it, its positions and why it "
     "broke.",
     "Examples:\n  sluice queue show\n  sluice queue show vm0", queues_text, queues_text},
    {"fdb", "Addresses the bridge has learned", "fdb", "Only the addresses behind this port",
     "Shows which address was seen behind which port, and how long ago.",
     "Examples:\n  sluice fdb show\n  sluice fdb show vm0 --json", fdb_text, fdb_text},
    {"worker", "Threads that move packets", "workers", nullptr,
     "Shows each worker: its core, how often it found packets, and the queues it owns.",
     "Examples:\n  sluice worker show\n  sluice worker show --json", workers_text, workers_text},
}};

// The reply, unless it is an error: then it is told that `what` cannot be done.
std::expected<Json, int> read_reply(const std::string& line, std::string_view what) {
  Json reply = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!reply.is_object()) {
    return std::unexpected(report(ExitCode::kFailure, what, "the reply is not a JSON object",
                                  "use the `sluice` of the same version as the running one"));
  }
  const Json& error = member(reply, "error");
  if (error.is_null()) return reply;
  return std::unexpected(report(ExitCode::kFailure, what, text(error, "text"), text(error, "try")));
}

int show(const Show& row, const AskFlags& flags) {
  auto client = connect(flags);
  if (!client) return client.error();
  const auto reply = ask(*client, row.request, flags);
  if (!reply) return reply.error();
  const auto layout = flags.port.empty() ? row.text : row.port_text;
  const std::string out = flags.json ? control::dump_pretty(*reply) + "\n" : layout(*reply);
  return static_cast<int>(print(out) ? ExitCode::kOk : ExitCode::kFailure);
}

int report_connection(const AskFlags& flags, const Error& error) {
  const std::string cause = fmt::format("{}: {}", flags.control, describe(error));
  switch (error.code) {
    case ErrorCode::kNotFound:
    case ErrorCode::kClosed:
      return report(ExitCode::kNoDaemon, kAsking, fmt::format("{}: {}", flags.control, error.text),
                    "start one by `sluice run`, or name its socket by --control PATH");
    case ErrorCode::kPermission:
      return report(ExitCode::kFailure, kAsking, cause, "run this as the user who runs the switch");
    case ErrorCode::kTimeout:
      return report(ExitCode::kFailure, kAsking, cause,
                    "is it stopped (kill -STOP) or in a debugger?");
    case ErrorCode::kOutOfRange:
      return report(ExitCode::kUsage, kAsking, cause, "give a shorter path");
    default: return report(ExitCode::kFailure, kAsking, cause, "");
  }
}

}  // namespace

void add_ask_flags(CLI::App& command, AskFlags& flags, const char* port_help) {
  if (port_help != nullptr) {
    command.add_option("PORT", flags.port, port_help)->type_name("");
  }
  command
      .add_option(
          "--control", flags.control,
          "Control socket of the running switch (default: " + control::default_control_path() + ")")
      ->type_name("PATH");
  command.add_flag("--json", flags.json, "One JSON document instead of a table");
}

std::expected<control::ControlClient, int> connect(const AskFlags& given) {
  AskFlags flags = given;
  if (flags.control.empty()) flags.control = control::default_control_path();
  auto client = control::ControlClient::connect(flags.control);
  if (!client) return std::unexpected(report_connection(flags, client.error()));
  return std::move(*client);
}

std::expected<Json, int> ask(control::ControlClient& client, std::string_view request,
                             const AskFlags& flags) {
  const auto line = client.ask(control::request_line(request, flags.port));
  if (!line) return std::unexpected(report_connection(flags, line.error()));
  return read_reply(*line, kAsking);
}

std::expected<Json, int> order(const AskFlags& given, std::string_view what,
                               const std::string& line, std::chrono::seconds patience) {
  AskFlags flags = given;
  if (flags.control.empty()) flags.control = control::default_control_path();
  auto client = connect(flags);
  if (!client) return std::unexpected(client.error());
  const auto reply = client->ask(line, patience);
  if (!reply) return std::unexpected(report_connection(flags, reply.error()));
  return read_reply(*reply, what);
}

void add_show_commands(CLI::App& app, Action& action) {
  for (const Show& row : kShows) {
    CLI::App* subject = app.add_subcommand(row.subject, row.subject_help);
    subject->require_subcommand(1);
    subject->footer(row.examples);
    CLI::App* command = subject->add_subcommand("show", row.help);
    command->footer(row.examples);
    const auto flags = std::make_shared<AskFlags>();
    add_ask_flags(*command, *flags, row.port_help);
    command->callback(
        [flags, &row, &action] { action = [flags, &row] { return show(row, *flags); }; });
  }
}

}  // namespace sluice::app
