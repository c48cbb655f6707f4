// Buckets whose width grows with their value.
#include "app/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace sluice::app {

std::size_t Histogram::bucket_of(std::uint64_t value) {
  if (value < 2 * kParts) return value;
  // The highest kPartBits + 1 bits of the value; the first of them is always set.
  const unsigned shift = static_cast<unsigned>(std::bit_width(value)) - kPartBits - 1;
  return shift * kParts + (value >> shift);
}

std::uint64_t Histogram::last_of(std::size_t bucket) {
  if (bucket < 2 * kParts) return bucket;
  const std::uint64_t shift = bucket / kParts - 1;
  const std::uint64_t first = (bucket - shift * kParts) << shift;
  return first + (std::uint64_t{1} << shift) - 1;
}

void Histogram::add(std::uint64_t nanoseconds) {
  const std::uint64_t value = std::min(nanoseconds, kLargest);
  ++buckets_[bucket_of(value)];
  ++count_;
  max_ = std::max(max_, value);
}

std::uint64_t Histogram::quantile(double share) const {
  const auto wanted = static_cast<std::uint64_t>(std::ceil(share * static_cast<double>(count_)));
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    seen += buckets_[i];
    if (seen != 0 && seen >= wanted) return std::min(last_of(i), max_);
  }
  return 0;
}

}  // namespace sluice::app
