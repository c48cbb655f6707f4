// VhostQueue: one virtqueue of a vhost-user port: its path behind the lock of a PortQueue.
//
// Threads: where a function does not say otherwise, the control thread.
#pragma once

#include <memory>
#include <utility>

#include "base/cache_line.h"
#include "base/error.h"
#include "net/path.h"
#include "net/transport.h"
#include "switch/port.h"
#include "switch/port_queue.h"

namespace sluice::fabric {

/// What does not depend on the direction. Functions that take a `patience` wait that long for a
/// worker inside the queue.
class VhostQueueBase : public PortQueue {
 public:
  /// Notes that the ring broke and tells the driver, once. Threads: the holder of the lock.
  [[gnu::cold]] void mark_broken(const Error& error);

  /// As it was started; empty if stopped.
  [[nodiscard]] const net::QueueStart& start() const { return start_; }
  /// Where a stopped queue stands.
  [[nodiscard]] virtio::RingPosition stopped_at() const { return stopped_at_; }
  /// A stop whose deadline passed left the path in place.
  [[nodiscard]] bool retiring() const { return holds_path_ && !started(); }

 protected:
  bool holds_path_ = false;
  net::QueueStart start_;
  net::QueueOptions options_;
  virtio::RingPosition stopped_at_;
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
    begin(ring_format(start_.features));
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
