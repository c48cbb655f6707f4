// The commands that ask a running switch: `port show`, `queue show`, `fdb show`, `worker show`.
#pragma once

#include <CLI/App.hpp>
#include <chrono>
#include <expected>
#include <string>

#include "app/action.h"
#include "control/control_socket.h"
#include "control/views.h"

namespace sluice::app {

/// What the asking commands have in common on their command lines.
struct AskFlags {
  std::string control;
  std::string port;
  bool json = false;
};

/// Adds --control, --json and, if `port_help` is not null, the argument PORT.
void add_ask_flags(CLI::App& command, AskFlags& flags, const char* port_help);

/// Connects to the socket of `flags`. On failure the message is printed, the exit code returned.
[[nodiscard]] std::expected<control::ControlClient, int> connect(const AskFlags& flags);
/// Asks one request about the port of `flags`, or about all. Failures as for connect().
[[nodiscard]] std::expected<control::Json, int> ask(control::ControlClient& client,
                                                    std::string_view request,
                                                    const AskFlags& flags);

/// Sends a line that orders something, of which `what` says what; that may take `patience`.
[[nodiscard]] std::expected<control::Json, int> order(const AskFlags& flags, std::string_view what,
                                                      const std::string& line,
                                                      std::chrono::seconds patience);

void add_show_commands(CLI::App& app, Action& action);

}  // namespace sluice::app
