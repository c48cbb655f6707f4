// How a value of each type is read, checked, worded and written.
#include "control/setting.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>

namespace sluice::control {
namespace {

using fabric::Forward;
using fabric::MacAddress;
using fabric::PollMode;

template <class E>
struct Word {
  std::string_view text;
  E value;
};
constexpr std::array<Word<Forward>, 2> kForwards = {
    {{"bridge", Forward::kBridge}, {"patch", Forward::kPatch}}};
constexpr std::array<Word<PollMode>, 3> kPollModes = {{{"busy", PollMode::kBusy},
                                                       {"adaptive", PollMode::kAdaptive},
                                                       {"interrupt", PollMode::kInterrupt}}};

constexpr std::span<const Word<Forward>> words_of(const Forward*) {
  return kForwards;
}
constexpr std::span<const Word<PollMode>> words_of(const PollMode*) {
  return kPollModes;
}

template <class E>
std::string_view word_of(E value) {
  for (const auto& word : words_of(&value)) {
    if (word.value == value) return word.text;
  }
  return "?";
}

template <class T>
inline constexpr bool kIsWord = std::is_same_v<T, Forward> || std::is_same_v<T, PollMode>;
template <class T>
inline constexpr bool kIsDuration =
    std::is_same_v<T, std::chrono::microseconds> || std::is_same_v<T, std::chrono::seconds>;
template <class T>
inline constexpr bool kIsNumber = std::is_integral_v<T> && !std::is_same_v<T, bool>;

// Puts a value into its slot; false if it has the wrong type or is not allowed.
class Assigner {
 public:
  Assigner(const Setting& setting, const Value& value) : setting_(setting), value_(value) {}

  bool operator()(bool* slot) const {
    const bool* given = std::get_if<bool>(&value_);
    if (given != nullptr) *slot = *given;
    return given != nullptr;
  }

  template <class T>
    requires(kIsNumber<T> || kIsDuration<T>)
  bool operator()(T* slot) const {
    const auto* given = std::get_if<std::int64_t>(&value_);
    if (given == nullptr || !in_range(*given)) return false;
    *slot = static_cast<T>(*given);
    return true;
  }

  bool operator()(std::string* slot) const {
    const auto* given = std::get_if<std::string>(&value_);
    if (given == nullptr || !in_range(static_cast<std::int64_t>(given->size()))) return false;
    if (setting_.valid != nullptr && !setting_.valid(*given)) return false;
    *slot = *given;
    return true;
  }

  template <class T>
    requires kIsWord<T>
  bool operator()(T* slot) const {
    const auto* given = std::get_if<std::string>(&value_);
    if (given == nullptr) return false;
    for (const auto& word : words_of(slot)) {
      if (word.text != *given) continue;
      *slot = word.value;
      return true;
    }
    return false;
  }

  bool operator()(std::optional<MacAddress>* slot) const {
    const auto* given = std::get_if<std::string>(&value_);
    if (given == nullptr) return false;
    const auto mac = parse_mac(*given);
    if (!mac) return false;
    // The address of one port: neither a group's (first bit) nor nobody's.
    const bool group = (std::to_integer<unsigned>((*mac)[0]) & 1) != 0;
    if (group || *mac == MacAddress{}) return false;
    *slot = *mac;
    return true;
  }

  bool operator()(std::vector<std::uint16_t>* slot) const {
    const auto* given = std::get_if<std::vector<std::int64_t>>(&value_);
    if (given == nullptr || given->empty()) return false;
    std::vector<std::uint16_t> numbers;
    for (const std::int64_t number : *given) {
      if (!in_range(number)) return false;
      numbers.push_back(static_cast<std::uint16_t>(number));
    }
    *slot = std::move(numbers);
    return true;
  }

