// Micro benchmarks of address translation (1 to 509 regions, hit and miss) and of the dirty log.
#include <benchmark/benchmark.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "memory/dirty_log.h"
#include "memory/guest_memory.h"

namespace {

using namespace sluice;
using namespace sluice::memory;

constexpr std::uint64_t kRegion = 64 * 1024;
constexpr std::size_t kAddresses = 4096;

std::shared_ptr<const GuestMemory> table_of(std::uint64_t regions) {
  const UniqueFd fd(::memfd_create("bench", MFD_CLOEXEC));
  if (::ftruncate(fd.get(), static_cast<off_t>(regions * kRegion)) != 0) return nullptr;
  std::vector<std::shared_ptr<const Region>> all;
  for (std::uint64_t i = 0; i < regions; ++i) {
    // With gaps, as guests have them.
    auto region = Region::map(
        {GuestAddress(2 * i * kRegion), kRegion, UserAddress(i * kRegion), i * kRegion}, fd.get());
    if (!region.has_value()) return nullptr;
    all.push_back(*region);
  }
  auto memory = GuestMemory::create(std::move(all));
  return memory.has_value() ? *memory : nullptr;
}

// Addresses in random regions: all misses but 1 of `regions`.
void translate_anywhere(benchmark::State& state) {
  const auto regions = static_cast<std::uint64_t>(state.range(0));
  const auto memory = table_of(regions);
  std::mt19937_64 random(1);
  std::vector<GuestAddress> addresses;
  for (std::size_t i = 0; i < kAddresses; ++i) {
    addresses.emplace_back(random() % regions * 2 * kRegion + random() % (kRegion - 2048));
  }
  RegionHint hint;
  std::size_t i = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(memory->translate(addresses[i++ % kAddresses], 1514, hint));
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(translate_anywhere)->Arg(1)->Arg(2)->Arg(8)->Arg(64)->Arg(509);

// All addresses in the last region: the hint hits.
void translate_again(benchmark::State& state) {
  const auto regions = static_cast<std::uint64_t>(state.range(0));
  const auto memory = table_of(regions);
  RegionHint hint;
  std::uint64_t address = 2 * (regions - 1) * kRegion;
  for (auto _ : state) {
    benchmark::DoNotOptimize(memory->translate(GuestAddress(address), 1514, hint));
    address ^= 2048;
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(translate_again)->Arg(1)->Arg(509);

void back_to_guest_address(benchmark::State& state) {
  const auto regions = static_cast<std::uint64_t>(state.range(0));
  const auto memory = table_of(regions);
  const std::byte* host = memory->translate(GuestAddress(2 * (regions / 2) * kRegion), 1);
  for (auto _ : state) {
    benchmark::DoNotOptimize(host);
    benchmark::DoNotOptimize(memory->guest_address(host));
  }
}
BENCHMARK(back_to_guest_address)->Arg(1)->Arg(8)->Arg(509);

void mark_dirty(benchmark::State& state) {
  const UniqueFd fd(::memfd_create("bench", MFD_CLOEXEC));
  if (::ftruncate(fd.get(), 4096) != 0) return;
  const auto log = DirtyLog::map(fd.get(), 0, 4096);
  std::uint64_t address = 0;
  for (auto _ : state) {
    log->mark(GuestAddress(address), 1526);
    address = (address + 2368) % (100U << 20);
  }
}
BENCHMARK(mark_dirty);

}  // namespace
