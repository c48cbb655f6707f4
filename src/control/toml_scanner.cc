// Reading the words of TOML.
#include "control/toml_scanner.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "control/setting.h"

namespace sluice::control {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_bare(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '-' || c == '_';
}
// Of which numbers, dates and the words true and false are made; a comma or blank ends them.
bool is_scalar(char c) {
  return is_bare(c) || c == '+' || c == '.' || c == ':';
}
bool is_control(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (byte < 0x20 && c != '\t') || byte == 0x7f;
}

// Takes the underscores out. False if one does not stand between two digits.
bool without_underscores(std::string_view text, std::string& digits) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      digits += text[i];
    } else if (i == 0 || i + 1 == text.size() || text[i - 1] == '_' || text[i - 1] == '-') {
      return false;
    }
  }
  return true;
}

std::optional<std::int64_t> parse_integer(std::string_view word) {
  int base = 10;
  if (word.starts_with("0x")) base = 16;
  if (word.starts_with("0o")) base = 8;
  if (word.starts_with("0b")) base = 2;
  if (base != 10) {
    word.remove_prefix(2);
  } else if (word.starts_with('+')) {
    word.remove_prefix(1);
    if (word.starts_with('-')) return std::nullopt;
  }
  std::string digits;
  if (!without_underscores(word, digits)) return std::nullopt;
  const std::string_view bare = std::string_view(digits).substr(digits.starts_with('-') ? 1 : 0);
  if (base == 10 && bare.size() > 1 && bare[0] == '0') return std::nullopt;
  if (base != 10 && digits.starts_with('-')) return std::nullopt;
  std::int64_t number = 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, number, base);
  if (error != std::errc{} || stop != end) return std::nullopt;
  return number;
}

bool looks_like_date(std::string_view word) {
  const auto digits = [&](std::size_t count) {
    return word.size() > count && std::all_of(word.begin(), word.begin() + int(count), is_digit);
  };
  return (digits(4) && word[4] == '-') || (digits(2) && word[2] == ':');
}

bool looks_like_fraction(std::string_view word) {
  if (word.starts_with('+') || word.starts_with('-')) word.remove_prefix(1);
  if (word == "inf" || word == "nan") return true;
  return !word.empty() && is_digit(word.front()) &&
         word.find_first_of(".eE") != std::string_view::npos &&
         word.find_first_not_of("0123456789_.eE+-") == std::string_view::npos;
}

}  // namespace

TomlScanner::TomlScanner(std::string_view text) : text_(text) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text_.starts_with(kByteOrderMark)) at_ = line_start_ = kByteOrderMark.size();
}

bool TomlScanner::fail(TextPlace at, std::string cause, std::string cure) {
  if (!error_) error_ = TomlError{at, std::move(cause), std::move(cure)};
  return false;
}

std::size_t TomlScanner::count_of(char c) const {
  return std::min(text_.find_first_not_of(c, at_), text_.size()) - at_;
}

bool TomlScanner::take(char c) {
  if (at_end() || text_[at_] != c) return false;
  ++at_;
  return true;
}

bool TomlScanner::expect(char c, std::string_view where) {
  if (take(c)) return true;
  return fail(place(), fmt::format("'{}' is missing {}", c, where),
              "sluice.toml(5) shows what the file looks like");
}

void TomlScanner::skip_blanks() {
  while (here() == ' ' || here() == '\t') ++at_;
}

void TomlScanner::next_line() {
  ++at_;
  ++line_;
  line_start_ = at_;
}

bool TomlScanner::take_line_end() {
  if (here() == '\r' && at_ + 1 < text_.size() && text_[at_ + 1] == '\n') ++at_;
  if (here() != '\n') return false;
  next_line();
  return true;
}

bool TomlScanner::skip_comment() {
  if (here() != '#') return true;
  while (!at_end() && here() != '\n') {
    const bool line_end = here() == '\r' && at_ + 1 < text_.size() && text_[at_ + 1] == '\n';
    if (line_end) return true;
    if (is_control(here())) {
      return fail(place(), "a control character stands in a comment", "remove it");
    }
    ++at_;
  }
  return true;
}

bool TomlScanner::skip_lines() {
  do {
    skip_blanks();
    if (!skip_comment()) return false;
  } while (take_line_end());
  return true;
}

bool TomlScanner::expect_line_end() {
  skip_blanks();
  if (!skip_comment()) return false;
  if (at_end() || take_line_end()) return true;
  return fail(place(), "something stands behind the value or the brackets",
              "begin a new line, or write # before a remark");
}

bool TomlScanner::read_key(std::string& key) {
  if (here() == '"' || here() == '\'') {
    if (count_of(here()) >= 3) {
      return fail(place(), "a key cannot have three quotes", "use one quote on each side");
    }
    return read_string(key);
  }
  const std::size_t start = at_;
  while (!at_end() && is_bare(here())) ++at_;
  key = text_.substr(start, at_ - start);
  if (!key.empty()) return true;
  return fail(place(), "a key is missing here",
              "write KEY = VALUE, [TABLE] or [[TABLE]]; a key has letters, digits, '-' and '_'");
}

