// Turns rows of the tables of keys into lines of help.
#include "app/help.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>

#include "control/keys.h"

namespace sluice::app {
namespace {

using control::Slot;

constexpr std::size_t kWidth = 96;      // Of a terminal, at most.
constexpr std::size_t kKeyColumn = 25;  // Where the description of a port's key begins.

// Marks of the documentation's format, and quotes of the file's, have no place on a terminal.
std::string plain(std::string_view text) {
  std::string out;
  std::ranges::copy_if(text, std::back_inserter(out), [](char c) { return c != '`' && c != '"'; });
  return out;
}

std::string default_text(Slot slot) {
  if (bool** flag = std::get_if<bool*>(&slot)) return **flag ? "on" : "off";
  return plain(control::shown(slot));
}

template <class T>
void list_keys(std::string& out, std::string_view flag, std::span<const control::Key<T>> keys) {
  T defaults;
  out += fmt::format("Keys of {}:\n", flag);
  for (const auto& key : keys) {
    const auto& setting = key.setting;
    const Slot slot = key.slot(defaults);
    const bool flag_like = std::holds_alternative<bool*>(slot);
    const std::string left =
        fmt::format("{}={}", setting.name, flag_like ? "on|off" : setting.placeholder);
    out += fmt::format("  {:<{}} {}\n", left, kKeyColumn - 3, help_text(setting, slot));
  }
}

// Where the description begins: behind the first wide gap, or at the first letter.
std::size_t description_column(std::string_view line) {
  const std::size_t first = std::min(line.find_first_not_of(' '), line.size());
  const std::size_t gap = line.find("  ", first);
  const std::size_t column =
      gap == std::string_view::npos ? std::string_view::npos : line.find_first_not_of(' ', gap);
  if (column != std::string_view::npos && column < kWidth / 2) return column;
  // A key and its text are one blank apart if the key is as long as the column is wide.
  const bool listed = line.find('=') < line.find(' ', first);
  return first == 2 && listed ? kKeyColumn : first;
}

void wrap_line(std::string& out, std::string_view line) {
  const std::size_t column = description_column(line);
  std::size_t room = kWidth;
  while (line.size() > room) {
    const std::size_t blank = line.rfind(' ', room);
    // Nothing to break at, or only the blanks before the description.
    if (blank == std::string_view::npos || (room == kWidth && blank <= column)) break;
    out += line.substr(0, blank);
    out += '\n';
    out.append(column, ' ');
    line.remove_prefix(blank + 1);
    room = kWidth - column;
  }
  out += line;
  out += '\n';
}

}  // namespace

std::string help_text(const control::Setting& setting, Slot defaults) {
  std::string text = plain(setting.help);
  const bool number = setting.max > 0 && !std::holds_alternative<std::string*>(defaults) &&
                      !std::holds_alternative<std::vector<std::uint16_t>*>(defaults);
  std::string facts;
  if (!setting.choices.empty()) {
    facts = fmt::format("{}", fmt::join(setting.choices, ", "));
  } else if (number) {
    facts = fmt::format("{} to {}", setting.min, setting.max);
  }
  if (number && !setting.unit.empty()) facts += fmt::format(" {}", setting.unit);
  const std::string standard = default_text(defaults);
  if (!standard.empty()) {
    facts += fmt::format("{}default {}", facts.empty() ? "" : ", ", standard);
  }
  return facts.empty() ? text : fmt::format("{} ({})", text, facts);
}

std::string port_keys_help() {
  std::string out;
  list_keys(out, "--vhost-user (a key alone means on)", control::vhost_user_keys());
  list_keys(out, "--virtio-user (a key alone means on)", control::virtio_user_keys());
  list_keys(out, "--generator", control::generator_keys());
  list_keys(out, "--sink", control::sink_keys());
  return out;
}

std::string wrapped(std::string_view help) {
  std::string out;
  while (!help.empty()) {
    const std::size_t end = std::min(help.find('\n'), help.size());
    wrap_line(out, help.substr(0, end));
    help.remove_prefix(std::min(end + 1, help.size()));
  }
  return out;
}

}  // namespace sluice::app
