// Prints the round trip of one cache line between two cores, in nanoseconds.
//
// Usage: line_round_trip CORE CORE [SECONDS]. It says whether the host has put the two virtual CPUs
// near each other or far apart, without which a packet rate of this pair means nothing.
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace {

using Clock = std::chrono::steady_clock;

constexpr unsigned kLapsPerSample = 100;
constexpr unsigned kEnd = ~0U;

struct alignas(128) Line {
  std::atomic<unsigned> value{0};
};

Line line;

void pin(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(core), &set);
  if (pthread_setaffinity_np(pthread_self(), sizeof set, &set) != 0) {
    std::fprintf(stderr, "line_round_trip: there is no core %d for us\n", core);
    std::exit(1);
  }
}

/// Answers every odd value with the next even one.
void answer(int core) {
  pin(core);
  for (unsigned expected = 1;;) {
    const unsigned seen = line.value.load(std::memory_order_acquire);
    if (seen == kEnd) {
      return;
    }
    if (seen == expected) {
      line.value.store(seen + 1, std::memory_order_release);
      expected += 2;
    }
  }
}

/// The best sample: a mean over laps which nobody interrupted.
double ask(int core, double seconds) {
  pin(core);
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  double best = 1e9;
  unsigned value = 0;
  auto before = Clock::now();
  while (before < end) {
    for (unsigned lap = 0; lap < kLapsPerSample; ++lap) {
      line.value.store(value + 1, std::memory_order_release);
      value += 2;
      while (line.value.load(std::memory_order_acquire) != value) {
      }
    }
    const auto now = Clock::now();
    const std::chrono::duration<double, std::nano> took = now - before;
    best = std::min(best, took.count() / kLapsPerSample);
    before = now;
  }
  line.value.store(kEnd, std::memory_order_release);
  return best;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: line_round_trip CORE CORE [SECONDS]\n");
    return 2;
  }
  std::thread other(answer, std::atoi(argv[2]));
  const double best = ask(std::atoi(argv[1]), argc > 3 ? std::atof(argv[3]) : 0.05);
  other.join();
  std::printf("%.0f\n", best);
}
