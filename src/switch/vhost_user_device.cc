// The device half of VhostUserPort: what the session and control commands change.
#include <sys/epoll.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "switch/vhost_user_port.h"

namespace sluice::fabric {

namespace {

using virtio::Feature;
using virtio::FeatureSet;

net::PackedMac pack(std::span<const std::byte, 6> mac) {
  net::PackedMac packed = 0;
  std::memcpy(&packed, mac.data(), mac.size());
  return packed;
}

std::optional<net::PackedMac> pack(const std::optional<MacAddress>& mac) {
  if (!mac.has_value()) return std::nullopt;
  return pack(std::span<const std::byte, 6>(*mac));
}

net::DeviceOptions device_options(const VhostUserOptions& options) {
  return {.queue_pairs = options.queues,
          .mac = pack(options.mac),
          .mtu = options.mtu,
          .offloads = options.offloads,
          .packed = options.packed,
          .in_order = options.in_order,
          .mrg_rxbuf = options.mrg_rxbuf,
          .event_idx = options.event_idx,
          .indirect = options.indirect,
          .ring_reset = options.ring_reset,
          .control_queue = true};
}

}  // namespace

Result<std::unique_ptr<VhostUserPort>> VhostUserPort::create(const VhostUserOptions& options,
                                                             std::uint16_t number,
                                                             PortEvents& events) {
  if (options.queues < 1 || options.queues > net::kQueuePairsMax) {
    return fail(ErrorCode::kOutOfRange, "vhost-user: queues is outside 1..127", options.queues);
  }
  if (options.mtu < net::kMtuMin) {
    return fail(ErrorCode::kOutOfRange, "vhost-user: mtu is below 68", options.mtu);
  }
  const auto mac = pack(options.mac);
  if (mac.has_value() && (*mac == 0 || net::is_multicast(*mac))) {
    return fail(ErrorCode::kInvalidArgument, "vhost-user: mac is zero or a group address");
  }
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return fail_errno("cannot make an epoll set");
  return std::make_unique<VhostUserPort>(Passkey{}, options, number, events, std::move(epoll));
}

VhostUserPort::VhostUserPort(Passkey, const VhostUserOptions& options, std::uint16_t number,
                             PortEvents& events, UniqueFd control_epoll)
    : name_(options.name),
      number_(number),
      pairs_(options.queues),
      mac_(pack(options.mac)),
      device_options_(device_options(options)),
      queue_options_({.one_used_entry = options.one_used_entry, .mtu = options.mtu}),
      offered_(net::offered_features(device_options_)),
      events_(events),
      control_epoll_(std::move(control_epoll)),
      transmitqs_(std::make_unique<TransmitQueue[]>(options.queues)),
      receiveqs_(std::make_unique<ReceiveQueue[]>(options.queues)),
      ready_(options.queues),
      config_(device_options_),
      pair_limit_(options.queues),
      mtu_(options.mtu) {}

VhostUserPort::~VhostUserPort() = default;

// --- Negotiation ---------------------------------------------------------------------------------

Status VhostUserPort::set_features(const FeatureSet& features) {
  // While queues run only bits of the transport change (LOG_ALL); what the driver commanded stays.
  if (!running()) forget_negotiation();
  features_ = features;
  return {};
}

void VhostUserPort::forget_negotiation() {
  features_ = {};
  guest_offloads_.reset();
  pair_limit_ = pairs_;
  filter_.reset();
  config_.set_announce(false);
  find_ready_queues();
}

void VhostUserPort::set_status(std::uint8_t status) {
  if (status == 0) forget_negotiation();
}

void VhostUserPort::session_over() {
  forget_negotiation();
  // Not before: QEMU tells the MTU first and the features then.
  mtu_ = device_options_.mtu;
  // Rings are disabled when the next front-end connects (vhost-user, "Ring states").
  for (std::uint16_t pair = 0; pair < pairs_; ++pair) {
    note(transmitqs_[pair].set_enabled(false, patience()));
    note(receiveqs_[pair].set_enabled(false, patience()));
  }
  foreign_source_seen_.store(false, std::memory_order_relaxed);
  queue_changed();
}

Status VhostUserPort::set_mtu(std::uint16_t mtu) {
  if (mtu < net::kMtuMin || mtu > device_options_.mtu) {
    return fail(ErrorCode::kOutOfRange, "the device cannot forward this MTU", mtu);
  }
  const bool started = std::any_of(receiveqs_.get(), receiveqs_.get() + pairs_,
                                   [](const ReceiveQueue& queue) { return queue.started(); });
  if (started && mtu != mtu_) {
    // MTU-01: fixed for the life of the device.
    return fail(ErrorCode::kWrongState, "the MTU cannot change while a receiveq runs", mtu);
  }
  mtu_ = mtu;
  return {};
}

Status VhostUserPort::write_config(std::uint32_t offset, std::span<const std::byte> data) {
  return config_.write(offset, data);
}

// --- Queues --------------------------------------------------------------------------------------

VhostUserPort::Place VhostUserPort::place_of(net::QueueIndex queue) const {
  if (features_.has(Feature::kCtrlVq) && queue == net::control_queue_index(pairs_, features_)) {
    return {Role::kControl, 0};
  }
  const auto pair = static_cast<std::uint16_t>(queue.raw() / 2);
  if (pair >= pairs_) return {Role::kNone, 0};
  return {queue.raw() % 2 == 0 ? Role::kReceive : Role::kTransmit, pair};
}

VhostQueueBase* VhostUserPort::queue_of(const Place& place) {
  switch (place.role) {
    case Role::kReceive: return &receiveqs_[place.pair];
    case Role::kTransmit: return &transmitqs_[place.pair];
    case Role::kControl:
    case Role::kNone: break;
  }
  return nullptr;
}

FeatureSet VhostUserPort::features_in_force(const FeatureSet& negotiated) const {
  if (!guest_offloads_.has_value()) return negotiated;
  return virtio::without_broken_dependencies((negotiated - net::kGuestOffloads) | *guest_offloads_);
}

Status VhostUserPort::start_queue(net::QueueIndex queue, net::QueueStart start) {
  const Place place = place_of(queue);
  net::QueueOptions options = queue_options_;
  options.mtu = mtu_;
  switch (place.role) {
    case Role::kNone:
      return fail(ErrorCode::kOutOfRange, "the device has no such queue", queue.raw());
    case Role::kControl: return start_control(std::move(start));
    case Role::kReceive:
      start.features = features_in_force(start.features);
      TRY(receiveqs_[place.pair].start_with(std::move(start), options, patience()));
      break;
    case Role::kTransmit:
      TRY(transmitqs_[place.pair].start_with(std::move(start), options, patience()));
      break;
  }
  queue_changed();  // H04: workers look at the ring now; no kick will come.
  return {};
}

Result<virtio::RingPosition> VhostUserPort::stop_queue(net::QueueIndex queue) {
  const Place place = place_of(queue);
  if (place.role == Role::kControl) return stop_control();
  if (place.role == Role::kNone) return virtio::RingPosition{};
  const bool receive = place.role == Role::kReceive;
  const Status stopped =
      receive ? receiveqs_[place.pair].stop(patience()) : transmitqs_[place.pair].stop(patience());
  note(stopped);
  queue_changed();
  if (!stopped) return std::unexpected(stopped.error());
  return queue_of(place)->stopped_at();
}

void VhostUserPort::enable_queue(net::QueueIndex queue, bool enabled) {
  VhostQueueBase* const changed = queue_of(place_of(queue));
  if (changed == nullptr) return;  // The control queue serves whenever it is started.
  note(changed->set_enabled(enabled, patience()));
  queue_changed();
}

void VhostUserPort::set_call(net::QueueIndex queue, std::shared_ptr<net::Notifier> call) {
  const Place place = place_of(queue);
  if (place.role == Role::kReceive) {
    note(receiveqs_[place.pair].set_call(std::move(call), patience()));
  } else if (place.role == Role::kTransmit) {
    note(transmitqs_[place.pair].set_call(std::move(call), patience()));
  } else if (place.role == Role::kControl && control_ != nullptr) {
    control_->set_call(std::move(call));
  }
}

void VhostUserPort::kick(net::QueueIndex queue) {
  const Place place = place_of(queue);
  if (place.role == Role::kControl) {
    serve_control_queue();
  } else if (place.role == Role::kTransmit) {
    events_.queues_changed();
  }
}

void VhostUserPort::queue_changed() {
  find_ready_queues();
  events_.queues_changed();
}

void VhostUserPort::find_ready_queues() {
  std::uint16_t count = 0;
  for (std::uint16_t pair = 0; pair < std::min(pairs_, pair_limit_); ++pair) {
    if (receiveqs_[pair].running()) ready_[count++].store(pair, std::memory_order_relaxed);
  }
  ready_count_.store(count, std::memory_order_release);
}

bool VhostUserPort::running() const {
  for (std::uint16_t pair = 0; pair < pairs_; ++pair) {
    if (transmitqs_[pair].started() || receiveqs_[pair].started()) return true;
  }
  return control_ != nullptr;
}

void VhostUserPort::note(const Status& status) {
  if (status.has_value()) return;
  last_error_ = status.error();
  stuck_ |= status.error().code == ErrorCode::kTimeout;
}

std::chrono::milliseconds VhostUserPort::patience() const {
  return stuck_ ? std::chrono::milliseconds(1) : QueueLock::kDeadline;
}

// --- The control queue ---------------------------------------------------------------------------

Status VhostUserPort::start_control(net::QueueStart start) {
  if (control_ != nullptr) {
    return fail(ErrorCode::kWrongState, "the control queue is started already");
  }
  control_error_ = start.error;
  control_kick_ = start.kick;
  if (control_kick_ != nullptr) {
    // Edge-triggered: a counter that the driver keeps above zero (EFD_SEMAPHORE) wakes us when it
    // is written, not always.
    epoll_event event{.events = EPOLLIN | EPOLLET, .data = {.u64 = 0}};
    if (::epoll_ctl(control_epoll_.get(), EPOLL_CTL_ADD, control_kick_->fd(), &event) != 0) {
      control_kick_ = nullptr;
      return fail_errno("cannot wait for kicks of the control queue");
    }
  }
  net::ControlTarget& target = *this;
  control_ = std::make_unique<net::ControlQueue>(start, target);
  // Spec: virtio 1.3, 5.1.6.5.5: one pair is used until the driver says otherwise.
  if (features_.has(Feature::kMq)) pair_limit_ = 1;
  find_ready_queues();
  serve_control_queue();
  return {};
}

virtio::RingPosition VhostUserPort::stop_control() {
  if (control_ == nullptr) return control_stopped_at_;
  if (control_kick_ != nullptr) {
    ::epoll_ctl(control_epoll_.get(), EPOLL_CTL_DEL, control_kick_->fd(), nullptr);
  }
  control_stopped_at_ = control_->position();
  control_ = nullptr;
  control_kick_ = nullptr;
  control_error_ = nullptr;
  return control_stopped_at_;
}

void VhostUserPort::serve_control_queue() {
  if (control_ == nullptr) return;
  if (control_kick_ != nullptr) {
    epoll_event event{};  // Takes the edge.
    ::epoll_wait(control_epoll_.get(), &event, 1, 0);
    control_kick_->drain();
  }
  const bool more = control_->serve();
  if (const auto& error = control_->error(); error.has_value()) {
    last_error_ = *error;
    if (const auto told = std::exchange(control_error_, nullptr)) told->notify();
    return;
  }
  // The rest waits for its turn behind the other things of the control thread.
  if (more && control_kick_ != nullptr) control_kick_->signal();
}

bool VhostUserPort::set_mac_address(net::PackedMac mac) {
  filter_.set_address(mac);
  return true;
}

void VhostUserPort::announced() {
  config_.set_announce(false);
}

bool VhostUserPort::use_queue_pairs(std::uint16_t pairs) {
  pair_limit_ = pairs;
  find_ready_queues();
  // "No packet on pairs beyond" holds from here on: a burst under way ends before we have its lock.
  for (std::uint16_t pair = pairs; pair < pairs_; ++pair) {
    if (!receiveqs_[pair].started()) continue;
    if (!receiveqs_[pair].lock.lock_for_control(patience()).has_value()) return false;
    receiveqs_[pair].lock.unlock();
  }
  return true;
}

bool VhostUserPort::set_guest_offloads(const FeatureSet& offloads) {
  guest_offloads_ = offloads;
  for (std::uint16_t pair = 0; pair < pairs_; ++pair) {
    // CTL-07: no frame that is used after the command carries what was turned off.
    const FeatureSet features = features_in_force(features_);
    if (!receiveqs_[pair].change_features(features, patience()).has_value()) return false;
  }
  return true;
}

Status VhostUserPort::send_rarp(std::span<const std::byte, 6> mac) {
  const net::PackedMac address = pack(mac);
  if (address == 0 || net::is_multicast(address)) {
    return fail(ErrorCode::kInvalidArgument, "SEND_RARP for an address that no station can have");
  }
  // An announcement moves the address here as a frame from it would, so the same rule holds.
  if (mac_.has_value() && *mac_ != address) {
    return fail(ErrorCode::kPermission, "SEND_RARP for another address than the port's mac=");
  }
  // ANN-02: one announcement. A driver that can speak for itself knows its VLANs and addresses.
  if (features_.has(Feature::kGuestAnnounce) && control_ != nullptr) {
    config_.set_announce(true);
    events_.config_changed(number_);
    return {};
  }
  events_.announce(number_, address);
  return {};
}

// --- Housekeeping --------------------------------------------------------------------------------

void VhostUserPort::housekeeping() {
  bool changed = false;
  bool stuck = false;
  const auto look_at = [&](auto& queue) {
    if (const auto news = queue.take_news()) {
      last_error_ = news;
      changed = true;
    }
    if (queue.retiring()) stuck |= !queue.stop(std::chrono::milliseconds(0)).has_value();
  };
  for (std::uint16_t pair = 0; pair < pairs_; ++pair) {
    look_at(transmitqs_[pair]);
    look_at(receiveqs_[pair]);
    // Nobody waits for it, but a counter must not fill up either (SEC-62).
    if (const auto& kick = receiveqs_[pair].start().kick; kick != nullptr) kick->drain();
  }
  stuck_ = stuck;
  if (changed) queue_changed();
  if (foreign_source_seen_.exchange(false, std::memory_order_relaxed)) {
    last_error_ = Error{ErrorCode::kPermission,
                        "frames with another source address than mac= were dropped", 0};
  }
  if (control_ != nullptr && control_kick_ == nullptr) serve_control_queue();
}

}  // namespace sluice::fabric
