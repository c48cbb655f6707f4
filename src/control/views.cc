// One function per view.
#include "control/views.h"

#include <array>
#include <cstdint>
#include <optional>

#include "control/setting.h"

namespace sluice::control {
namespace {

Json drops_json(std::span<const std::uint64_t, net::kDropCauses> drops) {
  Json causes = Json::object();
  for (std::size_t i = 0; i < net::kDropCauses; ++i) {
    causes[std::string(net::name_of(static_cast<net::DropCause>(i)))] = drops[i];
  }
  return causes;
}

Json totals_json(const fabric::PortTotals& totals) {
  std::uint64_t dropped = 0;
  for (const std::uint64_t count : totals.drops) dropped += count;
  return {{"packets", totals.packets}, {"bytes", totals.bytes},
          {"bursts", totals.bursts},   {"notifications", totals.notifications},
          {"dropped", dropped},        {"drops", drops_json(totals.drops)}};
}

fabric::PortTotals read(const net::DirectionCounters& counters) {
  fabric::PortTotals totals;
  totals.packets = counters.packets.value();
  totals.bytes = counters.bytes.value();
  totals.bursts = counters.bursts.value();
  totals.notifications = counters.notifications.value();
  for (std::size_t i = 0; i < net::kDropCauses; ++i) totals.drops[i] = counters.drops[i].value();
  return totals;
}

constexpr auto kReplace = Json::error_handler_t::replace;

}  // namespace

Json to_json(const fabric::PortView& port) {
  return {{"id", port.id.raw()},
          {"name", port.name},
          {"kind", port.kind},
          {"path", port.path},
          {"role", port.role},
          {"state", port.state},
          {"last_error", port.last_error},
          {"features", port.features},
          {"protocol_features", port.protocol_features},
          {"mac", port.mac},
          {"queue_pairs", port.queue_pairs},
          {"mtu", port.mtu},
          {"speed", port.speed == 0 ? Json(nullptr) : Json(port.speed)},
          {"sessions", port.sessions},
          {"memory_bytes", port.memory_bytes},
          {"memory_regions", port.memory_regions}};
}

Json to_json(const fabric::PortStats& stats) {
  return {{"name", stats.name},
          {"from_driver", totals_json(stats.from_driver)},
          {"to_driver", totals_json(stats.to_driver)}};
}

Json to_json(const std::string& port, const fabric::QueueView& queue) {
  const auto position = [](const std::optional<std::uint16_t>& value) {
    return value.has_value() ? Json(*value) : Json(nullptr);
  };
  Json json = {{"port", port},
               {"index", queue.index},
               {"kind", queue.kind},
               {"state", queue.state},
               {"path", queue.path},
               {"ring", queue.ring},
               {"size", queue.size},
               {"avail", position(queue.avail)},
               {"used", position(queue.used)},
               {"error", queue.error}};
  if (queue.counters != nullptr) json["counters"] = totals_json(read(*queue.counters));
  return json;
}

Json to_json(const fabric::FdbEntry& entry) {
  return {{"mac", to_string(entry.mac)},
          {"port", entry.port},
          {"age_seconds", entry.age_seconds},
          {"static", entry.is_static}};
}

Json to_json(const fabric::WorkerView& worker) {
  Json core = worker.core;
  if (worker.core < 0) core = nullptr;
  return {{"id", worker.id},
          {"core", core},
          {"poll", worker.poll},
          {"iterations", worker.iterations},
          {"busy_iterations", worker.busy_iterations},
          {"sleeps", worker.sleeps},
          {"queues", worker.queues}};
}

Json to_json(const fabric::ForwardTotals& totals) {
  return {{"forwarded", totals.forwarded}, {"offers", totals.offers}, {"flooded", totals.flooded}};
}

std::string dump(const Json& document) {
  return document.dump(-1, ' ', false, kReplace);
}
std::string dump_pretty(const Json& document) {
  return document.dump(2, ' ', false, kReplace);
}

std::string_view meaning_of(net::DropCause cause) {
  static constexpr std::array<std::string_view, net::kDropCauses> kMeanings = {
      "shorter than the virtio header and an Ethernet header",
      "longer than any frame may be",
      "offload facts that contradict the frame or the negotiation",
      "source address is not the port's mac=",
      "the driver's queue was started but disabled",
      "no other port to go to",
      "the receiving driver has no running receive queue",
      "another worker held the receive queue",
      "the receiving driver posted too few buffers",
      "larger than the receiving driver's buffer, and merging is not negotiated",
      "larger than the receiving port's MTU",
      "needs segmentation or a checksum that its bytes do not permit",
      "the receive queue broke while delivering"};
  static_assert(static_cast<std::size_t>(net::DropCause::kRingBroken) + 1 == kMeanings.size());
  return kMeanings[static_cast<std::size_t>(cause)];
}

}  // namespace sluice::control
