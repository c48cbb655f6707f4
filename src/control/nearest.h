// The known word nearest to a mistyped one.
#pragma once

#include <span>
#include <string_view>

namespace sluice::control {

/// Returns the candidate with the fewest edits from `word`, or "" if none is near enough to be
/// what was meant.
[[nodiscard]] std::string_view nearest(std::string_view word,
                                       std::span<const std::string_view> candidates);

}  // namespace sluice::control
