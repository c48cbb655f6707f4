// BackendChannel: messages of the back-end to the front-end, over the socket of SET_BACKEND_REQ_FD.
//
// Workers notify through it (in-band notifications), so nothing here waits: not for room in the
// socket, and never for a reply (the front-end may be waiting for ours; many back-ends have
// deadlocked there). What does not fit is remembered as one bit per ring and kind, so a flood of
// notifications costs no memory (SEC-59), and is sent when the front-end has read.
//
// Threads: notify() and config_changed() by any; the rest by the control thread.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "base/error.h"
#include "base/foreign_fd.h"
#include "base/unique_fd.h"
#include "net/transport.h"
#include "vhost/protocol.h"

namespace sluice::vhost {

class BackendChannel {
  struct Key {};  // Only adopt() has one.

 public:
  /// Errors: kInvalidArgument unless it is a Unix stream socket; kSystem.
  [[nodiscard]] static Result<std::shared_ptr<BackendChannel>> adopt(PeerSocket socket);

  /// VRING_CALL or VRING_ERR for a ring below 256.
  void notify(BackendRequest kind, std::uint8_t ring);
  /// CONFIG_CHANGE_MSG.
  void config_changed();

  /// An epoll set: readable when on_ready() should be called.
  [[nodiscard]] int fd() const { return poll_.get(); }
  /// Goes on sending, or notices that the front-end closed its end; then all is silently dropped.
  void on_ready();

  BackendChannel(Key, PeerSocket socket, UniqueFd poll)
      : socket_(std::move(socket)), poll_(std::move(poll)) {}

 private:
  void send_waiting();
  bool next_message();
  void want_writable(bool wanted);
  void drop_peer();

  struct RingMessage {
    MessageHeader header;
    VringState state;
  };

  PeerSocket socket_;
  UniqueFd poll_;
  std::mutex mutex_;  // Guards all below. Held for a few system calls that cannot block.
  std::bitset<256> calls_;
  std::bitset<256> errors_;
  bool config_ = false;
  bool gone_ = false;
  bool polled_ = false;                               // Waiting for room in the socket.
  std::array<std::byte, sizeof(RingMessage)> out_{};  // The message that is being sent,
  std::size_t size_ = 0;                              // its bytes,
  std::size_t sent_ = 0;                              // and how many of them went.
};

/// A driver's call or error target that is a message.
class InbandNotifier final : public net::Notifier {
 public:
  InbandNotifier(std::shared_ptr<BackendChannel> channel, BackendRequest kind, std::uint8_t ring)
      : channel_(std::move(channel)), kind_(kind), ring_(ring) {}
  void notify() override { channel_->notify(kind_, ring_); }

 private:
  std::shared_ptr<BackendChannel> channel_;
  BackendRequest kind_;
  std::uint8_t ring_;
};

/// One that is an eventfd.
class EventNotifier final : public net::Notifier {
 public:
  explicit EventNotifier(EventFd event) : event_(std::move(event)) {}
  void notify() override { event_.signal(); }

 private:
  EventFd event_;
};

}  // namespace sluice::vhost
