// PortQueue: what a virtqueue of a port is to workers and to control, whichever end of the ring the
// port has: a lock, flags, what wakes its worker, why it broke, counters.
//
// How it works. The flags say what the queue may do; a worker looks at them first (relaxed: a queue
// that does not run costs a load), takes the lock, and looks again. Control changes the path only
// under the lock, so a worker that holds it works with one consistent queue, and while control has
// the lock no worker is inside. A stop clears kStarted first: even if a worker never lets go and
// the deadline passes, no new burst begins; path and memory then stay in place until a later stop
// gets the lock (DESIGN section 7).
//
// Threads: where a function does not say otherwise, the port's control thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>

#include "base/error.h"
#include "net/drop.h"
#include "packet/packet.h"
#include "switch/port.h"
#include "switch/queue_lock.h"
#include "virtio/features.h"

namespace sluice::fabric {

/// "split" or "packed".
[[nodiscard]] inline std::string_view ring_format(const virtio::FeatureSet& features) {
  return features.has(virtio::Feature::kRingPacked) ? "packed" : "split";
}

/// Functions that take a `patience` wait that long for a worker inside the queue.
class PortQueue {
 public:
  using Patience = std::chrono::milliseconds;

  /// Threads: any; certain only for the holder of `lock`.
  [[nodiscard]] bool started() const { return has(kStarted); }
  [[nodiscard]] bool enabled() const { return has(kEnabled); }
  [[nodiscard]] bool alive() const { return (flags() & (kStarted | kBroken)) == kStarted; }
  [[nodiscard]] bool running() const {
    return (flags() & (kStarted | kEnabled | kBroken)) == (kStarted | kEnabled);
  }
  [[nodiscard]] bool broken() const { return has(kBroken); }
  /// "stopped", "disabled", "running" or "broken".
  [[nodiscard]] std::string_view state() const;

  QueueLock lock;

  /// On return no burst goes on under the former value. Errors: kTimeout; the flag is changed all
  /// the same.
  Status set_enabled(bool enabled, Patience patience = QueueLock::kDeadline);
  /// Threads: any.
  [[nodiscard]] WakeSource wake_source() const;

  /// Why the ring broke, if it did since the last call.
  [[nodiscard]] std::optional<Error> take_news();
  /// Why the ring broke, if it did. Threads: any.
  [[nodiscard]] std::optional<Error> error() const;
  /// Format of the ring it was last started with; empty if it never was.
  [[nodiscard]] std::string_view ring() const { return ring_; }

  net::DirectionCounters counters;

 protected:
  static constexpr std::uint8_t kStarted = 1;
  static constexpr std::uint8_t kEnabled = 2;
  static constexpr std::uint8_t kBroken = 4;

  [[nodiscard]] std::uint8_t flags() const { return flags_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool has(std::uint8_t flag) const { return (flags() & flag) != 0; }
  void set_flag(std::uint8_t flag) { flags_.fetch_or(flag, std::memory_order_release); }
  void clear_flag(std::uint8_t flag) {
    flags_.fetch_and(static_cast<std::uint8_t>(~flag), std::memory_order_release);
  }
  void set_wake(std::shared_ptr<const EventFd> event, bool must_poll);
  /// For a start, with the lock held: no error yet.
  void begin(std::string_view ring);
  /// True the first time. Threads: the holder of the lock.
  bool note_broken(const Error& error);

 private:
  std::atomic<std::uint8_t> flags_{0};
  std::atomic<bool> news_{false};
  std::optional<Error> error_;  // Written once per start, by the holder of the lock.
  std::string_view ring_;
  mutable std::mutex wake_mutex_;  // For wake_, which workers read when they are told to look.
  WakeSource wake_;
};

/// The end of a port's transmit(): delivers by `queue`, a PortQueue with a path(), if its lock can
/// be had and it runs; else counts. Returns how many packets went. Threads: workers.
template <class Queue>
std::size_t deliver_by(Queue& queue, Refusals& refusals, const packet::Burst& burst,
                       std::span<const packet::PacketIndex> which) {
  if (!queue.lock.try_lock_briefly()) {
    refusals.queue_busy.fetch_add(which.size(), std::memory_order_relaxed);
    return 0;
  }
  std::size_t delivered = 0;
  if (queue.running()) [[likely]] {
    delivered = queue.path().deliver(burst, which);
    if (delivered != which.size()) {
      if (const auto error = queue.path().error()) [[unlikely]]
        queue.mark_broken(*error);
    }
  } else {
    queue.counters.drop(queue.broken() ? net::DropCause::kRingBroken : net::DropCause::kNotReady,
                        which.size());
  }
  queue.lock.unlock();
  return delivered;
}

}  // namespace sluice::fabric
