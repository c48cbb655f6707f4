// State of a virtqueue of a port.
#include "switch/port_queue.h"

namespace sluice::fabric {

std::string_view PortQueue::state() const {
  if (!started()) return "stopped";
  if (broken()) return "broken";
  return enabled() ? "running" : "disabled";
}

Status PortQueue::set_enabled(bool enabled, Patience patience) {
  if (this->enabled() == enabled) return {};
  if (enabled) {
    set_flag(kEnabled);
    return {};
  }
  clear_flag(kEnabled);
  if (!started()) return {};
  TRY(lock.lock_for_control(patience));
  lock.unlock();
  return {};
}

WakeSource PortQueue::wake_source() const {
  const std::lock_guard guard(wake_mutex_);
  return wake_;
}

void PortQueue::set_wake(std::shared_ptr<const EventFd> event, bool must_poll) {
  const std::lock_guard guard(wake_mutex_);
  wake_.event = std::move(event);
  wake_.must_poll = must_poll;
  ++wake_.generation;
}

void PortQueue::begin(std::string_view ring) {
  ring_ = ring;
  error_.reset();
  news_.store(false, std::memory_order_relaxed);
  clear_flag(kBroken);
}

bool PortQueue::note_broken(const Error& error) {
  if (broken()) return false;
  error_ = error;
  set_flag(kBroken);
  news_.store(true, std::memory_order_release);
  return true;
}

std::optional<Error> PortQueue::take_news() {
  if (!news_.exchange(false, std::memory_order_acq_rel)) return std::nullopt;
  return error_;
}

std::optional<Error> PortQueue::error() const {
  // The flag is set after the error was written, and the error stays until the next start.
  if ((flags_.load(std::memory_order_acquire) & kBroken) == 0) return std::nullopt;
  return error_;
}

}  // namespace sluice::fabric
