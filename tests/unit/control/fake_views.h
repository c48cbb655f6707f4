// A switch that shows what a test tells it to.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "control/views.h"

namespace sluice::control {

class FakeViews final : public Views {
 public:
  [[nodiscard]] std::vector<fabric::PortView> ports() const override { return port_views; }
  [[nodiscard]] std::vector<fabric::PortStats> stats() const override { return port_stats; }
  [[nodiscard]] std::vector<fabric::QueueView> queues(const std::string& port) const override {
    const auto found = queue_views.find(port);
    return found == queue_views.end() ? std::vector<fabric::QueueView>() : found->second;
  }
  [[nodiscard]] std::vector<fabric::FdbEntry> fdb() const override { return fdb_entries; }
  [[nodiscard]] std::vector<fabric::WorkerView> workers() const override { return worker_views; }
  [[nodiscard]] fabric::ForwardTotals forwarding() const override { return forward_totals; }

  std::vector<fabric::PortView> port_views;
  std::vector<fabric::PortStats> port_stats;
  std::map<std::string, std::vector<fabric::QueueView>> queue_views;
  std::vector<fabric::FdbEntry> fdb_entries;
  std::vector<fabric::WorkerView> worker_views;
  fabric::ForwardTotals forward_totals;
};

/// Two idle ports, vm0 and vm1.
inline FakeViews two_ports() {
  FakeViews views;
  for (std::uint16_t i = 0; i < 2; ++i) {
    fabric::PortView port;
    port.id = fabric::PortId(i);
    port.name = "vm" + std::to_string(i);
    port.kind = "vhost-user";
    port.path = "/run/" + port.name + ".sock";
    port.role = "server";
    port.state = "listening";
    port.queue_pairs = 1;
    port.mtu = 65535;
    views.port_views.push_back(port);
    fabric::PortStats stats;
    stats.name = port.name;
    views.port_stats.push_back(stats);
  }
  return views;
}

}  // namespace sluice::control
