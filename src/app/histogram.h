// Histogram: many durations, and which of them a given share does not exceed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace sluice::app {

/// Durations in nanoseconds up to 2^40, kept to within 1/32 of their value. Adding allocates
/// nothing.
class Histogram {
 public:
  void add(std::uint64_t nanoseconds);
  [[nodiscard]] std::uint64_t count() const { return count_; }
  [[nodiscard]] std::uint64_t max() const { return max_; }
  /// The least kept value that `share` (0 to 1) of all do not exceed; 0 if there are none.
  [[nodiscard]] std::uint64_t quantile(double share) const;

 private:
  // Below 2 * kParts each value has a bucket; above, each power of two has kParts.
  static constexpr std::uint64_t kParts = 32;
  static constexpr unsigned kPartBits = 5;
  static constexpr std::uint64_t kLargest = (std::uint64_t{1} << 40) - 1;

  [[nodiscard]] static std::size_t bucket_of(std::uint64_t value);
  [[nodiscard]] static std::uint64_t last_of(std::size_t bucket);

  std::array<std::uint64_t, kParts * (40 - kPartBits + 1)> buckets_{};
  std::uint64_t count_ = 0;
  std::uint64_t max_ = 0;
};

}  // namespace sluice::app
