// MacTable: which port an Ethernet address was last seen on. Bounded, and shared by all workers.
//
// How it works. An entry is one atomic 64-bit word (address and port together), so a look-up reads
// one cache line of eight entries, waits for nobody and never sees half a change. Twice as many
// slots exist as addresses may be learned; an address belongs to one bucket of eight, chosen by a
// hash with a random key, so that a guest cannot aim at a bucket.
//
// Writers are rare (a new address, a move, ageing) and take turns; one that finds another at work
// for longer than a moment leaves it: the address is learned from a later frame.
//
// When there is no room, a new address may take the place of the oldest entry *of the same port* in
// its bucket, else it is not learned and its traffic is flooded. Half of the table is shared, the
// other half is divided among the ports as a guaranteed part: a guest that invents addresses can
// fill its own part and the shared one, and never evicts another port's station (H46).
//
// A static entry (a port's configured address) does not age and does not move (H45).
//
// The last writer wins: an address moves with the first frame that comes from elsewhere, broadcast
// or not, since that is how a migrated guest announces itself. A station whose own broadcast is
// reflected by another port therefore moves there, and back with its next frame; a port with a
// configured address is immune.
//
// Threads: find and learn by any worker; the rest by the control thread.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/cache_line.h"
#include "net/receive_filter.h"
#include "switch/port.h"

namespace sluice::fabric {

using net::PackedMac;

class MacTable {
 public:
  static constexpr std::uint16_t kPortMax = 0x7ffe;
  static constexpr std::uint16_t kNoPort = 0x7fff;
  static constexpr std::size_t kSizeMax = std::size_t{1} << 20;

  /// Learns at most `size` addresses of at most `ports` ports; `seed` keys the hash.
  /// Requires: 1 <= size <= kSizeMax.
  MacTable(std::size_t size, std::size_t ports, std::chrono::seconds ageing, std::uint64_t seed);

  /// The port of `mac`, or kNoPort. Wait-free.
  [[nodiscard]] std::uint16_t find(PackedMac mac) const {
    const Bucket& bucket = buckets_[bucket_of(mac)];
    for (const auto& word : bucket.entries) {
      const std::uint64_t entry = word.load(std::memory_order_relaxed);
      if (entry >> kMacShift == mac) return port_of(entry);
    }
    return kNoPort;
  }

  /// Notes that `mac` was the source of a frame from `port`. False if that cannot be, because the
  /// address is another port's static one. Requires: `mac` is neither zero nor multicast.
  bool learn(PackedMac mac, std::uint16_t port) {
    const std::size_t index = bucket_of(mac);
    Bucket& bucket = buckets_[index];
    for (std::size_t i = 0; i < kWays; ++i) {
      const std::uint64_t entry = bucket.entries[i].load(std::memory_order_relaxed);
      if (entry >> kMacShift != mac) continue;
      if (port_of(entry) == port) [[likely]] {
        touch(ages_[index].seen[i]);
        return true;
      }
      break;
    }
    return learn_slow(mac, port);
  }

  /// Pins an address to a port. False if there is no room or another port has it pinned.
  bool add_static(PackedMac mac, std::uint16_t port);
  /// Forgets what was learned on `port` (its link went down). Static entries stay.
  void forget(std::uint16_t port);
  /// Moves the table's clock on and forgets entries that are too old.
  void tick(std::chrono::seconds now);

  struct Entry {
    PackedMac mac;
    std::uint16_t port;
    bool is_static;
    std::uint32_t age_seconds;
  };
  [[nodiscard]] std::vector<Entry> entries() const;
  [[nodiscard]] std::size_t size() const { return used_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::size_t capacity() const { return capacity_; }
  /// Addresses that were not learned for want of room (one address may count many times).
  [[nodiscard]] std::uint64_t refused() const { return refused_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::size_t kWays = 8;
  static constexpr unsigned kMacShift = 16;
  static constexpr std::uint64_t kStatic = 0x8000;

  struct alignas(kCacheLine) Bucket {
    std::array<std::atomic<std::uint64_t>, kWays> entries{};  // 48 bits address, static, 15 port.
  };
  struct Ages {
    std::array<std::atomic<std::uint32_t>, kWays> seen{};  // Table time in seconds.
  };
  class Writer;

  // The port is stored inverted, so that an empty slot (0) reads as "no port" even for the address
  // 00:00:00:00:00:00, which a frame may well have as its destination.
  [[nodiscard]] static std::uint16_t port_of(std::uint64_t entry) {
    return static_cast<std::uint16_t>(~entry & 0x7fff);
  }
  [[nodiscard]] static std::uint64_t make_entry(PackedMac mac, std::uint16_t port) {
    return mac << kMacShift | (~std::uint64_t{port} & 0x7fff);
  }
  [[nodiscard]] std::size_t bucket_of(PackedMac mac) const {
    const std::uint64_t mixed = (mac ^ seed_) * multiplier_;
    return static_cast<std::size_t>(mixed >> shift_);
  }
  void touch(std::atomic<std::uint32_t>& seen) const {
    const std::uint32_t now = now_.load(std::memory_order_relaxed);
    // Most frames of a second find it written: the line stays shared among workers.
    if (seen.load(std::memory_order_relaxed) != now) seen.store(now, std::memory_order_relaxed);
  }

  [[nodiscard]] bool is_pinned_elsewhere(PackedMac mac, std::uint16_t port) const;
  [[gnu::cold, gnu::noinline]] bool learn_slow(PackedMac mac, std::uint16_t port);
  bool insert(PackedMac mac, std::uint16_t port, std::uint64_t flags);
  [[nodiscard]] std::size_t choose_way(std::size_t bucket, std::uint16_t port) const;
  [[nodiscard]] bool has_quota(std::uint16_t port) const;
  void put(std::size_t bucket, std::size_t way, std::uint64_t entry);
  template <class Doomed>
  void erase_if(Doomed doomed);
  void erase(std::size_t bucket, std::size_t way);
  void account(std::uint16_t port, bool added);

  // Immutable after construction.
  const std::size_t capacity_;
  const std::size_t guaranteed_;  // Entries each port may have whatever the others do.
  const std::size_t shared_;      // Entries beyond the guaranteed ones, for whoever comes first.
  const std::uint32_t ageing_;
  const std::uint64_t seed_;
  const std::uint64_t multiplier_;  // Odd.
  const unsigned shift_;
  const std::size_t bucket_count_;

  std::vector<Bucket> buckets_;
  std::vector<Ages> ages_;
  std::atomic<std::uint32_t> now_{0};

  // Owned by the writer of the moment.
  std::atomic<bool> writing_{false};
  std::vector<std::size_t> count_of_port_;
  std::size_t shared_used_ = 0;
  std::atomic<std::size_t> used_{0};
  std::atomic<std::uint64_t> refused_{0};
};

}  // namespace sluice::fabric
