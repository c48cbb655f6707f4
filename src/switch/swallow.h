// Swallow: the end of the road for packets. Counts them, and reads them if asked to.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/cache_line.h"
#include "net/drop.h"
#include "packet/packet.h"
#include "switch/port.h"
#include "switch/queue_lock.h"

namespace sluice::fabric {

/// A few independent lanes, so that workers do not stand in each other's way.
/// Threads: take() by any worker.
class Swallow {
 public:
  Swallow(bool touch, std::uint16_t lanes) : touch_(touch), lanes_(lanes) {}

  std::size_t take(std::uint32_t hint, const packet::Burst& burst,
                   std::span<const packet::PacketIndex> which);
  [[nodiscard]] const net::DirectionCounters& counters(std::uint16_t lane) const {
    return lanes_[lane].counters;
  }
  [[nodiscard]] std::uint16_t lanes() const { return static_cast<std::uint16_t>(lanes_.size()); }
  [[nodiscard]] const Refusals& refusals() const { return refusals_; }

 private:
  struct alignas(kCacheLine) Lane {
    QueueLock lock;
    net::DirectionCounters counters;
    std::atomic<std::uint64_t> sum{0};  // Of what was read: keeps the reading from being left out.
  };
  const bool touch_;
  std::vector<Lane> lanes_;
  Refusals refusals_;
};

}  // namespace sluice::fabric
