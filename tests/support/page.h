// Numbers at the edges of address arithmetic.
#pragma once

#include <cstdint>
#include <limits>

namespace sluice::test {

inline constexpr std::uint64_t kPage = 4096;
inline constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();

}  // namespace sluice::test
