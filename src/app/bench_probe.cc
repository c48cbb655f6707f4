// Measuring the machine.
#include "app/bench_probe.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "base/cache_line.h"

namespace sluice::app {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kHandOvers = 20'000;
constexpr std::chrono::seconds kMeasuringMost{5};

struct alignas(kCacheLine) Ball {
  std::atomic<std::uint32_t> turn{0};
};

// Waits for each odd turn and answers with the next even one. The deadline is for all turns: two
// threads on one core, or on cores that others use, get each turn only after a time slice.
bool wait_for(const Ball& ball, std::uint32_t turn, Clock::time_point deadline) {
  constexpr std::uint32_t kSpins = 100'000;
  do {
    for (std::uint32_t spins = 0; spins < kSpins; ++spins) {
      if (ball.turn.load(std::memory_order_acquire) == turn) return true;
    }
  } while (Clock::now() < deadline);
  return false;
}

}  // namespace

Status pin_to_core(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (core < 0 || core >= CPU_SETSIZE) {
    return fail(ErrorCode::kInvalidArgument, "there is no such core", core);
  }
  CPU_SET(static_cast<std::size_t>(core), &set);
  if (::sched_setaffinity(0, sizeof set, &set) != 0) {
    return fail(ErrorCode::kInvalidArgument, "this process cannot use the core", core);
  }
  return {};
}

std::vector<int> permitted_cores() {
  std::vector<int> cores;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(static_cast<std::size_t>(core), &set)) cores.push_back(core);
  }
  return cores;
}

std::string core_list(std::span<const int> cores) {
  std::string text;
  for (std::size_t i = 0; i < cores.size();) {
    std::size_t last = i;
    while (last + 1 < cores.size() && cores[last + 1] == cores[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += std::to_string(cores[i]);
    if (last != i) text += "-" + std::to_string(cores[last]);
    i = last + 1;
  }
  return text;
}

Result<double> round_trip_ns(int core_a, int core_b) {
  Ball ball;
  std::array<Status, 2> pinned;
  std::atomic<bool> ok{true};
  Clock::duration took{};
  const Clock::time_point deadline = Clock::now() + kMeasuringMost;
  std::thread other([&] {
    pinned[1] = pin_to_core(core_b);
    for (std::uint32_t i = 0; i < kHandOvers; ++i) {
      if (!wait_for(ball, 2 * i + 1, deadline)) return ok.store(false);
      ball.turn.store(2 * i + 2, std::memory_order_release);
    }
  });
  std::thread one([&] {
    pinned[0] = pin_to_core(core_a);
    Clock::time_point start = Clock::now();
    for (std::uint32_t i = 0; i < kHandOvers; ++i) {
      if (i == kHandOvers / 10) start = Clock::now();  // The first part warms up.
      ball.turn.store(2 * i + 1, std::memory_order_release);
      if (!wait_for(ball, 2 * i + 2, deadline)) return ok.store(false);
    }
    took = Clock::now() - start;
  });
  one.join();
  other.join();
  TRY(pinned[0]);
  TRY(pinned[1]);
  if (!ok.load()) return fail(ErrorCode::kTimeout, "the cores are too busy to be measured");
  return std::chrono::duration<double, std::nano>(took).count() / (kHandOvers - kHandOvers / 10.0);
}

double ticks_per_ns() {
#ifdef __x86_64__
  static const double kTicks = [] {
    const auto start = Clock::now();
    const std::uint64_t first = __builtin_ia32_rdtsc();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const std::uint64_t last = __builtin_ia32_rdtsc();
    const std::chrono::duration<double, std::nano> passed = Clock::now() - start;
    return static_cast<double>(last - first) / passed.count();
  }();
  return kTicks;
#else
  return 0;
#endif
}

}  // namespace sluice::app
