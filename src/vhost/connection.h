// Message and Connection: vhost-user framing over a stream socket, for either end.
//
// A message arrives as one owned object: header, payload, descriptors. Descriptors become owned as
// the kernel hands them over, before anything is checked, so no refusal can leak one (SEC-02,
// SEC-10, SEC-19). Bytes that have come so far are kept between calls: a peer that sends one byte a
// minute costs one buffer (SEC-58). Nothing here blocks.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/foreign_fd.h"
#include "base/unique_fd.h"
#include "vhost/protocol.h"

namespace sluice::vhost {

struct Message {
  std::uint32_t request = 0;  // Request or BackendRequest, or a number that neither knows.
  std::uint32_t flags = kVersion;
  std::vector<std::byte> payload;
  std::vector<UniqueFd> fds;

  Message() = default;
  Message(Message&&) noexcept = default;
  Message& operator=(Message&& other) noexcept;
  /// Descriptors that nobody took go without a wait.
  ~Message();
  template <class R>
    requires std::is_enum_v<R>
  explicit Message(R number, std::uint32_t more_flags = 0)
      : request(static_cast<std::uint32_t>(number)), flags(kVersion | more_flags) {}

  /// Appends the bytes of a wire record or an integer.
  template <class T>
    requires std::is_trivially_copyable_v<T>
  Message& add(const T& value) & {
    const auto bytes = std::as_bytes(std::span(&value, 1));
    payload.insert(payload.end(), bytes.begin(), bytes.end());
    return *this;
  }
  template <class T>
    requires std::is_trivially_copyable_v<T>
  Message&& add(const T& value) && {
    return std::move(add(value));
  }
  /// The record at `offset` of the payload; bytes the payload lacks read zero.
  template <class T>
    requires std::is_trivially_copyable_v<T>
  [[nodiscard]] T get(std::size_t offset = 0) const {
    T value{};
    if (offset >= payload.size()) return value;
    std::memcpy(&value, payload.data() + offset, std::min(sizeof(T), payload.size() - offset));
    return value;
  }
  [[nodiscard]] bool is(Request number) const {
    return request == static_cast<std::uint32_t>(number);
  }
  [[nodiscard]] bool is(BackendRequest number) const {
    return request == static_cast<std::uint32_t>(number);
  }
};

class Connection {
 public:
  /// Takes a connected stream socket and makes it non-blocking.
  [[nodiscard]] static Result<Connection> adopt(PeerSocket socket);

  /// The next message, or nothing if it is not complete yet.
  /// Errors: kClosed if the peer went away; kProtocol for another version, a payload beyond
  /// kPayloadMax, more than kFdsMax descriptors; kSystem. After an error the connection is useless.
  [[nodiscard]] Result<std::optional<Message>> receive();

  /// Sends a message; what the socket does not take now is kept for flush(). The descriptors of
  /// `message` are closed once they were sent.
  /// Errors: kOutOfRange if more than kUnsentMax bytes wait already; kClosed; kSystem.
  Status send(Message message);
  /// Goes on sending. Errors: as send().
  Status flush();
  [[nodiscard]] bool unsent() const { return !queue_.empty(); }

  [[nodiscard]] int fd() const { return socket_.get(); }

  /// Most bytes that wait for a peer that does not read.
  static constexpr std::size_t kUnsentMax = 64 * 1024;

 private:
  struct Unsent {
    std::vector<std::byte> bytes;
    std::size_t sent = 0;
    std::vector<UniqueFd> fds;
  };

  explicit Connection(PeerSocket socket) : socket_(std::move(socket)) {}
  [[nodiscard]] Result<bool> fill(std::span<std::byte> room);
  Status accept_header();

  PeerSocket socket_;
  // The message that is being received: its header, then its payload.
  std::array<std::byte, sizeof(MessageHeader)> header_{};
  std::size_t filled_ = 0;  // Bytes of the current part.
  bool header_done_ = false;
  Message incoming_;
  std::deque<Unsent> queue_;
  std::size_t queued_ = 0;  // Bytes in it.
};

}  // namespace sluice::vhost
