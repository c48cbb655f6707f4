// The two kinds of Endpoint: one listens, one connects for ever.
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <random>
#include <utility>

#include "vhost/server.h"
#include "vhost/socket_path.h"

namespace sluice::vhost {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// After an accept() that failed for want of descriptors the socket stays readable: without a pause
// the control thread would spin.
constexpr milliseconds kAcceptPause{100};
// A session that lasted shorter counts as a failed attempt: a peer that closes at once must not be
// called upon without pause.
constexpr milliseconds kShortSession{1000};

/// An epoll set with a timer in it.
class PollSet {
 public:
  static Result<PollSet> create() {
    PollSet set;
    set.epoll_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
    if (!set.epoll_) return fail_errno("cannot make an epoll set");
    set.timer_ = UniqueFd(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    if (!set.timer_) return fail_errno("cannot make a timer");
    TRY(set.watch(set.timer_.get(), true));
    return set;
  }
  [[nodiscard]] int fd() const { return epoll_.get(); }

  Status watch(int fd, bool wanted) {
    epoll_event event{};
    event.events = EPOLLIN;
    if (::epoll_ctl(epoll_.get(), wanted ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, fd, &event) != 0) {
      return fail_errno("cannot change an epoll set");
    }
    return {};
  }
  /// Wakes up once, after `delay`.
  void wake_in(milliseconds delay) {
    const auto count = std::max<milliseconds::rep>(delay.count(), 1);
    itimerspec spec{};
    spec.it_value.tv_sec = count / 1000;
    spec.it_value.tv_nsec = count % 1000 * 1'000'000;
    ::timerfd_settime(timer_.get(), 0, &spec, nullptr);
  }
  /// True if the timer went off since the last call.
  bool woken() {
    std::uint64_t times = 0;
    return ::read(timer_.get(), &times, sizeof times) == static_cast<ssize_t>(sizeof times);
  }

 private:
  PollSet() = default;
  UniqueFd epoll_;
  UniqueFd timer_;
};

class ListeningEndpoint final : public Endpoint {
 public:
  ListeningEndpoint(SocketPath socket, PollSet poll)
      : socket_(std::move(socket)), poll_(std::move(poll)) {}

  [[nodiscard]] int fd() const override { return poll_.fd(); }
  [[nodiscard]] std::string_view state() const override {
    return connected_ ? "connected" : "listening";
  }
  [[nodiscard]] std::optional<Error> last_error() const override { return last_error_; }

  Status listen(bool wanted) {
    if (wanted == listening_) return {};
    TRY(poll_.watch(socket_.fd(), wanted));
    listening_ = wanted;
    return {};
  }

  std::optional<UniqueFd> on_ready() override {
    if (poll_.woken() && !connected_) note(listen(true));
    if (connected_ || !listening_) return std::nullopt;
    UniqueFd fd(::accept4(socket_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd) {
      connected_ = true;
      note(listen(false));
      return fd;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      last_error_ = Error{ErrorCode::kSystem, "cannot accept a front-end", errno};
      note(listen(false));
      poll_.wake_in(kAcceptPause);
    }
    return std::nullopt;
  }

  void session_over() override {
    connected_ = false;
    note(listen(true));
  }

 private:
  void note(const Status& status) {
    if (!status) last_error_ = status.error();
  }

  SocketPath socket_;
  PollSet poll_;
  bool listening_ = false;
  bool connected_ = false;
  std::optional<Error> last_error_;
};

class ConnectingEndpoint final : public Endpoint {
 public:
  ConnectingEndpoint(EndpointOptions options, PollSet poll)
      : options_(std::move(options)), poll_(std::move(poll)), random_(std::random_device()()) {
    poll_.wake_in(milliseconds(0));
  }

  [[nodiscard]] int fd() const override { return poll_.fd(); }
  [[nodiscard]] std::string_view state() const override {
    return connected_ ? "connected" : "connecting";
  }
  [[nodiscard]] std::optional<Error> last_error() const override { return last_error_; }

  std::optional<UniqueFd> on_ready() override {
    if (!poll_.woken() || connected_) return std::nullopt;
    Result<UniqueFd> socket = connect_to(options_.path);
    if (!socket) {
      last_error_ = socket.error();
      if (last_error_->detail == ENOENT || last_error_->detail == ECONNREFUSED) {
        last_error_->text = "waiting for the other side to serve the socket";
      }
      poll_.wake_in(next_pause());
      return std::nullopt;
    }
    connected_ = true;
    since_ = Clock::now();
    return std::move(*socket);
  }

  void session_over() override {
    if (!std::exchange(connected_, false)) return;
    if (Clock::now() - since_ >= kShortSession) pause_ = milliseconds(0);
    poll_.wake_in(next_pause());
  }

 private:
  // Doubles, without limit in number, so that nobody is given up; varied, so that many ports whose
  // peer comes back do not all knock at the same moment.
  milliseconds next_pause() {
    pause_ = std::clamp(2 * pause_, options_.retry_first, options_.retry_most);
    const auto quarter = pause_.count() / 4;
    std::uniform_int_distribution<milliseconds::rep> jitter(-quarter, quarter);
    return pause_ + milliseconds(jitter(random_));
  }

  EndpointOptions options_;
  PollSet poll_;
  std::minstd_rand random_;
  bool connected_ = false;
  milliseconds pause_{0};
  Clock::time_point since_;
  std::optional<Error> last_error_;
};

}  // namespace

Result<std::unique_ptr<Endpoint>> Endpoint::create(EndpointOptions options) {
  TRY(check_socket_path(options.path));
  if (options.retry_first <= milliseconds(0) || options.retry_most < options.retry_first) {
    return fail(ErrorCode::kInvalidArgument, "the pauses between attempts are not in order");
  }
  PollSet poll = TRY(PollSet::create());
  if (options.client) {
    return std::make_unique<ConnectingEndpoint>(std::move(options), std::move(poll));
  }
  SocketPath socket = TRY(SocketPath::listen(options.path));
  auto endpoint = std::make_unique<ListeningEndpoint>(std::move(socket), std::move(poll));
  TRY(endpoint->listen(true));
  return endpoint;
}

}  // namespace sluice::vhost
