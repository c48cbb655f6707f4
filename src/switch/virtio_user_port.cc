// Bursts from and to the queues of a driver, and how they begin and end.
#include "switch/virtio_user_port.h"

#include <utility>

#include "switch/kick_waited.h"

namespace sluice::fabric {

VirtioUserPort::VirtioUserPort(const VirtioUserOptions& options)
    : name_(options.name),
      pairs_(options.queues),
      mtu_(options.mtu),
      receiveqs_(std::make_unique<ReceiveQueue[]>(pairs_)),
      transmitqs_(std::make_unique<TransmitQueue[]>(pairs_)) {}

std::size_t VirtioUserPort::receive(std::uint16_t q, packet::Burst& burst) {
  ReceiveQueue& queue = receiveqs_[q];
  if (!queue.alive() || !queue.lock.try_lock()) return 0;
  if (queue.alive()) [[likely]] {
    const std::size_t count = queue.path().take(burst);
    if (count != 0) return count;
    if (const auto error = queue.path().error()) [[unlikely]]
      queue.mark_broken(*error);
  }
  queue.lock.unlock();
  return 0;
}

void VirtioUserPort::release(std::uint16_t q) {
  ReceiveQueue& queue = receiveqs_[q];
  queue.path().release();
  queue.lock.unlock();
}

std::size_t VirtioUserPort::transmit(std::uint32_t hint, const packet::Burst& burst,
                                     std::span<const packet::PacketIndex> which) {
  if (!ready_.load(std::memory_order_acquire)) {
    refusals_.not_ready.fetch_add(which.size(), std::memory_order_relaxed);
    return 0;
  }
  return deliver_by(choose(hint), refusals_, burst, which);
}

// RST-08: while a queue is under reset its frames find another one, if there is one.
VirtioUserPort::TransmitQueue& VirtioUserPort::choose(std::uint32_t hint) {
  if (pairs_ == 1) return transmitqs_[0];
  const std::size_t first = hint % pairs_;
  for (std::size_t i = 0; i < pairs_; ++i) {
    TransmitQueue& queue = transmitqs_[(first + i) % pairs_];
    if (queue.started()) [[likely]]
      return queue;
  }
  return transmitqs_[first];
}

bool VirtioUserPort::arm(std::uint16_t q) {
  ReceiveQueue& queue = receiveqs_[q];
  if (!queue.alive()) return false;
  // Control has it: something changes, so look again.
  if (!queue.lock.try_lock()) return true;
  bool work = false;
  if (queue.alive()) {
    queue.path().set_interrupts(true);
    work = queue.path().has_work();  // What came before the device saw our wish.
  }
  queue.lock.unlock();
  return work;
}

void VirtioUserPort::disarm(std::uint16_t q) {
  ReceiveQueue& queue = receiveqs_[q];
  if (!queue.alive() || !queue.lock.try_lock()) return;
  if (queue.alive()) {
    queue.path().set_interrupts(false);
    if (queue.call() != nullptr) queue.call()->drain();
  }
  queue.lock.unlock();
}

std::vector<QueueView> VirtioUserPort::queues() const {
  const std::lock_guard guard(control_mutex_);
  std::vector<QueueView> views;
  const auto add = [&views](std::string_view kind, int index, const auto& queue) {
    QueueView view;
    view.kind = kind;
    view.index = static_cast<std::uint16_t>(index);
    queue.describe(view);
    views.push_back(std::move(view));
  };
  for (std::uint16_t pair = 0; pair < pairs_; ++pair) {
    add("receiveq", 2 * pair, receiveqs_[pair]);
    add("transmitq", 2 * pair + 1, transmitqs_[pair]);
  }
  return views;
}

Result<VirtioUserPort::NewPair> VirtioUserPort::make_pair(const net::NetDriver& driver,
                                                          std::uint16_t pair) {
  const auto first = static_cast<std::uint16_t>(2 * pair);
  NewPair made;
  made.rx = TRY(driver.queue(net::QueueIndex(first)));
  made.tx = TRY(driver.queue(net::QueueIndex(static_cast<std::uint16_t>(first + 1))));
  made.receive = std::make_unique<net::DriverReceivePath>(made.rx, receiveqs_[pair].counters);
  if (made.rx.kick->spoiled()) return std::unexpected(kKickWaited);
  made.transmit =
      std::make_unique<net::DriverTransmitPath>(made.tx, mtu_, transmitqs_[pair].counters);
  return made;
}

Status VirtioUserPort::start_queues(const net::NetDriver& driver) {
  std::vector<NewPair> made;
  for (std::uint16_t pair = 0; pair < pairs_; ++pair) made.push_back(TRY(make_pair(driver, pair)));
  const std::lock_guard guard(control_mutex_);
  for (std::uint16_t pair = 0; pair < pairs_; ++pair) {
    TRY(receiveqs_[pair].start_with(made[pair].rx, std::move(made[pair].receive)));
    TRY(transmitqs_[pair].start_with(made[pair].tx, std::move(made[pair].transmit)));
  }
  ready_.store(true, std::memory_order_release);
  return {};
}

Status VirtioUserPort::stop_queues() {
  const std::lock_guard guard(control_mutex_);
  ready_.store(false, std::memory_order_release);
  Status outcome;
  const auto stop = [&outcome](auto& queue) {
    const Status stopped = queue.stop();
    if (!stopped) outcome = stopped;
  };
  for (std::uint16_t pair = 0; pair < pairs_; ++pair) {
    stop(receiveqs_[pair]);
    stop(transmitqs_[pair]);
  }
  return outcome;
}

std::optional<Error> VirtioUserPort::trouble() {
  for (std::uint16_t pair = 0; pair < pairs_; ++pair) {
    if (auto error = receiveqs_[pair].take_news()) return error;
    if (auto error = transmitqs_[pair].take_news()) return error;
    if (receiveqs_[pair].kick_spoiled() || transmitqs_[pair].kick_spoiled()) return kKickWaited;
  }
  return std::nullopt;
}

}  // namespace sluice::fabric
