// Messages about the device itself, the back-end channel, and what is shown of a session.
#include <span>
#include <utility>

#include "vhost/backend.h"

namespace sluice::vhost {

Backend::Answer Backend::get_config(Message& message) {
  const auto wanted = message.get<ConfigDescription>();
  const std::span<const std::byte> space = device_.config();
  if (wanted.size == 0 || wanted.size > kConfigMax || wanted.offset > space.size() ||
      wanted.size > space.size() - wanted.offset) {
    return fail(ErrorCode::kOutOfRange, "the configuration space is not as large",
                std::int64_t{wanted.offset} + wanted.size);
  }
  Message answer;
  answer.add(wanted);
  const auto bytes = space.subspan(wanted.offset, wanted.size);
  answer.payload.insert(answer.payload.end(), bytes.begin(), bytes.end());
  return answer;
}

Backend::Answer Backend::set_config(Message& message) {
  const auto wanted = message.get<ConfigDescription>();
  const auto data = std::span<const std::byte>(message.payload).subspan(sizeof wanted);
  if (wanted.flags != kConfigWritable && wanted.flags != kConfigMigration) {
    return fail(ErrorCode::kInvalidArgument, "unknown flags of SET_CONFIG", wanted.flags);
  }
  if (wanted.size == 0 || wanted.size != data.size()) {
    return fail(ErrorCode::kProtocol, "SET_CONFIG carries another number of bytes than it says",
                wanted.size);
  }
  const std::size_t space = device_.config().size();
  if (wanted.offset > space || wanted.size > space - wanted.offset) {
    return fail(ErrorCode::kOutOfRange, "the configuration space is not as large",
                std::int64_t{wanted.offset} + wanted.size);
  }
  TRY(device_.write_config(wanted.offset, data));
  return Message();
}

Backend::Answer Backend::net_set_mtu(Message& message) {
  const auto mtu = message.get<std::uint64_t>();
  if (mtu > 0xffff) {
    return fail(ErrorCode::kOutOfRange, "an MTU has 16 bits", static_cast<std::int64_t>(mtu));
  }
  TRY(device_.set_mtu(static_cast<std::uint16_t>(mtu)));
  return Message();
}

Backend::Answer Backend::send_rarp(Message& message) {
  const auto mac = std::span<const std::byte>(message.payload).first<6>();
  TRY(device_.send_rarp(mac));
  return Message();
}

Backend::Answer Backend::set_backend_req_fd(Message& message) {
  channel_ = TRY(BackendChannel::adopt(std::move(message.fds.front())));
  refresh_inband_targets();
  return Message();
}

std::shared_ptr<net::Notifier> Backend::inband_target(BackendRequest kind, std::size_t ring) const {
  if (channel_ == nullptr || !negotiated(ProtocolFeature::kInbandNotifications)) return nullptr;
  return std::make_shared<InbandNotifier>(channel_, kind, static_cast<std::uint8_t>(ring));
}

// In-band targets hang on the channel and on a protocol feature; both may come after the rings.
void Backend::refresh_inband_targets() {
  for (std::size_t i = 0; i < rings_.count(); ++i) {
    const Vring& ring = rings_.at(i);
    const auto call = inband_target(BackendRequest::kVringCall, i);
    if (!ring.call_is_fd && (call != nullptr || ring.call != nullptr)) {
      rings_.set_call(i, call, false);
    }
    const auto error = inband_target(BackendRequest::kVringErr, i);
    if (ring.error_is_fd || (error == nullptr && ring.error == nullptr)) continue;
    // It ran, or it could not start, before; a new target for errors changes nothing of that.
    static_cast<void>(rings_.change_ring(i, [&](Vring& changed) { changed.error = error; }));
  }
}

void Backend::config_changed() {
  config_change_waits_ = channel_ != nullptr && negotiated(ProtocolFeature::kConfig) &&
                         negotiated(ProtocolFeature::kBackendReq);
  tell_config_changed();
}

// A device all of whose rings are stopped is suspended: it sends nothing of its own accord.
void Backend::tell_config_changed() {
  if (!config_change_waits_ || !rings_.any_running() || channel_ == nullptr) return;
  config_change_waits_ = false;
  channel_->config_changed();
}

SessionView Backend::view() const {
  SessionView view;
  view.features = virtio::FeatureSet::from_low(features_);
  view.protocol_features = protocol_feature_names(protocol_features_);
  if (const auto& memory = rings_.environment().memory; memory != nullptr) {
    for (const auto& region : memory->regions()) view.memory_bytes += region->record.size;
    view.memory_regions = static_cast<std::uint32_t>(memory->regions().size());
  }
  view.status = status_.value_or(0);
  view.logging = rings_.environment().log != nullptr;
  view.messages = messages_;
  view.refused = refused_;
  view.last_error = last_error_;
  view.last_error_request = last_error_request_;
  return view;
}

bool Backend::memory_shrunk() const {
  const RingEnvironment& env = rings_.environment();
  return (env.memory != nullptr && env.memory->shrunk()) || (log_ != nullptr && log_->shrunk()) ||
         (env.inflight != nullptr && env.inflight->shrunk());
}

}  // namespace sluice::vhost
