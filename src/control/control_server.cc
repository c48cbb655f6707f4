// The serving end of the control socket.
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "control/control_socket.h"
#include "control/unix_address.h"

namespace sluice::control {
namespace {

constexpr int kBacklog = 64;
constexpr std::size_t kEventsMax = 16;
// Requests of one client in one turn, so that a client that asks without pause leaves room.
constexpr int kRequestsPerTurn = 4;
constexpr mode_t kOwnerOnly = 0600;

UniqueFd stream_socket(int flags) {
  return UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
}

// Holds the directory of `path` locked, so that of two processes that start together only one
// takes over an abandoned socket. Anyone may lock a public directory, so we do not wait for it.
UniqueFd lock_directory(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string directory =
      slash == std::string::npos ? "." : path.substr(0, std::max<std::size_t>(slash, 1));
  UniqueFd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  constexpr int kTries = 20;
  constexpr useconds_t kPauseUs = 10'000;
  for (int i = 0; fd && i < kTries && ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0; ++i) {
    ::usleep(kPauseUs);
  }
  return fd;
}

// Removes a socket that no process serves; anything else stays and is an error.
Status remove_abandoned(const std::string& path, const UnixAddress& address) {
  struct stat info{};
  if (::lstat(path.c_str(), &info) != 0) {
    if (errno == ENOENT) return {};
    if (errno == ENOTDIR) {
      return fail(ErrorCode::kNotFound, "a part of its path is not a directory");
    }
    return fail_errno("cannot look at the control socket's path");
  }
  if (!S_ISSOCK(info.st_mode)) {
    return fail(ErrorCode::kInvalidArgument, "the path exists and is not a socket");
  }
  // Non-blocking: a server whose queue is full (EAGAIN) is a server too.
  const UniqueFd probe = stream_socket(SOCK_NONBLOCK);
  if (!probe) return fail_errno("cannot open a socket");
  if (::connect(probe.get(), address.get(), UnixAddress::size()) == 0 || errno == EAGAIN) {
    return fail(ErrorCode::kExists, "a running process serves this socket");
  }
  if (errno != ECONNREFUSED) return fail_errno("cannot tell whether the socket is in use");
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
    return fail_errno("cannot remove the abandoned socket");
  }
  return {};
}

}  // namespace

std::string default_control_path() {
  const uid_t user = ::geteuid();
  if (user == 0) return "/run/sluice.sock";
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && *runtime == '/') return std::string(runtime) + "/sluice.sock";
  return "/tmp/sluice-" + std::to_string(user) + ".sock";
}

Result<std::unique_ptr<ControlServer>> ControlServer::listen(const std::string& path,
                                                             std::string too_long) {
  auto server = std::make_unique<ControlServer>(Private{});
  server->too_long_ = std::move(too_long);
  server->epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!server->epoll_) return fail_errno("cannot make an epoll set");
  server->spare_.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  TRY(server->open_socket(path));
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = server->listener_.get();
  if (::epoll_ctl(server->epoll_.get(), EPOLL_CTL_ADD, event.data.fd, &event) != 0) {
    return fail_errno("cannot watch the control socket");
  }
  return server;
}

Status ControlServer::open_socket(const std::string& path) {
  const UnixAddress address = TRY(unix_address(path));
  const UniqueFd lock = lock_directory(path);
  TRY(remove_abandoned(path, address));
  listener_ = stream_socket(SOCK_NONBLOCK);
  if (!listener_) return fail_errno("cannot open a socket");
  // The mode of the socket object becomes that of the file: there is no moment at which others
  // can connect (chmod after bind would leave one).
  if (::fchmod(listener_.get(), kOwnerOnly) != 0) return fail_errno("cannot set the socket's mode");
  if (::bind(listener_.get(), address.get(), UnixAddress::size()) != 0) {
    if (errno == ENOENT) {
      return fail(ErrorCode::kNotFound, "the directory of the socket does not exist");
    }
    return fail_errno("cannot bind the control socket");
  }
  path_ = path;
  struct stat info{};
  if (::lstat(path.c_str(), &info) == 0) {
    device_ = info.st_dev;
    inode_ = info.st_ino;
  }
  if (::listen(listener_.get(), kBacklog) != 0) return fail_errno("cannot listen");
  return {};
}

ControlServer::~ControlServer() {
  struct stat info{};
  if (path_.empty() || ::lstat(path_.c_str(), &info) != 0) return;
  if (info.st_dev == device_ && info.st_ino == inode_) ::unlink(path_.c_str());
}

