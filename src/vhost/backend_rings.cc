// Messages about single rings. What makes a ring run: vhost/vring.h.
#include <bit>
#include <utility>

#include "vhost/backend.h"
#include "virtio/spec.h"

namespace sluice::vhost {
namespace {

// SET_VRING_KICK, _CALL, _ERR: ring in bits 0-7, "no descriptor" in bit 8, nothing above (SEC-04).
Result<std::uint64_t> ring_number(const Message& message) {
  const auto value = message.get<std::uint64_t>();
  if ((value & ~(kVringIndexMask | kVringNoFd)) != 0) {
    return fail(ErrorCode::kOutOfRange, "there is no ring of this number",
                static_cast<std::int64_t>(value));
  }
  return value & kVringIndexMask;
}

}  // namespace

Backend::Answer Backend::set_vring_num(Message& message) {
  const auto state = message.get<VringState>();
  const std::size_t index = TRY(ring_of(state.index));
  if (rings_.at(index).running) {
    return fail(ErrorCode::kWrongState, "the size of a running ring cannot change", state.index);
  }
  if (state.num == 0 || state.num > virtio::kQueueSizeMax) {
    return fail(ErrorCode::kInvalidArgument, "queue size must be 1 to 32768", state.num);
  }
  const RingEnvironment& env = rings_.environment();
  const bool split = env.features_known && !env.features.has(virtio::Feature::kRingPacked);
  if (split && !std::has_single_bit(state.num)) {
    return fail(ErrorCode::kInvalidArgument, "size of a split ring must be a power of two",
                state.num);
  }
  TRY(rings_.change_ring(index, [&](Vring& ring) { ring.config.size = state.num; }));
  return Message();
}

Backend::Answer Backend::set_vring_addr(Message& message) {
  const auto wanted = message.get<VringAddress>();
  const std::size_t index = TRY(ring_of(wanted.index));
  if ((wanted.flags & ~kVringAddressLog) != 0) {
    return fail(ErrorCode::kUnsupported, "unknown flags of SET_VRING_ADDR", wanted.flags);
  }
  TRY(rings_.change_ring(index, [&](Vring& ring) {
    ring.config.descriptors = memory::UserAddress(wanted.descriptor);
    ring.config.driver_area = memory::UserAddress(wanted.available);
    ring.config.device_area = memory::UserAddress(wanted.used);
    ring.has_addresses = true;
    ring.log_used.reset();
    if (wanted.flags != 0) ring.log_used = memory::GuestAddress(wanted.log);
  }));
  return Message();
}

Backend::Answer Backend::set_vring_base(Message& message) {
  const auto state = message.get<VringState>();
  const std::size_t index = TRY(ring_of(state.index));
  if (rings_.at(index).running) {
    return fail(ErrorCode::kWrongState, "the position of a running ring cannot change",
                state.index);
  }
  TRY(rings_.change_ring(index, [&](Vring& ring) {
    ring.base = state.num;
    ring.paused_at.reset();
  }));
  return Message();
}

Backend::Answer Backend::get_vring_base(Message& message) {
  const auto state = message.get<VringState>();
  const std::size_t index = TRY(ring_of(state.index));
  return Message().add(VringState{state.index, rings_.stop(index)});
}

Backend::Answer Backend::set_vring_kick(Message& message) {
  const std::uint64_t number = TRY(ring_number(message));
  const std::size_t index = TRY(ring_of(number));
  std::shared_ptr<EventFd> kick;
  if (!message.fds.empty()) {
    kick = std::make_shared<EventFd>(TRY(EventFd::adopt(std::move(message.fds.front()))));
  }
  TRY(rings_.change_ring(index, [&](Vring& ring) {
    ring.kick = std::move(kick);
    ring.kicked = true;
  }));
  return Message();
}

Result<std::shared_ptr<net::Notifier>> Backend::target(Message& message, BackendRequest kind,
                                                       std::size_t ring) const {
  if (message.fds.empty()) return inband_target(kind, ring);
  return std::make_shared<EventNotifier>(TRY(EventFd::adopt(std::move(message.fds.front()))));
}

Backend::Answer Backend::set_vring_call(Message& message) {
  const std::uint64_t number = TRY(ring_number(message));
  const std::size_t index = TRY(ring_of(number));
  const bool is_fd = !message.fds.empty();
  auto call = TRY(target(message, BackendRequest::kVringCall, index));
  rings_.set_call(index, std::move(call), is_fd);
  return Message();
}

Backend::Answer Backend::set_vring_err(Message& message) {
  const std::uint64_t number = TRY(ring_number(message));
  const std::size_t index = TRY(ring_of(number));
  const bool is_fd = !message.fds.empty();
  auto error = TRY(target(message, BackendRequest::kVringErr, index));
  TRY(rings_.change_ring(index, [&](Vring& ring) {
    ring.error = std::move(error);
    ring.error_is_fd = is_fd;
  }));
  return Message();
}

Backend::Answer Backend::set_vring_enable(Message& message) {
  const auto state = message.get<VringState>();
  const std::size_t index = TRY(ring_of(state.index));
  if (state.num > 1) {
    return fail(ErrorCode::kInvalidArgument, "a ring is enabled (1) or disabled (0)", state.num);
  }
  rings_.enable(index, state.num == 1);
  return Message();
}

Backend::Answer Backend::vring_kick(Message& message) {
  const auto state = message.get<VringState>();
  const std::size_t index = TRY(ring_of(state.index));
  if (!rings_.at(index).kicked) {
    TRY(rings_.change_ring(index, [](Vring& ring) { ring.kicked = true; }));
  }
  if (rings_.at(index).running) {
    device_.kick(net::QueueIndex(static_cast<std::uint16_t>(index)));
  }
  return Message();
}

}  // namespace sluice::vhost
