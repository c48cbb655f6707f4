// The cache line: its size, and prefetching by name.
#pragma once

#include <cstddef>

namespace sluice {

inline constexpr std::size_t kCacheLine = 64;

/// Asks for the line of `address` to be read soon. Harmless for any address.
inline void prefetch_for_read(const void* address) { __builtin_prefetch(address, 0, 3); }
/// The same for a line that will be written.
inline void prefetch_for_write(const void* address) { __builtin_prefetch(address, 1, 3); }

}  // namespace sluice
