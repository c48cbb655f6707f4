// Sessions of a vhost-user port, one after the other.
#include "switch/vhost_link.h"

#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <array>
#include <utility>

#include "vhost/ring_records.h"

namespace sluice::fabric {

namespace {

// What became readable.
constexpr std::uint64_t kEndpoint = 0;
constexpr std::uint64_t kSession = 1;
constexpr std::uint64_t kControlQueue = 2;
constexpr std::uint64_t kTimer = 3;

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

bool exists(const std::string& path) {
  struct stat info{};
  return ::lstat(path.c_str(), &info) == 0;
}

}  // namespace

Result<std::unique_ptr<VhostLink>> VhostLink::create(VhostUserPort& port) {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return fail_errno("cannot make an epoll set");
  UniqueFd timer(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!timer) return fail_errno("cannot make a timer");
  auto link = std::make_unique<VhostLink>(Passkey{}, port, std::move(epoll), std::move(timer));
  TRY(link->watch(link->timer_.get(), kTimer));
  return link;
}

VhostLink::VhostLink(Passkey, VhostUserPort& port, UniqueFd epoll, UniqueFd timer)
    : port_(port), epoll_(std::move(epoll)), timer_(std::move(timer)) {}

VhostLink::~VhostLink() {
  close();
}

Status VhostLink::open_socket(const VhostUserOptions& options) {
  client_ = options.client;
  endpoint_ = TRY(vhost::Endpoint::create({.path = options.path, .client = options.client}));
  TRY(watch(endpoint_->fd(), kEndpoint));
  return watch(port_.control_fd(), kControlQueue);
}

Status VhostLink::open_records(const VhostUserOptions& options, const std::string& path,
                               bool optional) {
  if (!options.packed) return {};
  const auto rings = static_cast<std::uint16_t>(2 * options.queues + 1);
  const bool there = exists(path);
  auto records = vhost::RingRecords::open(path, rings);
  if (records.has_value()) {
    records_ = *std::move(records);
    if (!there) new_records_ = path;
    return {};
  }
  if (!optional) return std::unexpected(records.error());
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
    } else if (tag == kTimer) {
      end_pause();
    } else if (tag == kSession && session_ != nullptr) {
      const Status served = session_->on_ready();
      look_at_session();
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
    since_ = Clock::now();
    ran_ = shared_memory_ = left_in_negotiation_ = false;
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
  left_in_negotiation_ =
      why.code == ErrorCode::kClosed && !shared_memory_ && session_->view().messages != 0;
  session_ = nullptr;  // Stops all queues.
  port_.session_over();
  if (endpoint_ != nullptr) let_next_come();
  if (why.code != ErrorCode::kClosed) last_error_ = why;
}

void VhostLink::look_at_session() {
  ran_ = ran_ || port_.running();
  shared_memory_ = shared_memory_ || session_->view().memory_bytes != 0;
}

// A connecting endpoint makes pauses of its own.
void VhostLink::let_next_come() {
  const bool in_vain = !ran_ && Clock::now() - since_ < GrowingPause::kMost;
  const milliseconds pause = pause_.after(in_vain && !client_);
  if (pause == milliseconds(0)) {
    endpoint_->session_over();
    return;
  }
  paused_ = true;
  itimerspec spec{};
  spec.it_value.tv_sec = pause.count() / 1000;
  spec.it_value.tv_nsec = pause.count() % 1000 * 1'000'000;
  ::timerfd_settime(timer_.get(), 0, &spec, nullptr);
}

void VhostLink::end_pause() {
  std::uint64_t times = 0;
  if (::read(timer_.get(), &times, sizeof times) != static_cast<ssize_t>(sizeof times)) return;
  if (std::exchange(paused_, false) && endpoint_ != nullptr) endpoint_->session_over();
}

bool VhostLink::housekeeping() {
  port_.housekeeping();
  tell_config_change();
  if (session_ == nullptr) return false;
  const Status memory = session_->check_memory();
  if (memory) return false;
  end_session(memory.error());
  return true;
}

void VhostLink::close() {
  if (session_ != nullptr) end_session({ErrorCode::kClosed, "the switch stops", 0});
  // A start that failed leaves nothing behind, nor does a port that nobody ever came to. While the
  // socket is ours no other process takes up the file.
  if (!new_records_.empty() && sessions_ == 0) ::unlink(new_records_.c_str());
  new_records_.clear();
  records_ = nullptr;
  endpoint_ = nullptr;
}

void VhostLink::tell_config_change() {
  if (std::exchange(config_changed_, false) && session_ != nullptr) session_->config_changed();
}

std::string_view VhostLink::state() const {
  if (endpoint_ == nullptr) return "stopped";
  if (paused_) return "listening";
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
