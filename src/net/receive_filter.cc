// The cold half of ReceiveFilter: address tables.
#include "net/receive_filter.h"

#include <algorithm>

namespace sluice::net {

void ReceiveFilter::Table::set(std::span<const PackedMac> macs) {
  // While the entries change, everything passes: too much is allowed, too little is not.
  all.store(true, std::memory_order_seq_cst);
  if (macs.size() > kTableMax) return;
  for (std::size_t i = 0; i < macs.size(); ++i) {
    entries[i].store(macs[i], std::memory_order_relaxed);
  }
  count.store(static_cast<std::uint32_t>(macs.size()), std::memory_order_release);
  all.store(false, std::memory_order_release);
}

bool ReceiveFilter::Table::holds(PackedMac mac) const {
  if (all.load(std::memory_order_acquire)) return true;
  const std::size_t n = std::min<std::size_t>(count.load(std::memory_order_acquire), kTableMax);
  for (std::size_t i = 0; i < n; ++i) {
    if (entries[i].load(std::memory_order_relaxed) == mac) return true;
  }
  return false;
}

void ReceiveFilter::reset() {
  promiscuous_.store(true, std::memory_order_relaxed);
  all_multicast_.store(false, std::memory_order_relaxed);
  address_.store(0, std::memory_order_relaxed);
  unicast_.set({});
  multicast_.set({});
}

void ReceiveFilter::set_tables(std::span<const PackedMac> unicast,
                               std::span<const PackedMac> multicast) {
  unicast_.set(unicast);
  multicast_.set(multicast);
}

bool ReceiveFilter::wants_slow(PackedMac destination) const {
  if (destination == kBroadcastMac) return true;
  if (is_multicast(destination)) {
    return all_multicast_.load(std::memory_order_relaxed) || multicast_.holds(destination);
  }
  const PackedMac own = address_.load(std::memory_order_relaxed);
  return own == 0 || destination == own || unicast_.holds(destination);
}

}  // namespace sluice::net
