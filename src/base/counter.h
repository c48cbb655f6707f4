// Counter: written by one thread, read by any, without a locked instruction.
#pragma once

#include <atomic>
#include <cstdint>

namespace sluice {

/// A statistic with one writer at a time. Reading it never tears and never stops the writer.
/// Threads: add() by whoever holds the queue it belongs to; value() by anyone.
class Counter {
 public:
  void add(std::uint64_t n = 1) {
    value_.store(value_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t value() const { return value_.load(std::memory_order_relaxed); }
  void reset() { value_.store(0, std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

}  // namespace sluice
