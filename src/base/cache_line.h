// The cache line: its size, and prefetching by name.
#pragma once

#include <cstddef>

namespace sluice {

inline constexpr std::size_t kCacheLine = 64;

/// Asks for the line of `address` to be read soon. Harmless for any address.
inline void prefetch_for_read(const void* address) {
  __builtin_prefetch(address, 0, 3);
}
/// The same for a line that will be written: asks for it exclusively, so that the store after it
/// costs one transfer between cores instead of two.
inline void prefetch_for_write(const void* address) {
#ifdef __x86_64__
  // The built-in becomes a prefetch for reading unless the compiler may assume PREFETCHW, which
  // x86-64-v2 does not; every processor of that level executes it, at worst as a no-op.
  __asm__("prefetchw %0" : : "m"(*static_cast<const char*>(address)));
#else
  __builtin_prefetch(address, 1, 3);
#endif
}

}  // namespace sluice
