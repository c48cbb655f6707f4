// Big-endian numbers in a frame: every header field is read and written here.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace sluice::packet {

/// The big-endian number at `at`. Requires: it lies within `bytes`.
template <std::unsigned_integral T>
[[nodiscard]] inline T load_big(std::span<const std::byte> bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.subspan(at, sizeof value).data(), sizeof value);
  return std::endian::native == std::endian::little ? std::byteswap(value) : value;
}

/// Writes `value` at `at`, big-endian. Requires: it fits within `bytes`.
template <std::unsigned_integral T>
inline void store_big(std::span<std::byte> bytes, std::size_t at, T value) {
  if constexpr (std::endian::native == std::endian::little) value = std::byteswap(value);
  std::memcpy(bytes.subspan(at, sizeof value).data(), &value, sizeof value);
}

}  // namespace sluice::packet
