// Copying frame bytes between buffers: short copies inline, long ones by memcpy.
#pragma once

#include <cstddef>
#include <cstring>

namespace sluice::packet {

/// Copies 16 bytes as one load and one store.
[[gnu::always_inline]] inline void copy_16(std::byte* to, const std::byte* from) {
  std::memcpy(to, from, 16);
}

/// Copies `length` bytes between buffers that do not overlap. Up to 128 bytes cost a few 16-byte
/// moves that may overlap each other, without a call: most frames are that short.
[[gnu::always_inline]] inline void copy_bytes(std::byte* to, const std::byte* from,
                                              std::size_t length) {
  if (length > 128) {
    std::memcpy(to, from, length);
  } else if (length >= 64) {
    copy_16(to, from);
    copy_16(to + 16, from + 16);
    copy_16(to + 32, from + 32);
    copy_16(to + 48, from + 48);
    if (length > 96) {
      copy_16(to + 64, from + 64);
      copy_16(to + 80, from + 80);
    }
    copy_16(to + length - 32, from + length - 32);
    copy_16(to + length - 16, from + length - 16);
  } else if (length >= 32) {
    copy_16(to, from);
    copy_16(to + 16, from + 16);
    copy_16(to + length - 32, from + length - 32);
    copy_16(to + length - 16, from + length - 16);
  } else if (length >= 16) {
    copy_16(to, from);
    copy_16(to + length - 16, from + length - 16);
  } else if (length >= 8) {
    std::memcpy(to, from, 8);
    std::memcpy(to + length - 8, from + length - 8, 8);
  } else if (length >= 4) {
    std::memcpy(to, from, 4);
    std::memcpy(to + length - 4, from + length - 4, 4);
  } else if (length > 0) {
    to[0] = from[0];
    to[length / 2] = from[length / 2];
    to[length - 1] = from[length - 1];
  }
}

}  // namespace sluice::packet
