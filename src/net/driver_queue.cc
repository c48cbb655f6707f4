// Every path of a driver, in one object file, and its selector.
#include "net/driver_queue.h"

#include <array>
#include <type_traits>
#include <utility>
#include <variant>

#include "net/driver_receiveq.h"
#include "net/driver_transmitq.h"
#include "virtio/packed_driver.h"
#include "virtio/split_driver.h"

namespace sluice::net {

namespace {

using virtio::Feature;
using virtio::Order;
using SplitAny = virtio::SplitDriverRing<Order::kAny>;
using SplitInOrder = virtio::SplitDriverRing<Order::kInOrder>;
using PackedAny = virtio::PackedDriverRing<Order::kAny>;
using PackedInOrder = virtio::PackedDriverRing<Order::kInOrder>;

template <template <class> class Queue>
using Variant =
    std::variant<Queue<SplitAny>, Queue<SplitInOrder>, Queue<PackedAny>, Queue<PackedInOrder>>;

constexpr std::array<std::string_view, 4> kNames = {"split", "split in-order", "packed",
                                                    "packed in-order"};

template <template <class> class Queue, class Impl>
std::unique_ptr<Impl> make_impl(const DriverQueueStart& start) {
  const bool in_order = start.features.has(Feature::kInOrder);
  if (start.features.has(Feature::kRingPacked)) {
    return in_order ? std::make_unique<Impl>(std::type_identity<Queue<PackedInOrder>>{}, start)
                    : std::make_unique<Impl>(std::type_identity<Queue<PackedAny>>{}, start);
  }
  return in_order ? std::make_unique<Impl>(std::type_identity<Queue<SplitInOrder>>{}, start)
                  : std::make_unique<Impl>(std::type_identity<Queue<SplitAny>>{}, start);
}

std::optional<Error> error_of(const auto& queue) {
  return queue.ring().error();
}

}  // namespace

struct DriverTransmitQueue::Impl {
  template <class Queue>
  Impl(std::type_identity<Queue>, const DriverQueueStart& start)
      : queue(std::in_place_type<Queue>, start) {}
  Variant<DriverTransmitRing> queue;
};

struct DriverReceiveQueue::Impl {
  template <class Queue>
  Impl(std::type_identity<Queue>, const DriverQueueStart& start)
      : queue(std::in_place_type<Queue>, start) {}
  Variant<DriverReceiveRing> queue;
};

DriverTransmitQueue::DriverTransmitQueue() = default;
DriverTransmitQueue::DriverTransmitQueue(DriverTransmitQueue&&) noexcept = default;
DriverTransmitQueue& DriverTransmitQueue::operator=(DriverTransmitQueue&&) noexcept = default;
DriverTransmitQueue::~DriverTransmitQueue() = default;
DriverTransmitQueue::DriverTransmitQueue(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

DriverTransmitQueue DriverTransmitQueue::make(const DriverQueueStart& start) {
  return DriverTransmitQueue(make_impl<DriverTransmitRing, Impl>(start));
}
std::size_t DriverTransmitQueue::reserve(std::span<DriverFrame> out) {
  return std::visit([&](auto& queue) { return queue.reserve(out); }, impl_->queue);
}
void DriverTransmitQueue::submit(std::span<const DriverFrame> frames) {
  std::visit([&](auto& queue) { queue.submit(frames); }, impl_->queue);
}
std::size_t DriverTransmitQueue::forward(DriverReceiveQueue& from,
                                         std::span<const DriverFrame> frames) {
  return std::visit(
      [&]<class Ring>(DriverTransmitRing<Ring>& queue) {
        // Queues of one driver have one kind of ring.
        auto* const receiveq = std::get_if<DriverReceiveRing<Ring>>(&from.impl_->queue);
        return receiveq == nullptr ? std::size_t{0} : queue.forward(*receiveq, frames);
      },
      impl_->queue);
}
void DriverTransmitQueue::recall(const std::function<void(std::uint32_t)>& back) {
  std::visit([&](auto& queue) { queue.recall(back); }, impl_->queue);
}
std::size_t DriverTransmitQueue::outstanding() const {
  return std::visit([](const auto& queue) { return queue.ring().outstanding(); }, impl_->queue);
}
const DriverCounters& DriverTransmitQueue::counters() const {
  return std::visit([](const auto& queue) -> const DriverCounters& { return queue.counters(); },
                    impl_->queue);
}
std::optional<Error> DriverTransmitQueue::error() const {
  return std::visit([](const auto& queue) { return error_of(queue); }, impl_->queue);
}
std::string_view DriverTransmitQueue::name() const {
  return kNames[impl_->queue.index()];
}

DriverReceiveQueue::DriverReceiveQueue() = default;
DriverReceiveQueue::DriverReceiveQueue(DriverReceiveQueue&&) noexcept = default;
DriverReceiveQueue& DriverReceiveQueue::operator=(DriverReceiveQueue&&) noexcept = default;
DriverReceiveQueue::~DriverReceiveQueue() = default;
DriverReceiveQueue::DriverReceiveQueue(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

DriverReceiveQueue DriverReceiveQueue::make(const DriverQueueStart& start) {
  return DriverReceiveQueue(make_impl<DriverReceiveRing, Impl>(start));
}
std::size_t DriverReceiveQueue::receive(std::span<DriverFrame> out) {
  return std::visit([&](auto& queue) { return queue.receive(out); }, impl_->queue);
}
void DriverReceiveQueue::repost() {
  std::visit([](auto& queue) { queue.repost(); }, impl_->queue);
}
void DriverReceiveQueue::set_interrupts(bool wanted) {
  std::visit([&](auto& queue) { queue.ring().set_interrupts(wanted); }, impl_->queue);
}
bool DriverReceiveQueue::has_frames() const {
  return std::visit([](const auto& queue) { return queue.ring().has_used(); }, impl_->queue);
}
void DriverReceiveQueue::recall(const std::function<void(std::uint32_t)>& back) {
  std::visit([&](auto& queue) { queue.recall(back); }, impl_->queue);
}
std::size_t DriverReceiveQueue::outstanding() const {
  return std::visit([](const auto& queue) { return queue.ring().outstanding(); }, impl_->queue);
}
const DriverCounters& DriverReceiveQueue::counters() const {
  return std::visit([](const auto& queue) -> const DriverCounters& { return queue.counters(); },
                    impl_->queue);
}
std::optional<Error> DriverReceiveQueue::error() const {
  return std::visit([](const auto& queue) { return error_of(queue); }, impl_->queue);
}
std::string_view DriverReceiveQueue::name() const {
  return kNames[impl_->queue.index()];
}

}  // namespace sluice::net
