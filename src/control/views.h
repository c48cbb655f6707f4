// What a running switch shows of itself, as JSON. docs/control.md describes each field; names and
// meanings stay as they are once published.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "net/drop.h"
#include "switch/fabric.h"

namespace sluice::control {

/// Keeps fields in the order they were added, so that people can read a document.
using Json = nlohmann::ordered_json;

/// What requests are answered from: a running fabric, or a stand-in in tests.
class Views {
 public:
  virtual ~Views() = default;
  [[nodiscard]] virtual std::vector<fabric::PortView> ports() const = 0;
  [[nodiscard]] virtual std::vector<fabric::PortStats> stats() const = 0;
  [[nodiscard]] virtual std::vector<fabric::QueueView> queues(const std::string& port) const = 0;
  [[nodiscard]] virtual std::vector<fabric::FdbEntry> fdb() const = 0;
  [[nodiscard]] virtual std::vector<fabric::WorkerView> workers() const = 0;
  [[nodiscard]] virtual fabric::ForwardTotals forwarding() const = 0;
};

class FabricViews final : public Views {
 public:
  /// Requires: `running` outlives this object.
  explicit FabricViews(const fabric::Fabric& running) : fabric_(running) {}
  [[nodiscard]] std::vector<fabric::PortView> ports() const override { return fabric_.ports(); }
  [[nodiscard]] std::vector<fabric::PortStats> stats() const override { return fabric_.stats(); }
  [[nodiscard]] std::vector<fabric::QueueView> queues(const std::string& port) const override {
    return fabric_.queues(port);
  }
  [[nodiscard]] std::vector<fabric::FdbEntry> fdb() const override { return fabric_.fdb(); }
  [[nodiscard]] std::vector<fabric::WorkerView> workers() const override {
    return fabric_.workers();
  }
  [[nodiscard]] fabric::ForwardTotals forwarding() const override { return fabric_.forwarding(); }

 private:
  const fabric::Fabric& fabric_;
};

/// Most learned addresses in one reply; a larger table is cut and says so.
inline constexpr std::size_t kFdbShownMax = 16384;

[[nodiscard]] Json to_json(const fabric::PortView& port);
[[nodiscard]] Json to_json(const fabric::PortStats& stats);
/// A queue, with the name of its port.
[[nodiscard]] Json to_json(const std::string& port, const fabric::QueueView& queue);
[[nodiscard]] Json to_json(const fabric::FdbEntry& entry);
[[nodiscard]] Json to_json(const fabric::WorkerView& worker);
[[nodiscard]] Json to_json(const fabric::ForwardTotals& totals);

/// Text for sending: one line; bytes that are not UTF-8 become a replacement character.
[[nodiscard]] std::string dump(const Json& document);
/// The same over several lines, for people and pipes.
[[nodiscard]] std::string dump_pretty(const Json& document);

/// What a cause means, in words.
[[nodiscard]] std::string_view meaning_of(net::DropCause cause);

}  // namespace sluice::control