 private:
  [[nodiscard]] bool in_range(std::int64_t number) const {
    const auto& choices = setting_.choices;
    if (!choices.empty() && std::ranges::find(choices, number) == choices.end()) return false;
    return number >= setting_.min && number <= setting_.max;
  }
  const Setting& setting_;
  const Value& value_;
};

std::optional<std::int64_t> parse_number(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// "2,3-5" as 2, 3, 4, 5. A list that would be absurdly long is refused before it is made.
std::optional<std::vector<std::int64_t>> parse_list(std::string_view text) {
  constexpr std::size_t kListMax = 4096;
  std::vector<std::int64_t> numbers;
  while (true) {
    const std::size_t comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    const std::size_t dash = item.find('-', 1);
    const auto first = parse_number(item.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : parse_number(item.substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first) return std::nullopt;
    if (static_cast<std::uint64_t>(*last - *first) >= kListMax - numbers.size()) {
      return std::nullopt;
    }
    for (std::int64_t number = *first; number <= *last; ++number) numbers.push_back(number);
    if (comma == std::string_view::npos) return numbers;
    text.remove_prefix(comma + 1);
  }
}

// What the text of a flag means for the type that the slot wants.
Value value_of(Slot slot, std::string_view text) {
  return std::visit(
      [text](auto* typed) -> Value {
        using T = std::remove_pointer_t<decltype(typed)>;
        if constexpr (std::is_same_v<T, bool>) {
          if (text == "on" || text == "1") return true;  // DPDK's users are used to numbers.
          if (text == "off" || text == "0") return false;
          return std::monostate{};
        } else if constexpr (kIsNumber<T> || kIsDuration<T>) {
          const auto number = parse_number(text);
          return number ? Value(*number) : Value();
        } else if constexpr (std::is_same_v<T, std::vector<std::uint16_t>>) {
          auto numbers = parse_list(text);
          return numbers ? Value(std::move(*numbers)) : Value();
        } else {
          return std::string(text);
        }
      },
      slot);
}

template <class T>
std::string expected_for(const Setting& setting, const T* slot, Form form) {
  const bool file = form == Form::kFile;
  if constexpr (std::is_same_v<T, bool>) {
    return file ? "true or false" : "on or off";
  } else if constexpr (kIsNumber<T> || kIsDuration<T>) {
    if (!setting.choices.empty()) {
      return fmt::format("one of {}, in {}", fmt::join(setting.choices, ", "), setting.unit);
    }
    return fmt::format("a whole number from {} to {}{}{}", setting.min, setting.max,
                       setting.unit.empty() ? "" : ", in ", setting.unit);
  } else if constexpr (kIsWord<T>) {
    std::vector<std::string> words;
    for (const auto& word : words_of(slot)) {
      words.push_back(file ? in_quotes(word.text) : std::string(word.text));
    }
    const std::string last = std::move(words.back());
    words.pop_back();
    return fmt::format("{} or {}", fmt::join(words, ", "), last);
  } else if constexpr (std::is_same_v<T, std::optional<MacAddress>>) {
    return fmt::format("a unicast address such as {}",
                       file ? "\"52:54:00:12:34:56\"" : "52:54:00:12:34:56");
  } else if constexpr (std::is_same_v<T, std::vector<std::uint16_t>>) {
    return fmt::format("core numbers from {} to {}, such as {}", setting.min, setting.max,
                       file ? "[2, 3]" : "2,3 or 2-5");
  } else {
    return fmt::format("{}{}", setting.valid_words, file ? ", between quotes" : "");
  }
}

// Escaped as TOML and JSON want it.
std::string between(char quote, std::string_view text) {
  std::string out(1, quote);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == quote || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\u{:04x}", byte);
    } else {
      out += c;
    }
  }
  return out + quote;
}

}  // namespace

std::optional<Fault> assign(const Setting& setting, Slot slot, const Value& value,
                            std::string_view text, Form form) {
  if (std::visit(Assigner(setting, value), slot)) return std::nullopt;
  return Fault{fmt::format("'{}' cannot be {}", setting.name, text),
               fmt::format("give {}", expected(setting, slot, form))};
}

std::optional<Fault> assign_text(const Setting& setting, Slot slot, std::string_view text) {
  return assign(setting, slot, value_of(slot, text), excerpt(text), Form::kFlag);
}

std::string expected(const Setting& setting, Slot slot, Form form) {
  return std::visit([&](auto* typed) { return expected_for(setting, typed, form); }, slot);
}

std::string shown(Slot slot) {
  return std::visit(
      [](auto* typed) -> std::string {
        using T = std::remove_pointer_t<decltype(typed)>;
        if constexpr (std::is_same_v<T, bool>) {
          return *typed ? "true" : "false";
        } else if constexpr (kIsNumber<T>) {
          return fmt::format("{}", *typed);
        } else if constexpr (kIsDuration<T>) {
          return fmt::format("{}", typed->count());
        } else if constexpr (kIsWord<T>) {
          return in_quotes(word_of(*typed));
        } else if constexpr (std::is_same_v<T, std::optional<MacAddress>>) {
          return *typed ? in_quotes(to_string(**typed)) : "";
        } else if constexpr (std::is_same_v<T, std::vector<std::uint16_t>>) {
          return typed->empty() ? "" : fmt::format("[{}]", fmt::join(*typed, ", "));
        } else {
          return typed->empty() ? "" : in_quotes(*typed);
        }
      },
      slot);
}

std::string to_string(const MacAddress& mac) {
  std::string text;
  for (const std::byte byte : mac) {
    fmt::format_to(std::back_inserter(text), "{}{:02x}", text.empty() ? "" : ":",
                   std::to_integer<unsigned>(byte));
  }
  return text;
}

std::optional<MacAddress> parse_mac(std::string_view text) {
  constexpr std::size_t kLength = 17;
  if (text.size() != kLength) return std::nullopt;
  MacAddress mac{};
  for (std::size_t i = 0; i < mac.size(); ++i) {
    const char* digits = text.data() + i * 3;
    std::uint8_t byte = 0;
    const auto [end, error] = std::from_chars(digits, digits + 2, byte, 16);
    if (error != std::errc{} || end != digits + 2) return std::nullopt;
    if (i + 1 < mac.size() && digits[2] != ':') return std::nullopt;
    mac[i] = std::byte{byte};
  }
  return mac;
}

std::string_view to_string(Forward forward) {
  return word_of(forward);
}
std::string_view to_string(PollMode poll) {
  return word_of(poll);
}

std::string in_quotes(std::string_view text) {
  return between('"', text);
}

std::string excerpt(std::string_view text) {
  constexpr std::size_t kShownMax = 60;
  const bool whole = text.size() <= kShownMax;
  return between('\'', text.substr(0, kShownMax)) + (whole ? "" : "...");
}

}  // namespace sluice::control
