// Micro benchmarks of header parsing, checksums and software segmentation.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "packet/bytes.h"
#include "packet/checksum.h"
#include "packet/headers.h"
#include "packet/offload.h"

namespace {

using namespace sluice::packet;

// TCP over IPv4, just good enough to be parsed and cut.
std::vector<std::byte> tcp_frame(std::size_t length) {
  std::vector<std::byte> frame(length, std::byte{0x5A});
  store_big<std::uint16_t>(frame, 12, kEtherTypeIpv4);
  store_big<std::uint16_t>(frame, 14, 0x4500);
  store_big<std::uint16_t>(frame, 20, 0);
  store_big<std::uint16_t>(frame, 22, 0x4006);
  store_big<std::uint16_t>(frame, 46, 0x5010);
  return frame;
}

void checksum(benchmark::State& state) {
  const auto frame = tcp_frame(static_cast<std::size_t>(state.range(0)));
  for (auto _ : state) {
    benchmark::DoNotOptimize(frame.data());
    benchmark::DoNotOptimize(checksum_sum(frame));
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(checksum)->Arg(60)->Arg(576)->Arg(1514)->Arg(9014)->Arg(65'535);

void parse(benchmark::State& state) {
  const auto frame = tcp_frame(64);
  for (auto _ : state) {
    benchmark::DoNotOptimize(frame.data());
    benchmark::DoNotOptimize(parse_headers(frame));
  }
}
BENCHMARK(parse);

void hash_flow(benchmark::State& state) {
  const auto frame = tcp_frame(64);
  const Headers headers = parse_headers(frame);
  for (auto _ : state) {
    benchmark::DoNotOptimize(frame.data());
    benchmark::DoNotOptimize(flow_hash(frame, headers));
  }
}
BENCHMARK(hash_flow);

void segment(benchmark::State& state) {
  const auto frame = tcp_frame(65'535 + 14 - 20);
  const Offload offload{.flags = kOffloadNeedsChecksum,
                        .gso_type = kGsoTypeTcpIpv4,
                        .gso_size = static_cast<std::uint16_t>(state.range(0)),
                        .csum_start = 34,
                        .csum_offset = 16};
  std::vector<std::byte> out(kFrameMax);
  std::int64_t segments = 0;
  for (auto _ : state) {
    Segmenter segmenter(frame, offload);
    while (segmenter.next(out) != 0) ++segments;
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(frame.size()));
  state.counters["segments"] =
      benchmark::Counter(static_cast<double>(segments), benchmark::Counter::kIsRate);
}
BENCHMARK(segment)->Arg(536)->Arg(1448)->Arg(8948);

}  // namespace
