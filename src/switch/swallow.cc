// Counting and reading packets that go no further.
#include "switch/swallow.h"

#include "packet/touch.h"

namespace sluice::fabric {

namespace {

std::uint64_t sum_of(const packet::Burst& burst, const packet::Packet& packet) {
  std::uint64_t sum = packet::read_all({packet.data, packet.first_length});
  for (const packet::Segment& segment : burst.more_of(packet)) {
    sum += packet::read_all({segment.data, segment.length});
  }
  return sum;
}

}  // namespace

std::size_t Swallow::take(std::uint32_t hint, const packet::Burst& burst,
                          std::span<const packet::PacketIndex> which) {
  Lane& lane = lanes_[hint % lanes_.size()];
  if (!lane.lock.try_lock_briefly()) {
    refusals_.queue_busy.fetch_add(which.size(), std::memory_order_relaxed);
    return 0;
  }
  std::uint64_t bytes = 0;
  for (const packet::PacketIndex index : which) bytes += burst.packets[index].length;
  if (touch_) {
    std::uint64_t sum = 0;
    for (const packet::PacketIndex index : which) sum += sum_of(burst, burst.packets[index]);
    lane.sum.store(sum, std::memory_order_relaxed);
  }
  lane.counters.packets.add(which.size());
  lane.counters.bytes.add(bytes);
  lane.counters.bursts.add();
  lane.lock.unlock();
  return which.size();
}

}  // namespace sluice::fabric
