// The steps of a vhost-user session, from the driver's end.
#include "vhost/frontend.h"

#include <algorithm>
#include <limits>

#include "virtio/spec.h"

namespace sluice::vhost {
namespace {

using virtio::Feature;
using virtio::FeatureSet;

// Feature bits of the transport: it answers for them, whatever the driver wants.
constexpr FeatureSet kTransportBits = {Feature::kProtocolFeatures, Feature::kLogAll};

Message vring_state(Request request, net::QueueIndex queue, std::uint32_t number) {
  Message message(request);
  message.add(VringState{.index = queue.raw(), .num = number});
  return message;
}

Message with_number(Request request, std::uint64_t number) {
  Message message(request);
  message.add(number);
  return message;
}

}  // namespace

Result<std::unique_ptr<Frontend>> Frontend::adopt(UniqueFd socket, const FrontendOptions& options) {
  FrontendChannel channel = TRY(FrontendChannel::adopt(std::move(socket), options.timeout));
  return std::make_unique<Frontend>(std::move(channel), options);
}

Status Frontend::require(ProtocolFeature feature) {
  TRY(offer());
  if (has(protocol_, feature)) return {};
  return fail(ErrorCode::kNotNegotiated, "the back-end lacks a vhost-user protocol feature",
              static_cast<std::int64_t>(feature));
}

// --- Negotiation ---------------------------------------------------------------------------------

Result<net::DeviceOffer> Frontend::offer() {
  if (offer_) return *offer_;
  TRY(channel_.command(Message(Request::kSetOwner)));
  const FeatureSet all = FeatureSet::from_low(TRY(channel_.ask_number(Request::kGetFeatures)));
  transport_offer_ = all & kTransportBits;
  if (all.has(Feature::kProtocolFeatures)) TRY(negotiate_protocol());
  net::DeviceOffer offer{.features = all - kTransportBits, .max_queue_pairs = 1};
  if (has(protocol_, ProtocolFeature::kMq)) offer.max_queue_pairs = TRY(ask_queue_pairs());
  if (has(protocol_, ProtocolFeature::kConfigureMemSlots)) {
    slots_ = TRY(channel_.ask_number(Request::kGetMaxMemSlots));
  }
  if (has(protocol_, ProtocolFeature::kBackendReq)) TRY(open_back_channel());
  offer_ = offer;
  return offer;
}

Status Frontend::negotiate_protocol() {
  protocol_ = wish_ & TRY(channel_.ask_number(Request::kGetProtocolFeatures));
  // The back-end's channel has nothing to tell us but that the configuration changed.
  if (!has(protocol_, ProtocolFeature::kConfig)) protocol_ &= ~bit(ProtocolFeature::kBackendReq);
  TRY(channel_.command(with_number(Request::kSetProtocolFeatures, protocol_)));
  channel_.use_reply_ack(has(protocol_, ProtocolFeature::kReplyAck));
  return {};
}

// Some answer pairs, some queues; only the back-end's refusal tells. So: an upper bound.
Result<std::uint16_t> Frontend::ask_queue_pairs() {
  const std::uint64_t number = TRY(channel_.ask_number(Request::kGetQueueNum));
  if (number == 0) return channel_.broken("the back-end has no queues");
  return static_cast<std::uint16_t>(std::min<std::uint64_t>(number, net::kQueuePairsMax));
}

Status Frontend::open_back_channel() {
  Message message(Request::kSetBackendReqFd);
  message.fds.push_back(TRY(channel_.open_back_channel()));
  return channel_.command(std::move(message));
}

Status Frontend::send_features() {
  FeatureSet bits = features_;
  if (transport_offer_.has(Feature::kProtocolFeatures)) bits.add(Feature::kProtocolFeatures);
  if (logging_) bits.add(Feature::kLogAll);
  return channel_.command(with_number(Request::kSetFeatures, bits.low()));
}

// --- Status (virtio 1.3, 3.1.1) ------------------------------------------------------------------

Status Frontend::set_status(std::uint8_t status) {
  if (!has(protocol_, ProtocolFeature::kStatus)) return {};
  TRY(channel_.command(with_number(Request::kSetStatus, status)));
  status_ = status;
  return {};
}

Result<std::uint8_t> Frontend::status() {
  TRY(require(ProtocolFeature::kStatus));
  const std::uint64_t value = TRY(channel_.ask_number(Request::kGetStatus));
  return static_cast<std::uint8_t>(value & 0xff);
}

// Reset, then "I have noticed you", then "I know how to drive you" (INI-01).
Status Frontend::begin_status() {
  TRY(set_status(0));
  TRY(set_status(virtio::kStatusAcknowledge));
  return set_status(virtio::kStatusAcknowledge | virtio::kStatusDriver);
}

// INI-02: the device may take back FEATURES_OK, and only reading it tells.
Status Frontend::check_features_ok() {
  if (!has(protocol_, ProtocolFeature::kStatus)) return {};
  TRY(set_status(status_ | virtio::kStatusFeaturesOk));
  const std::uint8_t seen = TRY(status());
  if ((seen & virtio::kStatusFeaturesOk) != 0) return {};
  TRY(set_status(status_ | virtio::kStatusFailed));
  return fail(ErrorCode::kNotNegotiated, "the device does not accept this set of features");
}

// --- Start and stop ------------------------------------------------------------------------------

Status Frontend::start(const net::DeviceStart& start) {
  const net::DeviceOffer offered = TRY(offer());
  if (!running_.empty()) return fail(ErrorCode::kWrongState, "rings of the device are running");
  if (!offered.features.contains(start.features)) {
    return fail(ErrorCode::kNotNegotiated, "a feature that the device does not offer (INI-03)");
  }
  const bool can_disable = transport_offer_.has(Feature::kProtocolFeatures);
  for (const net::RingSetup& ring : start.rings) {
    if (!ring.enabled && !can_disable) {
      return fail(ErrorCode::kNotNegotiated, "the back-end cannot disable a ring");
    }
  }
  // A reset may or may not forget the memory; with nothing shared both are the same.
  if (has(protocol_, ProtocolFeature::kStatus)) TRY(remove_regions());
  TRY(begin_status());
  for (const net::RingSetup& ring : start.rings) {
    TRY(send_vring_fd(Request::kSetVringCall, ring, ring.call.get()));
  }
  features_ = start.features;
  TRY(send_features());
  TRY(check_features_ok());
  TRY(set_memory(start.regions));
  for (const net::RingSetup& ring : start.rings) TRY(send_ring(ring));
  if (can_disable) {
    for (const net::RingSetup& ring : start.rings) TRY(send_enable(ring.queue, ring.enabled));
  }
  return set_status(status_ | virtio::kStatusDriverOk);
}

Status Frontend::start_queue(const net::RingSetup& ring) {
  if (running_.contains(ring.queue)) {
    return fail(ErrorCode::kWrongState, "the ring is running", ring.queue.raw());
  }
  // Back-ends close kick and call when a ring stops: both are sent again.
  TRY(send_vring_fd(Request::kSetVringCall, ring, ring.call.get()));
  TRY(send_ring(ring));
  if (!transport_offer_.has(Feature::kProtocolFeatures)) return {};
  return send_enable(ring.queue, ring.enabled);
}

Status Frontend::send_vring_fd(Request request, const net::RingSetup& ring, const EventFd* event) {
  if (ring.queue.raw() > kVringIndexMask) {
    return fail(ErrorCode::kOutOfRange, "vhost-user names rings in 8 bits", ring.queue.raw());
  }
  Message message(request);
  message.add(std::uint64_t{ring.queue.raw()} | (event == nullptr ? kVringNoFd : 0));
  if (event != nullptr) message.fds.push_back(TRY(copy_to_send(event->fd())));
  return channel_.command(std::move(message));
}

// KICK is last: some back-ends start the ring at that message.
Status Frontend::send_ring(const net::RingSetup& ring) {
  TRY(channel_.command(vring_state(Request::kSetVringNum, ring.queue, ring.size)));
  std::uint32_t base = ring.position.avail;
  if (features_.has(Feature::kRingPacked)) base |= std::uint32_t{ring.position.used} << 16;
  TRY(channel_.command(vring_state(Request::kSetVringBase, ring.queue, base)));
  TRY(send_address(ring));
  TRY(send_vring_fd(Request::kSetVringKick, ring, ring.kick.get()));
  running_.insert_or_assign(ring.queue, ring);
  return {};
}

Status Frontend::send_address(const net::RingSetup& ring) {
  VringAddress address{.index = ring.queue.raw(),
                       .flags = 0,
                       .descriptor = ring.descriptors.raw(),
                       .used = ring.device_area.raw(),
                       .available = ring.driver_area.raw(),
                       .log = 0};
  if (logging_) {
    address.flags = kVringAddressLog;
    address.log = TRY(guest_address(ring.device_area));
  }
  Message message(Request::kSetVringAddr);
  message.add(address);
  return channel_.command(std::move(message));
}

Status Frontend::send_enable(net::QueueIndex queue, bool enabled) {
  return channel_.command(vring_state(Request::kSetVringEnable, queue, enabled ? 1 : 0));
}

Status Frontend::enable_queue(net::QueueIndex queue, bool enabled) {
  if (!transport_offer_.has(Feature::kProtocolFeatures)) {
    return fail(ErrorCode::kNotNegotiated, "the back-end cannot enable or disable rings");
  }
  return send_enable(queue, enabled);
}

Result<virtio::RingPosition> Frontend::stop_queue(net::QueueIndex queue) {
  const Message answer = TRY(channel_.ask(vring_state(Request::kGetVringBase, queue, 0),
                                          AnswerShape::of(sizeof(VringState))));
  const auto state = answer.get<VringState>();
  running_.erase(queue);
  if (state.index != queue.raw()) {
    return channel_.broken("the back-end stopped another ring", state.index);
  }
  const auto low = static_cast<std::uint16_t>(state.num & 0xffff);
  const auto high = static_cast<std::uint16_t>(state.num >> 16);
  if (!features_.has(Feature::kRingPacked)) {
    if (high != 0) {
      return channel_.broken("the back-end's ring index is no index", state.num);
    }
    return virtio::RingPosition{.avail = low, .used = low};
  }
  // Some fill the lower half only; a ring that stopped completed all it took.
  return virtio::RingPosition{.avail = low, .used = high == 0 ? low : high};
}

Status Frontend::reset() {
  while (!running_.empty()) TRY(stop_queue(running_.begin()->first));
  TRY(remove_regions());
  log_set_ = false;
  logging_ = false;
  if (has(protocol_, ProtocolFeature::kResetDevice)) {
    TRY(channel_.command(Message(Request::kResetDevice)));
  }
  return set_status(0);
}

}  // namespace sluice::vhost
