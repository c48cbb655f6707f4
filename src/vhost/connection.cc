// recvmsg and sendmsg with descriptors, and the state of half messages.
#include "vhost/connection.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <bit>
#include <cerrno>
#include <utility>

#include "base/foreign_fd.h"

namespace sluice::vhost {
namespace {

// Room for exactly the descriptors that a message may carry: of more the kernel keeps none for us
// and says MSG_CTRUNC.
struct alignas(cmsghdr) ControlBuffer {
  std::array<char, CMSG_SPACE(sizeof(int) * kFdsMax)> bytes{};
};

// Every descriptor becomes owned here, whatever else is wrong with the message. One that is neither
// an event, nor memory, nor a socket is of no use in any message, and whoever serves that file
// could make us wait at a touch: it is closed elsewhere, and an empty one in its place is refused
// later.
void take_fds(msghdr& header, std::vector<UniqueFd>& out) {
  for (cmsghdr* item = CMSG_FIRSTHDR(&header); item != nullptr; item = CMSG_NXTHDR(&header, item)) {
    if (item->cmsg_level != SOL_SOCKET || item->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (item->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(item) + i * sizeof(int), sizeof fd);
      UniqueFd taken(fd);
      if (!is_harmless(fd) && !is_local_socket(fd)) close_foreign(std::move(taken));
      out.push_back(std::move(taken));
    }
  }
}

void put_fds(msghdr& header, ControlBuffer& control, const std::vector<UniqueFd>& fds) {
  if (fds.empty()) return;
  header.msg_control = control.bytes.data();
  header.msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
  cmsghdr* const item = CMSG_FIRSTHDR(&header);
  item->cmsg_level = SOL_SOCKET;
  item->cmsg_type = SCM_RIGHTS;
  item->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
  for (std::size_t i = 0; i < fds.size(); ++i) {
    const int fd = fds[i].get();
    std::memcpy(CMSG_DATA(item) + i * sizeof(int), &fd, sizeof fd);
  }
}

bool peer_is_gone(int error) {
  return error == EPIPE || error == ECONNRESET;
}

}  // namespace

Message& Message::operator=(Message&& other) noexcept {
  std::swap(request, other.request);
  std::swap(flags, other.flags);
  payload.swap(other.payload);
  fds.swap(other.fds);
  return *this;
}

Message::~Message() {
  for (UniqueFd& fd : fds) {
    if (!is_harmless(fd.get())) close_foreign(std::move(fd));
  }
}

Result<Connection> Connection::adopt(PeerSocket socket) {
  const int flags = ::fcntl(socket.get(), F_GETFL);
  if (flags < 0 || ::fcntl(socket.get(), F_SETFL, flags | O_NONBLOCK) < 0) {
    return fail_errno("cannot make the vhost-user socket non-blocking");
  }
  return Connection(std::move(socket));
}

// Reads until `room` is full: true. False: the rest has not come yet.
Result<bool> Connection::fill(std::span<std::byte> room) {
  while (filled_ < room.size()) {
    iovec part{room.data() + filled_, room.size() - filled_};
    ControlBuffer control;
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control.bytes.data();
    header.msg_controllen = control.bytes.size();
    const ssize_t count = ::recvmsg(socket_.get(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (count < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
      if (peer_is_gone(errno)) return fail(ErrorCode::kClosed, "the peer closed the connection");
      return fail_errno("cannot read from the vhost-user socket");
    }
    take_fds(header, incoming_.fds);
    // Cut although there was room: the kernel could not make more descriptors.
    if ((header.msg_flags & MSG_CTRUNC) != 0 && incoming_.fds.size() < kFdsMax) {
      return fail(ErrorCode::kSystem, "this process may not have more descriptors open", EMFILE);
    }
    if ((header.msg_flags & MSG_CTRUNC) != 0 || incoming_.fds.size() > kFdsMax) {
      return fail(ErrorCode::kProtocol, "a message came with too many descriptors");
    }
    if (count == 0) {
      if (filled_ == 0 && !header_done_) {
        return fail(ErrorCode::kClosed, "the peer closed the connection");
      }
      return fail(ErrorCode::kClosed, "the peer closed the connection within a message");
    }
    filled_ += static_cast<std::size_t>(count);
  }
  return true;
}

Status Connection::accept_header() {
  const auto header = std::bit_cast<MessageHeader>(header_);
  if ((header.flags & kVersionMask) != kVersion) {
    return fail(ErrorCode::kProtocol, "a message of another protocol version", header.flags);
  }
  if (header.size > kPayloadMax) {
    return fail(ErrorCode::kProtocol, "a message is longer than any may be", header.size);
  }
  incoming_.request = header.request;
  incoming_.flags = header.flags;
  incoming_.payload.resize(header.size);
  header_done_ = true;
  filled_ = 0;
  return {};
}

Result<std::optional<Message>> Connection::receive() {
  if (!header_done_) {
    if (!TRY(fill(header_))) return std::nullopt;
    TRY(accept_header());
  }
  if (!TRY(fill(incoming_.payload))) return std::nullopt;
  header_done_ = false;
  filled_ = 0;
  return std::exchange(incoming_, Message());
}

Status Connection::send(Message message) {
  const std::size_t size = sizeof(MessageHeader) + message.payload.size();
  if (message.fds.size() > kFdsMax || message.payload.size() > kPayloadMax) {
    return fail(ErrorCode::kInvalidArgument, "a message of ours is too large");
  }
  if (queued_ + size > kUnsentMax) {
    return fail(ErrorCode::kOutOfRange, "the peer does not read its replies");
  }
  Unsent unsent;
  const MessageHeader header{message.request, message.flags,
                             static_cast<std::uint32_t>(message.payload.size())};
  const auto head = std::as_bytes(std::span(&header, 1));
  unsent.bytes.reserve(size);
  unsent.bytes.insert(unsent.bytes.end(), head.begin(), head.end());
  unsent.bytes.insert(unsent.bytes.end(), message.payload.begin(), message.payload.end());
  unsent.fds = std::move(message.fds);
  queue_.push_back(std::move(unsent));
  queued_ += size;
  return flush();
}

Status Connection::flush() {
  while (!queue_.empty()) {
    Unsent& unsent = queue_.front();
    iovec part{unsent.bytes.data() + unsent.sent, unsent.bytes.size() - unsent.sent};
    ControlBuffer control;
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    put_fds(header, control, unsent.fds);
    const ssize_t count = ::sendmsg(socket_.get(), &header, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return {};
      if (peer_is_gone(errno)) return fail(ErrorCode::kClosed, "the peer closed the connection");
      return fail_errno("cannot write to the vhost-user socket");
    }
    unsent.fds.clear();  // They went with the first byte.
    unsent.sent += static_cast<std::size_t>(count);
    queued_ -= static_cast<std::size_t>(count);
    if (unsent.sent == unsent.bytes.size()) queue_.pop_front();
  }
  return {};
}

}  // namespace sluice::vhost
