// The rows of the tables of keys.
#include "control/keys.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "net/transport.h"
#include "switch/mac_table.h"
#include "switch/options_check.h"

namespace sluice::control {
namespace {

using fabric::GeneratorOptions;
using fabric::SinkOptions;
using fabric::VhostUserOptions;
using fabric::VirtioUserOptions;

constexpr std::int64_t kCoreMax = 1023;

bool valid_path(std::string_view path) {
  return path.find('\0') == std::string_view::npos;
}

constexpr std::array<Key<Config>, 10> kConfigKeys = {{
    {{.name = "forward",
      .placeholder = "HOW",
      .help = "How packets find their way: `bridge` "
              "learns addresses, `patch` joins pairs of ports",
      .flag = "forward"},
     [](Config& c) -> Slot { return &c.fabric.forward; }},
    {{.name = "control",
      .placeholder = "PATH",
      .min = 1,
      .max = kSocketPathMax,
      .help = "Control socket that `sluice port show` and the others ask",
      .flag = "control",
      .valid = valid_path,
      .valid_words = "a path of 1 to 107 bytes"},
     [](Config& c) -> Slot { return &c.control; }},
    {{.name = "state_dir",
      .placeholder = "DIR",
      .min = 1,
      .max = 4000,
      .help = "Directory for the records that let packed rings survive a restart; absent: beside "
              "each socket",
      .flag = "state-dir",
      .valid = valid_path,
      .valid_words = "a path of 1 to 4000 bytes"},
     [](Config& c) -> Slot { return &c.fabric.state_directory; }},
    {{.name = "stats_interval",
      .placeholder = "S",
      .min = 0,
      .max = 86400,
      .unit = "seconds",
      .help = "Time between lines of counters on stderr; 0: none",
      .flag = "stats-interval"},
     [](Config& c) -> Slot { return &c.stats_interval; }},
    {{.name = "table_size",
      .placeholder = "N",
      .min = 16,
      .max = fabric::MacTable::kSizeMax,
      .help = "Addresses the bridge can learn",
      .section = "bridge",
      .flag = "table-size"},
     [](Config& c) -> Slot { return &c.fabric.bridge.table_size; }},
    {{.name = "ageing",
      .placeholder = "S",
      .min = 1,
      .max = 1000000,
      .unit = "seconds",
      .help = "Time after which the bridge forgets a silent address",
      .section = "bridge",
      .flag = "ageing"},
     [](Config& c) -> Slot { return &c.fabric.bridge.ageing; }},
    {{.name = "count",
      .placeholder = "N",
      .min = 1,
      .max = fabric::kWorkersMax,
      .help = "Worker threads that move packets",
      .section = "workers",
      .flag = "workers"},
     [](Config& c) -> Slot { return &c.fabric.workers.count; }},
    {{.name = "poll",
      .placeholder = "MODE",
      .help = "How a worker waits: `busy` never sleeps, `adaptive` spins, then sleeps, "
              "`interrupt` sleeps at once",
      .section = "workers",
      .flag = "poll"},
     [](Config& c) -> Slot { return &c.fabric.workers.poll; }},
    {{.name = "cores",
      .placeholder = "LIST",
      .min = 0,
      .max = kCoreMax,
      .help = "Core of each worker; absent: the system places them",
      .section = "workers",
      .flag = "cores"},
     [](Config& c) -> Slot { return &c.fabric.workers.cores; }},
    {{.name = "spin",
      .placeholder = "US",
      .min = 0,
      .max = 1000000,
      .unit = "microseconds",
      .help = "How long an adaptive worker looks for packets before it sleeps",
      .section = "workers",
      .flag = "spin"},
     [](Config& c) -> Slot { return &c.fabric.workers.spin; }},
}};

constexpr std::array<Key<VhostUserOptions>, 14> kVhostUserKeys = {{
    {{.name = "path",
      .placeholder = "PATH",
      .min = 1,
      .max = kSocketPathMax,
      .help = "Socket the driver's side (QEMU, virtio-user) meets us at",
      .valid = valid_path,
      .valid_words = "a path of 1 to 107 bytes"},
     [](VhostUserOptions& o) -> Slot { return &o.path; }},
    {{.name = "name",
      .placeholder = "NAME",
      .min = 1,
      .max = 32,
      .help = "Name of the port; absent: the socket's file name without `.sock`",
      .valid = valid_port_name,
      .valid_words = kPortNameWords},
     [](VhostUserOptions& o) -> Slot { return &o.name; }},
    {{.name = "queues",
      .placeholder = "N",
      .min = 1,
      .max = net::kQueuePairsMax,
      .help = "Queue pairs offered to the driver"},
     [](VhostUserOptions& o) -> Slot { return &o.queues; }},
    {{.name = "client", .help = "Connect to the socket, again and again, instead of listening"},
     [](VhostUserOptions& o) -> Slot { return &o.client; }},
    {{.name = "mac",
      .placeholder = "MAC",
      .help = "Address offered to the driver; frames from other source addresses are dropped"},
     [](VhostUserOptions& o) -> Slot { return &o.mac; }},
    {{.name = "offloads", .help = "Offer checksum and segmentation offloads"},
     [](VhostUserOptions& o) -> Slot { return &o.offloads; }},
    {{.name = "mtu",
      .placeholder = "BYTES",
      .min = 68,
      .max = 65535,
      .unit = "bytes",
      .help = "Largest payload towards the driver; below 65535 it is offered as its MTU"},
     [](VhostUserOptions& o) -> Slot { return &o.mtu; }},
    {{.name = "packed", .help = "Offer packed rings"},
     [](VhostUserOptions& o) -> Slot { return &o.packed; }},
    {{.name = "in_order", .help = "Offer use of buffers in order"},
     [](VhostUserOptions& o) -> Slot { return &o.in_order; }},
    {{.name = "mrg_rxbuf", .help = "Offer mergeable receive buffers"},
     [](VhostUserOptions& o) -> Slot { return &o.mrg_rxbuf; }},
    {{.name = "event_idx", .help = "Offer event indices, which save notifications"},
     [](VhostUserOptions& o) -> Slot { return &o.event_idx; }},
    {{.name = "indirect", .help = "Offer indirect descriptors"},
     [](VhostUserOptions& o) -> Slot { return &o.indirect; }},
    {{.name = "ring_reset",
      .help =
          "Offer reset of single rings; only for front-ends that pass it on (QEMU 7.2 does not)"},
     [](VhostUserOptions& o) -> Slot { return &o.ring_reset; }},
    {{.name = "one_used_entry",
      .help =
          "Give back an in-order transmit burst with one used entry; the driver must know that"},
     [](VhostUserOptions& o) -> Slot { return &o.one_used_entry; }},
}};

constexpr std::array<Key<VirtioUserOptions>, 14> kVirtioUserKeys = {{
    {{.name = "path",
      .placeholder = "PATH",
      .min = 1,
      .max = kSocketPathMax,
      .help = "Socket where the device's side (another switch, DPDK's net_vhost) meets us",
      .valid = valid_path,
      .valid_words = "a path of 1 to 107 bytes"},
     [](VirtioUserOptions& o) -> Slot { return &o.path; }},
    {{.name = "name",
      .placeholder = "NAME",
      .min = 1,
      .max = 32,
      .help = "Name of the port; absent: the socket's file name without `.sock`",
      .valid = valid_port_name,
      .valid_words = kPortNameWords},
     [](VirtioUserOptions& o) -> Slot { return &o.name; }},
    {{.name = "queues",
      .placeholder = "N",
      .min = 1,
      .max = net::kQueuePairsMax,
      .help = "Queue pairs to use; the device must have as many"},
     [](VirtioUserOptions& o) -> Slot { return &o.queues; }},
    {{.name = "queue_size",
      .placeholder = "N",
      .min = 2,
      .max = 32768,
      .help = "Buffers of each ring; a power of two, unless packed_vq"},
     [](VirtioUserOptions& o) -> Slot { return &o.queue_size; }},
    {{.name = "server", .help = "Listen for the device's side instead of connecting to it"},
     [](VirtioUserOptions& o) -> Slot { return &o.server; }},
    {{.name = "mtu",
      .placeholder = "BYTES",
      .min = 68,
      .max = 65535,
      .unit = "bytes",
      .help = "Largest payload towards the device; below 65535 the device is told"},
     [](VirtioUserOptions& o) -> Slot { return &o.mtu; }},
    {{.name = "packed_vq", .help = "Use packed rings, if offered"},
     [](VirtioUserOptions& o) -> Slot { return &o.packed_vq; }},
    {{.name = "in_order", .help = "Use buffers in order, if offered"},
     [](VirtioUserOptions& o) -> Slot { return &o.in_order; }},
    {{.name = "mrg_rxbuf", .help = "Use mergeable receive buffers, if offered"},
     [](VirtioUserOptions& o) -> Slot { return &o.mrg_rxbuf; }},
    {{.name = "event_idx", .help = "Use event indices, which save notifications, if offered"},
     [](VirtioUserOptions& o) -> Slot { return &o.event_idx; }},
    {{.name = "csum", .help = "Use checksum offloads, if offered"},
     [](VirtioUserOptions& o) -> Slot { return &o.csum; }},
    {{.name = "tso", .help = "Use segmentation offloads, if offered; needs csum"},
     [](VirtioUserOptions& o) -> Slot { return &o.tso; }},
    {{.name = "mac",
      .placeholder = "MAC",
      .help = "The driver's own address, shown by `sluice port show`; no frame is filtered by it"},
     [](VirtioUserOptions& o) -> Slot { return &o.mac; }},
    {{.name = "speed",
      .placeholder = "N",
      .min = 0,
      .max = 400'000,
      .choices = fabric::kLinkSpeeds,
      .unit = "Mbit/s",
      .help = "Link speed shown by `sluice port show`; 0: not known; it limits nothing"},
     [](VirtioUserOptions& o) -> Slot { return &o.speed; }},
}};

constexpr std::array<Key<GeneratorOptions>, 3> kGeneratorKeys = {{
    {{.name = "name",
      .placeholder = "NAME",
      .min = 1,
      .max = 32,
      .help = "Name of the port",
      .valid = valid_port_name,
      .valid_words = kPortNameWords},
     [](GeneratorOptions& o) -> Slot { return &o.name; }},
    {{.name = "queues",
      .placeholder = "N",
      .min = 1,
      .max = net::kQueuePairsMax,
      .help = "Queues that make frames"},
     [](GeneratorOptions& o) -> Slot { return &o.queues; }},
    {{.name = "size",
      .placeholder = "BYTES",
      .min = 14,
      .max = 65549,
      .unit = "bytes",
      .help = "Length of each frame"},
     [](GeneratorOptions& o) -> Slot { return &o.size; }},
}};

constexpr std::array<Key<SinkOptions>, 2> kSinkKeys = {{
    {{.name = "name",
      .placeholder = "NAME",
      .min = 1,
      .max = 32,
      .help = "Name of the port",
      .valid = valid_port_name,
      .valid_words = kPortNameWords},
     [](SinkOptions& o) -> Slot { return &o.name; }},
    {{.name = "touch", .help = "Read every byte of a frame, not only what delivery needs"},
     [](SinkOptions& o) -> Slot { return &o.touch; }},
}};

}  // namespace

std::span<const Key<Config>> config_keys() {
  return kConfigKeys;
}
std::span<const Key<VhostUserOptions>> vhost_user_keys() {
  return kVhostUserKeys;
}
std::span<const Key<VirtioUserOptions>> virtio_user_keys() {
  return kVirtioUserKeys;
}
std::span<const Key<GeneratorOptions>> generator_keys() {
  return kGeneratorKeys;
}
std::span<const Key<SinkOptions>> sink_keys() {
  return kSinkKeys;
}

bool valid_port_name(std::string_view name) {
  constexpr std::size_t kNameMax = 32;
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  return !name.empty() && name.size() <= kNameMax && name.front() != '-' &&
         std::ranges::all_of(name, allowed);
}

}  // namespace sluice::control
