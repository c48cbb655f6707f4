// Tables and short numbers.
#include "app/table.h"

#include <gtest/gtest.h>

namespace sluice::app {
namespace {

TEST(Table, AlignsColumnsAndLeavesNoBlanksAtTheEnd) {
  Table table({{"NAME"}, {"COUNT", Align::kRight}, {"TEXT"}});
  table.add({"a", "1", "x"});
  table.add({"longer", "12345678", ""});
  EXPECT_EQ(table.text(),
            "NAME       COUNT  TEXT\n"
            "a              1  x\n"
            "longer  12345678  -\n");
}

TEST(Table, WithoutRowsIsItsHeadings) {
  const Table table({{"A"}, {"B"}});
  EXPECT_TRUE(table.empty());
  EXPECT_EQ(table.text(), "A  B\n");
}

TEST(WithPrefix, HasThreeDigits) {
  EXPECT_EQ(with_prefix(0), "0");
  EXPECT_EQ(with_prefix(999), "999");
  EXPECT_EQ(with_prefix(999.6), "1.00 k");
  EXPECT_EQ(with_prefix(1234), "1.23 k");
  EXPECT_EQ(with_prefix(12345), "12.3 k");
  EXPECT_EQ(with_prefix(123456), "123 k");
  EXPECT_EQ(with_prefix(9996), "10.0 k");
  EXPECT_EQ(with_prefix(999999), "1.00 M");
  EXPECT_EQ(with_prefix(2.5e9), "2.50 G");
  EXPECT_EQ(with_prefix(5e15), "5000 T");
}

TEST(InBytes, NamesTheUnit) {
  EXPECT_EQ(in_bytes(0), "0 B");
  EXPECT_EQ(in_bytes(4096), "4 KiB");
  EXPECT_EQ(in_bytes(1536), "1.5 KiB");
  EXPECT_EQ(in_bytes(std::uint64_t{3} << 30), "3 GiB");
}

}  // namespace
}  // namespace sluice::app
