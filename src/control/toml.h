// TOML 1.0 as far as a configuration needs it, read from hostile text.
//
// Of our own because toml++ 3.3, which Debian has, states to the compiler what its input need not
// satisfy: "[?]" or "a = [}" is undefined behaviour there. Fractions and dates are recognised, so
// that they can be named in a message, but their value is not kept.
//
// Limits: nesting as in kTomlDepthMax; everything else by the size of the text.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::control {

inline constexpr int kTomlDepthMax = 16;

/// A place in a text, both counted from 1; columns count bytes.
struct TextPlace {
  std::size_t line = 1;
  std::size_t column = 1;
  friend auto operator<=>(const TextPlace&, const TextPlace&) = default;
};

struct TomlValue {
  enum class Kind : std::uint8_t { kBoolean, kInteger, kText, kFraction, kDate, kList, kTable };
  /// Who made a table or a list; decides who may add to it.
  enum class Origin : std::uint8_t {
    kImplied,  // By a longer header: [a] by [a.b].
    kHeader,   // By a header of its own.
    kDotted,   // By a dotted key.
    kValue,    // By a value: complete as it stands.
  };

  Kind kind = Kind::kTable;
  Origin origin = Origin::kImplied;
  TextPlace place;      // Of the value, ...
  TextPlace key_place;  // ... and of its key, if it has one.
  bool boolean = false;
  std::int64_t integer = 0;
  std::string text;
  std::vector<TomlValue> items;
  std::map<std::string, TomlValue, std::less<>> members;
};

struct TomlError {
  TextPlace place;
  std::string cause;
  std::string cure;
};

/// Reads a whole document into its root table.
[[nodiscard]] std::expected<TomlValue, TomlError> parse_toml(std::string_view text);

}  // namespace sluice::control
