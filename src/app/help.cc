// Turns rows of the tables of keys into lines of help.
#include "app/help.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "control/keys.h"

namespace sluice::app {
namespace {

using control::Form;
using control::Slot;

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
    out += fmt::format("  {:<22} {}\n", left, help_text(setting, slot));
  }
}

}  // namespace

std::string help_text(const control::Setting& setting, Slot defaults) {
  std::string text = plain(setting.help);
  const bool number = setting.max > 0 && !std::holds_alternative<std::string*>(defaults) &&
                      !std::holds_alternative<std::vector<std::uint16_t>*>(defaults);
  std::string facts;
  if (number) facts = fmt::format("{} to {}", setting.min, setting.max);
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
  list_keys(out, "--generator", control::generator_keys());
  list_keys(out, "--sink", control::sink_keys());
  return out;
}

}  // namespace sluice::app
