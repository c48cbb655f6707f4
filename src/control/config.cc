// Checks of a whole configuration: what one key alone cannot tell.
#include "control/config.h"

#include <fmt/format.h>

#include <bit>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "control/keys.h"
#include "switch/forwarder.h"
#include "switch/options_check.h"

namespace sluice::control {
namespace {

struct NamedPort {
  std::string name;
  std::string place;  // Of its table in the file form.
};

std::string counted(std::size_t count, std::string_view one, std::string_view more) {
  return fmt::format("{} {}", count, count == 1 ? one : more);
}

std::vector<NamedPort> named_ports(const fabric::SwitchOptions& options) {
  std::vector<NamedPort> ports;
  const auto add = [&](std::string name, std::string_view table, std::size_t index) {
    ports.push_back({std::move(name), fmt::format("{}[{}]", table, index)});
  };
  for (std::size_t i = 0; i < options.vhost_user.size(); ++i) {
    add(effective_name(options.vhost_user[i]), "vhost_user", i);
  }
  for (std::size_t i = 0; i < options.virtio_user.size(); ++i) {
    add(effective_name(options.virtio_user[i]), "virtio_user", i);
  }
  for (std::size_t i = 0; i < options.generators.size(); ++i) {
    add(options.generators[i].name, "generator", i);
  }
  for (std::size_t i = 0; i < options.sinks.size(); ++i) add(options.sinks[i].name, "sink", i);
  return ports;
}

void check_names(const std::vector<NamedPort>& ports, Problems& problems) {
  std::set<std::string_view> names;
  for (const NamedPort& port : ports) {
    const std::string place = port.place + ".name";
    if (port.name.empty()) continue;  // It lacks a path, and that is reported.
    if (!valid_port_name(port.name)) {
      problems.push_back({place, fmt::format("the port's name would be '{}'", port.name),
                          fmt::format("give name=, {}", kPortNameWords)});
    } else if (!names.insert(port.name).second) {
      problems.push_back({place, fmt::format("two ports are called '{}'", port.name),
                          "give one of them another name="});
    }
  }
}

// What a socket of a port must not be.
class SocketCheck {
 public:
  SocketCheck(std::string_view control, Problems& problems)
      : control_(control), problems_(problems) {}

  void check(const std::string& path, std::string_view kind, const std::string& place) {
    if (path.empty()) {
      problems_.push_back({place + ".path", fmt::format("a {} port has no 'path'", kind),
                           "give the path of the socket its other side uses"});
    } else if (!paths_.insert(path).second) {
      problems_.push_back({place + ".path", fmt::format("two ports use the socket {}", path),
                           "give each port a socket of its own"});
    } else if (path == control_) {
      problems_.push_back({place + ".path", fmt::format("{} is the control socket as well", path),
                           "give the port a socket of its own"});
    }
  }

