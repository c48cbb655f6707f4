// ReferenceSwitch: a learning bridge in a few lines, to compare the forwarder with.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace sluice::test {

/// Ports 0 to `ports` - 1. Addresses as integers whose lowest bit says "group".
class ReferenceSwitch {
 public:
  explicit ReferenceSwitch(std::uint16_t ports) : ready(ports, true) {}

  struct Verdict {
    std::vector<std::uint16_t> receivers;
    bool spoofed = false;
  };

  /// What becomes of one frame.
  Verdict pass(std::uint16_t from, std::uint64_t to, std::uint64_t source) {
    const auto owner = pinned.find(source);
    if (owner != pinned.end() && owner->second != from) return {.receivers = {}, .spoofed = true};
    if ((source & 1) == 0 && source != 0) learned[source] = from;
    if ((to & 1) == 0) {
      if (const auto home = home_of(to)) {
        if (*home == from) return {};
        return {.receivers = {*home}};
      }
    }
    Verdict verdict;
    for (std::uint16_t port = 0; port < ready.size(); ++port) {
      if (port != from && ready[port]) verdict.receivers.push_back(port);
    }
    return verdict;
  }

  void forget(std::uint16_t port) {
    std::erase_if(learned, [&](const auto& entry) { return entry.second == port; });
  }

  std::vector<bool> ready;
  std::map<std::uint64_t, std::uint16_t> learned;
  std::map<std::uint64_t, std::uint16_t> pinned;

 private:
  [[nodiscard]] std::optional<std::uint16_t> home_of(std::uint64_t mac) const {
    for (const auto* table : {&pinned, &learned}) {
      if (const auto found = table->find(mac); found != table->end()) return found->second;
    }
    return std::nullopt;
  }
};

}  // namespace sluice::test
