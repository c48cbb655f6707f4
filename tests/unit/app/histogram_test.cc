// Histogram against a sorted list of the same values.
#include "app/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace sluice::app {
namespace {

TEST(Histogram, IsEmptyAtFirst) {
  const Histogram none;
  EXPECT_EQ(none.count(), 0U);
  EXPECT_EQ(none.quantile(0.5), 0U);
  EXPECT_EQ(none.max(), 0U);
}

TEST(Histogram, SmallValuesAreExact) {
  Histogram all;
  for (std::uint64_t i = 1; i <= 60; ++i) all.add(i);
  EXPECT_EQ(all.quantile(0), 1U);
  EXPECT_EQ(all.quantile(0.5), 30U);
  EXPECT_EQ(all.quantile(0.99), 60U);
  EXPECT_EQ(all.quantile(1), 60U);
}

TEST(Histogram, EveryQuantileIsThatOfTheSortedValuesToWithinAThirtySecond) {
  std::mt19937_64 random(7);  // NOLINT: the same each time.
  for (const unsigned bits : {8U, 16U, 30U, 40U, 63U}) {
    Histogram histogram;
    std::vector<std::uint64_t> values;
    for (int i = 0; i < 1000; ++i) {
      values.push_back(random() >> (64 - bits) >> (random() % bits));
      histogram.add(values.back());
    }
    std::ranges::sort(values);
    for (const double share : {0.001, 0.1, 0.5, 0.9, 0.99, 0.999, 1.0}) {
      const auto index = static_cast<std::size_t>(std::ceil(share * 1000)) - 1;
      const std::uint64_t exact = std::min(values[index], (std::uint64_t{1} << 40) - 1);
      const std::uint64_t shown = histogram.quantile(share);
      EXPECT_GE(shown, exact) << bits << " bits, " << share;
      EXPECT_LE(shown, exact + exact / 32 + 1) << bits << " bits, " << share;
    }
    EXPECT_EQ(histogram.count(), 1000U);
  }
}

}  // namespace
}  // namespace sluice::app
