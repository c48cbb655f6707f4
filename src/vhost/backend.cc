// The order of work for every message, and the messages about session, features and status.
#include "vhost/backend.h"

#include <array>
#include <utility>

namespace sluice::vhost {
namespace {

using virtio::Feature;
using virtio::FeatureSet;

// Features of the protocol, not of the device.
constexpr FeatureSet kTransportFeatures = {Feature::kLogAll, Feature::kProtocolFeatures};

// What the device is told: without the transport's bits, and with all dependencies fulfilled. A
// front-end may serve the control queue itself and strip CTRL_VQ here while it keeps what depends
// on it, so CTRL_VQ counts as there.
FeatureSet for_device(std::uint64_t bits) {
  FeatureSet set = FeatureSet::from_low(bits) - kTransportFeatures;
  const bool control = set.has(Feature::kCtrlVq);
  set.add(Feature::kCtrlVq);
  set = virtio::without_broken_dependencies(set);
  if (!control) set.remove(Feature::kCtrlVq);
  return set;
}

std::uint16_t ring_count(const net::Device& device) {
  const int control = device.offered_features().has(Feature::kCtrlVq) ? 1 : 0;
  return static_cast<std::uint16_t>(2 * device.max_queue_pairs() + control);
}

}  // namespace

std::uint64_t offered_protocol_features() {
  using enum ProtocolFeature;
  return bit(kMq) | bit(kLogShmfd) | bit(kRarp) | bit(kReplyAck) | bit(kNetMtu) | bit(kBackendReq) |
         bit(kConfig) | bit(kInflightShmfd) | bit(kResetDevice) | bit(kInbandNotifications) |
         bit(kConfigureMemSlots) | bit(kStatus);
}

struct Backend::Handlers {
  using Table = std::array<Handler, kMessages.size()>;

