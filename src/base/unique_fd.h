// UniqueFd: an owned file descriptor. EventFd: the kick and call signal of a virtqueue.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "base/error.h"

namespace sluice {

/// Owns one descriptor and closes it. Move-only; a moved-from object is empty and harmless.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  ~UniqueFd() { reset(); }

  [[nodiscard]] int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  [[nodiscard]] int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1);

  /// A second descriptor of the same open file, close-on-exec.
  [[nodiscard]] Result<UniqueFd> duplicate() const;

 private:
  int fd_ = -1;
};

/// A counter to wake a sleeper: eventfd(2), or whatever writable thing a peer gave in its place.
class EventFd {
 public:
  EventFd() = default;
  EventFd(EventFd&& other) noexcept
      : fd_(std::move(other.fd_)), nonblocking_(other.nonblocking_), spoiled_(other.spoiled()) {}
  EventFd& operator=(EventFd&& other) noexcept {
    fd_ = std::move(other.fd_);
    nonblocking_ = other.nonblocking_;
    spoiled_.store(other.spoiled(), std::memory_order_relaxed);
    return *this;
  }
  EventFd(const EventFd&) = delete;
  EventFd& operator=(const EventFd&) = delete;
  ~EventFd() = default;

  /// Makes a new non-blocking, close-on-exec eventfd.
  [[nodiscard]] static Result<EventFd> create();

  /// Takes a descriptor that a peer sent. Errors: kInvalidArgument unless it is an eventfd (a
  /// pipe or a socket could block us; SEC-61). The peer shares the open file, so its O_NONBLOCK
  /// is not ours to change: signal() looks with poll(2) first where it is missing. If the peer
  /// clears it later, a StallWatch (base/stall_watch.h) must run to end a write that waits.
  [[nodiscard]] static Result<EventFd> adopt(UniqueFd fd);

  [[nodiscard]] int fd() const { return fd_.get(); }
  explicit operator bool() const { return static_cast<bool>(fd_); }

  /// Adds one. Never blocks: a counter that is full is a wake-up already on its way (SEC-62).
  /// Threads: any; several at once do no harm.
  void signal() const;
  /// Reads the counter to zero without blocking. True if it was non-zero.
  bool drain() const;
  /// True once the peer made a signal() wait, or made each take long by a crowd of waiters; it is
  /// not signalled any more. Threads: any.
  [[nodiscard]] bool spoiled() const { return spoiled_.load(std::memory_order_relaxed); }

 private:
  EventFd(UniqueFd fd, bool nonblocking) : fd_(std::move(fd)), nonblocking_(nonblocking) {}
  [[nodiscard]] bool add_one() const;
  UniqueFd fd_;
  bool nonblocking_ = true;  // When it came.
  mutable std::atomic<bool> spoiled_{false};
  mutable std::atomic<std::uint8_t> turn_{0};  // Of signals, to measure some of them.
  mutable std::atomic<std::uint8_t> slow_{0};  // How many measured ones took long, in a row.
};

}  // namespace sluice
