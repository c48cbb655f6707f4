// The table of control commands, and the ring they come by.
#include "net/control_queue.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <variant>

#include "memory/dirty_log.h"
#include "net/net_device.h"
#include "virtio/packed_device.h"
#include "virtio/split_device.h"

namespace sluice::net {

namespace {

using virtio::Feature;
using virtio::FeatureSet;
using Bytes = std::span<const std::byte>;

template <class T>
T load(Bytes data, std::size_t at) {
  T value{};
  std::memcpy(&value, data.data() + at, sizeof value);
  return value;
}

PackedMac load_mac(Bytes data, std::size_t at) {
  PackedMac mac = 0;
  std::memcpy(&mac, data.data() + at, 6);
  return mac;
}

struct Call {
  Bytes data;
  const FeatureSet& negotiated;
  ControlTarget& target;
};

bool promiscuous(const Call& call) {
  call.target.set_promiscuous(load<std::uint8_t>(call.data, 0) != 0);
  return true;
}

bool all_multicast(const Call& call) {
  call.target.set_all_multicast(load<std::uint8_t>(call.data, 0) != 0);
  return true;
}

// One table: le32 count, then that many addresses. Consumes it from `rest`. CTL-03: the product is
// one of 64 bits, compared with what is really there.
bool read_table(Bytes& rest, std::vector<PackedMac>& out) {
  if (rest.size() < 4) return false;
  const std::uint64_t count = load<std::uint32_t>(rest, 0);
  if (count * 6 > rest.size() - 4) return false;
  out.reserve(count);
  for (std::size_t i = 0; i < count; ++i) out.push_back(load_mac(rest, 4 + 6 * i));
  rest = rest.subspan(4 + 6 * count);
  return true;
}

bool mac_tables(const Call& call) {
  Bytes rest = call.data;
  std::vector<PackedMac> unicast;
  std::vector<PackedMac> multicast;
  if (!read_table(rest, unicast) || !read_table(rest, multicast)) return false;
  call.target.set_mac_tables(unicast, multicast);
  return true;
}

bool mac_address(const Call& call) {
  const PackedMac mac = load_mac(call.data, 0);
  if (mac == 0 || is_multicast(mac)) return false;
  return call.target.set_mac_address(mac);
}

bool announce_ack(const Call& call) {
  call.target.announced();
  return true;
}

bool queue_pairs(const Call& call) {
  const auto pairs = load<std::uint16_t>(call.data, 0);
  if (pairs < 1 || pairs > call.target.command_max_queue_pairs()) return false;  // CTL-04
  return call.target.use_queue_pairs(pairs);
}

bool guest_offloads(const Call& call) {
  const auto wanted = FeatureSet::from_low(load<std::uint64_t>(call.data, 0));
  if (!(kGuestOffloads & call.negotiated).contains(wanted)) return false;
  return call.target.set_guest_offloads(wanted);
}

struct Row {
  std::uint8_t command_class;
  std::uint8_t command;
  Feature gate;
  std::size_t size_min;  // Of the data, bytes.
  std::size_t size_max;
  bool (*run)(const Call&);
};

// Classes and commands by number: virtio 1.3, 5.1.6.5. What has no row is not offered.
constexpr std::array kRows = {
    Row{0, 0, Feature::kCtrlRx, 1, 1, promiscuous},
    Row{0, 1, Feature::kCtrlRx, 1, 1, all_multicast},
    Row{1, 0, Feature::kCtrlRx, 8, kControlCommandMax, mac_tables},
    Row{1, 1, Feature::kCtrlMacAddr, 6, 6, mac_address},
    Row{3, 0, Feature::kGuestAnnounce, 0, 0, announce_ack},
    Row{4, 0, Feature::kMq, 2, 2, queue_pairs},
    Row{5, 0, Feature::kCtrlGuestOffloads, 8, 8, guest_offloads},
};

}  // namespace

bool execute_control_command(std::span<const std::byte> command,
                             const virtio::FeatureSet& negotiated, ControlTarget& target) {
  if (command.size() < 2) return false;
  const auto command_class = load<std::uint8_t>(command, 0);
  const auto number = load<std::uint8_t>(command, 1);
  const Bytes data = command.subspan(2);
  for (const Row& row : kRows) {
    if (row.command_class != command_class || row.command != number) continue;
    if (!negotiated.has(row.gate)) return false;
    if (data.size() < row.size_min || data.size() > row.size_max) return false;
    return row.run({data, negotiated, target});
  }
  return false;
}

namespace {

using AnyRing = std::variant<virtio::SplitDeviceRing<virtio::Order::kAny>,
                             virtio::SplitDeviceRing<virtio::Order::kInOrder>,
                             virtio::PackedDeviceRing<virtio::Order::kAny>,
                             virtio::PackedDeviceRing<virtio::Order::kInOrder>>;

AnyRing make_ring(const QueueStart& start) {
  const bool in_order = start.features.has(Feature::kInOrder);
  if (start.features.has(Feature::kRingPacked)) {
    if (in_order) return virtio::PackedDeviceRing<virtio::Order::kInOrder>(start.ring);
    return virtio::PackedDeviceRing<virtio::Order::kAny>(start.ring);
  }
  if (in_order) return virtio::SplitDeviceRing<virtio::Order::kInOrder>(start.ring);
  return virtio::SplitDeviceRing<virtio::Order::kAny>(start.ring);
}

}  // namespace

struct ControlQueue::Impl {
  Impl(const QueueStart& queue_start, ControlTarget& queue_target)
      : start(queue_start), target(queue_target), ring(make_ring(queue_start)) {
    command.reserve(kControlCommandMax);
  }

