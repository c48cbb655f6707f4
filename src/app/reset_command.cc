// `sluice queue reset`: orders a reset of a virtio-user port's queue and waits for its outcome.
#include "app/reset_command.h"

#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "app/json.h"
#include "app/report.h"
#include "app/show_commands.h"
#include "control/orders.h"
#include "control/setting.h"

namespace sluice::app {
namespace {

using control::Json;

constexpr std::string_view kResetting = "reset the queue";
// The device may take 5 seconds for each of the messages that a reset needs.
constexpr std::chrono::seconds kResetTime{60};

struct ResetFlags {
  AskFlags ask;
  std::string queue;
  std::string size;
  bool whole_device = false;
};

template <class T>
std::optional<T> read_number(const std::string& text) {
  T number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

int wrong_number(std::string_view name, const std::string& text, std::string_view cure) {
  return report(ExitCode::kUsage, kResetting,
                fmt::format("{} cannot be {}", name, control::excerpt(text)), cure);
}

std::string reset_text(const Json& reply) {
  const Json& reset = member(reply, "reset");
  const std::uint64_t buffers = number(reset, "buffers");
  const std::string size = text(reset, "size");
  const std::string what = member(reset, "whole_device") == true
                               ? "all queues"
                               : fmt::format("queue {}", text(reset, "queue"));
  std::string out = fmt::format("{}: {} restarted; {} buffer{} came back", text(reset, "port"),
                                what, buffers, buffers == 1 ? "" : "s");
  if (!size.empty()) out += fmt::format("; queue {} has {} now", text(reset, "queue"), size);
  return out + "\n";
}

int reset_queue(const ResetFlags& flags) {
  fabric::ResetOrder wanted;
  wanted.whole_device = flags.whole_device;
  if (flags.queue.empty() && (!flags.whole_device || !flags.size.empty())) {
    return report(ExitCode::kUsage, kResetting, "QUEUE is missing",
                  fmt::format("sluice queue show {} lists them", flags.ask.port));
  }
  if (!flags.queue.empty()) {
    wanted.queue = read_number<std::uint16_t>(flags.queue);
    if (!wanted.queue) {
      return wrong_number("QUEUE", flags.queue,
                          "give its number: receiveq of pair n is 2n, transmitq 2n+1");
    }
  }
  if (!flags.size.empty()) {
    const auto size = read_number<std::uint32_t>(flags.size);
    if (!size || *size < 2 || *size > 32768) {
      return wrong_number("--size", flags.size, "give a whole number from 2 to 32768");
    }
    wanted.size = *size;
  }
  const auto reply =
      order(flags.ask, kResetting, control::reset_line(flags.ask.port, wanted), kResetTime);
  if (!reply) return reply.error();
  const std::string out = flags.ask.json ? control::dump_pretty(*reply) + "\n" : reset_text(*reply);
  return static_cast<int>(print(out) ? ExitCode::kOk : ExitCode::kFailure);
}

}  // namespace

void add_reset_command(CLI::App& app, Action& action) {
  CLI::App* const command = app.get_subcommand("queue")->add_subcommand(
      "reset",
      "Resets one queue of a virtio-user port with its device while the other queues go on, and "
      "tells how many buffers came back. The port is the driver; the queues of a vhost-user port "
      "are reset by the driver that uses it.");
  command->footer(
      "Examples:\n  sluice queue reset up 3\n  sluice queue reset up 3 --size 1024\n"
      "  sluice queue reset up --whole-device");
  const auto flags = std::make_shared<ResetFlags>();
  command->add_option("PORT", flags->ask.port, "The virtio-user port")->type_name("")->required();
  command
      ->add_option("QUEUE", flags->queue,
                   "Number of the queue: receiveq of pair n is 2n, transmitq 2n+1")
      ->type_name("");
  command
      ->add_option("--size", flags->size,
                   "Buffers of the queue from now on: at most 1024, or the port's queue_size if "
                   "that is more")
      ->type_name("N");
  command->add_flag("--whole-device", flags->whole_device,
                    "Stop and start all queues instead: for devices that do not offer RING_RESET");
  add_ask_flags(*command, flags->ask, nullptr);
  command->callback([flags, &action] { action = [flags] { return reset_queue(*flags); }; });
}

}  // namespace sluice::app
