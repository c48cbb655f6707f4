// The port half of VhostUserPort: what workers call, burst by burst.
#include "switch/vhost_user_port.h"

#include <cstring>

namespace sluice::fabric {

namespace {

net::PackedMac source_of(const packet::Packet& packet) {
  std::uint64_t word = 0;
  std::memcpy(&word, packet.head.data() + 6, sizeof word);
  return word & net::kMacMask;
}

}  // namespace

std::size_t VhostUserPort::receive(std::uint16_t q, packet::Burst& burst) {
  TransmitQueue& queue = transmitqs_[q];
  if (!queue.alive() || !queue.lock.try_lock()) return 0;
  if (!queue.alive()) {
    queue.lock.unlock();
    return 0;
  }
  std::size_t count = queue.path().take(burst, packet::kBurstMax);
  if (count == 0) {
    if (const auto error = queue.path().error()) [[unlikely]]
      queue.mark_broken(*error);
    queue.lock.unlock();
    return 0;
  }
  if (!queue.enabled()) [[unlikely]] {
    // vhost-user, "Ring states": a disabled transmitq is emptied and its frames are discarded.
    queue.counters.drop(net::DropCause::kQueueDisabled, count);
    count = 0;
  } else if (mac_.has_value()) {
    count = drop_foreign_sources(burst, queue.counters);
  }
  if (count == 0) release(q);
  return count;
}

void VhostUserPort::release(std::uint16_t q) {
  TransmitQueue& queue = transmitqs_[q];
  queue.path().release();
  queue.lock.unlock();
}

// Closes the gaps that dropped packets leave: a burst's packets are one row.
std::size_t VhostUserPort::drop_foreign_sources(packet::Burst& burst,
                                                net::DirectionCounters& counters) {
  std::uint32_t kept = 0;
  for (std::uint32_t i = 0; i < burst.count; ++i) {
    if (source_of(burst.packets[i]) != *mac_) continue;
    if (kept != i) burst.packets[kept] = burst.packets[i];
    ++kept;
  }
  if (kept != burst.count) {
    counters.drop(net::DropCause::kSourceFilter, burst.count - kept);
    foreign_source_seen_.store(true, std::memory_order_relaxed);
  }
  burst.count = kept;
  return kept;
}

std::size_t VhostUserPort::transmit(std::uint32_t hint, const packet::Burst& burst,
                                    std::span<const packet::PacketIndex> which) {
  const std::uint16_t ready = ready_count_.load(std::memory_order_acquire);
  if (ready == 0) {
    refusals_.not_ready.fetch_add(which.size(), std::memory_order_relaxed);
    return 0;
  }
  const std::size_t choice = ready == 1 ? 0 : hint % ready;
  const std::uint16_t pair = ready_[choice].load(std::memory_order_relaxed);
  return deliver_by(receiveqs_[pair], refusals_, burst, which);
}

bool VhostUserPort::arm(std::uint16_t q) {
  TransmitQueue& queue = transmitqs_[q];
  if (!queue.alive()) return false;
  // Control has it: something changes, so look again.
  if (!queue.lock.try_lock()) return true;
  bool work = false;
  if (queue.alive()) {
    queue.path().set_kicks(true);
    work = queue.path().has_work();  // EVI-05: what came before the driver saw our wish.
  }
  queue.lock.unlock();
  return work;
}

void VhostUserPort::disarm(std::uint16_t q) {
  TransmitQueue& queue = transmitqs_[q];
  if (!queue.alive() || !queue.lock.try_lock()) return;
  if (queue.alive()) {
    queue.path().set_kicks(false);
    if (queue.start().kick != nullptr) queue.start().kick->drain();
  }
  queue.lock.unlock();
}

std::vector<QueueView> VhostUserPort::queues() const {
  std::vector<QueueView> views;
  const auto add = [&](std::string_view kind, std::uint16_t index, auto& queue) {
    QueueView view{.kind = kind,
                   .index = index,
                   .state = queue.state(),
                   .path = {},
                   .ring = queue.ring(),
                   .size = queue.start().ring.size,
                   .avail = {},
                   .used = {},
                   .error = {},
                   .counters = &queue.counters};
    if (const auto error = queue.error()) view.error = error->text;
    queue.describe(view);
    views.push_back(std::move(view));
  };
  for (std::uint16_t pair = 0; pair < pairs_; ++pair) {
    add("receiveq", static_cast<std::uint16_t>(2 * pair), receiveqs_[pair]);
    add("transmitq", static_cast<std::uint16_t>(2 * pair + 1), transmitqs_[pair]);
  }
  if (control_ != nullptr) {
    const auto position = control_->position();
    const auto& error = control_->error();
    views.push_back({.kind = "controlq",
                     .index = net::control_queue_index(pairs_, features_).raw(),
                     .state = error.has_value() ? "broken" : "running",
                     .path = {},
                     .ring = ring_format(features_),
                     .size = control_->size(),
                     .avail = position.avail,
                     .used = position.used,
                     .error = error.has_value() ? error->text : "",
                     .counters = nullptr});
  }
  return views;
}

}  // namespace sluice::fabric