void ControlServer::serve(const Answer& answer) {
  for (auto at = clients_.begin(); at != clients_.end();) {
    const bool gone = at->second.later && !advance(at->second, false, answer);
    at = gone ? clients_.erase(at) : std::next(at);
  }
  std::array<epoll_event, kEventsMax> events{};
  const int count = ::epoll_wait(epoll_.get(), events.data(), events.size(), 0);
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    if (event.data.fd == listener_.get()) {
      accept_clients();
      continue;
    }
    // A client may have been dropped for a newer one in this very turn.
    const auto found = clients_.find(event.data.fd);
    if (found == clients_.end()) continue;
    const bool readable = (event.events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0;
    // Nothing is read from a client whose reply is to come, so it would wake us for ever.
    if (found->second.later && (event.events & (EPOLLHUP | EPOLLERR)) != 0) {
      clients_.erase(found);
      continue;
    }
    if (!advance(found->second, readable, answer)) clients_.erase(found);
  }
}

void ControlServer::accept_clients() {
  for (std::size_t i = 0; i < kEventsMax; ++i) {
    UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd) {
      admit(std::move(fd));
      continue;
    }
    if (errno != EMFILE && errno != ENFILE) return;
    // Without a free descriptor the connection would stay and wake us for ever.
    spare_.reset();
    fd.reset(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    fd.reset();
    spare_.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  }
}

void ControlServer::admit(UniqueFd fd) {
  if (clients_.size() >= kControlClientsMax) drop_most_silent();
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd.get();
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd.get(), &event) != 0) return;
  const int number = fd.get();
  Client& client = clients_[number];
  client = Client{};
  client.fd = std::move(fd);
  client.watched = EPOLLIN;
  client.last_active = ++activity_;
}

void ControlServer::drop_most_silent() {
  const auto oldest = std::ranges::min_element(
      clients_, {}, [](const auto& entry) { return entry.second.last_active; });
  if (oldest != clients_.end()) clients_.erase(oldest);
}

bool ControlServer::advance(Client& client, bool readable, const Answer& answer) {
  const bool idle = client.out.empty() && !client.later;
  if (readable && idle && !client.at_end && !read_some(client)) return false;
  if (!answer_lines(client, answer)) return false;
  if (client.later) {
    watch(client, 0);
    return true;
  }
  const bool line_left = client.in.find('\n') != std::string::npos;
  if (client.at_end && client.out.empty() && !line_left) return false;
  // Writable at once if only our own turn is over: then epoll brings us back.
  watch(client, !client.out.empty() || line_left ? EPOLLOUT : EPOLLIN);
  return true;
}

bool ControlServer::read_some(Client& client) {
  std::array<char, kRequestMax + 1> bytes;
  const std::size_t room = kRequestMax + 1 - client.in.size();
  if (room == 0) return true;
  const ssize_t got = ::recv(client.fd.get(), bytes.data(), room, MSG_DONTWAIT);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  client.last_active = ++activity_;
  client.in.append(bytes.data(), static_cast<std::size_t>(got));
  if (got == 0) {
    client.at_end = true;
    // `printf ... | socat` sends no newline.
    if (!client.in.empty() && client.in.back() != '\n') client.in += '\n';
  }
  return true;
}

bool ControlServer::answer_lines(Client& client, const Answer& answer) {
  for (int turn = 0; turn <= kRequestsPerTurn; ++turn) {
    if (client.later) {
      auto reply = client.later();
      if (!reply.has_value()) return true;
      client.out = *std::move(reply) + '\n';
      client.later = nullptr;
    }
    if (!client.out.empty()) {
      const ssize_t sent = ::send(client.fd.get(), client.out.data(), client.out.size(),
                                  MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent < 0) return errno == EAGAIN || errno == EINTR;
      client.last_active = ++activity_;
      client.out.erase(0, static_cast<std::size_t>(sent));
      if (!client.out.empty()) return true;
    }
    const std::size_t end = client.in.find('\n');
    if (turn == kRequestsPerTurn) return true;
    if (end != std::string::npos) {
      Reply reply = answer(std::string_view(client.in).substr(0, end));
      if (auto* const text = std::get_if<std::string>(&reply)) {
        client.out = std::move(*text) + '\n';
      } else {
        client.later = std::get<Later>(std::move(reply));
      }
      client.in.erase(0, end + 1);
    } else if (client.in.size() > kRequestMax) {
      client.out = too_long_ + '\n';
      client.in.clear();
      client.at_end = true;
    } else {
      return true;
    }
  }
  return true;
}

void ControlServer::watch(Client& client, std::uint32_t events) {
  if (client.watched == events) return;
  epoll_event event{};
  event.events = events;
  event.data.fd = client.fd.get();
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, client.fd.get(), &event) == 0) {
    client.watched = events;
  }
}

}  // namespace sluice::control
