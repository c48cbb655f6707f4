// What a switch is told when it starts: ports, forwarding, workers. Filled by flags or by a file.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::fabric {

enum class Forward : std::uint8_t { kBridge, kPatch };
enum class PollMode : std::uint8_t { kBusy, kAdaptive, kInterrupt };

using MacAddress = std::array<std::byte, 6>;

/// Speeds that a link can be said to have, Mbit/s; 0: not known.
inline constexpr std::array<std::uint32_t, 15> kLinkSpeeds = {
    0,      10,     100,    1'000,  2'500,   5'000,   10'000, 20'000,
    25'000, 40'000, 50'000, 56'000, 100'000, 200'000, 400'000};

/// A vhost-user port: one virtio-net device, served to a driver over a Unix socket.
struct VhostUserOptions {
  std::string path;               // Of the socket.
  std::string name;               // Unique; empty: the file name of `path` without ".sock".
  std::uint16_t queues = 1;       // Queue pairs offered, 1..kQueuePairsMax.
  bool client = false;            // Connect (again and again) instead of listening.
  std::optional<MacAddress> mac;  // Offered to the driver; frames from other sources are dropped.
  bool offloads = true;           // Checksum and segmentation offloads.
  std::uint16_t mtu = 65535;      // Largest payload towards the driver; below 65535 MTU is offered.
  bool packed = true;             // Offer RING_PACKED, ...
  bool in_order = true;           // ... IN_ORDER, ...
  bool mrg_rxbuf = true;          // ... MRG_RXBUF, ...
  bool event_idx = true;          // ... EVENT_IDX, ...
  bool indirect = true;           // ... INDIRECT_DESC, ...
  bool ring_reset = false;        // ... RING_RESET: only for drivers whose front-end tells us.
  bool one_used_entry = false;    // Give back in-order transmit bursts with one used entry.
};

/// A virtio-user port: a virtio-net driver, connected to a device that a vhost-user back-end serves
/// (another switch, DPDK's net_vhost). Names of values are those of DPDK's virtio-user where it has
/// them.
struct VirtioUserOptions {
  std::string path;                // Of the socket.
  std::string name;                // Unique; empty: the file name of `path` without ".sock".
  std::uint16_t queues = 1;        // Queue pairs, 1..kQueuePairsMax.
  std::uint32_t queue_size = 256;  // Of each ring; a power of two, unless packed.
  bool server = false;             // Listen instead of connecting (again and again).
  std::uint16_t mtu = 65535;       // Largest payload; below 65535 the device is told.
  bool packed_vq = false;          // Use packed rings if offered, ...
  bool in_order = true;            // ... IN_ORDER, ...
  bool mrg_rxbuf = true;           // ... MRG_RXBUF, ...
  bool event_idx = true;           // ... EVENT_IDX, ...
  bool csum = true;                // ... checksum offloads, ...
  bool tso = true;                 // ... and segmentation offloads, which need `csum`.
  /// What the port says of itself when it is shown; nothing follows from either.
  std::optional<MacAddress> mac;  // The driver's own address.
  std::uint32_t speed = 0;        // Of the link, Mbit/s: one of kLinkSpeeds.
};

/// Lengths of frames as on the Internet, "simple IMIX": 7 of 64, 4 of 594, 1 of 1,518 bytes.
inline constexpr std::array<std::uint32_t, 12> kImixSizes = {64, 594, 64, 64,  594, 64,
                                                             64, 594, 64, 594, 64,  1518};

/// Makes frames (for benchmarks and tests): each receive() gives a burst of equal frames.
struct GeneratorOptions {
  std::string name = "gen0";
  std::uint16_t queues = 1;
  std::uint32_t size = 64;  // Frame bytes, 14..65549.
  bool imix = false;        // Sizes of kImixSizes by turns instead.
};

/// Takes and counts frames.
struct SinkOptions {
  std::string name = "sink0";
  bool touch = false;  // Read every payload byte (else only what delivery needs).
};

struct WorkerOptions {
  std::uint16_t count = 1;
  PollMode poll = PollMode::kAdaptive;
  std::vector<std::uint16_t> cores;    // Core of worker i; empty: not pinned.
  std::chrono::microseconds spin{50};  // Adaptive: how long it spins before it sleeps.
};

struct BridgeOptions {
  std::size_t table_size = 4096;  // MAC entries.
  std::chrono::seconds ageing{300};
};

struct SwitchOptions {
  // In order of port number, and so are the kinds.
  std::vector<VhostUserOptions> vhost_user;
  std::vector<VirtioUserOptions> virtio_user;
  std::vector<GeneratorOptions> generators;
  std::vector<SinkOptions> sinks;
  Forward forward = Forward::kBridge;
  /// Patch: pairs of port names, both directions; a port paired with itself echoes. Empty with
  /// kPatch: ports 0-1, 2-3, ... in order.
  std::vector<std::pair<std::string, std::string>> patches;
  BridgeOptions bridge;
  WorkerOptions workers;
  std::string state_directory;  // Where used-position records live; empty: beside each socket.
};

}  // namespace sluice::fabric
