// QueueLock: who may touch a virtqueue now. Held for one burst at most, by a worker or by control.
//
// A worker never waits: it takes the lock or does something else. Control announces itself first,
// so that a worker that polls the queue all the time cannot keep it out (DESIGN rule 7). There is
// one control thread; any number of workers may try.
#pragma once

#include <immintrin.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/error.h"

namespace sluice::fabric {

class QueueLock {
 public:
  /// How long control waits for a worker to finish its burst.
  static constexpr std::chrono::milliseconds kDeadline{1000};

  /// Takes the lock if it is free and control does not want it. One uncontended exchange.
  /// Threads: workers, and the control thread when it sends packets like a worker does.
  [[nodiscard]] bool try_lock() {
    if (paused_.load(std::memory_order_relaxed) || held_.load(std::memory_order_relaxed)) {
      return false;
    }
    return !held_.exchange(true, std::memory_order_acquire);
  }

  /// The same, but looks again for about a microsecond: a holder is done after one burst. The
  /// bound keeps a worker whose rival lost its processor from waiting for it.
  [[nodiscard]] bool try_lock_briefly() {
    for (int spin = 0; spin < kBriefSpins; ++spin) {
      if (try_lock()) return true;
      if (paused_.load(std::memory_order_relaxed)) return false;
      _mm_pause();
    }
    return false;
  }

  /// Requires: held by the caller.
  void unlock() { held_.store(false, std::memory_order_release); }

  /// Takes the lock for control, keeping workers from taking it again meanwhile.
  /// Errors: kTimeout if a worker held it all the time. Then the caller must leave everything the
  /// worker may touch in place.
  [[nodiscard]] Status lock_for_control(std::chrono::milliseconds deadline = kDeadline) {
    paused_.store(true, std::memory_order_relaxed);
    const auto end = std::chrono::steady_clock::now() + deadline;
    while (held_.exchange(true, std::memory_order_acquire)) {
      if (std::chrono::steady_clock::now() >= end) {
        paused_.store(false, std::memory_order_relaxed);
        return fail(ErrorCode::kTimeout, "a worker did not leave a queue in time",
                    deadline.count());
      }
      std::this_thread::yield();
    }
    paused_.store(false, std::memory_order_relaxed);
    return {};
  }

 private:
  static constexpr int kBriefSpins = 64;
  std::atomic<bool> held_{false};
  std::atomic<bool> paused_{false};
};

}  // namespace sluice::fabric
