// Reading an order, and wording what became of it.
#include "control/orders.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "control/requests.h"
#include "control/setting.h"

namespace sluice::control {
namespace {

using fabric::ResetOrder;

constexpr std::string_view kResetShape =
    R"(send {"request": "reset_queue", "port": PORT, "queue": N} and perhaps "size": N, )"
    R"("whole_device": true)";

// An order as it was understood.
struct Reset {
  std::string port;
  ResetOrder order;
};

Json bad_field(std::string_view cause) {
  return error_json("bad_request", cause, kResetShape);
}

// False unless `value` is a whole number that fits.
template <class T>
bool read_number(const Json& value, T& out) {
  if (!value.is_number_unsigned()) return false;
  const auto number = value.get<std::uint64_t>();
  if (number > std::numeric_limits<T>::max()) return false;
  out = static_cast<T>(number);
  return true;
}

// One field of the request; what is wrong with it, if anything.
std::optional<Json> read_field(const std::string& name, const Json& value, Reset& reset) {
  if (name == "request") return std::nullopt;
  if (name == "port") {
    if (!value.is_string()) return bad_field("the field 'port' is not a text");
    reset.port = value.get<std::string>();
  } else if (name == "queue") {
    std::uint16_t queue = 0;
    if (!read_number(value, queue)) return bad_field("the field 'queue' is not a queue's number");
    reset.order.queue = queue;
  } else if (name == "size") {
    if (!read_number(value, reset.order.size) || reset.order.size == 0) {
      return bad_field("the field 'size' is not a number of buffers");
    }
  } else if (name == "whole_device") {
    if (!value.is_boolean()) return bad_field("the field 'whole_device' is neither true nor false");
    reset.order.whole_device = value.get<bool>();
  } else {
    return bad_field(fmt::format("there is no field {}", excerpt(name)));
  }
  return std::nullopt;
}

std::optional<Json> read_reset(const Json& document, Reset& reset) {
  for (const auto& [name, value] : document.items()) {
    if (auto wrong = read_field(name, value, reset)) return wrong;
  }
  if (!document.contains("port")) return bad_field("the field 'port' is missing");
  const bool needs_queue = !reset.order.whole_device || reset.order.size != 0;
  if (needs_queue && !reset.order.queue) return bad_field("the field 'queue' is missing");
  return std::nullopt;
}

// What is wrong with the port or the queue, as far as it can be seen from here.
std::optional<Json> wrong_target(const std::vector<fabric::PortView>& ports, const Reset& reset) {
  const auto port = std::ranges::find(ports, reset.port, &fabric::PortView::name);
  if (port == ports.end()) return unknown_port(ports, reset.port);
  if (port->kind == "vhost-user") {
    return error_json("not_a_driver",
                      fmt::format("{} is a vhost-user port: its driver resets the queues, "
                                  "not the switch",
                                  port->name),
                      "do it where the driver is, for instance in the guest");
  }
  if (port->kind != "virtio-user") {
    return error_json("not_a_driver", fmt::format("{} has no virtqueues", port->name),
                      "name a virtio-user port; see `sluice port show`");
  }
  const int count = port->queue_pairs * 2;
  if (!reset.order.queue || *reset.order.queue < count) return std::nullopt;
  return error_json(
      "unknown_queue", fmt::format("{} has no queue {}", port->name, *reset.order.queue),
      fmt::format("its queues are 0 to {}; see `sluice queue show {}`", count - 1, port->name));
}

Json bad_size(const Error& error, std::uint32_t size) {
  if (error.code == ErrorCode::kOutOfRange) {
    return error_json(
        "bad_size", fmt::format("the queue cannot grow to {} buffers", size),
        fmt::format("give at most {}, or start the port with a larger queue_size", error.detail));
  }
  return error_json("bad_size", fmt::format("{} buffers: {}", size, error.text),
                    "give 2 to 32768, and a power of two unless the ring is packed");
}

Json failed_reset(const Error& error, const Reset& reset) {
  switch (error.code) {
    case ErrorCode::kOutOfRange:
    case ErrorCode::kInvalidArgument: return bad_size(error, reset.order.size);
    case ErrorCode::kNotNegotiated:
      return error_json("no_ring_reset",
                        fmt::format("the device behind {} cannot reset one queue: it does not "
                                    "offer RING_RESET",
                                    reset.port),
                        "--whole-device (\"whole_device\": true) stops and starts all its queues");
    case ErrorCode::kWrongState:
      return error_json("not_running", fmt::format("{} is not connected to a device", reset.port),
                        fmt::format("see `sluice port show {}`, and try again", reset.port));
    case ErrorCode::kExists:
      return error_json("busy", fmt::format("a reset of {} is under way", reset.port),
                        "try again when it has ended");
    default:
      return error_json("reset_failed", fmt::format("{}; the port connects anew", error.text),
                        fmt::format("see `sluice port show {}`", reset.port));
  }
}

Json done_reset(const fabric::ResetReport& report, const Reset& reset) {
  Json queue = nullptr;
  Json size = nullptr;
  if (reset.order.queue) {
    queue = *reset.order.queue;
    size = report.size;
  }
  return {{"reset",
           {{"port", reset.port},
            {"queue", queue},
            {"size", size},
            {"whole_device", reset.order.whole_device},
            {"buffers", report.buffers}}}};
}

Reply begin_reset(const Json& document, const Views& views, Controls& controls) {
  Reset reset;
  if (const auto wrong = read_reset(document, reset)) return dump(*wrong);
  if (const auto wrong = wrong_target(views.ports(), reset)) return dump(*wrong);
  const auto begun = controls.begin_reset(reset.port, reset.order);
  if (!begun) return dump(failed_reset(begun.error(), reset));
  return [reset, pending = *begun]() -> std::optional<std::string> {
    const auto outcome = pending->outcome();
    if (!outcome) return std::nullopt;
    return dump(*outcome ? done_reset(**outcome, reset) : failed_reset(outcome->error(), reset));
  };
}

}  // namespace

Reply answer(std::string_view line, const Views& views, Controls& controls) {
  const Json document = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (document.is_object()) {
    const auto name = document.find("request");
    if (name != document.end() && *name == kResetQueue) {
      return begin_reset(document, views, controls);
    }
  }
  return answer_request(line, views);
}

std::string reset_line(const std::string& port, const ResetOrder& order) {
  Json document = {{"request", kResetQueue}, {"port", port}};
  if (order.queue) document["queue"] = *order.queue;
  if (order.size != 0) document["size"] = order.size;
  if (order.whole_device) document["whole_device"] = true;
  return dump(document);
}

}  // namespace sluice::control
