// VhostQueue: one virtqueue of a vhost-user port: its path behind a lock, and its state.
//
// How it works. The flags say what the queue may do; a worker looks at them first (relaxed: a queue
// that does not run costs a load), takes the lock, and looks again. Control changes the path only
// under the lock, so a worker that holds it works with one consistent queue, and while control has
// the lock no worker is inside. A stop clears kStarted first: even if a worker never lets go and
// the deadline passes, no new burst begins; path and memory then stay in place until housekeeping
// gets the lock (DESIGN section 7).
//
// Threads: where a function does not say otherwise, the control thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "base/cache_line.h"
#include "base/error.h"
#include "net/drop.h"
#include "net/path.h"
#include "net/transport.h"
#include "switch/port.h"
#include "switch/queue_lock.h"

namespace sluice::fabric {

/// "split" or "packed".
[[nodiscard]] inline std::string_view ring_format(const virtio::FeatureSet& features) {
  return features.has(virtio::Feature::kRingPacked) ? "packed" : "split";
}

/// What does not depend on the direction. Functions that take a `patience` wait that long for a
/// worker inside the queue.
class VhostQueueBase {
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

  /// Notes that the ring broke and tells the driver, once. Threads: the holder of the lock.
  [[gnu::cold]] void mark_broken(const Error& error);
  /// Why the ring broke, if it did since the last call.
  [[nodiscard]] std::optional<Error> take_news();
  /// Why the ring broke, if it did.
  [[nodiscard]] std::optional<Error> error() const;

  /// As it was started; empty if stopped.
  [[nodiscard]] const net::QueueStart& start() const { return start_; }
  /// Format of the ring it was last started with; empty if it never was.
  [[nodiscard]] std::string_view ring() const { return ring_; }
  /// Where a stopped queue stands.
  [[nodiscard]] virtio::RingPosition stopped_at() const { return stopped_at_; }
  /// A stop whose deadline passed left the path in place.
  [[nodiscard]] bool retiring() const { return holds_path_ && !started(); }

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
  void set_wake(std::shared_ptr<EventFd> event, bool must_poll);

  std::atomic<std::uint8_t> flags_{0};
  std::atomic<bool> news_{false};
  std::optional<Error> error_;  // Written once per start, by the holder of the lock.
  bool holds_path_ = false;
  net::QueueStart start_;
  net::QueueOptions options_;
  virtio::RingPosition stopped_at_;
  std::string_view ring_;

 private:
  mutable std::mutex wake_mutex_;  // For wake_, which workers read when they are told to look.
  WakeSource wake_;
};

/// `Path` is net::TransmitPath or net::ReceivePath.
template <class Path>
class alignas(kCacheLine) VhostQueue : public VhostQueueBase {
 public:
  /// Requires: the caller holds the lock, and the queue is started.
  [[nodiscard]] Path& path() { return path_; }

  /// Errors: kWrongState if it runs; kTimeout.
  Status start_with(net::QueueStart start, const net::QueueOptions& options,
                    Patience patience = QueueLock::kDeadline) {
    if (started()) return fail(ErrorCode::kWrongState, "the queue is started already");
    TRY(lock.lock_for_control(patience));
    start_ = std::move(start);
    options_ = options;
    stopped_at_ = start_.ring.position;
    ring_ = ring_format(start_.features);
    error_.reset();
    news_.store(false, std::memory_order_relaxed);
    clear_flag(kBroken);
    make_path();
    set_wake(start_.kick, start_.kick == nullptr);
    set_flag(kStarted);
    lock.unlock();
    return {};
  }

  /// On success nobody touches the queue's memory any more. Errors: kTimeout.
  Status stop(Patience patience = QueueLock::kDeadline) {
    clear_flag(kStarted);
    if (!holds_path_) return {};
    TRY(lock.lock_for_control(patience));
    stopped_at_ = path_.position();
    path_ = Path();
    holds_path_ = false;
    start_ = {};
    clear_flag(kBroken);
    lock.unlock();
    set_wake(nullptr, false);
    return {};
  }

  /// Goes on with other features at the same position. Errors: kTimeout.
  Status change_features(const virtio::FeatureSet& features,
                         Patience patience = QueueLock::kDeadline) {
    if (!alive()) return {};
    TRY(lock.lock_for_control(patience));
    start_.ring.position = path_.position();
    start_.features = features;
    make_path();
    lock.unlock();
    return {};
  }

  /// Errors: kTimeout.
  Status set_call(std::shared_ptr<net::Notifier> call, Patience patience = QueueLock::kDeadline) {
    if (!started()) return {};
    TRY(lock.lock_for_control(patience));
    // A driver that polled so far may have been owed a call that nobody could make.
    const bool owed = start_.call == nullptr && call != nullptr;
    start_.call = call;
    path_.set_call(call);
    lock.unlock();
    if (owed) call->notify();
    return {};
  }

  /// Name and position of the path, for people. A worker that does not let go leaves the position
  /// unknown; the name is known without the lock, because only control ever makes another path.
  void describe(QueueView& view) {
    if (!holds_path_) {
      view.avail = stopped_at_.avail;
      view.used = stopped_at_.used;
      return;
    }
    view.path = path_.name();
    // Only a look: it must not keep workers out, or each would cost a burst of packets.
    for (int attempt = 0; attempt < 1000; ++attempt) {
      if (!lock.try_lock()) continue;
      const virtio::RingPosition position = path_.position();
      lock.unlock();
      view.avail = position.avail;
      view.used = position.used;
      return;
    }
  }

 private:
  void make_path() {
    path_ = Path::make(start_, options_, counters);
    // Workers start awake; they ask for kicks before they sleep.
    path_.set_kicks(false);
    holds_path_ = true;
  }

  Path path_;
};

}  // namespace sluice::fabric