bool TomlScanner::read_string(std::string& text) {
  const char quote = here();
  const std::size_t quotes = count_of(quote);
  if (quotes >= 3) return read_long_string(quote, text);
  if (quotes == 2) {  // An empty one.
    at_ += 2;
    return true;
  }
  return read_short_string(quote, text);
}

// One byte of a string that means itself.
bool TomlScanner::read_plain(std::string& text) {
  if (is_control(here())) {
    return fail(place(), "a control character stands in a text", "write it as an escape, \\u0000");
  }
  text += text_[at_++];
  return true;
}

bool TomlScanner::read_short_string(char quote, std::string& text) {
  const TextPlace start = place();
  ++at_;
  while (!at_end() && here() != '\n' && here() != '\r') {
    if (take(quote)) return true;
    const bool escape = quote == '"' && here() == '\\';
    if (!(escape ? read_escape(text, false) : read_plain(text))) return false;
  }
  return fail(start, "the text has no quote at its end", "end it on the same line");
}

bool TomlScanner::read_long_string(char quote, std::string& text) {
  constexpr std::size_t kQuotes = 3;
  constexpr std::size_t kQuotesMax = 5;  // Two of its own before the three that end it.
  const TextPlace start = place();
  at_ += kQuotes;
  (void)take_line_end();  // The first line end does not belong to the text.
  while (!at_end()) {
    const std::size_t quotes = std::min(count_of(quote), kQuotesMax);
    if (quotes >= kQuotes) {
      text.append(quotes - kQuotes, quote);
      at_ += quotes;
      return true;
    }
    if (take_line_end()) {
      text += '\n';
      continue;
    }
    const bool escape = quote == '"' && here() == '\\';
    if (!(escape ? read_escape(text, true) : read_plain(text))) return false;
  }
  return fail(start, "the text has no three quotes at its end", "end it like it begins");
}

bool TomlScanner::read_escape(std::string& text, bool several_lines) {
  const TextPlace start = place();
  ++at_;
  constexpr std::string_view kNames = "btnfr\"\\";
  constexpr std::string_view kMeanings = "\b\t\n\f\r\"\\";
  const std::size_t known = at_end() ? std::string_view::npos : kNames.find(here());
  if (known != std::string_view::npos) {
    text += kMeanings[known];
    ++at_;
    return true;
  }
  if (take('u')) return read_code_point(4, text);
  if (take('U')) return read_code_point(8, text);
  if (several_lines) {
    // A backslash at the end of a line: the text goes on at the next character.
    skip_blanks();
    if (take_line_end()) {
      do {
        skip_blanks();
      } while (take_line_end());
      return true;
    }
  }
  return fail(start, "a backslash has no meaning here",
              "write \\\\ for a backslash, or put the text between single quotes");
}

bool TomlScanner::read_code_point(std::size_t digits, std::string& text) {
  const TextPlace start = place();
  const std::string_view word = text_.substr(at_, digits);
  std::uint32_t code_point = 0;
  const auto [stop, error] =
      std::from_chars(word.data(), word.data() + word.size(), code_point, 16);
  const bool whole = word.size() == digits && stop == word.data() + word.size();
  if (error != std::errc{} || !whole || !append_utf8(code_point, text)) {
    return fail(start, "this is no character", "write four hexadecimal digits behind \\u");
  }
  at_ += digits;
  return true;
}

bool TomlScanner::read_scalar(TomlValue& value) {
  const TextPlace start = place();
  const std::size_t first = at_;
  while (!at_end() && is_scalar(here())) ++at_;
  const std::string_view word = text_.substr(first, at_ - first);
  if (word == "true" || word == "false") {
    value.kind = TomlValue::Kind::kBoolean;
    value.boolean = word == "true";
  } else if (looks_like_date(word)) {
    value.kind = TomlValue::Kind::kDate;
    // A time of day may follow behind one blank.
    if (word.size() == 10 && looks_like_date(text_.substr(std::min(at_ + 1, text_.size()))) &&
        here() == ' ') {
      ++at_;
      while (!at_end() && is_scalar(here())) ++at_;
    }
  } else if (const auto number = parse_integer(word)) {
    value.kind = TomlValue::Kind::kInteger;
    value.integer = *number;
  } else if (looks_like_fraction(word)) {
    value.kind = TomlValue::Kind::kFraction;
  } else if (word.empty()) {
    return fail(start, "a value is missing here", "write a number, true, false, or \"a text\"");
  } else {
    return fail(start, fmt::format("{} is no value", excerpt(word)),
                "put texts between quotes; numbers are whole and have at most 63 bits");
  }
  return true;
}

}  // namespace sluice::control
