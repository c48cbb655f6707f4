// TomlScanner: the words of a TOML text: keys, strings, numbers, and the blanks between them.
//
// The first mistake is kept, and everything after it fails, so that callers need only pass on
// false. Every function that succeeds moves forward; none reads beyond the text.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "control/toml.h"

namespace sluice::control {

class TomlScanner {
 public:
  explicit TomlScanner(std::string_view text);

  [[nodiscard]] bool at_end() const { return at_ >= text_.size(); }
  /// The next byte, or zero at the end.
  [[nodiscard]] char here() const { return at_end() ? '\0' : text_[at_]; }
  [[nodiscard]] TextPlace place() const { return {line_, at_ - line_start_ + 1}; }

  /// Steps over `c` if it is next.
  bool take(char c);
  /// The same, but its absence is a mistake.
  bool expect(char c, std::string_view where);
  void skip_blanks();
  /// Over blanks, comments and line ends: between the members of a list.
  bool skip_lines();
  /// Over blanks and a comment to the next line, or the end.
  bool expect_line_end();

  /// A bare or quoted part of a key.
  bool read_key(std::string& key);
  bool read_string(std::string& text);
  /// A boolean, number or date.
  bool read_scalar(TomlValue& value);

  /// Keeps the mistake, unless there is one already. Returns false.
  bool fail(TextPlace at, std::string cause, std::string cure);
  [[nodiscard]] const std::optional<TomlError>& error() const { return error_; }

 private:
  bool take_line_end();
  bool skip_comment();
  bool read_short_string(char quote, std::string& text);
  bool read_long_string(char quote, std::string& text);
  bool read_escape(std::string& text, bool several_lines);
  bool read_code_point(std::size_t digits, std::string& text);
  bool read_plain(std::string& text);
  void next_line();
  [[nodiscard]] std::size_t count_of(char c) const;

  std::string_view text_;
  std::size_t at_ = 0;
  std::size_t line_ = 1;
  std::size_t line_start_ = 0;
  std::optional<TomlError> error_;
};

/// The place of the first byte that is not UTF-8, if there is one.
[[nodiscard]] std::optional<TextPlace> find_bad_utf8(std::string_view text);

/// Appends a code point as UTF-8. False for one that does not exist.
bool append_utf8(std::uint32_t code_point, std::string& text);

}  // namespace sluice::control
