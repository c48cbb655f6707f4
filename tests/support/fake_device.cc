// FakeDevice: the log, the contract, and rings served on demand.
#include "support/fake_device.h"

#include <algorithm>
#include <array>
#include <utility>
#include <variant>

#include "virtio/packed_device.h"
#include "virtio/split_device.h"

namespace sluice::test {

using virtio::Feature;
using virtio::Order;

class FakeDevice::Ring {
 public:
  explicit Ring(const net::QueueStart& start) : ring_(make(start)) {}

  template <class Visitor>
  auto visit(Visitor visitor) {
    return std::visit(visitor, ring_);
  }
  virtio::SegmentArena arena;

 private:
  template <Order kOrder>
  using Split = virtio::SplitDeviceRing<kOrder>;
  template <Order kOrder>
  using Packed = virtio::PackedDeviceRing<kOrder>;
  using Any = std::variant<Split<Order::kAny>, Split<Order::kInOrder>, Packed<Order::kAny>,
                           Packed<Order::kInOrder>>;
  static Any make(const net::QueueStart& start) {
    const bool in_order = start.features.has(Feature::kInOrder);
    if (start.features.has(Feature::kRingPacked)) {
      if (in_order) return Packed<Order::kInOrder>(start.ring);
      return Packed<Order::kAny>(start.ring);
    }
    if (in_order) return Split<Order::kInOrder>(start.ring);
    return Split<Order::kAny>(start.ring);
  }
  Any ring_;
};

FakeDevice::Queue::Queue() = default;
FakeDevice::Queue::Queue(Queue&&) noexcept = default;
FakeDevice::Queue::~Queue() = default;

FakeDevice::FakeDevice(std::uint16_t pairs)
    : offered{Feature::kVersion1,     Feature::kRingPacked, Feature::kInOrder, Feature::kEventIdx,
              Feature::kIndirectDesc, Feature::kMrgRxbuf,   Feature::kMq,      Feature::kCtrlVq,
              Feature::kStatus,       Feature::kRingReset},
      config_space(24),
      pairs_(pairs),
      queues_(std::size_t{2} * pairs + 1) {}

FakeDevice::~FakeDevice() = default;

bool FakeDevice::any_running() const {
  return std::ranges::any_of(queues_, &Queue::running);
}

void FakeDevice::complain(const std::string& text) {
  if (complaint_.empty()) complaint_ = text;
}

FakeDevice::Queue& FakeDevice::known(net::QueueIndex index) {
  if (index.raw() < queues_.size()) return queues_[index.raw()];
  complain("no queue " + std::to_string(index.raw()));
  return queues_.front();
}

Status FakeDevice::set_features(const virtio::FeatureSet& set) {
  if (!features_status) return features_status;
  if (!offered.contains(set)) complain("features that were not offered");
  features = set;
  return {};
}

Status FakeDevice::start_queue(net::QueueIndex index, net::QueueStart start) {
  Queue& queue = known(index);
  log.push_back("start " + std::to_string(index.raw()));
  if (queue.running) complain("started twice");
  if (start.memory == nullptr) complain("started without memory");
  if (!start_status) return start_status;
  queue.start = std::move(start);
  queue.call = queue.start.call;
  queue.ring = std::make_unique<Ring>(queue.start);
  queue.running = true;
  ++queue.starts;
  return {};
}

Result<virtio::RingPosition> FakeDevice::stop_queue(net::QueueIndex index) {
  Queue& queue = known(index);
  log.push_back("stop " + std::to_string(index.raw()));
  if (!queue.running) {
    complain("stopped although it did not run");
    return queue.position;
  }
  queue.position = queue.ring->visit([](const auto& ring) { return ring.position(); });
  queue.running = false;
  queue.ring.reset();
  queue.start = net::QueueStart();  // Lets go of the memory.
  return queue.position;
}

void FakeDevice::enable_queue(net::QueueIndex index, bool enabled) {
  log.push_back("enable " + std::to_string(index.raw()) + (enabled ? " 1" : " 0"));
  known(index).enabled = enabled;
}

void FakeDevice::set_call(net::QueueIndex index, std::shared_ptr<net::Notifier> call) {
  log.push_back("call " + std::to_string(index.raw()));
  known(index).call = std::move(call);
}

void FakeDevice::kick(net::QueueIndex index) {
  log.push_back("kick " + std::to_string(index.raw()));
  Queue& queue = known(index);
  if (!queue.running) complain("kicked although it does not run");
  ++queue.kicks;
}

Status FakeDevice::write_config(std::uint32_t offset, std::span<const std::byte> data) {
  // The last byte may be written, the others are read-only.
  if (offset + 1 != config_space.size() || data.size() != 1) {
    return fail(ErrorCode::kPermission, "read-only");
  }
  config_space.back() = data[0];
  return {};
}

Status FakeDevice::set_mtu(std::uint16_t value) {
  if (mtu_status) mtu = value;
  return mtu_status;
}

Status FakeDevice::send_rarp(std::span<const std::byte, 6> mac) {
  rarp.assign(mac.begin(), mac.end());
  return {};
}

void FakeDevice::set_status(std::uint8_t value) {
  if (value == 0) {
    ++resets;
    if (any_running()) complain("reset while a queue runs");
    features = virtio::FeatureSet();
  }
  status = value;
}

std::size_t FakeDevice::serve(std::size_t index, std::size_t max, std::uint32_t written) {
  Queue& queue = queues_[index];
  if (!queue.running || (index % 2 == 0 && !queue.enabled)) return 0;
  std::size_t count = 0;
  const bool call = queue.ring->visit([&](auto& ring) {
    std::array<virtio::Chain, virtio::kTakeMax> chains;
    while (count < max) {
      queue.ring->arena.clear();
      const auto room = std::span(chains).first(std::min(max - count, chains.size()));
      const std::size_t taken = ring.take(*queue.start.memory, room, queue.ring->arena);
      if (taken == 0) break;
      for (virtio::Chain& chain : room.first(taken)) chain.written = written;
      ring.give_back(room.first(taken), false);
      count += taken;
    }
    return count != 0 && ring.should_notify();
  });
  if (call && queue.call != nullptr) queue.call->notify();
  return count;
}

std::size_t FakeDevice::take_and_forget(std::size_t index, std::size_t max) {
  Queue& queue = queues_[index];
  return queue.ring->visit([&](auto& ring) {
    std::array<virtio::Chain, virtio::kTakeMax> chains;
    queue.ring->arena.clear();
    const auto room = std::span(chains).first(std::min(max, chains.size()));
    return ring.take(*queue.start.memory, room, queue.ring->arena);
  });
}

bool FakeDevice::has_work(std::size_t index) const {
  const Queue& queue = queues_[index];
  return queue.running && queue.ring->visit([](const auto& ring) { return ring.has_work(); });
}

}  // namespace sluice::test
