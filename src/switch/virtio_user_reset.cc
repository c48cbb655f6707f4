// Resets of a virtio-user port: of one queue while the others go on, or of the whole device; from
// the order of the control thread to the driver.
#include <utility>
#include <vector>

#include "switch/kick_waited.h"
#include "switch/virtio_user_link.h"
#include "switch/virtio_user_port.h"

namespace sluice::fabric {

namespace {

// Refusals that change nothing come first: later errors end the session.
Status check_order(const net::NetDriver& driver, const ResetOrder& order) {
  if (order.queue.has_value() && *order.queue >= driver.queue_count()) {
    return fail(ErrorCode::kOutOfRange, "the port has no such queue", *order.queue);
  }
  if (!order.queue.has_value() && (!order.whole_device || order.size != 0)) {
    return fail(ErrorCode::kInvalidArgument, "the order names no queue");
  }
  if (order.size == 1) {
    return fail(ErrorCode::kInvalidArgument, "queue size must be 2 to 32768", order.size);
  }
  if (order.size != 0) TRY(driver.check_size(order.size));
  if (order.whole_device || driver.features().has(virtio::Feature::kRingReset)) return {};
  return fail(ErrorCode::kNotNegotiated, "the device does not offer RING_RESET",
              static_cast<std::int64_t>(virtio::Feature::kRingReset));
}

// `make` makes the path of the queue's new life. `mutex` is for what others look at.
template <class Queue, class Make>
Result<std::size_t> reset_one(Queue& queue, std::mutex& mutex, net::NetDriver& driver,
                              std::pair<net::QueueIndex, std::uint32_t> what, Make make) {
  const auto [index, size] = what;
  std::size_t back = 0;
  {
    std::unique_lock guard(mutex);
    auto path = TRY(queue.take_path());
    guard.unlock();  // The device may take its time.
    TRY(driver.reset_queue(index));
    if (path != nullptr) back = path->recall();
  }
  TRY(driver.restart_queue(index, size));
  const net::DriverQueueStart start = TRY(driver.queue(index));
  auto made = make(start);
  if (start.kick->spoiled()) return std::unexpected(kKickWaited);
  const std::lock_guard guard(mutex);
  TRY(queue.start_with(start, std::move(made)));
  return back;
}

}  // namespace

Result<std::size_t> VirtioUserPort::reset_queue(net::NetDriver& driver, net::QueueIndex index,
                                                std::uint32_t size) {
  const std::size_t pair = index.raw() / 2U;
  if (index.raw() % 2 == 0) {
    ReceiveQueue& queue = receiveqs_[pair];
    return reset_one(queue, control_mutex_, driver, {index, size}, [&](const auto& start) {
      return std::make_unique<net::DriverReceivePath>(start, queue.counters);
    });
  }
  TransmitQueue& queue = transmitqs_[pair];
  return reset_one(queue, control_mutex_, driver, {index, size}, [&](const auto& start) {
    return std::make_unique<net::DriverTransmitPath>(start, mtu_, queue.counters);
  });
}

Result<std::size_t> VirtioUserPort::reset_all(net::NetDriver& driver,
                                              std::optional<net::QueueIndex> index,
                                              std::uint32_t size) {
  std::vector<std::unique_ptr<net::DriverReceivePath>> receive;
  std::vector<std::unique_ptr<net::DriverTransmitPath>> transmit;
  {
    const std::lock_guard guard(control_mutex_);
    ready_.store(false, std::memory_order_release);
    for (std::uint16_t pair = 0; pair < pairs_; ++pair) {
      receive.push_back(TRY(receiveqs_[pair].take_path()));
      transmit.push_back(TRY(transmitqs_[pair].take_path()));
    }
  }
  TRY(driver.stop());
  std::size_t back = 0;
  for (const auto& path : receive) back += path == nullptr ? 0 : path->recall();
  for (const auto& path : transmit) back += path == nullptr ? 0 : path->recall();
  if (index.has_value() && size != 0) TRY(driver.resize_queue(*index, size));
  TRY(driver.start());
  TRY(start_queues(driver));
  return back;
}

// --- The link's part -----------------------------------------------------------------------------

Result<std::shared_ptr<const PendingReset>> VirtioUserLink::begin_reset(
    const ResetOrder& order, std::shared_ptr<const EventFd> done) {
  auto pending = std::make_shared<PendingReset>(std::move(done));
  {
    const std::lock_guard guard(mutex_);
    if (pending_ != nullptr) return fail(ErrorCode::kExists, "a reset of the port is under way");
    if (view_.state != "running") {
      return fail(ErrorCode::kWrongState, "the port has no running device");
    }
    order_ = order;
    pending_ = pending;
  }
  sleep_.notify_all();
  return pending;
}

// Does what begin_reset() left here. An error ends the session.
Status VirtioUserLink::serve_reset(net::NetDriver& driver) {
  ResetOrder order;
  std::shared_ptr<PendingReset> pending;
  {
    const std::lock_guard guard(mutex_);
    if (pending_ == nullptr) return {};
    order = order_;
    pending = pending_;  // Stays, so that nobody else begins meanwhile.
  }
  const Status allowed = check_order(driver, order);
  const Result<ResetReport> outcome =
      allowed ? reset(driver, order) : std::unexpected(allowed.error());
  {
    const std::lock_guard guard(mutex_);
    pending_ = nullptr;
  }
  events_.queues_changed();  // Workers sleep by the new queue's events.
  if (!allowed || outcome) {
    pending->finish(outcome);
    return {};
  }
  // Not to be taken for a refusal, whatever the code is.
  const Error& error = outcome.error();
  pending->finish(fail(ErrorCode::kClosed, error.text, error.detail));
  return std::unexpected(error);
}

Result<ResetReport> VirtioUserLink::reset(net::NetDriver& driver, const ResetOrder& order) {
  std::optional<net::QueueIndex> index;
  if (order.queue.has_value()) index = net::QueueIndex(*order.queue);
  ResetReport report;
  report.buffers = order.whole_device ? TRY(port_.reset_all(driver, index, order.size))
                                      : TRY(port_.reset_queue(driver, *index, order.size));
  if (index.has_value()) report.size = TRY(driver.queue(*index)).ring.size;
  return report;
}

}  // namespace sluice::fabric
