// Reading every byte of a frame, as an application would: what a receiver is measured with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace sluice::packet {

/// The sum of all bytes, taken by words. It depends on each of them, so the reading cannot be left
/// out if the sum is used.
[[nodiscard]] inline std::uint64_t read_all(std::span<const std::byte> bytes) {
  std::uint64_t sum = 0;
  std::size_t at = 0;
  for (; at + sizeof sum <= bytes.size(); at += sizeof sum) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, sizeof word);
    sum += word;
  }
  for (; at < bytes.size(); ++at) sum += std::to_integer<std::uint64_t>(bytes[at]);
  return sum;
}

}  // namespace sluice::packet
