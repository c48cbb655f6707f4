// Setting: one key of the configuration. The same row serves the file, the flags, the checks, the
// help and the documentation, so that none of them can know a key that the others do not.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "switch/options.h"

namespace sluice::control {

/// Where the value goes; its type is the type the key wants.
using Slot = std::variant<bool*, std::uint16_t*, std::uint32_t*, std::size_t*, std::string*,
                          std::chrono::microseconds*, std::chrono::seconds*, fabric::Forward*,
                          fabric::PollMode*, std::optional<fabric::MacAddress>*,
                          std::vector<std::uint16_t>*>;

/// A value as it was written: of one of the types a key can want, or (monostate) of none of them.
using Value =
    std::variant<std::monostate, bool, std::int64_t, std::string, std::vector<std::int64_t>>;

/// Who wrote it: only the wording of a cure depends on this.
enum class Form : std::uint8_t { kFile, kFlag };

struct Setting {
  std::string_view name{};         // In the file and, for a port, within its flag.
  std::string_view placeholder{};  // In help texts; empty for on/off.
  std::int64_t min = 0;            // Of a number, of the bytes of a text, or of a list's members.
  std::int64_t max = 0;
  std::span<const std::uint32_t> choices{};  // All values of a number, if they are that few.
  std::string_view unit{};                   // "microseconds", or empty.
  std::string_view help{};                   // One sentence without its full stop.
  std::string_view section{};  // Table of the file; empty: top level, or a port's own table.
  std::string_view flag{};     // Flag of `sluice run`, without dashes; empty for keys of a port.
  bool (*valid)(std::string_view) = nullptr;  // Further rule for a text, ...
  std::string_view valid_words{};             // ... and how it is said.
};

/// A row of a table of keys of T.
template <class T>
struct Key {
  Setting setting;
  Slot (*slot)(T&);
};

struct Fault {
  std::string cause;
  std::string cure;
};

/// Puts `value` into `slot` if it has the right type and range; else leaves `slot` as it was.
/// `text` is the value as a person would recognise it.
[[nodiscard]] std::optional<Fault> assign(const Setting& setting, Slot slot, const Value& value,
                                          std::string_view text, Form form);
/// The same for the text of a flag.
[[nodiscard]] std::optional<Fault> assign_text(const Setting& setting, Slot slot,
                                               std::string_view text);

/// What is right for a key, in words: "a whole number from 1 to 127".
[[nodiscard]] std::string expected(const Setting& setting, Slot slot, Form form);
/// The value in `slot`, as it is written in a file; empty if it is absent.
[[nodiscard]] std::string shown(Slot slot);

/// "52:54:00:12:34:56".
[[nodiscard]] std::string to_string(const fabric::MacAddress& mac);
/// Errors: nullopt unless it is six pairs of hexadecimal digits.
[[nodiscard]] std::optional<fabric::MacAddress> parse_mac(std::string_view text);
[[nodiscard]] std::string_view to_string(fabric::Forward forward);
[[nodiscard]] std::string_view to_string(fabric::PollMode poll);

/// `text` between quotes, escaped as TOML (and JSON) want it.
[[nodiscard]] std::string in_quotes(std::string_view text);
/// For a message: between single quotes, as messages name things, and cut to a length that fits.
[[nodiscard]] std::string excerpt(std::string_view text);

}  // namespace sluice::control
