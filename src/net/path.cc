// Every path of a device, in one object file, and the only selector.
#include "net/path.h"

#include <type_traits>
#include <utility>
#include <variant>

#include "net/receiveq.h"
#include "net/transmitq.h"
#include "virtio/packed_device.h"
#include "virtio/split_device.h"

namespace sluice::net {

namespace {

using virtio::Feature;
using virtio::Order;
using SplitAny = virtio::SplitDeviceRing<Order::kAny>;
using SplitInOrder = virtio::SplitDeviceRing<Order::kInOrder>;
using PackedAny = virtio::PackedDeviceRing<Order::kAny>;
using PackedInOrder = virtio::PackedDeviceRing<Order::kInOrder>;

using TransmitVariant = std::variant<TransmitQueue<SplitAny>, TransmitQueue<SplitInOrder>,
                                     TransmitQueue<PackedAny>, TransmitQueue<PackedInOrder>>;
using ReceiveVariant = std::variant<
    ReceiveQueue<SplitAny, RxBuffers::kSingle>, ReceiveQueue<SplitAny, RxBuffers::kMergeable>,
    ReceiveQueue<SplitInOrder, RxBuffers::kSingle>,
    ReceiveQueue<SplitInOrder, RxBuffers::kMergeable>, ReceiveQueue<PackedAny, RxBuffers::kSingle>,
    ReceiveQueue<PackedAny, RxBuffers::kMergeable>, ReceiveQueue<PackedInOrder, RxBuffers::kSingle>,
    ReceiveQueue<PackedInOrder, RxBuffers::kMergeable>>;

constexpr std::array<std::string_view, 4> kTransmitNames = {"split", "split in-order", "packed",
                                                            "packed in-order"};
constexpr std::array<std::string_view, 8> kReceiveNames = {
    "split single",  "split mergeable",  "split in-order single",  "split in-order mergeable",
    "packed single", "packed mergeable", "packed in-order single", "packed in-order mergeable"};

// Calls `make` with the ring type that the features ask for, as std::type_identity.
template <class Make>
auto with_ring(const virtio::FeatureSet& features, Make make) {
  const bool in_order = features.has(Feature::kInOrder);
  if (features.has(Feature::kRingPacked)) {
    return in_order ? make(std::type_identity<PackedInOrder>{})
                    : make(std::type_identity<PackedAny>{});
  }
  return in_order ? make(std::type_identity<SplitInOrder>{}) : make(std::type_identity<SplitAny>{});
}

std::optional<Error> error_of(const auto& queue) {
  return queue.ring().error();
}

}  // namespace

struct TransmitPath::Impl {
  template <class Queue>
  Impl(std::type_identity<Queue>, const QueueStart& start, const QueueOptions& options,
       DirectionCounters& counters)
      : queue(std::in_place_type<Queue>, start, options, counters) {}
  TransmitVariant queue;
};

TransmitPath::TransmitPath() = default;
TransmitPath::TransmitPath(TransmitPath&&) noexcept = default;
TransmitPath& TransmitPath::operator=(TransmitPath&&) noexcept = default;
TransmitPath::~TransmitPath() = default;
TransmitPath::TransmitPath(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

TransmitPath TransmitPath::make(const QueueStart& start, const QueueOptions& options,
                                DirectionCounters& counters) {
  return TransmitPath(with_ring(start.features, [&]<class Ring>(std::type_identity<Ring>) {
    return std::make_unique<Impl>(std::type_identity<TransmitQueue<Ring>>{}, start, options,
                                  counters);
  }));
}

std::size_t TransmitPath::take(packet::Burst& burst, std::size_t max) {
  return std::visit([&](auto& queue) { return queue.take(burst, max); }, impl_->queue);
}
void TransmitPath::release() {
  std::visit([](auto& queue) { queue.release(); }, impl_->queue);
}
void TransmitPath::set_call(std::shared_ptr<Notifier> call) {
  std::visit([&](auto& queue) { queue.set_call(std::move(call)); }, impl_->queue);
}
bool TransmitPath::has_work() const {
  return std::visit([](const auto& queue) { return queue.ring().has_work(); }, impl_->queue);
}
void TransmitPath::set_kicks(bool wanted) {
  std::visit([&](auto& queue) { queue.ring().set_kicks(wanted); }, impl_->queue);
}
virtio::RingPosition TransmitPath::position() const {
  return std::visit([](const auto& queue) { return queue.ring().position(); }, impl_->queue);
}
std::optional<Error> TransmitPath::error() const {
  return std::visit([](const auto& queue) { return error_of(queue); }, impl_->queue);
}
std::string_view TransmitPath::name() const {
  return kTransmitNames[impl_->queue.index()];
}

struct ReceivePath::Impl {
  template <class Queue>
  Impl(std::type_identity<Queue>, const QueueStart& start, const QueueOptions& options,
       DirectionCounters& counters)
      : queue(std::in_place_type<Queue>, start, options, counters) {}
  ReceiveVariant queue;
};

ReceivePath::ReceivePath() = default;
ReceivePath::ReceivePath(ReceivePath&&) noexcept = default;
ReceivePath& ReceivePath::operator=(ReceivePath&&) noexcept = default;
ReceivePath::~ReceivePath() = default;
ReceivePath::ReceivePath(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

ReceivePath ReceivePath::make(const QueueStart& start, const QueueOptions& options,
                              DirectionCounters& counters) {
  const bool merge = start.features.has(Feature::kMrgRxbuf);
  return ReceivePath(with_ring(start.features, [&]<class Ring>(std::type_identity<Ring>) {
    using Single = ReceiveQueue<Ring, RxBuffers::kSingle>;
    using Mergeable = ReceiveQueue<Ring, RxBuffers::kMergeable>;
    return merge ? std::make_unique<Impl>(std::type_identity<Mergeable>{}, start, options, counters)
                 : std::make_unique<Impl>(std::type_identity<Single>{}, start, options, counters);
  }));
}

std::size_t ReceivePath::deliver(const packet::Burst& burst,
                                 std::span<const packet::PacketIndex> which) {
  return std::visit([&](auto& queue) { return queue.deliver(burst, which); }, impl_->queue);
}
void ReceivePath::set_call(std::shared_ptr<Notifier> call) {
  std::visit([&](auto& queue) { queue.set_call(std::move(call)); }, impl_->queue);
}
bool ReceivePath::has_buffers() const {
  return std::visit([](const auto& queue) { return queue.ring().has_work(); }, impl_->queue);
}
void ReceivePath::set_kicks(bool wanted) {
  std::visit([&](auto& queue) { queue.ring().set_kicks(wanted); }, impl_->queue);
}
virtio::RingPosition ReceivePath::position() const {
  return std::visit([](const auto& queue) { return queue.ring().position(); }, impl_->queue);
}
std::optional<Error> ReceivePath::error() const {
  return std::visit([](const auto& queue) { return error_of(queue); }, impl_->queue);
}
std::string_view ReceivePath::name() const {
  return kReceiveNames[impl_->queue.index()];
}

}  // namespace sluice::net
