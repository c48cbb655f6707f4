// The table of requests, and the checks that hold for all of them.
#include "control/requests.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>

#include "control/control_socket.h"
#include "control/nearest.h"
#include "control/setting.h"
#include "control/version.h"

namespace sluice::control {
namespace {

// Each takes the name of one port, or "" for all, and gives one document.
Json ports_reply(const Views& views, const std::string& port) {
  Json list = Json::array();
  for (const auto& view : views.ports()) {
    if (port.empty() || view.name == port) list.push_back(to_json(view));
  }
  return {{"ports", std::move(list)}};
}

Json queues_reply(const Views& views, const std::string& port) {
  Json list = Json::array();
  for (const auto& view : views.ports()) {
    if (!port.empty() && view.name != port) continue;
    for (const auto& queue : views.queues(view.name)) list.push_back(to_json(view.name, queue));
  }
  return {{"queues", std::move(list)}};
}

Json stats_reply(const Views& views, const std::string& port) {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  Json list = Json::array();
  for (const auto& stats : views.stats()) {
    if (port.empty() || stats.name == port) list.push_back(to_json(stats));
  }
  return {{"time_ns", std::chrono::nanoseconds(now).count()},
          {"stats", std::move(list)},
          {"forwarding", to_json(views.forwarding())}};
}

Json fdb_reply(const Views& views, const std::string& port) {
  Json list = Json::array();
  std::size_t entries = 0;
  for (const auto& entry : views.fdb()) {
    if (!port.empty() && entry.port != port) continue;
    if (++entries <= kFdbShownMax) list.push_back(to_json(entry));
  }
  return {{"entries", entries}, {"truncated", entries > kFdbShownMax}, {"fdb", std::move(list)}};
}

Json workers_reply(const Views& views, const std::string&) {
  Json list = Json::array();
  for (const auto& worker : views.workers()) list.push_back(to_json(worker));
  return {{"workers", std::move(list)}};
}

Json version_reply(const Views&, const std::string&) {
  return {{"version", kVersion}, {"protocol", kControlProtocol}, {"pid", ::getpid()}};
}

struct Request {
  std::string_view name;
  bool takes_port;
  Json (*reply)(const Views& views, const std::string& port);
};

constexpr std::array<Request, 6> kRequests = {{{"ports", true, ports_reply},
                                               {"queues", true, queues_reply},
                                               {"stats", true, stats_reply},
                                               {"fdb", true, fdb_reply},
                                               {"workers", false, workers_reply},
                                               {"version", false, version_reply}}};

const Request* find_request(std::string_view name) {
  const auto found = std::ranges::find(kRequests, name, &Request::name);
  return found == kRequests.end() ? nullptr : &*found;
}

constexpr std::string_view kShape = R"(send {"request": NAME} or {"request": NAME, "port": PORT})";

Json unknown_request(const std::string& name) {
  const auto names = request_names();
  const std::string_view near = nearest(name, names);
  return error_json("unknown_request", fmt::format("there is no request {}", excerpt(name)),
                    near.empty() ? fmt::format("the requests are {}", fmt::join(names, ", "))
                                 : fmt::format("did you mean '{}'?", near));
}

// Both fields are texts, and there are no others.
std::optional<Json> wrong_field(const Json& document) {
  for (const auto& [name, value] : document.items()) {
    if (name != "request" && name != "port") {
      return error_json("bad_request", fmt::format("there is no field {}", excerpt(name)), kShape);
    }
    if (!value.is_string()) {
      return error_json("bad_request", fmt::format("the field '{}' is not a text", name), kShape);
    }
  }
  if (!document.contains("request")) {
    return error_json("bad_request", "the field 'request' is missing", kShape);
  }
  return std::nullopt;
}

bool port_exists(const Views& views, const std::string& name) {
  return std::ranges::any_of(views.ports(), [&](const auto& port) { return port.name == name; });
}

Json reply_to(std::string_view line, const Views& views) {
  const Json document = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (document.is_discarded() || !document.is_object()) {
    return error_json("bad_json", "the line is not a JSON object", kShape);
  }
  if (auto wrong = wrong_field(document)) return std::move(*wrong);
  const auto name = document["request"].get<std::string>();
  const Request* request = find_request(name);
  if (request == nullptr) return unknown_request(name);
  if (!document.contains("port")) return request->reply(views, "");
  const auto port = document["port"].get<std::string>();
  if (!request->takes_port) {
    return error_json("bad_request", fmt::format("'{}' takes no port", name),
                      "leave out the field 'port'");
  }
  if (!port_exists(views, port)) return unknown_port(views.ports(), port);
  return request->reply(views, port);
}

}  // namespace

Json error_json(std::string_view code, std::string_view text, std::string_view cure) {
  return {{"error", {{"code", code}, {"text", text}, {"try", cure}}}};
}

Json unknown_port(const std::vector<fabric::PortView>& ports, const std::string& name) {
  std::vector<std::string_view> names;
  for (const auto& port : ports) names.push_back(port.name);
  return error_json("unknown_port", fmt::format("no port is called {}", excerpt(name)),
                    fmt::format("the ports are {}", fmt::join(names, ", ")));
}

std::string answer_request(std::string_view line, const Views& views) {
  return dump(reply_to(line, views));
}

std::string too_long_reply() {
  return dump(error_json("request_too_long",
                         fmt::format("a request has at most {} bytes", kRequestMax), kShape));
}

std::vector<std::string_view> request_names() {
  std::vector<std::string_view> names;
  for (const Request& request : kRequests) names.push_back(request.name);
  names.push_back(kResetQueue);
  return names;
}

std::string request_line(std::string_view name, std::string_view port) {
  Json document = {{"request", name}};
  if (!port.empty()) document["port"] = port;
  return dump(document);
}

}  // namespace sluice::control
