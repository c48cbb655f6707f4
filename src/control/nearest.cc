// Edit distance with a limit on the length, so that a hostile word costs nothing.
#include "control/nearest.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

namespace sluice::control {
namespace {

constexpr std::size_t kWordMax = 40;
constexpr std::size_t kStemMin = 3;  // So much of a word's beginning is enough to know it.

// Levenshtein's distance by two rows. Requires both words to be at most kWordMax long.
std::size_t edits(std::string_view a, std::string_view b) {
  std::array<std::size_t, kWordMax + 1> above{};
  std::array<std::size_t, kWordMax + 1> row{};
  for (std::size_t j = 0; j <= b.size(); ++j) above[j] = j;
  for (std::size_t i = 0; i < a.size(); ++i) {
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = above[j] + (a[i] == b[j] ? 0 : 1);
      row[j + 1] = std::min({replaced, above[j + 1] + 1, row[j] + 1});
    }
    std::swap(above, row);
  }
  return above[b.size()];
}

}  // namespace

std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates) {
  if (word.empty() || word.size() > kWordMax) return {};
  std::string_view best;
  std::size_t best_edits = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (const std::string_view candidate : candidates) {
    if (word.size() >= kStemMin && candidate.starts_with(word)) return candidate;
    if (candidate.size() > kWordMax) continue;
    const std::size_t distance = edits(word, candidate);
    if (distance < best_edits && distance < candidate.size()) {
      best = candidate;
      best_edits = distance;
    }
  }
  return best;
}

}  // namespace sluice::control
