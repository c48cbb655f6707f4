// Sending on the back-end channel without ever waiting.
#include "vhost/backend_channel.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace sluice::vhost {
namespace {

int socket_option(int fd, int option) {
  int value = -1;
  socklen_t length = sizeof value;
  return ::getsockopt(fd, SOL_SOCKET, option, &value, &length) == 0 ? value : -1;
}

}  // namespace

Result<std::shared_ptr<BackendChannel>> BackendChannel::adopt(PeerSocket socket) {
  if (socket_option(socket.get(), SO_DOMAIN) != AF_UNIX ||
      socket_option(socket.get(), SO_TYPE) != SOCK_STREAM) {
    return fail(ErrorCode::kInvalidArgument, "the back-end channel is not a Unix stream socket");
  }
  UniqueFd poll(::epoll_create1(EPOLL_CLOEXEC));
  if (!poll) return fail_errno("cannot make an epoll set");
  epoll_event event{};  // No event asked for: a hang-up is reported all the same.
  if (::epoll_ctl(poll.get(), EPOLL_CTL_ADD, socket.get(), &event) != 0) {
    return fail_errno("cannot watch the back-end channel");
  }
  return std::make_shared<BackendChannel>(Key(), std::move(socket), std::move(poll));
}

void BackendChannel::notify(BackendRequest kind, std::uint8_t ring) {
  const std::lock_guard lock(mutex_);
  (kind == BackendRequest::kVringErr ? errors_ : calls_).set(ring);
  send_waiting();
}

void BackendChannel::config_changed() {
  const std::lock_guard lock(mutex_);
  config_ = true;
  send_waiting();
}

void BackendChannel::on_ready() {
  const std::lock_guard lock(mutex_);
  epoll_event event{};
  if (::epoll_wait(poll_.get(), &event, 1, 0) != 1) return;
  if ((event.events & (EPOLLHUP | EPOLLERR)) != 0) return drop_peer();
  send_waiting();
}

// Puts the next message that waits into `out_`.
bool BackendChannel::next_message() {
  RingMessage message{{0, kVersion, sizeof(VringState)}, {0, 0}};
  const auto take_ring = [&](std::bitset<256>& rings, BackendRequest kind) {
    const std::size_t ring = rings._Find_first();
    rings.reset(ring);
    message.header.request = static_cast<std::uint32_t>(kind);
    message.state.index = static_cast<std::uint32_t>(ring);
  };
  size_ = sizeof message;
  if (errors_.any()) {
    take_ring(errors_, BackendRequest::kVringErr);
  } else if (calls_.any()) {
    take_ring(calls_, BackendRequest::kVringCall);
  } else if (config_) {
    config_ = false;
    message.header = {static_cast<std::uint32_t>(BackendRequest::kConfigChangeMsg), kVersion, 0};
    size_ = sizeof message.header;
  } else {
    size_ = 0;
  }
  std::memcpy(out_.data(), &message, sizeof message);
  sent_ = 0;
  return size_ != 0;
}

void BackendChannel::send_waiting() {
  while (!gone_ && (sent_ < size_ || next_message())) {
    const ssize_t count =
        ::send(socket_.get(), out_.data() + sent_, size_ - sent_, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count >= 0) {
      sent_ += static_cast<std::size_t>(count);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return want_writable(true);
    } else if (errno != EINTR) {
      return drop_peer();
    }
  }
  want_writable(false);
}

void BackendChannel::want_writable(bool wanted) {
  if (gone_ || polled_ == wanted) return;
  polled_ = wanted;
  epoll_event event{};
  if (wanted) event.events = EPOLLOUT;
  ::epoll_ctl(poll_.get(), EPOLL_CTL_MOD, socket_.get(), &event);
}

// A dead socket stays ready for ever: it leaves the set, or the control thread would spin.
void BackendChannel::drop_peer() {
  gone_ = true;
  ::epoll_ctl(poll_.get(), EPOLL_CTL_DEL, socket_.get(), nullptr);
}

}  // namespace sluice::vhost
