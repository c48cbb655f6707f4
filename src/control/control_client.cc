// The asking end of the control socket.
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "control/control_socket.h"
#include "control/unix_address.h"

namespace sluice::control {
namespace {

constexpr timeval kPatience{.tv_sec = 5, .tv_usec = 0};
constexpr std::size_t kReplyMax = std::size_t{64} << 20;

// In a public directory a stranger could put a socket where we look for our own process.
Status check_owner(int fd) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return fail_errno("cannot tell whose socket it is");
  }
  const uid_t self = ::geteuid();
  if (self == 0 || peer.uid == 0 || peer.uid == self) return {};
  return fail(ErrorCode::kPermission, "the socket is served by another user", EPERM);
}

std::unexpected<Error> fail_waiting(const char* text) {
  if (errno == EAGAIN) return fail(ErrorCode::kTimeout, "the running process does not answer");
  if (errno == EPIPE || errno == ECONNRESET) {
    return fail(ErrorCode::kClosed, "the running process closed the connection", errno);
  }
  return fail_errno(text);
}

}  // namespace

Result<ControlClient> ControlClient::connect(const std::string& path) {
  const UnixAddress address = TRY(unix_address(path));
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return fail_errno("cannot open a socket");
  // Also bounds connect(), which waits while the server's queue is full.
  (void)::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof(kPatience));
  (void)::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof(kPatience));
  if (::connect(fd.get(), address.get(), UnixAddress::size()) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) {
      return fail(ErrorCode::kNotFound, "there is no such file", errno);
    }
    if (errno == ECONNREFUSED || errno == ENOTSOCK) {
      const int number = errno;
      struct stat info{};
      const bool other = ::lstat(path.c_str(), &info) == 0 && !S_ISSOCK(info.st_mode);
      return fail(ErrorCode::kNotFound,
                  other ? "this file is not a socket" : "no running process serves this socket",
                  number);
    }
    return fail_waiting("cannot connect to the control socket");
  }
  TRY(check_owner(fd.get()));
  return ControlClient(std::move(fd));
}

Result<std::string> ControlClient::ask(std::string_view request, std::chrono::seconds patience) {
  if (patience.count() > 0) {
    const timeval time{.tv_sec = patience.count(), .tv_usec = 0};
    (void)::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time));
  }
  const std::string line = std::string(request) + '\n';
  std::size_t sent = 0;
  while (sent < line.size()) {
    const ssize_t n = ::send(fd_.get(), line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_waiting("cannot send the request");
    sent += static_cast<std::size_t>(n);
  }
  std::string reply;
  std::array<char, 16384> bytes;
  while (reply.size() < kReplyMax) {
    const ssize_t n = ::recv(fd_.get(), bytes.data(), bytes.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_waiting("cannot receive the reply");
    if (n == 0) return fail(ErrorCode::kClosed, "the running process closed the connection");
    reply.append(bytes.data(), static_cast<std::size_t>(n));
    if (reply.back() == '\n') {
      reply.pop_back();
      return reply;
    }
  }
  return fail(ErrorCode::kProtocol, "the reply is too long", kReplyMax);
}

}  // namespace sluice::control
