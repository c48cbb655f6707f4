// Sessions of a vhost-user port, one after the other.
#include "switch/vhost_link.h"

#include <sys/epoll.h>

#include <array>
#include <utility>

#include "vhost/ring_records.h"

namespace sluice::fabric {

namespace {

// What became readable.
constexpr std::uint64_t kEndpoint = 0;
constexpr std::uint64_t kSession = 1;
constexpr std::uint64_t kControlQueue = 2;

}  // namespace

Result<std::unique_ptr<VhostLink>> VhostLink::create(const VhostUserOptions& options,
                                                     const std::string& state_path,
                                                     VhostUserPort& port) {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return fail_errno("cannot make an epoll set");
  auto link = std::make_unique<VhostLink>(Passkey{}, port, std::move(epoll));
  TRY(link->open(options, state_path));
  return link;
}

VhostLink::VhostLink(Passkey, VhostUserPort& port, UniqueFd epoll)
    : port_(port), epoll_(std::move(epoll)) {}

VhostLink::~VhostLink() {
  close();
}

Status VhostLink::open(const VhostUserOptions& options, const std::string& state_path) {
  endpoint_ = TRY(vhost::Endpoint::create({.path = options.path, .client = options.client}));
  TRY(watch(endpoint_->fd(), kEndpoint));
  TRY(watch(port_.control_fd(), kControlQueue));
  if (!options.packed) return {};
  const auto rings = static_cast<std::uint16_t>(2 * options.queues + 1);
  const std::string path = state_path.empty() ? options.path + ".rings" : state_path;
  auto records = vhost::RingRecords::open(path, rings);
  if (records.has_value()) {
    records_ = *std::move(records);
    return {};
  }
  // A client's socket may lie in a directory of somebody else. Then packed rings work all the same,
  // but a killed daemon cannot go on with them; whoever looks at the port is told.
  if (!options.client || !state_path.empty()) return std::unexpected(records.error());
  last_error_ = records.error();
  return {};
}

Status VhostLink::watch(int fd, std::uint64_t tag) {
  epoll_event event{.events = EPOLLIN, .data = {.u64 = tag}};
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    return fail_errno("cannot wait for a descriptor");
  }
  return {};
}

bool VhostLink::on_ready() {
  std::array<epoll_event, 4> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  bool changed = false;
  for (int i = 0; i < count; ++i) {
    const std::uint64_t tag = events[static_cast<std::size_t>(i)].data.u64;
    if (tag == kEndpoint && endpoint_ != nullptr) {
      changed |= begin_session();
    } else if (tag == kControlQueue) {
      port_.serve_control_queue();
    } else if (tag == kSession && session_ != nullptr) {
      const Status served = session_->on_ready();
      if (served.has_value()) continue;
      end_session(served.error());
      changed = true;
    }
  }
  tell_config_change();
  return changed;
}

bool VhostLink::begin_session() {
  std::optional<UniqueFd> socket = endpoint_->on_ready();
  if (!socket.has_value()) return false;
  ++sessions_;
  auto session = vhost::Session::create(*std::move(socket), port_, {.records = records_});
  if (session.has_value()) {
    session_ = *std::move(session);
    const Status watched = watch(session_->fd(), kSession);
    if (watched.has_value()) return true;
    end_session(watched.error());
    return true;
  }
  last_error_ = session.error();
  endpoint_->session_over();
  return false;
}

void VhostLink::end_session(const Error& why) {
  session_ = nullptr;  // Stops all queues.
  port_.session_over();
  if (endpoint_ != nullptr) endpoint_->session_over();
  if (why.code != ErrorCode::kClosed) last_error_ = why;
}

bool VhostLink::housekeeping() {
  port_.housekeeping();
  tell_config_change();
  if (session_ == nullptr || !port_.memory_shrunk()) return false;
  end_session({ErrorCode::kMemoryShrunk, "the front-end truncated the memory it shares", 0});
  return true;
}

void VhostLink::close() {
  if (session_ != nullptr) end_session({ErrorCode::kClosed, "the switch stops", 0});
  endpoint_ = nullptr;
}

void VhostLink::tell_config_change() {
  if (std::exchange(config_changed_, false) && session_ != nullptr) session_->config_changed();
}

std::string_view VhostLink::state() const {
  if (endpoint_ == nullptr) return "stopped";
  if (session_ == nullptr) return endpoint_->state();
  return port_.running() ? "running" : "connected";
}

std::optional<Error> VhostLink::last_error() const {
  if (session_ == nullptr && endpoint_ != nullptr) {
    if (const auto error = endpoint_->last_error()) return error;
  }
  return last_error_;
}

std::optional<vhost::SessionView> VhostLink::session_view() const {
  if (session_ == nullptr) return std::nullopt;
  return session_->view();
}

}  // namespace sluice::fabric
