// CountingNotifier: counts the interrupts, or kicks, that a queue asks for.
#pragma once

#include <atomic>
#include <cstdint>

#include "net/transport.h"

namespace sluice::test {

/// Any thread may notify and count.
class CountingNotifier final : public net::Notifier {
 public:
  void notify() override { count_.fetch_add(1); }
  [[nodiscard]] std::uint64_t count() const { return count_; }

 private:
  std::atomic<std::uint64_t> count_{0};
};

}  // namespace sluice::test
