// The rules of SwitchOptions.
#include "switch/options_check.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <string_view>

#include "net/net_device.h"
#include "switch/forwarder.h"
#include "switch/mac_table.h"
#include "virtio/spec.h"

namespace sluice::fabric {

namespace {

std::unexpected<Error> refuse(const char* text, std::size_t index = 0) {
  return fail(ErrorCode::kInvalidArgument, text, static_cast<std::int64_t>(index));
}

std::optional<std::size_t> first_repeated(std::vector<std::string> names) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto begin = names.begin();
    const auto here = begin + static_cast<std::ptrdiff_t>(i);
    if (std::find(begin, here, names[i]) != here) return i;
  }
  return std::nullopt;
}

Status check_driver(const VirtioUserOptions& port) {
  if (port.queues < 1 || port.queues > net::kQueuePairsMax) {
    return fail(ErrorCode::kOutOfRange, "queues is outside 1..127", port.queues);
  }
  if (port.queue_size < 2 || port.queue_size > virtio::kQueueSizeMax) {
    return fail(ErrorCode::kOutOfRange, "queue_size is outside 2..32768", port.queue_size);
  }
  if (!port.packed_vq && !std::has_single_bit(port.queue_size)) {
    return fail(ErrorCode::kInvalidArgument, "queue_size is no power of two", port.queue_size);
  }
  if (port.mtu < 68) return fail(ErrorCode::kOutOfRange, "mtu is below 68", port.mtu);
  if (port.mac.has_value()) {
    const bool group = (std::to_integer<unsigned>((*port.mac)[0]) & 1) != 0;
    if (group || *port.mac == MacAddress{}) {
      return fail(ErrorCode::kInvalidArgument, "mac is not the address of one station");
    }
  }
  if (std::find(kLinkSpeeds.begin(), kLinkSpeeds.end(), port.speed) == kLinkSpeeds.end()) {
    return fail(ErrorCode::kInvalidArgument, "speed is none that a link can have", port.speed);
  }
  return {};
}

Status check_ports(const SwitchOptions& options) {
  const auto names = port_names(options);
  if (names.empty()) return refuse("ports: a switch needs at least one");
  if (names.size() > kPortsMax) {
    return fail(ErrorCode::kOutOfRange, "ports: more than 256", std::int64_t(names.size()));
  }
  const auto unnamed = std::find(names.begin(), names.end(), "");
  if (unnamed != names.end()) {
    return refuse("name: is empty, and there is none in path",
                  std::size_t(unnamed - names.begin()));
  }
  if (const auto index = first_repeated(names)) {
    return fail(ErrorCode::kExists, "name: two ports have the same", std::int64_t(*index));
  }
  std::vector<std::string> paths;
  std::vector<MacAddress> macs;
  for (const VhostUserOptions& port : options.vhost_user) {
    if (port.path.empty()) return refuse("path: is empty", paths.size());
    paths.push_back(port.path);
    if (!port.mac.has_value()) continue;
    if (std::find(macs.begin(), macs.end(), *port.mac) != macs.end()) {
      return fail(ErrorCode::kExists, "mac: two ports have the same",
                  std::int64_t(paths.size() - 1));
    }
    macs.push_back(*port.mac);
  }
  for (const VirtioUserOptions& port : options.virtio_user) {
    if (port.path.empty()) return refuse("path: is empty", paths.size());
    paths.push_back(port.path);
    TRY(check_driver(port));
  }
  if (const auto index = first_repeated(paths)) {
    return fail(ErrorCode::kExists, "path: two ports have the same", std::int64_t(*index));
  }
  return {};
}