  static constexpr Table make() {
    Table table{};
    const auto set = [&](Request request, Handler handler) {
      table[static_cast<std::size_t>(request) - 1] = handler;
    };
    using enum Request;
    set(kGetFeatures, &Backend::get_features);
    set(kSetFeatures, &Backend::set_features);
    set(kSetOwner, &Backend::set_owner);
    set(kResetOwner, &Backend::reset_owner);
    set(kSetMemTable, &Backend::set_mem_table);
    set(kSetLogBase, &Backend::set_log_base);
    set(kSetVringNum, &Backend::set_vring_num);
    set(kSetVringAddr, &Backend::set_vring_addr);
    set(kSetVringBase, &Backend::set_vring_base);
    set(kGetVringBase, &Backend::get_vring_base);
    set(kSetVringKick, &Backend::set_vring_kick);
    set(kSetVringCall, &Backend::set_vring_call);
    set(kSetVringErr, &Backend::set_vring_err);
    set(kGetProtocolFeatures, &Backend::get_protocol_features);
    set(kSetProtocolFeatures, &Backend::set_protocol_features);
    set(kGetQueueNum, &Backend::get_queue_num);
    set(kSetVringEnable, &Backend::set_vring_enable);
    set(kSendRarp, &Backend::send_rarp);
    set(kNetSetMtu, &Backend::net_set_mtu);
    set(kSetBackendReqFd, &Backend::set_backend_req_fd);
    set(kGetConfig, &Backend::get_config);
    set(kSetConfig, &Backend::set_config);
    set(kGetInflightFd, &Backend::get_inflight_fd);
    set(kSetInflightFd, &Backend::set_inflight_fd);
    set(kResetDevice, &Backend::handle_reset_device);
    set(kVringKick, &Backend::vring_kick);
    set(kGetMaxMemSlots, &Backend::get_max_mem_slots);
    set(kAddMemReg, &Backend::add_mem_reg);
    set(kRemMemReg, &Backend::rem_mem_reg);
    set(kSetStatus, &Backend::set_status);
    set(kGetStatus, &Backend::get_status);
    return table;
  }
  static constexpr bool complete(const Table& table) {
    for (std::size_t i = 0; i < table.size(); ++i) {
      if ((kMessages[i].support == Support::kHandled) != (table[i] != nullptr)) return false;
    }
    return true;
  }
};

Backend::Backend(net::Device& device, std::shared_ptr<RingRecords> records)
    : device_(device), rings_(device, ring_count(device)) {
  rings_.change([&](RingEnvironment& env) { env.records = std::move(records); });
  device_.set_status(0);
}

Backend::~Backend() {
  rings_.abandon();
  device_.set_status(0);
}

bool Backend::negotiated(ProtocolFeature feature) const {
  return has(protocol_features_, feature);
}

Result<std::size_t> Backend::ring_of(std::uint64_t index) const {
  if (index >= rings_.count()) {
    return fail(ErrorCode::kOutOfRange, "there is no ring of this number",
                static_cast<std::int64_t>(index));
  }
  return static_cast<std::size_t>(index);
}

Result<std::optional<Message>> Backend::handle(Message message) {
  ++messages_;
  const MessageRow* row = find_message(message.request);
  Message answer;
  Status outcome = fail(ErrorCode::kUnsupported, "an unknown request", message.request);
  if (row != nullptr) outcome = process(*row, message, answer);
  if (!outcome) note_refusal(row, outcome.error());
  if (rings_.stuck() && !fatal_) fatal_ = rings_.stuck();
  if (fatal_) return std::unexpected(*fatal_);
  tell_config_changed();
  return reply_to(row, message, outcome, std::move(answer));
}

Status Backend::process(const MessageRow& row, Message& message, Message& answer) {
  TRY(check_message(row, message, protocol_features_));
  static constexpr Handlers::Table kHandlers = Handlers::make();
  static_assert(Handlers::complete(kHandlers), "a message has a handler or is marked as refused");
  const Handler handler = kHandlers[static_cast<std::size_t>(row.request) - 1];
  answer = TRY((this->*handler)(message));
  return {};
}

void Backend::note_refusal(const MessageRow* row, const Error& error) {
  ++refused_;
  last_error_ = error;
  last_error_request_ = row != nullptr ? row->name : std::string_view("unknown request");
}

std::optional<Message> Backend::reply_to(const MessageRow* row, const Message& message,
                                         const Status& outcome, Message answer) const {
  const ReplyKind kind = row != nullptr ? row->reply : ReplyKind::kAck;
  const bool asked =
      (message.flags & kFlagNeedReply) != 0 && negotiated(ProtocolFeature::kReplyAck);
  if (kind == ReplyKind::kAck && !asked) return std::nullopt;
  answer.request = message.request;
  answer.flags = kVersion | kFlagReply;
  if (kind != ReplyKind::kData) answer.add(std::uint64_t{outcome ? 0U : 1U});
  return answer;
}

Backend::Answer Backend::set_owner(Message&) {
  return Message();
}

// Deprecated: "the back-end may disable all rings", and old front-ends rely on no more.
Backend::Answer Backend::reset_owner(Message&) {
  for (std::size_t i = 0; i < rings_.count(); ++i) rings_.enable(i, false);
  return Message();
}

std::uint64_t Backend::offered_features() const {
  return (device_.offered_features() | kTransportFeatures).low();
}

Backend::Answer Backend::get_features(Message&) {
  return Message().add(offered_features());
}

Backend::Answer Backend::set_features(Message& message) {
  const auto bits = message.get<std::uint64_t>();
  if ((bits & ~offered_features()) != 0) {
    return fail(ErrorCode::kInvalidArgument, "the front-end set a feature that was not offered",
                static_cast<std::int64_t>(bits & ~offered_features()));
  }
  const bool known = rings_.environment().features_known;
  const std::uint64_t changed = bits ^ features_;
  if ((changed & ~kTransportFeatures.low()) != 0 && rings_.any_running()) {
    return fail(ErrorCode::kWrongState, "features cannot change while rings run",
                static_cast<std::int64_t>(changed));
  }
  const FeatureSet features = for_device(bits);
  if (!known || changed != 0) {
    // Nothing is kept of features that the device refuses.
    if (!known || features != rings_.environment().features) TRY(device_.set_features(features));
    features_ = bits;
    rings_.change([&](RingEnvironment& env) {
      env.features = features;
      env.features_known = true;
      const bool logging = FeatureSet::from_low(bits).has(Feature::kLogAll);
      env.log = logging ? log_ : nullptr;
    });
  }
  if (!FeatureSet::from_low(bits).has(Feature::kProtocolFeatures)) {
    for (std::size_t i = 0; i < rings_.count(); ++i) rings_.enable(i, true);
  }
  return Message();
}

Backend::Answer Backend::get_protocol_features(Message&) {
  return Message().add(offered_protocol_features());
}

Backend::Answer Backend::set_protocol_features(Message& message) {
  const auto bits = message.get<std::uint64_t>();
  if ((bits & ~offered_protocol_features()) != 0) {
    return fail(ErrorCode::kInvalidArgument,
                "the front-end set a protocol feature that was not offered",
                static_cast<std::int64_t>(bits));
  }
  if (!inband_is_lawful(bits)) {
    // The document wants the connection closed: neither end could tell the other anything.
    fatal_ = Error{ErrorCode::kProtocol, "INBAND_NOTIFICATIONS without BACKEND_REQ and REPLY_ACK",
                   static_cast<std::int64_t>(bits)};
    return std::unexpected(*fatal_);
  }
  protocol_features_ = bits;
  refresh_inband_targets();
  return Message();
}

// In pairs, as DPDK and QEMU count for net devices, though the document says queues.
Backend::Answer Backend::get_queue_num(Message&) {
  return Message().add(std::uint64_t{device_.max_queue_pairs()});
}

void Backend::reset_device() {
  rings_.reset();
  features_ = 0;
  if (status_) status_ = 0;
  // Memory stays: front-ends with memory slots send only what changes.
  rings_.change([&](RingEnvironment& env) {
    env.features = FeatureSet();
    env.features_known = false;
    env.driver_ready = !status_;
    env.log = nullptr;
    env.inflight = nullptr;
  });
  device_.set_status(0);
}

Backend::Answer Backend::handle_reset_device(Message&) {
  reset_device();
  return Message();
}

Backend::Answer Backend::set_status(Message& message) {
  const auto value = message.get<std::uint64_t>();
  if (value > 0xff) {
    return fail(ErrorCode::kOutOfRange, "a device status has 8 bits",
                static_cast<std::int64_t>(value));
  }
  auto status = static_cast<std::uint8_t>(value);
  if (status == 0) {
    status_ = 0;
    reset_device();
    return Message();
  }
  const bool ready = (status & virtio::kStatusDriverOk) != 0;
  if (!ready && rings_.any_running() && status_.value_or(0) != 0) {
    return fail(ErrorCode::kWrongState, "DRIVER_OK can only be taken back by a reset", status);
  }
  // The driver reads this back: without features there is nothing that could be fine (INI-02).
  if (!rings_.environment().features_known) {
    status &= static_cast<std::uint8_t>(~virtio::kStatusFeaturesOk);
  }
  status_ = status;
  device_.set_status(status);
  rings_.change([&](RingEnvironment& env) { env.driver_ready = ready; });
  return Message();
}

Backend::Answer Backend::get_status(Message&) {
  return Message().add(std::uint64_t{status_.value_or(0)});
}

}  // namespace sluice::vhost
