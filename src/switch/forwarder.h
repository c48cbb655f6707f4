// Forwarder: decides where the packets of a burst go, and sends them there.
//
// How it works. One branchy loop sorts the burst's packets into a list per destination; then each
// destination gets its whole list in one call (Snabb's shape). Runs of packets between the same two
// stations, which is what a burst mostly is, are resolved once. Flooded packets are entered into
// the lists too, so a port always gets its packets in the order in which they came.
//
// bridge: learns source addresses (never multicast or zero ones), floods broadcast, multicast and
// unknown destinations to every other port that is ready and wants them, and never sends a frame
// back to the port it came from: one whose destination lives there is dropped as kNoDestination,
// like one that nobody gets. A source that is another port's static address is dropped as
// kSourceFilter.
// patch: everything from a port goes to its peer; a port that is its own peer echoes.
//
// Threads: forward() by any worker, each with its own scratch.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/counter.h"
#include "net/drop.h"
#include "packet/packet.h"
#include "switch/mac_table.h"
#include "switch/options.h"
#include "switch/port.h"

namespace sluice::fabric {

/// Most ports of one switch: what a worker's scratch has lists for.
inline constexpr std::size_t kPortsMax = 256;

/// What became of the packets that one thread forwarded. Together with the ports' counters this
/// closes the account: see switch/port.h.
struct ForwardCounters {
  Counter forwarded;  // Packets that were offered to at least one port.
  Counter offers;     // Offers made: one per packet and receiving port.
  Counter flooded;    // Packets among them that were offered to every port that wants them.
};

/// Where a burst came from.
struct Ingress {
  std::uint16_t port = 0;
  std::uint32_t hint = 0;  // Chooses the receiving queue: same hint, same order.
  net::DirectionCounters* counters = nullptr;  // For packets that go nowhere.
};

class Forwarder {
 public:
  /// A worker's own room. Never zero-filled: lists are begun when a burst needs them.
  struct Scratch {
    struct List {
      std::size_t count;
      std::array<packet::PacketIndex, packet::kBurstMax> which;
    };
    std::array<List, kPortsMax> lists;
    std::array<std::uint16_t, kPortsMax> begun;  // Ports whose list is in use, in order of need.
    std::size_t begun_count = 0;
    std::bitset<kPortsMax> in_use;
    std::array<std::uint16_t, kPortsMax> flood;  // Ready ports, if a packet was flooded already.
    std::size_t flood_count = 0;
    bool flood_known = false;
    ForwardCounters counters;
  };

  /// A learning bridge. `ports[i]` has number i. `table` and the ports outlive the forwarder.
  Forwarder(std::vector<Port*> ports, MacTable& table);
  /// Fixed pairs: packets from port i go to port `peer_of[i]`, or nowhere if that is kNoPeer.
  static constexpr std::uint16_t kNoPeer = 0xffff;
  Forwarder(std::vector<Port*> ports, std::vector<std::uint16_t> peer_of);

  /// Sends the packets of `burst` where they belong, and counts those that belong nowhere.
  void forward(const Ingress& from, const packet::Burst& burst, Scratch& scratch);

 private:
  // Destinations that are not ports.
  static constexpr std::uint16_t kFlood = 0xfffe;
  static constexpr std::uint16_t kDrop = 0xfffd;
  static constexpr std::uint16_t kSpoofed = 0xfffc;

  void bridge(const Ingress& from, const packet::Burst& burst, Scratch& scratch);
  void patch(const Ingress& from, const packet::Burst& burst, Scratch& scratch);
  [[nodiscard]] std::uint16_t resolve(PackedMac destination, PackedMac source, std::uint16_t from);
  static void enlist(std::uint16_t port, Scratch& scratch, std::size_t first, std::size_t end);
  void flood(const Ingress& from, PackedMac destination, Scratch& scratch, std::size_t first,
             std::size_t end);
  void find_flood_ports(std::uint16_t from, Scratch& scratch) const;

  const std::vector<Port*> ports_;
  const std::vector<const net::ReceiveFilter*> filters_;
  MacTable* const table_ = nullptr;  // Null: patch.
  const std::vector<std::uint16_t> peer_of_;
};

}  // namespace sluice::fabric