Status check_workers(const WorkerOptions& workers) {
  if (workers.count < 1 || workers.count > kWorkersMax) {
    return fail(ErrorCode::kOutOfRange, "workers.count is outside 1..256", workers.count);
  }
  if (!workers.cores.empty() && workers.cores.size() != workers.count) {
    return refuse("workers.cores: needs one core for each worker", workers.cores.size());
  }
  if (workers.spin.count() < 0 || workers.spin > std::chrono::seconds{1}) {
    return fail(ErrorCode::kOutOfRange, "workers.spin is outside 0..1000000 microseconds",
                workers.spin.count());
  }
  return {};
}

Status check_bridge(const BridgeOptions& bridge) {
  if (bridge.table_size < 1 || bridge.table_size > MacTable::kSizeMax) {
    return fail(ErrorCode::kOutOfRange, "bridge.table_size is outside 1..1048576",
                static_cast<std::int64_t>(bridge.table_size));
  }
  if (bridge.ageing < std::chrono::seconds{1} || bridge.ageing > std::chrono::seconds{1'000'000}) {
    return fail(ErrorCode::kOutOfRange, "bridge.ageing is outside 1..1000000 seconds",
                bridge.ageing.count());
  }
  return {};
}

std::optional<std::uint16_t> number_of(const std::vector<std::string>& names,
                                       const std::string& name) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<std::uint16_t>(found - names.begin());
}

Status check_patches(const SwitchOptions& options) {
  if (options.forward == Forward::kBridge) {
    if (!options.patches.empty()) return refuse("patches: only with forward = patch");
    return {};
  }
  const auto names = port_names(options);
  if (options.patches.empty()) {
    if (names.size() % 2 == 0) return {};
    return refuse("patches: an odd number of ports cannot be paired in order", names.size());
  }
  std::vector<bool> taken(names.size());
  for (std::size_t i = 0; i < options.patches.size(); ++i) {
    const auto& [left, right] = options.patches[i];
    const auto a = number_of(names, left);
    const auto b = number_of(names, right);
    if (!a.has_value() || !b.has_value()) {
      return fail(ErrorCode::kNotFound, "patches: no port has this name",
                  static_cast<std::int64_t>(i));
    }
    if (taken[*a] || taken[*b]) return refuse("patches: a port is in two pairs", i);
    taken[*a] = true;
    taken[*b] = true;
  }
  return {};
}

}  // namespace

std::string name_from(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  if (slash != std::string_view::npos) path.remove_prefix(slash + 1);
  if (path.size() > 5 && path.ends_with(".sock")) path.remove_suffix(5);
  return std::string(path);
}

std::vector<std::string> port_names(const SwitchOptions& options) {
  std::vector<std::string> names;
  for (const auto& port : options.vhost_user) names.push_back(port.name);
  for (const auto& port : options.virtio_user) names.push_back(port.name);
  for (const auto& port : options.generators) names.push_back(port.name);
  for (const auto& port : options.sinks) names.push_back(port.name);
  return names;
}

Result<SwitchOptions> complete(const SwitchOptions& options) {
  SwitchOptions result = options;
  for (VhostUserOptions& port : result.vhost_user) {
    if (port.name.empty()) port.name = name_from(port.path);
  }
  for (VirtioUserOptions& port : result.virtio_user) {
    if (port.name.empty()) port.name = name_from(port.path);
  }
  TRY(check_ports(result));
  TRY(check_workers(result.workers));
  TRY(check_bridge(result.bridge));
  TRY(check_patches(result));
  return result;
}

std::vector<std::uint16_t> patch_peers(const SwitchOptions& options) {
  const auto names = port_names(options);
  std::vector<std::uint16_t> peers(names.size(), Forwarder::kNoPeer);
  if (options.patches.empty()) {
    for (std::size_t i = 0; i < peers.size(); ++i) peers[i] = static_cast<std::uint16_t>(i ^ 1);
  }
  for (const auto& [left, right] : options.patches) {
    const std::uint16_t a = *number_of(names, left);
    const std::uint16_t b = *number_of(names, right);
    peers[a] = b;
    peers[b] = a;
  }
  return peers;
}

}  // namespace sluice::fabric
