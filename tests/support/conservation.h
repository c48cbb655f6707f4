// Conservation: every packet that came in went somewhere, and every offer was taken or counted.
//
// The rule is that of switch/port.h. It holds whenever no burst is under way: ask after the workers
// stopped, or when a single-threaded test is between two rounds.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "switch/fabric.h"
#include "switch/forwarder.h"
#include "switch/port.h"

namespace sluice::test {

/// A port's counters in one sum, as Fabric::stats() gives them.
[[nodiscard]] inline fabric::PortStats stats_of(const fabric::Port& port) {
  fabric::PortStats stats;
  stats.name = port.name();
  const auto add = [](fabric::PortTotals& totals, const net::DirectionCounters& counters) {
    totals.packets += counters.packets.value();
    totals.bytes += counters.bytes.value();
    for (std::size_t i = 0; i < net::kDropCauses; ++i) {
      totals.drops[i] += counters.drops[i].value();
    }
  };
  for (std::uint16_t q = 0; q < port.queue_pairs(); ++q) {
    add(stats.from_driver, port.from_driver(q));
    add(stats.to_driver, port.to_driver(q));
  }
  const auto cause = [&](net::DropCause which) -> std::uint64_t& {
    return stats.to_driver.drops[static_cast<std::size_t>(which)];
  };
  cause(net::DropCause::kNotReady) += port.refusals().not_ready.load();
  cause(net::DropCause::kQueueBusy) += port.refusals().queue_busy.load();
  return stats;
}

[[nodiscard]] inline std::uint64_t dropped(const fabric::PortTotals& totals) {
  return std::accumulate(totals.drops.begin(), totals.drops.end(), std::uint64_t{0});
}
[[nodiscard]] inline std::uint64_t dropped(const fabric::PortTotals& totals, net::DropCause cause) {
  return totals.drops[static_cast<std::size_t>(cause)];
}

/// Checks the account of a whole switch. `made` packets were sent by the switch itself and came in
/// on no port (announcements).
[[nodiscard]] inline ::testing::AssertionResult conserved(std::span<const fabric::PortStats> ports,
                                                          const fabric::ForwardTotals& totals,
                                                          std::uint64_t made = 0) {
  std::uint64_t came = made;
  std::uint64_t dropped_there = 0;
  std::uint64_t ended = 0;
  for (const fabric::PortStats& port : ports) {
    came += port.from_driver.packets;
    dropped_there += dropped(port.from_driver);
    ended += port.to_driver.packets + dropped(port.to_driver);
  }
  if (came != totals.forwarded + dropped_there) {
    return ::testing::AssertionFailure()
           << came << " packets came in, but " << totals.forwarded << " were forwarded and "
           << dropped_there << " dropped where they came in";
  }
  if (ended != totals.offers) {
    return ::testing::AssertionFailure()
           << totals.offers << " offers were made, but " << ended << " ended at a port";
  }
  return ::testing::AssertionSuccess();
}

[[nodiscard]] inline fabric::ForwardTotals totals_of(const fabric::ForwardCounters& counters) {
  return {.forwarded = counters.forwarded.value(),
          .offers = counters.offers.value(),
          .flooded = counters.flooded.value()};
}

}  // namespace sluice::test