  [[nodiscard]] bool read_command(const virtio::Chain& chain);
  [[nodiscard]] std::byte* answer_place(const virtio::Chain& chain) const;
  void serve_one(virtio::Chain& chain);

  QueueStart start;
  ControlTarget& target;
  AnyRing ring;
  virtio::SegmentArena arena;
  std::vector<std::byte> command;  // The copy that is looked at.
  std::uint64_t commands = 0;
  std::uint64_t refused = 0;
};

namespace {

// The segments of a chain, one or many.
std::span<const virtio::Segment> segments_of(const virtio::Chain& chain,
                                             const virtio::SegmentArena& arena,
                                             virtio::Segment& single) {
  if (chain.segment_count != 1) return chain.segments(arena);
  single = {.data = chain.data, .length = chain.length};
  return {&single, 1};
}

}  // namespace

// Copies the readable part. False if it is longer than any command.
bool ControlQueue::Impl::read_command(const virtio::Chain& chain) {
  virtio::Segment single{};
  const auto segments = segments_of(chain, arena, single).first(chain.readable_count);
  command.clear();
  for (const virtio::Segment& segment : segments) {
    if (segment.length > kControlCommandMax - command.size()) return false;
    command.insert(command.end(), segment.data, segment.data + segment.length);
  }
  return true;
}

std::byte* ControlQueue::Impl::answer_place(const virtio::Chain& chain) const {
  virtio::Segment single{};
  const auto segments = segments_of(chain, arena, single).subspan(chain.readable_count);
  const auto place = std::find_if(segments.begin(), segments.end(),
                                  [](const virtio::Segment& s) { return s.length != 0; });
  return place == segments.end() ? nullptr : place->data;
}

void ControlQueue::Impl::serve_one(virtio::Chain& chain) {
  const bool ok = read_command(chain) && execute_control_command(command, start.features, target);
  ++commands;
  if (!ok) ++refused;
  chain.written = 0;
  std::byte* const answer = answer_place(chain);
  if (answer == nullptr) return;  // The driver gave no room for one.
  *answer = std::byte{ok ? kControlOk : kControlError};
  chain.written = 1;
  if (start.log != nullptr) start.log->mark(start.memory->guest_address(answer), 1);
}

ControlQueue::ControlQueue(const QueueStart& start, ControlTarget& target)
    : impl_(std::make_unique<Impl>(start, target)) {}
ControlQueue::~ControlQueue() = default;

bool ControlQueue::serve() {
  Impl& impl = *impl_;
  const auto serve_ring = [&](auto& ring) {
    std::array<virtio::Chain, 1> chain;
    bool notify = false;
    std::size_t served = 0;
    // One by one: an answer reaches the driver before the next command is looked at. Bounded, so
    // that a driver which posts commands all the time does not own the control thread.
    for (; served < virtio::kTakeMax; ++served) {
      impl.arena.clear();
      if (ring.take(*impl.start.memory, chain, impl.arena) == 0) break;
      impl.serve_one(chain[0]);
      ring.give_back(chain, false);
      notify = true;
    }
    if (notify && ring.should_notify() && impl.start.call != nullptr) impl.start.call->notify();
    if (served == virtio::kTakeMax) return true;
    ring.set_kicks(true);
    return ring.has_work();  // EVI-05
  };
  return std::visit(serve_ring, impl.ring);
}

void ControlQueue::set_call(std::shared_ptr<Notifier> call) {
  // A driver that polled so far may have been owed a call that nobody could make.
  const bool owed = impl_->start.call == nullptr && call != nullptr;
  impl_->start.call = std::move(call);
  if (owed) impl_->start.call->notify();
}

std::uint32_t ControlQueue::size() const {
  return impl_->start.ring.size;
}

virtio::RingPosition ControlQueue::position() const {
  return std::visit([](const auto& ring) { return ring.position(); }, impl_->ring);
}

const std::optional<Error>& ControlQueue::error() const {
  return std::visit([](const auto& ring) -> const std::optional<Error>& { return ring.error(); },
                    impl_->ring);
}

std::uint64_t ControlQueue::commands() const {
  return impl_->commands;
}
std::uint64_t ControlQueue::refused() const {
  return impl_->refused;
}

}  // namespace sluice::net
