// DriverQueue: one virtqueue of a virtio-user port: its path behind the lock of a PortQueue.
//
// Threads: where a function does not say otherwise, the port's control thread.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "base/cache_line.h"
#include "base/error.h"
#include "net/driver_start.h"
#include "switch/port.h"
#include "switch/port_queue.h"

namespace sluice::fabric {

/// `Path` is net::DriverReceivePath or net::DriverTransmitPath.
template <class Path>
class alignas(kCacheLine) DriverQueue : public PortQueue {
 public:
  /// Requires: the caller holds the lock, and the queue is started.
  [[nodiscard]] Path& path() { return *path_; }
  [[nodiscard]] const std::shared_ptr<const EventFd>& call() const { return call_; }

  /// `path` was made from `start`. Errors: kTimeout if a worker does not let go of the former path.
  Status start_with(const net::DriverQueueStart& start, std::unique_ptr<Path> path) {
    TRY(lock.lock_for_control());
    begin(ring_format(start.features));
    size_ = start.ring.size;
    call_ = start.call;
    kick_ = start.kick;
    path_ = std::move(path);
    set_flag(kStarted | kEnabled);
    lock.unlock();
    set_wake(call_, false);
    return {};
  }

  /// On success no worker touches the queue's memory any more. On kTimeout the path, which holds
  /// the memory, stays until the next start or stop.
  Status stop() {
    TRY(take_path());
    return {};
  }

  /// As stop(), and hands out the path: null if there was none. The device may go on with its ring.
  [[nodiscard]] Result<std::unique_ptr<Path>> take_path() {
    clear_flag(kStarted);
    set_wake(nullptr, false);
    TRY(lock.lock_for_control());
    std::unique_ptr<Path> path = std::move(path_);
    call_ = nullptr;
    kick_ = nullptr;
    size_ = 0;
    lock.unlock();
    return path;
  }

  /// True if the device made one of our kicks wait.
  [[nodiscard]] bool kick_spoiled() const { return kick_ != nullptr && kick_->spoiled(); }

  /// Notes that the ring broke. Threads: the holder of the lock.
  [[gnu::cold]] void mark_broken(const Error& error) { note_broken(error); }

  void describe(QueueView& view) const {
    view.state = state();
    view.ring = ring();
    view.size = size_;
    view.counters = &counters;
    if (path_ != nullptr) view.path = path_->name();
    if (const auto error = this->error()) view.error = error->text;
  }

 private:
  std::unique_ptr<Path> path_;  // Null unless started, or a worker kept it from being stopped.
  std::shared_ptr<const EventFd> call_;
  std::shared_ptr<const EventFd> kick_;
  std::uint32_t size_ = 0;
};

}  // namespace sluice::fabric
