// The TOML reader: what is a value, what is refused and where.
#include "control/toml.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace sluice::control {
namespace {

using Kind = TomlValue::Kind;

TomlValue read(std::string_view text) {
  auto root = parse_toml(text);
  EXPECT_TRUE(root.has_value()) << text << ": " << (root ? "" : root.error().cause);
  return root ? std::move(*root) : TomlValue();
}

// The value of the key `a`.
TomlValue value_of(std::string_view text) {
  return read("a = " + std::string(text)).members["a"];
}

TEST(Toml, IntegersOfAllBases) {
  EXPECT_EQ(value_of("0").integer, 0);
  EXPECT_EQ(value_of("-17").integer, -17);
  EXPECT_EQ(value_of("+1_000").integer, 1000);
  EXPECT_EQ(value_of("0xdead_BEEF").integer, 0xdeadbeef);
  EXPECT_EQ(value_of("0o755").integer, 0755);
  EXPECT_EQ(value_of("0b1101").integer, 13);
  EXPECT_EQ(value_of("9223372036854775807").integer, INT64_MAX);
  EXPECT_EQ(value_of("-9223372036854775808").integer, INT64_MIN);
}

TEST(Toml, BooleansFractionsAndDates) {
  EXPECT_TRUE(value_of("true").boolean);
  EXPECT_EQ(value_of("false").kind, Kind::kBoolean);
  for (const char* text : {"1.5", "-0.1", "6e23", "1_0.0", "inf", "-nan", "1E-3"}) {
    EXPECT_EQ(value_of(text).kind, Kind::kFraction) << text;
  }
  for (const char* text : {"1979-05-27", "07:32:00", "1979-05-27T07:32:00Z", "1979-05-27 07:32:00",
                           "1979-05-27T00:32:00.999-07:00"}) {
    EXPECT_EQ(value_of(text).kind, Kind::kDate) << text;
  }
}

TEST(Toml, TextsOfAllKinds) {
  EXPECT_EQ(value_of(R"("")").text, "");
  EXPECT_EQ(value_of(R"("a\tb\"\\\u00e4\U0001F600")").text, "a\tb\"\\\xc3\xa4\xf0\x9f\x98\x80");
  EXPECT_EQ(value_of(R"('a\tb"')").text, "a\\tb\"");
  EXPECT_EQ(value_of("\"\"\"\nline\r\nnext\"\"\"").text, "line\nnext");
  EXPECT_EQ(value_of("\"\"\"a \\\n   b\"\"\"").text, "a b");
  EXPECT_EQ(value_of("\"\"\"\"a\"\" \"\"\"\"\"").text, "\"a\"\" \"\"");
  EXPECT_EQ(value_of("'''\n'a\\''''").text, "'a\\'");
  EXPECT_EQ(value_of("\"\"\"\"\"\"").text, "");
  EXPECT_EQ(value_of("\"\\u0000\"").text, std::string(1, '\0'));
}

TEST(Toml, ListsMaySpanLinesAndEndWithAComma) {
  EXPECT_EQ(value_of("[]").items.size(), 0U);
  EXPECT_EQ(value_of("[1, 2,]").items.size(), 2U);
  const TomlValue list = value_of("[ # x\n [1], # y\n\n ['a',\n],\n]");
  ASSERT_EQ(list.items.size(), 2U);
  EXPECT_EQ(list.items[1].items[0].text, "a");
}

TEST(Toml, TablesByHeaderByDotsAndInline) {
  const TomlValue root =
      read("a.b = 1\n[t]\nx = {y.z = 2, w = {}}\n[t.u.v]\nk = 3\n[t.u]\nl = 4\n");
  EXPECT_EQ(root.members.at("a").members.at("b").integer, 1);
  const TomlValue& t = root.members.at("t");
  EXPECT_EQ(t.members.at("x").members.at("y").members.at("z").integer, 2);
  EXPECT_EQ(t.members.at("u").members.at("v").members.at("k").integer, 3);
  EXPECT_EQ(t.members.at("u").members.at("l").integer, 4);
}

TEST(Toml, ListsOfTables) {
  const TomlValue root = read("[[p]]\nn = 1\n[[p]]\nn = 2\n[p.sub]\nm = 3\n[[p.q]]\n[[p.q]]\n");
  const TomlValue& list = root.members.at("p");
  ASSERT_EQ(list.items.size(), 2U);
  EXPECT_EQ(list.items[0].members.at("n").integer, 1);
  EXPECT_EQ(list.items[1].members.at("sub").members.at("m").integer, 3);
  EXPECT_EQ(list.items[1].members.at("q").items.size(), 2U);
}

TEST(Toml, KeysBareAndQuoted) {
  const TomlValue root =
      read("a-b_1 = 1\n\"c d\" = 2\n'e.f' = 3\n\"\" = 4\n[ g . \"h\" ]\n1 = 5\n");
  EXPECT_EQ(root.members.at("a-b_1").integer, 1);
  EXPECT_EQ(root.members.at("c d").integer, 2);
  EXPECT_EQ(root.members.at("e.f").integer, 3);
  EXPECT_EQ(root.members.at("").integer, 4);
  EXPECT_EQ(root.members.at("g").members.at("h").members.at("1").integer, 5);
}

TEST(Toml, PlacesAreThoseOfKeysValuesAndHeaders) {
  const TomlValue root = read(
      "\xef\xbb\xbf"
      "a = 1\r\n  b   = [2,\n 3]\n\n[t]\n");
  EXPECT_EQ(root.members.at("a").place, (TextPlace{1, 5}));
  EXPECT_EQ(root.members.at("a").key_place, (TextPlace{1, 1}));
  EXPECT_EQ(root.members.at("b").key_place, (TextPlace{2, 3}));
  EXPECT_EQ(root.members.at("b").items[1].place, (TextPlace{3, 2}));
  EXPECT_EQ(root.members.at("t").place, (TextPlace{5, 1}));
}

TEST(Toml, EmptyTextsAndTextsOfCommentsAreEmptyTables) {
  for (const char* text : {"", "\n", "\r\n", "# x", " \t\n# x\r\n", "\xef\xbb\xbf", "# \xc3\xa4"}) {
    EXPECT_TRUE(read(text).members.empty()) << text;
  }
}

struct TomlRefusal {
  std::string_view text;
  std::size_t line;
  std::size_t column;
  const char* cause;
};

class RefusedToml : public ::testing::TestWithParam<TomlRefusal> {};

TEST_P(RefusedToml, NamesPlaceAndCause) {
  const auto root = parse_toml(GetParam().text);
  ASSERT_FALSE(root.has_value());
  EXPECT_EQ(root.error().place, (TextPlace{GetParam().line, GetParam().column}))
      << root.error().place.line << ":" << root.error().place.column;
  EXPECT_EQ(root.error().cause, GetParam().cause);
  EXPECT_FALSE(root.error().cure.empty());
}

using namespace std::string_view_literals;

INSTANTIATE_TEST_SUITE_P(
    Mistakes, RefusedToml,
    ::testing::Values(
        TomlRefusal{"a"sv, 1, 2, "'=' is missing between key and value"},
        TomlRefusal{"= 1"sv, 1, 1, "a key is missing here"},
        TomlRefusal{"a. = 1"sv, 1, 4, "a key is missing here"},
        TomlRefusal{"\xc3\xa4 = 1"sv, 1, 1, "a key is missing here"},
        TomlRefusal{"'''a''' = 1"sv, 1, 1, "a key cannot have three quotes"},
        TomlRefusal{"a = "sv, 1, 5, "a value is missing here"},
        TomlRefusal{"a = \nb = 1"sv, 1, 5, "a value is missing here"},
        TomlRefusal{"a = [}"sv, 1, 6, "a value is missing here"},
        TomlRefusal{"a = [,]"sv, 1, 6, "a value is missing here"},
        TomlRefusal{"a = [1"sv, 1, 7,
                    "']' is missing at the end of the list, or a comma between its members"},
        TomlRefusal{"a = [1 2]"sv, 1, 8,
                    "']' is missing at the end of the list, or a comma between its members"},
        TomlRefusal{"a = {b = 1"sv, 1, 11, "'}' is missing at the end of the table"},
        TomlRefusal{"a = {b = 1,}"sv, 1, 12, "a key is missing here"},
        TomlRefusal{"a = {\nb = 1}"sv, 1, 6, "a key is missing here"},
        TomlRefusal{"a = 1 b = 2"sv, 1, 7, "something stands behind the value or the brackets"},
        TomlRefusal{"[a] b = 2"sv, 1, 5, "something stands behind the value or the brackets"},
        TomlRefusal{"[a"sv, 1, 3, "']' is missing behind the table's name"},
        TomlRefusal{"[[a]"sv, 1, 5, "']' is missing behind the table's name"},
        TomlRefusal{"[[a] ]"sv, 1, 5, "']' is missing behind the table's name"},
        TomlRefusal{"[?]"sv, 1, 2, "a key is missing here"},
        TomlRefusal{"[]"sv, 1, 2, "a key is missing here"},
        TomlRefusal{"[ [a]]"sv, 1, 3, "a key is missing here"},
        TomlRefusal{"a = 1\na = 2"sv, 2, 1, "'a' is there already"},
        TomlRefusal{"[a]\n[a]"sv, 2, 2, "'a' is there already"},
        TomlRefusal{"a = 1\n[a]"sv, 2, 2, "'a' is there already"},
        TomlRefusal{"a = 1\n[a.b]"sv, 2, 2, "'a' is there already"},
        TomlRefusal{"a = {}\n[a.b]"sv, 2, 2, "'a' is there already"},
        TomlRefusal{"a = {b = {}}\n[[a.b.c]]"sv, 2, 3, "'a' is there already"},
        TomlRefusal{"a.b = 1\n[a]"sv, 2, 2, "'a' is there already"},
        TomlRefusal{"[a.b]\n[a]\nb.c = 1"sv, 3, 1, "'b' is there already"},
        TomlRefusal{"[[a]]\n[a]"sv, 2, 2, "'a' is there already"},
        TomlRefusal{"[a]\n[[a]]"sv, 2, 3, "'a' is there already"},
        TomlRefusal{"a = []\n[[a]]"sv, 2, 3, "'a' is there already"},
        TomlRefusal{"a = {b = 1, b.c = 2}"sv, 1, 13, "'b' is there already"},
        TomlRefusal{"a = \"x"sv, 1, 5, "the text has no quote at its end"},
        TomlRefusal{"a = 'x\n'"sv, 1, 5, "the text has no quote at its end"},
        TomlRefusal{"a = \"\"\"x\n\"\""sv, 1, 5, "the text has no three quotes at its end"},
        TomlRefusal{"a = \"\\q\""sv, 1, 6, "a backslash has no meaning here"},
        TomlRefusal{"a = \"\\"sv, 1, 6, "a backslash has no meaning here"},
        TomlRefusal{"a = \"\\u12\""sv, 1, 8, "this is no character"},
        TomlRefusal{"a = \"\\ud800\""sv, 1, 8, "this is no character"},
        TomlRefusal{"a = \"\\U00110000\""sv, 1, 8, "this is no character"},
        TomlRefusal{"a = \"\x01\""sv, 1, 6, "a control character stands in a text"},
        TomlRefusal{"a = '\x7f'"sv, 1, 6, "a control character stands in a text"},
        TomlRefusal{"a = '''\r'''"sv, 1, 8, "a control character stands in a text"},
        TomlRefusal{"# \0"sv, 1, 3, "a control character stands in a comment"},
        TomlRefusal{"a = 1 # \r"sv, 1, 9, "a control character stands in a comment"},
        TomlRefusal{"a = '\xff'"sv, 1, 6, "the text is not UTF-8"},
        TomlRefusal{"\n\xc0\x80"sv, 2, 1, "the text is not UTF-8"},
        TomlRefusal{"\xed\xa0\x80"sv, 1, 1, "the text is not UTF-8"},
        TomlRefusal{"\xf4\x90\x80\x80"sv, 1, 1, "the text is not UTF-8"},
        TomlRefusal{"\xe2\x82"sv, 1, 1, "the text is not UTF-8"},
        TomlRefusal{"a = yes"sv, 1, 5, "'yes' is no value"},
        TomlRefusal{"a = 01"sv, 1, 5, "'01' is no value"},
        TomlRefusal{"a = 1__0"sv, 1, 5, "'1__0' is no value"},
        TomlRefusal{"a = _1"sv, 1, 5, "'_1' is no value"},
        TomlRefusal{"a = 1_"sv, 1, 5, "'1_' is no value"},
        TomlRefusal{"a = +-1"sv, 1, 5, "'+-1' is no value"},
        TomlRefusal{"a = 0x"sv, 1, 5, "'0x' is no value"},
        TomlRefusal{"a = -0x1"sv, 1, 5, "'-0x1' is no value"},
        TomlRefusal{"a = 9223372036854775808"sv, 1, 5, "'9223372036854775808' is no value"},
        TomlRefusal{"a = TRUE"sv, 1, 5, "'TRUE' is no value"}));

TEST(Toml, NestingHasALimitInEveryDirection) {
  const auto repeated = [](std::string_view part, int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += part;
    return text;
  };
  EXPECT_TRUE(parse_toml("a = " + repeated("[", 16) + repeated("]", 16)).has_value());
  for (const std::string& text :
       {"a = " + repeated("[", 17), "a = " + repeated("[", 100000),
        "a = " + repeated("{a=", 100000), "a" + repeated(".a", 100000) + " = 1",
        "[a" + repeated(".a", 100000) + "]", "a = [" + repeated("{b = [", 100000)}) {
    const auto root = parse_toml(text);
    ASSERT_FALSE(root.has_value());
    EXPECT_EQ(root.error().cause, "nested more than 16 deep");
  }
}

TEST(Toml, AMegabyteOfKeysOrTablesIsReadInTime) {
  std::string keys;
  std::string tables;
  for (int i = 0; keys.size() < 1 << 20; ++i) keys += "k" + std::to_string(i) + "=1\n";
  while (tables.size() < 1 << 20) tables += "[[a]]\nb=1\n";
  EXPECT_TRUE(parse_toml(keys).has_value());
  EXPECT_TRUE(parse_toml(tables).has_value());
}

TEST(Toml, EveryCutOfATextIsReadOrRefused) {
  const std::string text =
      "[a.'b']\nc = [\"x\\\"\\u00e4\", '''y''''', {d = \"\"\"\\\\\"\"\"}] # \xc3\xa4\n[[e]]\nf = "
      "1e5\n";
  ASSERT_TRUE(parse_toml(text).has_value());
  for (std::size_t i = 0; i < text.size(); ++i)
    (void)parse_toml(std::string_view(text).substr(0, i));
}

}  // namespace
}  // namespace sluice::control
