// Classification of bursts, and one loop per destination.
#include "switch/forwarder.h"

#include <cstring>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace sluice::fabric {

namespace {

using packet::Burst;
using packet::Packet;
using packet::PacketIndex;

constexpr std::array<PacketIndex, packet::kBurstMax> every_index() {
  std::array<PacketIndex, packet::kBurstMax> result{};
  std::iota(result.begin(), result.end(), PacketIndex{0});
  return result;
}
constexpr auto kEveryIndex = every_index();

PackedMac destination_of(const Packet& packet) {
  std::uint64_t word = 0;
  std::memcpy(&word, packet.head.data(), sizeof word);
  return word & net::kMacMask;
}

PackedMac source_of(const Packet& packet) {
  std::uint64_t word = 0;
  std::memcpy(&word, packet.head.data() + 6, sizeof word);
  return word & net::kMacMask;
}

// Whether two packets go between the same two stations: their first twelve bytes are equal.
bool same_stations(const Packet& a, const Packet& b) {
  std::uint64_t a_first = 0;
  std::uint64_t b_first = 0;
  std::uint32_t a_last = 0;
  std::uint32_t b_last = 0;
  std::memcpy(&a_first, a.head.data(), sizeof a_first);
  std::memcpy(&b_first, b.head.data(), sizeof b_first);
  std::memcpy(&a_last, a.head.data() + sizeof a_first, sizeof a_last);
  std::memcpy(&b_last, b.head.data() + sizeof b_first, sizeof b_last);
  return a_first == b_first && a_last == b_last;
}

std::vector<const net::ReceiveFilter*> filters_of(const std::vector<Port*>& ports) {
  std::vector<const net::ReceiveFilter*> result;
  result.reserve(ports.size());
  for (const Port* port : ports) result.push_back(port->filter());
  return result;
}

}  // namespace

Forwarder::Forwarder(std::vector<Port*> ports, MacTable& table)
    : ports_(std::move(ports)), filters_(filters_of(ports_)), table_(&table) {
  CHECK(ports_.size() <= kPortsMax, "scratch has a list for every port");
}

Forwarder::Forwarder(std::vector<Port*> ports, std::vector<std::uint16_t> peer_of)
    : ports_(std::move(ports)), filters_(filters_of(ports_)), peer_of_(std::move(peer_of)) {
  CHECK(ports_.size() <= kPortsMax, "scratch has a list for every port");
  CHECK(peer_of_.size() == ports_.size(), "every port has a peer or kNoPeer");
}

void Forwarder::forward(const Ingress& from, const Burst& burst, Scratch& scratch) {
  if (table_ == nullptr) {
    patch(from, burst, scratch);
  } else {
    bridge(from, burst, scratch);
  }
}

void Forwarder::patch(const Ingress& from, const Burst& burst, Scratch& scratch) {
  const std::uint16_t peer = peer_of_[from.port];
  if (peer == kNoPeer) {
    from.counters->drop(net::DropCause::kNoDestination, burst.count);
    return;
  }
  scratch.counters.forwarded.add(burst.count);
  scratch.counters.offers.add(burst.count);
  ports_[peer]->transmit(from.hint, burst, std::span(kEveryIndex).first(burst.count));
}

void Forwarder::bridge(const Ingress& from, const Burst& burst, Scratch& scratch) {
  scratch.flood_known = false;
  std::size_t first = 0;
  while (first < burst.count) {
    const Packet& packet = burst.packets[first];
    const PackedMac destination = destination_of(packet);
    const std::uint16_t target = resolve(destination, source_of(packet), from.port);
    std::size_t end = first + 1;
    while (end < burst.count && same_stations(packet, burst.packets[end])) ++end;
    if (target < ports_.size()) [[likely]] {
      enlist(target, scratch, first, end);
      scratch.counters.forwarded.add(end - first);
    } else if (target == kFlood) {
      flood(from, destination, scratch, first, end);
    } else {
      from.counters->drop(
          target == kSpoofed ? net::DropCause::kSourceFilter : net::DropCause::kNoDestination,
          end - first);
    }
    first = end;
  }
  for (std::size_t i = 0; i < scratch.begun_count; ++i) {
    const std::uint16_t port = scratch.begun[i];
    const Scratch::List& list = scratch.lists[port];
    scratch.in_use.reset(port);
    scratch.counters.offers.add(list.count);
    ports_[port]->transmit(from.hint, burst, std::span(list.which).first(list.count));
  }
  scratch.begun_count = 0;
}

std::uint16_t Forwarder::resolve(PackedMac destination, PackedMac source, std::uint16_t from) {
  if (!net::is_multicast(source) && source != 0 && !table_->learn(source, from)) return kSpoofed;
  if (net::is_multicast(destination)) return kFlood;
  const std::uint16_t port = table_->find(destination);
  if (port == MacTable::kNoPort) return kFlood;
  return port == from ? kDrop : port;
}

// Enters packets [first, end) into the list of one port.
void Forwarder::enlist(std::uint16_t port, Scratch& scratch, std::size_t first, std::size_t end) {
  Scratch::List& list = scratch.lists[port];
  if (!scratch.in_use.test(port)) {
    scratch.in_use.set(port);
    scratch.begun[scratch.begun_count++] = port;
    list.count = 0;
  }
  std::size_t count = list.count;
  for (std::size_t i = first; i < end; ++i) list.which[count++] = kEveryIndex[i];
  list.count = count;
}

void Forwarder::flood(const Ingress& from, PackedMac destination, Scratch& scratch,
                      std::size_t first, std::size_t end) {
  if (!scratch.flood_known) find_flood_ports(from.port, scratch);
  const std::size_t packets = end - first;
  std::size_t receivers = 0;
  for (std::size_t i = 0; i < scratch.flood_count; ++i) {
    const std::uint16_t port = scratch.flood[i];
    if (filters_[port] != nullptr && !filters_[port]->wants(destination)) continue;
    enlist(port, scratch, first, end);
    ++receivers;
  }
  if (receivers == 0) {
    from.counters->drop(net::DropCause::kNoDestination, packets);
    return;
  }
  scratch.counters.forwarded.add(packets);
  scratch.counters.flooded.add(packets);
}

void Forwarder::find_flood_ports(std::uint16_t from, Scratch& scratch) const {
  scratch.flood_count = 0;
  for (std::size_t port = 0; port < ports_.size(); ++port) {
    if (port == from || !ports_[port]->ready()) continue;
    scratch.flood[scratch.flood_count++] = static_cast<std::uint16_t>(port);
  }
  scratch.flood_known = true;
}

}  // namespace sluice::fabric
