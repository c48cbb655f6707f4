// The writing half of MacTable: insertion, moves, eviction and ageing.
#include "switch/mac_table.h"

#include <immintrin.h>

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace sluice::fabric {

// The turn of one writer. A worker gives up after a moment, control insists.
class MacTable::Writer {
 public:
  enum class Patience : bool { kMoment, kInsist };

  Writer(MacTable& table, Patience patience) : flag_(table.writing_) {
    for (int spin = 0; spin < kSpins || patience == Patience::kInsist; ++spin) {
      owns_ = !flag_.exchange(true, std::memory_order_acquire);
      if (owns_) return;
      _mm_pause();
    }
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;
  ~Writer() {
    if (owns_) flag_.store(false, std::memory_order_release);
  }
  [[nodiscard]] bool owns() const { return owns_; }

 private:
  static constexpr int kSpins = 100;
  std::atomic<bool>& flag_;
  bool owns_ = false;
};

namespace {

std::size_t buckets_for(std::size_t size, std::size_t ways) {
  // At least two buckets: a shift by the word's whole width is not defined.
  return std::max<std::size_t>(std::bit_ceil(2 * size) / ways, 2);
}

}  // namespace

MacTable::MacTable(std::size_t size, std::size_t ports, std::chrono::seconds ageing,
                   std::uint64_t seed)
    : capacity_(size),
      guaranteed_(std::max<std::size_t>(size / 2 / std::max<std::size_t>(ports, 1), 1)),
      shared_(size - std::min(size, guaranteed_ * ports)),
      ageing_(static_cast<std::uint32_t>(
          std::clamp<std::int64_t>(ageing.count(), 1, std::int64_t{1} << 30))),
      seed_(seed),
      multiplier_((seed >> 7) * 0x9e3779b97f4a7c15 | 1),
      shift_(static_cast<unsigned>(64 - std::countr_zero(buckets_for(size, kWays)))),
      bucket_count_(buckets_for(size, kWays)),
      buckets_(bucket_count_),
      ages_(bucket_count_),
      count_of_port_(ports) {
  CHECK(size >= 1 && size <= kSizeMax, "MAC table size within its limits");
  CHECK(ports <= kPortMax, "port numbers fit a table entry");
}

// A pinned address is refused even when another writer is at work: who leaves it must not let pass.
bool MacTable::is_pinned_elsewhere(PackedMac mac, std::uint16_t port) const {
  for (const auto& word : buckets_[bucket_of(mac)].entries) {
    const std::uint64_t entry = word.load(std::memory_order_relaxed);
    if (entry >> kMacShift == mac) return (entry & kStatic) != 0 && port_of(entry) != port;
  }
  return false;
}

bool MacTable::learn_slow(PackedMac mac, std::uint16_t port) {
  if (is_pinned_elsewhere(mac, port)) return false;
  const Writer writer(*this, Writer::Patience::kMoment);
  if (!writer.owns()) return true;
  return insert(mac, port, 0);
}

bool MacTable::add_static(PackedMac mac, std::uint16_t port) {
  const Writer writer(*this, Writer::Patience::kInsist);
  return insert(mac, port, kStatic) && find(mac) == port;
}

bool MacTable::insert(PackedMac mac, std::uint16_t port, std::uint64_t flags) {
  const std::size_t index = bucket_of(mac);
  const std::uint64_t wanted = make_entry(mac, port) | flags;
  for (std::size_t way = 0; way < kWays; ++way) {
    const std::uint64_t entry = buckets_[index].entries[way].load(std::memory_order_relaxed);
    if (entry >> kMacShift != mac) continue;
    const bool is_static = (entry & kStatic) != 0;
    if (is_static) return port_of(entry) == port;
    // A move: the word changes in one step, no reader finds the address missing. Quotas bound
    // inventions, not moves, whose number is bounded by what others may have learned.
    account(port_of(entry), false);
    put(index, way, wanted);
    return true;
  }
  const std::size_t way = choose_way(index, port);
  if (way == kWays) {
    refused_.fetch_add(1, std::memory_order_relaxed);
    return true;
  }
  const std::uint64_t old = buckets_[index].entries[way].load(std::memory_order_relaxed);
  if (old != 0) account(port_of(old), false);
  put(index, way, wanted);
  return true;
}

// An empty slot if the port may have one more, else its own oldest entry here, else none (kWays).
std::size_t MacTable::choose_way(std::size_t bucket, std::uint16_t port) const {
  const bool quota = has_quota(port);
  std::size_t oldest = kWays;
  std::uint32_t oldest_seen = 0;
  for (std::size_t way = 0; way < kWays; ++way) {
    const std::uint64_t entry = buckets_[bucket].entries[way].load(std::memory_order_relaxed);
    if (entry == 0) {
      if (quota) return way;
      continue;
    }
    if (port_of(entry) != port || (entry & kStatic) != 0) continue;
    const std::uint32_t seen = ages_[bucket].seen[way].load(std::memory_order_relaxed);
    if (oldest == kWays || seen < oldest_seen) {
      oldest = way;
      oldest_seen = seen;
    }
  }
  return oldest;
}

bool MacTable::has_quota(std::uint16_t port) const {
  if (used_.load(std::memory_order_relaxed) >= capacity_) return false;
  return count_of_port_[port] < guaranteed_ || shared_used_ < shared_;
}

void MacTable::put(std::size_t bucket, std::size_t way, std::uint64_t entry) {
  ages_[bucket].seen[way].store(now_.load(std::memory_order_relaxed), std::memory_order_relaxed);
  buckets_[bucket].entries[way].store(entry, std::memory_order_relaxed);
  account(port_of(entry), true);
}

void MacTable::erase(std::size_t bucket, std::size_t way) {
  auto& word = buckets_[bucket].entries[way];
  account(port_of(word.load(std::memory_order_relaxed)), false);
  word.store(0, std::memory_order_relaxed);
}

void MacTable::account(std::uint16_t port, bool added) {
  std::size_t& count = count_of_port_[port];
  if (added) {
    if (count >= guaranteed_) ++shared_used_;
    ++count;
    used_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  CHECK(count > 0, "a port does not lose more addresses than it has");
  --count;
  if (count >= guaranteed_) --shared_used_;
  used_.fetch_sub(1, std::memory_order_relaxed);
}

// Erases the learned entries of which `doomed` says so. A turn an entry: workers that learn
// meanwhile wait for nanoseconds, not for the whole scan.
template <class Doomed>
void MacTable::erase_if(Doomed doomed) {
  for (std::size_t bucket = 0; bucket < bucket_count_; ++bucket) {
    for (std::size_t way = 0; way < kWays; ++way) {
      const auto& word = buckets_[bucket].entries[way];
      const auto is_doomed = [&] {
        const std::uint64_t entry = word.load(std::memory_order_relaxed);
        return entry != 0 && (entry & kStatic) == 0 &&
               doomed(entry, ages_[bucket].seen[way].load(std::memory_order_relaxed));
      };
      if (!is_doomed()) continue;
      const Writer writer(*this, Writer::Patience::kInsist);
      if (is_doomed()) erase(bucket, way);
    }
  }
}

void MacTable::forget(std::uint16_t port) {
  erase_if([port](std::uint64_t entry, std::uint32_t) { return port_of(entry) == port; });
}

void MacTable::tick(std::chrono::seconds now) {
  const auto seconds = static_cast<std::uint32_t>(now.count());
  now_.store(seconds, std::memory_order_relaxed);
  erase_if([&](std::uint64_t, std::uint32_t seen) {
    return seconds >= seen && seconds - seen >= ageing_;
  });
}

std::vector<MacTable::Entry> MacTable::entries() const {
  std::vector<Entry> result;
  const std::uint32_t now = now_.load(std::memory_order_relaxed);
  for (std::size_t bucket = 0; bucket < bucket_count_; ++bucket) {
    for (std::size_t way = 0; way < kWays; ++way) {
      const std::uint64_t entry = buckets_[bucket].entries[way].load(std::memory_order_relaxed);
      if (entry == 0) continue;
      const std::uint32_t seen = ages_[bucket].seen[way].load(std::memory_order_relaxed);
      result.push_back({.mac = entry >> kMacShift,
                        .port = port_of(entry),
                        .is_static = (entry & kStatic) != 0,
                        .age_seconds = now >= seen ? now - seen : 0});
    }
  }
  return result;
}

}  // namespace sluice::fabric