 private:
  std::string_view control_;
  Problems& problems_;
  std::set<std::string_view> paths_;
};

void check_vhost_user(const Config& config, SocketCheck& sockets, Problems& problems) {
  std::set<fabric::MacAddress> macs;
  for (std::size_t i = 0; i < config.fabric.vhost_user.size(); ++i) {
    const auto& port = config.fabric.vhost_user[i];
    const std::string place = fmt::format("vhost_user[{}]", i);
    sockets.check(port.path, "vhost-user", place);
    if (port.mac && !macs.insert(*port.mac).second) {
      problems.push_back({place + ".mac",
                          fmt::format("two ports have the address {}", to_string(*port.mac)),
                          "give each port an address of its own"});
    }
    if (port.one_used_entry && !port.in_order) {
      problems.push_back({place + ".one_used_entry", "'one_used_entry' needs 'in_order'",
                          "leave in_order on, or one_used_entry off"});
    }
  }
}

void check_virtio_user(const Config& config, SocketCheck& sockets, Problems& problems) {
  for (std::size_t i = 0; i < config.fabric.virtio_user.size(); ++i) {
    const auto& port = config.fabric.virtio_user[i];
    const std::string place = fmt::format("virtio_user[{}]", i);
    sockets.check(port.path, "virtio-user", place);
    if (!std::has_single_bit(port.queue_size) && !port.packed_vq) {
      problems.push_back({place + ".queue_size",
                          fmt::format("{} is no power of two", port.queue_size),
                          "give a power of two, or packed_vq"});
    }
  }
}

void check_patches(const fabric::SwitchOptions& options, const std::vector<NamedPort>& ports,
                   Problems& problems) {
  std::map<std::string_view, int> uses;
  for (const NamedPort& port : ports) uses.emplace(port.name, 0);
  for (std::size_t i = 0; i < options.patches.size(); ++i) {
    const std::string place = fmt::format("patches[{}]", i);
    const auto& [first, second] = options.patches[i];
    for (const std::string& name : std::set{first, second}) {
      const auto use = uses.find(name);
      if (use == uses.end()) {
        problems.push_back({place, fmt::format("no port is called '{}'", name),
                            "name two ports of this configuration"});
      } else if (++use->second > 1) {
        problems.push_back({place, fmt::format("'{}' is in two pairs", name),
                            "join each port with one other port, or use the forwarder 'bridge'"});
      }
    }
  }
  for (const NamedPort& port : ports) {
    if (!options.patches.empty() && !port.name.empty() && uses[port.name] == 0) {
      problems.push_back({port.place, fmt::format("'{}' is in no pair", port.name),
                          "name it in a pair: in `patches`, or by --patch"});
    }
  }
}

void check_forwarder(const fabric::SwitchOptions& options, const std::vector<NamedPort>& ports,
                     Problems& problems) {
  if (options.forward == fabric::Forward::kBridge) {
    if (!options.patches.empty()) {
      problems.push_back({"patches", "pairs of ports are given, but the forwarder is 'bridge'",
                          "set the forwarder to 'patch', or remove the pairs"});
    }
  } else if (options.patches.empty() && ports.size() % 2 != 0) {
    problems.push_back({"forward",
                        ports.size() == 1
                            ? std::string("a single port has no other to be joined with")
                            : fmt::format("{} ports cannot all be joined in pairs", ports.size()),
                        "add a port, or name the pairs: in `patches`, or by --patch"});
  } else {
    check_patches(options, ports, problems);
  }
}

void check_workers(const fabric::WorkerOptions& workers, Problems& problems) {
  if (!workers.cores.empty() && workers.cores.size() != workers.count) {
    problems.push_back(
        {"workers.cores",
         fmt::format("{} named for {}", counted(workers.cores.size(), "core is", "cores are"),
                     counted(workers.count, "worker", "workers")),
         "name as many cores as there are workers"});
  }
  if (workers.poll != fabric::PollMode::kBusy) return;
  std::set<std::uint16_t> taken;
  for (const std::uint16_t core : workers.cores) {
    if (taken.insert(core).second) continue;
    problems.push_back(
        {"workers.cores",
         fmt::format("two workers would be busy on core {} and get half of it each", core),
         "give each a core of its own, or poll adaptively"});
    return;
  }
}

}  // namespace

std::string effective_name(const fabric::VhostUserOptions& port) {
  return port.name.empty() ? fabric::name_from(port.path) : port.name;
}
std::string effective_name(const fabric::VirtioUserOptions& port) {
  return port.name.empty() ? fabric::name_from(port.path) : port.name;
}

Problems check(const Config& config) {
  Problems problems;
  const std::vector<NamedPort> ports = named_ports(config.fabric);
  if (ports.empty()) {
    problems.push_back({"", "there are no ports",
                        "add --vhost-user PATH for each port, or [[vhost_user]] to the file"});
    return problems;
  }
  if (ports.size() > fabric::kPortsMax) {
    problems.push_back({ports[fabric::kPortsMax].place,
                        fmt::format("there are {} ports", ports.size()),
                        fmt::format("a switch has at most {}", fabric::kPortsMax)});
  }
  SocketCheck sockets(config.control, problems);
  check_vhost_user(config, sockets, problems);
  check_virtio_user(config, sockets, problems);
  check_names(ports, problems);
  check_forwarder(config.fabric, ports, problems);
  check_workers(config.fabric.workers, problems);
  return problems;
}

}  // namespace sluice::control
