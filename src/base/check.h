// CHECK: stops the process when one of our own invariants is broken. Never for peers' input.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace sluice::detail {

[[noreturn, gnu::cold, gnu::noinline]] inline void check_failed(const char* text, const char* file,
                                                                int line) {
  std::fprintf(stderr, "sluice: broken invariant at %s:%d: %s\n", file, line, text);
  std::abort();
}

}  // namespace sluice::detail

// CHECK(condition, "what must hold"): for bugs of ours only; input from outside gets an Error.
#define CHECK(condition, text)                                    \
  do {                                                            \
    if (!(condition)) [[unlikely]] {                              \
      ::sluice::detail::check_failed((text), __FILE__, __LINE__); \
    }                                                             \
  } while (false)
