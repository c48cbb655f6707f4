// Random: a small generator whose seed a failing test can print.
#pragma once

#include <cstdint>

namespace sluice::test {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  /// 64 mixed bits (the SplitMix64 sequence).
  std::uint64_t next() {
    state_ += 0x9E3779B97F4A7C15U;
    std::uint64_t mixed = state_;
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9U;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBU;
    return mixed ^ (mixed >> 31);
  }
  /// A number from 0 to limit - 1. Requires: limit > 0.
  std::uint32_t below(std::uint64_t limit) { return static_cast<std::uint32_t>(next() % limit); }
  std::uint16_t word() { return static_cast<std::uint16_t>(next()); }
  /// True once in `n` times.
  bool one_in(std::uint32_t n) { return below(n) == 0; }

 private:
  std::uint64_t state_;
};

}  // namespace sluice::test
