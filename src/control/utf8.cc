// UTF-8: finding what is not, and making some.
#include "control/toml_scanner.h"

namespace sluice::control {
namespace {

constexpr std::uint32_t kCodePointMax = 0x10ffff;

bool is_surrogate(std::uint32_t code_point) {
  return code_point >= 0xd800 && code_point < 0xe000;
}

// Length of the well-formed character at the front of `text`; 0 if there is none.
std::size_t character_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < length) return 0;
  std::uint32_t code_point = lead & (0x7fU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0U) != 0x80) return 0;
    code_point = code_point << 6 | (byte(i) & 0x3fU);
  }
  // Too long a form for a small number, half of a pair, or beyond the last.
  const std::uint32_t least = length == 2 ? 0x80 : length == 3 ? 0x800 : 0x10000;
  const bool exists = code_point >= least && code_point <= kCodePointMax;
  return exists && !is_surrogate(code_point) ? length : 0;
}

}  // namespace

std::optional<TextPlace> find_bad_utf8(std::string_view text) {
  TextPlace place;
  while (!text.empty()) {
    const std::size_t length = character_length(text);
    if (length == 0) return place;
    place.column += length;
    if (text.front() == '\n') place = {place.line + 1, 1};
    text.remove_prefix(length);
  }
  return std::nullopt;
}

bool append_utf8(std::uint32_t code_point, std::string& text) {
  if (code_point > kCodePointMax || is_surrogate(code_point)) return false;
  const auto put = [&text](std::uint32_t byte) { text += static_cast<char>(byte); };
  const auto put_rest = [&put](std::uint32_t bits) { put(0x80 | (bits & 0x3f)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xc0 | code_point >> 6);
    put_rest(code_point);
  } else if (code_point < 0x10000) {
    put(0xe0 | code_point >> 12);
    put_rest(code_point >> 6);
    put_rest(code_point);
  } else {
    put(0xf0 | code_point >> 18);
    put_rest(code_point >> 12);
    put_rest(code_point >> 6);
    put_rest(code_point);
  }
  return true;
}

}  // namespace sluice::control
