// The scripted back-end's thread.
#include "support/scripted_backend.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <utility>

namespace sluice::test {
namespace {

constexpr std::size_t kFdsMax = 8;

// Reads exactly `out.size()` bytes, descriptors that come with them included.
bool read_all(int socket, std::span<std::byte> out, std::vector<UniqueFd>& fds) {
  while (!out.empty()) {
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int) * kFdsMax)> control{};
    iovec part = {out.data(), out.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    if (got <= 0) return false;
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
      if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
      const std::size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (std::size_t i = 0; i < count; ++i) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
        fds.emplace_back(fd);
      }
    }
    out = out.subspan(static_cast<std::size_t>(got));
  }
  return true;
}

}  // namespace

ScriptedBackend::ScriptedBackend(Hook hook) : hook_(std::move(hook)) {}

ScriptedBackend::~ScriptedBackend() {
  stop();
}

UniqueFd ScriptedBackend::start() {
  std::array<int, 2> ends{};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  start_on(UniqueFd(ends[0]));
  return UniqueFd(ends[1]);
}

void ScriptedBackend::start_on(UniqueFd socket) {
  socket_ = std::move(socket);
  thread_ = std::thread([this] { run(); });
}

void ScriptedBackend::stop() {
  if (!thread_.joinable()) return;
  hang_up();
  thread_.join();
  socket_.reset();
  channel_.reset();
}

std::vector<ScriptedBackend::Entry> ScriptedBackend::log() const {
  const std::lock_guard lock(mutex_);
  return log_;
}

std::vector<std::uint32_t> ScriptedBackend::ids() const {
  std::vector<std::uint32_t> list;
  for (const Entry& entry : log()) list.push_back(entry.id);
  return list;
}

void ScriptedBackend::send(std::uint32_t id, std::uint32_t flags,
                           std::span<const std::byte> payload, std::span<const int> fds) {
  const std::array<std::uint32_t, 3> header = {id, flags,
                                               static_cast<std::uint32_t>(payload.size())};
  std::vector<std::byte> bytes = bytes_of(header);
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  send_raw(bytes, fds);
}

void ScriptedBackend::send_u64(std::uint32_t id, std::uint64_t value, std::uint32_t flags) {
  send(id, flags, bytes_of(value));
}

void ScriptedBackend::send_raw(std::span<const std::byte> bytes, std::span<const int> fds) {
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int) * 32)> control{};
  iovec part = {const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(c), fds.data(), fds.size_bytes());
  }
  // A front-end that gave up on us is the front-end's business.
  [[maybe_unused]] const ssize_t sent = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
}

void ScriptedBackend::hang_up() {
  ::shutdown(socket_.get(), SHUT_RDWR);
}

std::optional<ScriptedBackend::Request> ScriptedBackend::next() {
  Request request;
  std::array<std::uint32_t, 3> header{};
  if (!read_all(socket_.get(), std::as_writable_bytes(std::span(header)), request.fds)) {
    return std::nullopt;
  }
  request.id = header[0];
  request.flags = header[1];
  if (header[2] > 65536) return std::nullopt;
  request.payload.resize(header[2]);
  if (!read_all(socket_.get(), request.payload, request.fds)) return std::nullopt;
  return request;
}

void ScriptedBackend::run() {
  while (std::optional<Request> request = next()) {
    {
      const std::lock_guard lock(mutex_);
      log_.push_back({request->id, request->flags, request->payload, request->fds.size()});
    }
    if (!hook_ || !hook_(*this, *request)) answer(*request);
  }
}

void ScriptedBackend::answer(Request& request) {
  switch (request.id) {
    case 1:
    case 11:
    case 15:
    case 17:
    case 24:
    case 31:
    case 36:
    case 40: return answer_query(request);
    case 10:  // SET_VRING_BASE
      bases_[request.at<std::uint32_t>(0)] = request.at<std::uint32_t>(4);
      break;
    case 21:  // SET_BACKEND_REQ_FD
      if (!request.fds.empty()) channel_ = std::move(request.fds[0]);
      break;
    case 39: {  // SET_STATUS
      const auto wanted = static_cast<std::uint8_t>(request.at<std::uint64_t>(0));
      status_ = wanted & status_mask;
      break;
    }
    default: break;
  }
  if (request.needs_reply()) send_u64(request.id, ack);
}

void ScriptedBackend::answer_query(const Request& request) {
  switch (request.id) {
    case 1: return send_u64(1, features);
    case 15: return send_u64(15, protocol_features);
    case 17: return send_u64(17, queue_num);
    case 36: return send_u64(36, slots);
    case 40: return send_u64(40, status_);
    case 31:  // GET_INFLIGHT_FD: it has none to give.
      return send(31, 5, std::vector<std::byte>(24));
    case 11: {  // GET_VRING_BASE
      const std::array<std::uint32_t, 2> state = {request.at<std::uint32_t>(0),
                                                  bases_[request.at<std::uint32_t>(0)]};
      return send(11, 5, bytes_of(state));
    }
    default: {  // GET_CONFIG
      std::vector<std::byte> reply = request.payload;
      const auto offset = request.at<std::uint32_t>(0);
      for (std::size_t i = 12; i < reply.size(); ++i) {
        const std::size_t from = offset + i - 12;
        reply[i] = from < config.size() ? config[from] : std::byte{0};
      }
      return send(24, 5, reply);
    }
  }
}

}  // namespace sluice::test
