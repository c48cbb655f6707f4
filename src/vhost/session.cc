// Session: a connection, a back-end, and one epoll set for both of its sockets.
#include <sys/epoll.h>

#include <utility>

#include "vhost/backend.h"
#include "vhost/connection.h"
#include "vhost/server.h"

namespace sluice::vhost {
namespace {

// Messages handled in one on_ready(): a chatty front-end must not keep the control thread from
// other ports.
constexpr int kMessagesPerTurn = 64;

class SocketSession final : public Session {
 public:
  SocketSession(UniqueFd epoll, Connection connection, net::Device& device, SessionOptions options)
      : epoll_(std::move(epoll)),
        connection_(std::move(connection)),
        backend_(device, std::move(options.records)) {}

  Status start() { return watch(EPOLL_CTL_ADD, connection_.fd(), EPOLLIN); }

  [[nodiscard]] int fd() const override { return epoll_.get(); }
  void config_changed() override { backend_.config_changed(); }
  [[nodiscard]] SessionView view() const override { return backend_.view(); }

  [[nodiscard]] Status check_memory() const override {
    if (!backend_.memory_shrunk()) return {};
    return fail(ErrorCode::kMemoryShrunk, "the front-end truncated the memory it shares");
  }

  [[nodiscard]] Status on_ready() override {
    TRY(check_memory());
    TRY(connection_.flush());
    // While an answer waits nothing is read: a front-end that does not read gets no more work done.
    for (int i = 0; i < kMessagesPerTurn && !connection_.unsent(); ++i) {
      std::optional<Message> message = TRY(connection_.receive());
      if (!message) break;
      std::optional<Message> answer = TRY(backend_.handle(std::move(*message)));
      if (answer) TRY(connection_.send(std::move(*answer)));
    }
    if (channel_ != nullptr) channel_->on_ready();
    TRY(watch_channel());
    return watch_connection();
  }

 private:
  Status watch(int operation, int fd, std::uint32_t events) {
    epoll_event event{};
    event.events = events;
    if (::epoll_ctl(epoll_.get(), operation, fd, &event) != 0) {
      return fail_errno("cannot change an epoll set");
    }
    return {};
  }

  Status watch_connection() {
    const bool unsent = connection_.unsent();
    if (unsent == waits_for_room_) return {};
    waits_for_room_ = unsent;
    return watch(EPOLL_CTL_MOD, connection_.fd(), unsent ? EPOLLOUT : EPOLLIN);
  }

  Status watch_channel() {
    if (channel_ == backend_.channel()) return {};
    if (channel_ != nullptr) TRY(watch(EPOLL_CTL_DEL, channel_->fd(), 0));
    channel_ = backend_.channel();
    return channel_ == nullptr ? Status() : watch(EPOLL_CTL_ADD, channel_->fd(), EPOLLIN);
  }

  UniqueFd epoll_;
  Connection connection_;
  Backend backend_;
  std::shared_ptr<BackendChannel> channel_;  // The one that is watched.
  bool waits_for_room_ = false;
};

}  // namespace

Result<std::unique_ptr<Session>> Session::create(UniqueFd socket, net::Device& device,
                                                 SessionOptions options) {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return fail_errno("cannot make an epoll set");
  Connection connection = TRY(Connection::adopt(std::move(socket)));
  auto session = std::make_unique<SocketSession>(std::move(epoll), std::move(connection), device,
                                                 std::move(options));
  TRY(session->start());
  return session;
}

}  // namespace sluice::vhost
