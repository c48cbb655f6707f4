// Counting and reading packets that go no further.
#include "switch/swallow.h"

#include <cstring>

namespace sluice::fabric {

namespace {

std::uint64_t sum_of(std::span<const std::byte> bytes) {
  std::uint64_t sum = 0;
  std::size_t at = 0;
  for (; at + sizeof sum <= bytes.size(); at += sizeof sum) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, sizeof word);
    sum += word;
  }
  for (; at < bytes.size(); ++at) sum += std::to_integer<std::uint64_t>(bytes[at]);
  return sum;
}

std::uint64_t sum_of(const packet::Burst& burst, const packet::Packet& packet) {
  std::uint64_t sum = sum_of({packet.data, packet.first_length});
  for (const packet::Segment& segment : burst.more_of(packet)) {
    sum += sum_of({segment.data, segment.length});
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
