// The reference hop: what the two cores allow, with nothing of virtio but its work. A ring of 256
// slots, each with a buffer of its own; the sender writes a 12-byte header and copies 64 bytes into
// each, the receiver reads the header, or all; both go by bursts of 32 and tell each other by one
// index. No descriptors, no translation, no checks. `sluice bench pair` is compared with this.
#include <benchmark/benchmark.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "app/bench_probe.h"
#include "base/cache_line.h"
#include "packet/copy.h"
#include "packet/touch.h"

namespace {

using namespace sluice;

constexpr std::uint64_t kSlots = 256;
constexpr std::uint64_t kBurst = 32;
constexpr std::size_t kStride = 2368;  // As our drivers' buffers.
constexpr std::size_t kHeader = 12;
constexpr std::size_t kFrame = 64;

struct Ring {
  alignas(128) std::atomic<std::uint64_t> sent{0};
  alignas(128) std::atomic<std::uint64_t> read{0};
  alignas(128) std::vector<std::byte> buffers = std::vector<std::byte>(kSlots * kStride);
  std::atomic<bool> stop{false};

  std::byte* buffer(std::uint64_t index) { return buffers.data() + index % kSlots * kStride; }
};

void pause() {
  __builtin_ia32_pause();
}

void send(Ring& ring, int core) {
  if (!app::pin_to_core(core).has_value()) return;
  std::array<std::byte, kFrame> frame{};
  const std::array<std::uint64_t, 2> header = {0, 1};
  std::uint64_t sent = 0;
  std::uint64_t read = 0;
  while (!ring.stop.load(std::memory_order_relaxed)) {
    if (sent + kBurst - read > kSlots) {
      read = ring.read.load(std::memory_order_acquire);
      if (sent + kBurst - read > kSlots) {
        pause();
        continue;
      }
    }
    for (std::uint64_t i = 0; i < kBurst; ++i) {
      prefetch_for_write(ring.buffer(sent + i));
      prefetch_for_write(ring.buffer(sent + i) + kCacheLine);
    }
    for (std::uint64_t i = 0; i < kBurst; ++i) {
      std::byte* const buffer = ring.buffer(sent + i);
      std::memcpy(buffer, header.data(), kHeader);
      packet::copy_bytes(buffer + kHeader, frame.data(), kFrame);
    }
    sent += kBurst;
    ring.sent.store(sent, std::memory_order_release);
  }
}

void receive(Ring& ring, int core, bool touch) {
  if (!app::pin_to_core(core).has_value()) return;
  std::uint64_t read = 0;
  while (!ring.stop.load(std::memory_order_relaxed)) {
    const std::uint64_t sent = ring.sent.load(std::memory_order_acquire);
    if (sent == read) {
      pause();
      continue;
    }
    std::uint64_t sum = 0;
    for (std::uint64_t i = read; i < read + kBurst; ++i) prefetch_for_read(ring.buffer(i));
    for (std::uint64_t i = read; i < read + kBurst; ++i) {
      const std::byte* const buffer = ring.buffer(i);
      sum += packet::read_all({buffer, kHeader});
      if (touch) sum += packet::read_all({buffer + kHeader, kFrame});
    }
    benchmark::DoNotOptimize(sum);
    read += kBurst;
    ring.read.store(read, std::memory_order_release);
  }
}

// Argument: whether the receiver reads all. One iteration is a window of 0.3 s.
void hop(benchmark::State& state) {
  const std::vector<int> cores = app::permitted_cores();
  if (cores.size() < 2) {
    state.SkipWithError("it takes two cores");
    return;
  }
  const bool touch = state.range(0) != 0;
  double packets = 0;
  double seconds = 0;
  for (auto _ : state) {
    Ring ring;
    std::thread sender([&] { send(ring, cores[0]); });
    std::thread receiver([&] { receive(ring, cores[1], touch); });
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const std::uint64_t before = ring.read.load();
    const auto begin = std::chrono::steady_clock::now();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    const std::uint64_t after = ring.read.load();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    ring.stop = true;
    sender.join();
    receiver.join();
    state.SetIterationTime(took.count());
    packets += static_cast<double>(after - before);
    seconds += took.count();
  }
  state.counters["Mpps"] = packets / seconds / 1e6;
  const auto round_trip = app::round_trip_ns(cores[0], cores[1]);
  state.counters["RTT-ns"] = round_trip.value_or(0);
}
BENCHMARK(hop)->Name("hop/full")->Arg(0)->Arg(1)->UseManualTime()->Iterations(1)->Repetitions(5);

}  // namespace
