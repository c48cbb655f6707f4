// Walks a TOML document along the tables of keys.h and collects what is wrong in it.
#include "control/config_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "control/keys.h"
#include "control/nearest.h"
#include "control/toml.h"

namespace sluice::control {
namespace {

constexpr std::size_t kProblemsMax = 20;
constexpr std::array<std::string_view, 2> kSections = {"bridge", "workers"};
constexpr std::array<std::string_view, 4> kPortTables = {"vhost_user", "virtio_user", "generator",
                                                         "sink"};
constexpr std::string_view kPatches = "patches";

// A value as assign() takes it, ...
Value value_of(const TomlValue& node) {
  switch (node.kind) {
    case TomlValue::Kind::kBoolean: return node.boolean;
    case TomlValue::Kind::kInteger: return node.integer;
    case TomlValue::Kind::kText: return node.text;
    case TomlValue::Kind::kList: break;
    default: return std::monostate{};
  }
  std::vector<std::int64_t> numbers;
  for (const TomlValue& item : node.items) {
    if (item.kind != TomlValue::Kind::kInteger) return std::monostate{};
    numbers.push_back(item.integer);
  }
  return numbers;
}

// ... and as a message shows it.
std::string text_of(const TomlValue& node) {
  switch (node.kind) {
    case TomlValue::Kind::kBoolean: return node.boolean ? "true" : "false";
    case TomlValue::Kind::kInteger: return fmt::format("{}", node.integer);
    case TomlValue::Kind::kText: return excerpt(node.text);
    case TomlValue::Kind::kFraction: return "a number with a fraction";
    case TomlValue::Kind::kDate: return "a date or time";
    case TomlValue::Kind::kList: return "this list";
    case TomlValue::Kind::kTable: return "a table";
  }
  return "";
}

bool is_table(const TomlValue& node) {
  return node.kind == TomlValue::Kind::kTable;
}

// The text of an item of a pair; empty if it is none.
std::string_view text_at(const TomlValue& list, std::size_t index) {
  return list.items[index].kind == TomlValue::Kind::kText ? list.items[index].text
                                                          : std::string_view();
}

bool contains(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

// Where a key of the switch belongs, as a cure; empty if there is none of this name.
std::string place_of_config_key(std::string_view name) {
  for (const auto& row : config_keys()) {
    if (row.setting.name != name) continue;
    return row.setting.section.empty()
               ? std::string("write it at the top, before the first line in brackets")
               : fmt::format("write it below a line [{}]", row.setting.section);
  }
  return "";
}

// The same for a key of a port.
std::string place_of_port_key(std::string_view name) {
  const auto among = [&](const auto& keys) {
    return std::ranges::any_of(keys, [&](const auto& key) { return key.setting.name == name; });
  };
  if (among(vhost_user_keys())) return "write it below a line [[vhost_user]]";
  if (among(virtio_user_keys())) return "write it below a line [[virtio_user]]";
  if (among(generator_keys())) return "write it below a line [[generator]]";
  if (among(sink_keys())) return "write it below a line [[sink]]";
  return "";
}

class Reader {
 public:
  explicit Reader(std::string_view name) : name_(name) {}

  void read(const TomlValue& root);
  [[nodiscard]] Config& config() { return config_; }
  [[nodiscard]] Problems problems() const {
    Problems list;
    for (const auto& [place, problem] : problems_) list.push_back(problem);
    return list;
  }

 private:
  void report(TextPlace at, std::string cause, std::string cure) {
    problems_.emplace(at, Problem{fmt::format("{}:{}:{}", name_, at.line, at.column),
                                  std::move(cause), std::move(cure)});
    if (problems_.size() > kProblemsMax) problems_.erase(std::prev(problems_.end()));
  }

  void read_section(std::string_view section, const TomlValue& table);
  void read_top_level(const std::string& key, const TomlValue& node);
  void read_patches(const TomlValue& node);
  void unknown_config_key(const std::string& name, TextPlace at, std::string_view section);

  template <class T>
  void read_ports(std::string_view table, const TomlValue& node, std::span<const Key<T>> keys,
                  std::vector<T>& ports);

  // Reads one key of a table; false if the tables of keys do not have it.
  template <class T, class Belongs>
  bool read_key(const std::string& name, const TomlValue& node, std::span<const Key<T>> keys,
                T& target, Belongs belongs) {
    for (const auto& key : keys) {
      if (key.setting.name != name || !belongs(key.setting)) continue;
      auto fault =
          assign(key.setting, key.slot(target), value_of(node), text_of(node), Form::kFile);
      if (fault) report(node.place, std::move(fault->cause), std::move(fault->cure));
      return true;
    }
    return false;
  }

  std::string_view name_;
  Config config_;
  std::multimap<TextPlace, Problem> problems_;  // In the order of the file.
};

void Reader::read(const TomlValue& root) {
  for (const auto& [key, node] : root.members) {
    if (!contains(kSections, key)) {
      read_top_level(key, node);
    } else if (is_table(node)) {
      read_section(key, node);
    } else {
      const bool number = key == "workers" && node.kind == TomlValue::Kind::kInteger;
      report(node.place, fmt::format("'{}' cannot be {}", key, text_of(node)),
             number ? fmt::format("write count = {} below a line [workers]", node.integer)
                    : fmt::format("begin a table by a line [{}]", key));
    }
  }
}

void Reader::read_top_level(const std::string& key, const TomlValue& node) {
  const std::string_view name = key;
  if (name == "vhost_user") {
    read_ports(name, node, vhost_user_keys(), config_.fabric.vhost_user);
  } else if (name == "virtio_user") {
    read_ports(name, node, virtio_user_keys(), config_.fabric.virtio_user);
  } else if (name == "generator") {
    read_ports(name, node, generator_keys(), config_.fabric.generators);
  } else if (name == "sink") {
    read_ports(name, node, sink_keys(), config_.fabric.sinks);
  } else if (name == kPatches) {
    read_patches(node);
  } else if (!read_key(key, node, config_keys(), config_,
                       [](const Setting& s) { return s.section.empty(); })) {
    unknown_config_key(key, node.key_place, "");
  }
}

void Reader::read_section(std::string_view section, const TomlValue& table) {
  for (const auto& [key, node] : table.members) {
    if (!read_key(key, node, config_keys(), config_,
                  [&](const Setting& s) { return s.section == section; })) {
      unknown_config_key(key, node.key_place, section);
    }
  }
}

// A key in the wrong table is the commonest mistake of TOML: say where it belongs.
void Reader::unknown_config_key(const std::string& name, TextPlace at, std::string_view section) {
  std::vector<std::string_view> here;
  std::string cure = place_of_config_key(name);
  for (const auto& row : config_keys()) {
    if (row.setting.section == section) here.push_back(row.setting.name);
  }
  if (section.empty()) {
    here.insert(here.end(), kSections.begin(), kSections.end());
    here.insert(here.end(), kPortTables.begin(), kPortTables.end());
    here.push_back(kPatches);
  }
  if (cure.empty()) cure = place_of_port_key(name);
  if (cure.empty()) {
    const std::string_view near = nearest(name, here);
    cure = near.empty() ? fmt::format("the keys are {}", fmt::join(here, ", "))
                        : fmt::format("did you mean '{}'?", near);
  }
  const std::string in = section.empty() ? "" : fmt::format(" in [{}]", section);
  report(at, fmt::format("there is no key {}{}", excerpt(name), in), std::move(cure));
}

template <class T>
void Reader::read_ports(std::string_view table, const TomlValue& node, std::span<const Key<T>> keys,
                        std::vector<T>& ports) {
  const bool tables =
      node.kind == TomlValue::Kind::kList && std::ranges::all_of(node.items, is_table);
  if (!tables) {
    report(node.place, fmt::format("'{}' cannot be {}", table, text_of(node)),
           fmt::format("begin each port by a line [[{}]] with two brackets", table));
    return;
  }
  for (const TomlValue& item : node.items) {
    T& port = ports.emplace_back();
    for (const auto& [key, value] : item.members) {
      if (read_key(key, value, keys, port, [](const Setting&) { return true; })) continue;
      std::vector<std::string_view> names;
      for (const auto& row : keys) names.push_back(row.setting.name);
      const std::string_view near = nearest(key, names);
      const std::string place = place_of_config_key(key);
      if (!place.empty()) {
        report(value.key_place, fmt::format("there is no key {} in [[{}]]", excerpt(key), table),
               place);
        continue;
      }
      report(value.key_place, fmt::format("there is no key {} in [[{}]]", excerpt(key), table),
             near.empty() ? fmt::format("the keys are {}", fmt::join(names, ", "))
                          : fmt::format("did you mean '{}'?", near));
    }
  }
}

void Reader::read_patches(const TomlValue& node) {
  const auto refuse = [this](const TomlValue& value) {
    report(value.place, fmt::format("'{}' cannot be {}", kPatches, text_of(value)),
           "give pairs of port names, such as [[\"vm0\", \"vm1\"]]");
  };
  if (node.kind != TomlValue::Kind::kList) return refuse(node);
  for (const TomlValue& pair : node.items) {
    const bool two = pair.kind == TomlValue::Kind::kList && pair.items.size() == 2;
    if (two && valid_port_name(text_at(pair, 0)) && valid_port_name(text_at(pair, 1))) {
      config_.fabric.patches.emplace_back(text_at(pair, 0), text_at(pair, 1));
    } else {
      refuse(pair);
    }
  }
}

// The node at a place of check(), such as "vhost_user[1].name" or "workers.cores"; null if the
// file does not have it.
const TomlValue* find_node(const TomlValue& root, std::string_view place) {
  const TomlValue* node = &root;
  while (!place.empty()) {
    const std::size_t end = std::min(place.find_first_of(".["), place.size());
    const auto member = node->members.find(place.substr(0, end));
    if (member == node->members.end()) return nullptr;
    node = &member->second;
    place.remove_prefix(end);
    if (place.starts_with('[')) {
      std::size_t index = 0;
      const auto [stop, error] =
          std::from_chars(place.data() + 1, place.data() + place.size(), index);
      if (error != std::errc{} || index >= node->items.size()) return nullptr;
      node = &node->items[index];
      place.remove_prefix(static_cast<std::size_t>(stop - place.data()) + 1);
    }
    if (place.starts_with('.')) place.remove_prefix(1);
  }
  return node;
}

}  // namespace

std::expected<Config, Problems> parse_config(std::string_view text, std::string_view name) {
  const auto root = parse_toml(text);
  if (!root) {
    const TomlError& error = root.error();
    return std::unexpected(
        Problems{{fmt::format("{}:{}:{}", name, error.place.line, error.place.column), error.cause,
                  error.cure}});
  }
  Reader reader(name);
  reader.read(*root);
  Problems problems = reader.problems();
  if (!problems.empty()) return std::unexpected(std::move(problems));
  return std::move(reader.config());
}

void find_places(Problems& problems, std::string_view text, std::string_view name) {
  const auto root = parse_toml(text);
  for (Problem& problem : problems) {
    const std::string place = std::exchange(problem.where, "");
    if (!root || place.empty()) continue;
    // A key that is not written (the name derived from the path, say) stands for its table.
    const TomlValue* node = find_node(*root, place);
    if (node == nullptr) node = find_node(*root, place.substr(0, place.rfind('.')));
    if (node == nullptr || node == &*root) continue;
    problem.where = fmt::format("{}:{}:{}", name, node->place.line, node->place.column);
  }
}

}  // namespace sluice::control
