// Splits the text of a flag into keys and values and looks each up in the tables of keys.h.
#include "control/port_flag.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "control/nearest.h"

namespace sluice::control {
namespace {

constexpr std::size_t kShownMax = 60;  // Of a flag's text in a message.

// Takes the text up to the next comma off the front of `text`.
std::string_view next_item(std::string_view& text) {
  const std::size_t comma = text.find(',');
  const std::string_view item = text.substr(0, comma);
  text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
  return item;
}

template <class T>
std::string unknown_key_cure(std::string_view name, std::span<const Key<T>> keys) {
  std::vector<std::string_view> names;
  for (const auto& key : keys) names.push_back(key.setting.name);
  const std::string_view near = nearest(name, names);
  if (!near.empty()) return fmt::format("did you mean '{}'?", near);
  return fmt::format("the keys are {}", fmt::join(names, ", "));
}

// Reads one "key=value", or "key" for "key=on", into `options`.
template <class T>
std::optional<Fault> read_item(std::string_view item, std::span<const Key<T>> keys, T& options,
                               std::vector<std::string_view>& seen) {
  const std::size_t equals = item.find('=');
  const std::string_view name = item.substr(0, equals);
  if (name.empty()) {
    return Fault{
        item.empty() ? "a key is empty" : fmt::format("there is no key before {}", excerpt(item)),
        "separate keys by one comma each, as in PATH,queues=2,client"};
  }
  const auto key =
      std::ranges::find_if(keys, [&](const Key<T>& k) { return k.setting.name == name; });
  if (key == keys.end()) {
    return Fault{fmt::format("there is no key {}", excerpt(name)), unknown_key_cure(name, keys)};
  }
  if (std::ranges::find(seen, name) != seen.end()) {
    return Fault{fmt::format("'{}' is given twice", name), "give it once"};
  }
  seen.push_back(key->setting.name);
  const Slot slot = key->slot(options);
  if (equals != std::string_view::npos) {
    return assign_text(key->setting, slot, item.substr(equals + 1));
  }
  if (std::holds_alternative<bool*>(slot)) return assign_text(key->setting, slot, "on");
  return Fault{fmt::format("'{}' has no value", name),
               fmt::format("write {}={}: {}", name, key->setting.placeholder,
                           expected(key->setting, slot, Form::kFlag))};
}

template <class T>
std::expected<T, Problem> read_items(std::string_view text, std::span<const Key<T>> keys,
                                     std::string_view flag, std::string_view first_key) {
  T options;
  const std::string where = fmt::format("{} {}", flag, text.substr(0, kShownMax));
  std::vector<std::string_view> seen;
  bool first = true;
  // A comma at the end announces one more item, which is then empty and refused.
  const bool open_end = text.ends_with(',');
  while (first || !text.empty()) {
    const std::string_view item = next_item(text);
    std::string whole(item);
    if (first && !first_key.empty() && !item.starts_with(fmt::format("{}=", first_key))) {
      whole = fmt::format("{}={}", first_key, item);
    }
    first = false;
    // `seen` keeps views of the keys' own names, so `whole` may go.
    if (auto fault = read_item<T>(whole, keys, options, seen)) {
      return std::unexpected(Problem{where, fault->cause, fault->cure});
    }
  }
  if (open_end) {
    return std::unexpected(
        Problem{where, "there is nothing after the last comma", "remove the comma, or add a key"});
  }
  return options;
}

}  // namespace

std::expected<fabric::VhostUserOptions, Problem> parse_vhost_user_flag(std::string_view text) {
  return read_items<fabric::VhostUserOptions>(text, vhost_user_keys(), "--vhost-user", "path");
}

std::expected<fabric::VirtioUserOptions, Problem> parse_virtio_user_flag(std::string_view text) {
  return read_items<fabric::VirtioUserOptions>(text, virtio_user_keys(), "--virtio-user", "path");
}

std::expected<fabric::GeneratorOptions, Problem> parse_generator_flag(std::string_view text) {
  return read_items<fabric::GeneratorOptions>(text, generator_keys(), "--generator", "");
}

std::expected<fabric::SinkOptions, Problem> parse_sink_flag(std::string_view text) {
  return read_items<fabric::SinkOptions>(text, sink_keys(), "--sink", "");
}

std::expected<std::pair<std::string, std::string>, Problem> parse_patch_flag(
    std::string_view text) {
  const std::string_view first = next_item(text);
  if (!valid_port_name(first) || !valid_port_name(text)) {
    return std::unexpected(Problem{"--patch", "it does not name two ports",
                                   "write --patch NAME,NAME with the names of two ports"});
  }
  return std::pair(std::string(first), std::string(text));
}

std::optional<Problem> apply_flag(Config& config, const Key<Config>& key, std::string_view text) {
  auto fault = assign_text(key.setting, key.slot(config), text);
  if (!fault) return std::nullopt;
  const std::string flag = fmt::format("--{}", key.setting.flag);
  return Problem{flag, fmt::format("it cannot be {}", excerpt(text)), fault->cure};
}

}  // namespace sluice::control
