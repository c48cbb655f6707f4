// Resets of a virtio-user port's queues: what is asked for, and the answer to come.
//
// A device may take seconds to let go of a ring, so a reset is ordered by the control thread, done
// by the thread of the port's link, and its outcome looked for afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/unique_fd.h"

namespace sluice::fabric {

/// A queue of a virtio-user port can grow to so many buffers while it runs, or to the size it is
/// configured with if that is more. It costs address space only: the kernel gives memory to a
/// buffer when it is first used.
inline constexpr std::uint32_t kResizeMax = 1024;

struct ResetOrder {
  std::optional<std::uint16_t> queue;  // Virtqueue index. Absent: only with `whole_device`.
  std::uint32_t size = 0;              // Of that queue afterwards; 0: as it is.
  /// Stop and start all queues: any device can do that, but nothing moves meanwhile.
  bool whole_device = false;
};

struct ResetReport {
  std::size_t buffers = 0;  // Buffers that came back, each counted once.
  std::uint32_t size = 0;   // Of the queue now; 0: the order named none.
};

/// The outcome of a reset that was begun. Threads: any.
class PendingReset {
 public:
  /// `done` is signalled when there is an outcome; null: nobody wants to be woken.
  explicit PendingReset(std::shared_ptr<const EventFd> done) : done_(std::move(done)) {}

  [[nodiscard]] std::optional<Result<ResetReport>> outcome() const {
    const std::lock_guard guard(mutex_);
    return outcome_;
  }
  /// Requires: called once.
  void finish(Result<ResetReport> outcome) {
    {
      const std::lock_guard guard(mutex_);
      outcome_ = std::move(outcome);
    }
    if (done_ != nullptr) done_->signal();
  }

 private:
  const std::shared_ptr<const EventFd> done_;
  mutable std::mutex mutex_;
  std::optional<Result<ResetReport>> outcome_;
};

}  // namespace sluice::fabric
