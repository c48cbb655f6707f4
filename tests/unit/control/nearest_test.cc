// The nearest known word.
#include "control/nearest.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace sluice::control {
namespace {

constexpr std::array<std::string_view, 4> kWords = {"queues", "in_order", "mac", "mtu"};

TEST(Nearest, FindsAWordWithOneLetterWrong) {
  EXPECT_EQ(nearest("quues", kWords), "queues");
  EXPECT_EQ(nearest("in-order", kWords), "in_order");
}

TEST(Nearest, FindsAWordByItsBeginning) {
  EXPECT_EQ(nearest("que", kWords), "queues");
}

TEST(Nearest, FindsNothingForAWordThatIsFarFromAll) {
  EXPECT_EQ(nearest("bandwidth", kWords), "");
  EXPECT_EQ(nearest("", kWords), "");
}

TEST(Nearest, DoesNotReplaceEveryLetterOfAShortWord) {
  EXPECT_EQ(nearest("xyz", kWords), "");
}

TEST(Nearest, DoesNotLookAtAWordOfAnyLength) {
  EXPECT_EQ(nearest(std::string(100000, 'q'), kWords), "");
}

}  // namespace
}  // namespace sluice::control
