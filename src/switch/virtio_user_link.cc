// Sessions of a virtio-user port.
#include "switch/virtio_user_link.h"

#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/block_signals.h"
#include "packet/packet.h"
#include "switch/growing_pause.h"

namespace sluice::fabric {

namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
using virtio::Feature;
using virtio::FeatureSet;

// How long a back-end may take for an answer. DPDK maps hugepages within one.
constexpr milliseconds kAnswerTime{5000};
// How often a running link looks whether its device is still there.
constexpr milliseconds kLook{50};
constexpr milliseconds kWaitForPeer{100};
// After a session in which the back-end broke the protocol, made us wait, or broke a ring.
constexpr milliseconds kPenalty{10'000};

// The smallest distance of buffers that a driver may use for frames of this length: an odd number
// of cache lines (net/driver_memory.h).
std::uint32_t stride_for(std::uint32_t frame_length) {
  constexpr std::uint32_t kLine = 64;
  const std::uint32_t lines =
      (frame_length + static_cast<std::uint32_t>(net::kHeaderSizeMax) + kLine - 1) / kLine;
  return (lines | 1) * kLine;
}

net::NetDriverOptions driver_options(const VirtioUserOptions& options) {
  net::NetDriverOptions driver;
  driver.queue_pairs = options.queues;
  driver.queue_size = options.queue_size;
  driver.queue_size_max = std::max(options.queue_size, kResizeMax);
  driver.wanted = {Feature::kRingReset};
  if (options.mac.has_value()) {
    net::MacAddress mac{};
    std::memcpy(mac.data(), options.mac->data(), mac.size());
    driver.mac = mac;
  }
  const auto want = [&driver](bool wish, const FeatureSet& features) {
    if (wish) driver.wanted = driver.wanted | features;
  };
  want(options.packed_vq, {Feature::kRingPacked});
  want(options.in_order, {Feature::kInOrder});
  want(options.mrg_rxbuf, {Feature::kMrgRxbuf});
  want(options.event_idx, {Feature::kEventIdx});
  want(options.csum, {Feature::kCsum, Feature::kGuestCsum});
  want(options.csum && options.tso, {Feature::kHostTso4, Feature::kHostTso6, Feature::kHostEcn,
                                     Feature::kHostUso, Feature::kGuestTso4, Feature::kGuestTso6,
                                     Feature::kGuestEcn, Feature::kGuestUso4, Feature::kGuestUso6});
  // A frame that is not segmented yet goes out in one buffer, whose pages cost memory only once
  // such a frame was in it.
  std::uint32_t longest = options.mtu == 65535 ? 0 : net::frame_max(options.mtu);
  if (options.csum && options.tso) longest = packet::kFrameMax;
  driver.buffer_stride = std::max(net::kBufferStride, stride_for(longest));
  return driver;
}

}  // namespace

Result<std::unique_ptr<VirtioUserLink>> VirtioUserLink::create(const VirtioUserOptions& options,
                                                               VirtioUserPort& port,
                                                               PortEvents& events) {
  vhost::FrontendSource source = TRY(vhost::FrontendSource::create(
      {.path = options.path, .server = options.server, .frontend = {.timeout = kAnswerTime}}));
  return std::make_unique<VirtioUserLink>(Passkey{}, options, port, events, std::move(source));
}

VirtioUserLink::VirtioUserLink(Passkey, const VirtioUserOptions& options, VirtioUserPort& port,
                               PortEvents& events, vhost::FrontendSource source)
    : options_(options), port_(port), events_(events), source_(std::move(source)) {
  view_.state = options_.server ? "listening" : "connecting";
}

VirtioUserLink::~VirtioUserLink() {
  close();
}

Status VirtioUserLink::start() {
  const BlockSignals blocked;
  try {
    thread_ = std::jthread([this](const std::stop_token& stop) { loop(stop); });
  } catch (const std::system_error& error) {
    return fail(ErrorCode::kSystem, "cannot start the thread of a port", error.code().value());
  }
  return {};
}

void VirtioUserLink::request_stop() {
  thread_.request_stop();
  hang_up();
}

void VirtioUserLink::close() {
  if (thread_.joinable()) {
    request_stop();
    thread_.join();
  }
  source_.reset();
  show("stopped");
}

// Whatever waits for the back-end ends at once.
void VirtioUserLink::hang_up() {
  const std::lock_guard guard(mutex_);
  if (socket_) ::shutdown(socket_.get(), SHUT_RDWR);
}

VirtioUserLink::View VirtioUserLink::view() const {
  const std::lock_guard guard(mutex_);
  return view_;
}

void VirtioUserLink::show(std::string_view state) {
  const std::lock_guard guard(mutex_);
  view_.state = state;
}

void VirtioUserLink::rest(const std::stop_token& stop, milliseconds time) {
  std::unique_lock lock(mutex_);
  sleep_.wait_for(lock, stop, time, [this] { return pending_ != nullptr; });
}

void VirtioUserLink::loop(const std::stop_token& stop) {
  GrowingPause pause;
  while (!stop.stop_requested()) {
    show(options_.server ? "listening" : "connecting");
    auto frontend = source_->next(kWaitForPeer);
    if (!frontend && frontend.error().code == ErrorCode::kTimeout) continue;
    const auto since = Clock::now();
    const Status served =
        frontend ? serve(stop, *std::move(frontend)) : std::unexpected(frontend.error());
    PeerSocket socket;  // Closed without the lock.
    {
      const std::lock_guard guard(mutex_);
      socket = std::move(socket_);
      forget_session(served);
    }
    const milliseconds growing = pause.after(Clock::now() - since < GrowingPause::kMost);
    const bool hostile = !served && served.error().code == ErrorCode::kProtocol;
    rest(stop, hostile ? kPenalty : growing);
  }
}

// Requires: mutex_ is held.
void VirtioUserLink::forget_session(const Status& why) {
  view_.features = {};
  view_.protocol_features.clear();
  view_.memory_bytes = 0;
  view_.state = options_.server ? "listening" : "connecting";
  if (!why) view_.last_error = why.error();
  if (pending_ != nullptr) {
    pending_->finish(fail(ErrorCode::kClosed, "the session with the device ended"));
    pending_ = nullptr;
  }
}

// From here on close() can end a call that waits for the back-end. False: it was called already.
bool VirtioUserLink::keep_socket(const std::stop_token& stop, Result<UniqueFd> socket) {
  const std::lock_guard guard(mutex_);
  if (!socket || stop.stop_requested()) return false;
  socket_ = PeerSocket(*std::move(socket));
  view_.state = "connected";
  return true;
}

Status VirtioUserLink::serve(const std::stop_token& stop,
                             std::unique_ptr<vhost::Frontend> frontend) {
  if (!keep_socket(stop, frontend->duplicate_socket())) return {};
  const vhost::Frontend& session = *frontend;  // The driver's, and lives as long.
  const auto driver = TRY(net::NetDriver::create(driver_options(options_), std::move(frontend)));
  if (options_.mtu != 65535) {
    const Status told = driver->transport().set_mtu(options_.mtu);
    if (!told && told.error().code != ErrorCode::kNotNegotiated) return told;
  }
  TRY(driver->start());
  {
    const std::lock_guard guard(mutex_);
    ++view_.sessions;
    view_.state = "running";
    view_.features = driver->features();
    view_.protocol_features = vhost::protocol_feature_names(session.protocol_features());
    view_.memory_bytes = driver->memory().bytes().size();
    view_.last_error.reset();
  }
  changed_ = true;
  const Status ran = run(stop, *driver);
  {
    const std::lock_guard guard(mutex_);
    forget_session(ran);
  }
  const Status stopped = port_.stop_queues();
  events_.queues_changed();
  changed_ = true;
  // A back-end that did something wrong is not asked to stop ring by ring: it need not answer.
  hang_up();
  if (!ran) return ran;
  return stopped;
}

Status VirtioUserLink::run(const std::stop_token& stop, net::NetDriver& driver) {
  TRY(port_.start_queues(driver));
  events_.queues_changed();
  while (!stop.stop_requested()) {
    if (!driver.transport().connected()) {
      return fail(ErrorCode::kClosed, "the back-end closed the connection");
    }
    if (const auto error = port_.trouble()) return std::unexpected(*error);
    TRY(serve_reset(driver));
    rest(stop, kLook);
  }
  return {};
}

}  // namespace sluice::fabric
