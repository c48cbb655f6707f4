// StallWatch: ends system calls on peers' descriptors that wait although they must not.
//
// The open file of an eventfd that a peer sent is the peer's too. It can clear O_NONBLOCK and fill
// the counter between any check of ours and our write(2), which then waits for ever, and no flag of
// that call forbids it. So a thread says when it enters such a call, and a watcher sends a signal
// to a thread that is still in the same call a moment later: the call returns with EINTR.
//
// Cost: two stores to memory of the thread's own around each call; one thread that wakes up ten
// times a second.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>

#include "base/error.h"

namespace sluice {

/// The watcher of all threads of the process. Those that call nothing within a WatchedCall do not
/// notice it.
class StallWatch {
  struct Passkey {};

 public:
  /// A call is ended after one to two of these.
  static constexpr std::chrono::milliseconds kPatience{100};

  /// Starts watching, with a handler for signal_number() that does nothing. Several at once do no
  /// harm. Errors: kSystem.
  [[nodiscard]] static Result<std::unique_ptr<StallWatch>> start();
  explicit StallWatch(Passkey) {}
  StallWatch(const StallWatch&) = delete;
  StallWatch& operator=(const StallWatch&) = delete;
  ~StallWatch();

  /// The signal it uses. A thread that blocks it cannot be helped.
  [[nodiscard]] static int signal_number();

 private:
  void loop();

  std::mutex mutex_;
  std::condition_variable ending_;
  bool ended_ = false;
  std::thread thread_;
};

/// Marks a system call of the calling thread that must not wait for long.
class WatchedCall {
 public:
  WatchedCall();
  WatchedCall(const WatchedCall&) = delete;
  WatchedCall& operator=(const WatchedCall&) = delete;
  ~WatchedCall();

 private:
  std::atomic<std::uint64_t>& turns_;  // Odd while within.
};

}  // namespace sluice
