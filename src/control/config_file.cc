// Walks a parsed TOML document along the tables of keys.h and collects what is wrong in it.
#include "control/config_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "control/keys.h"
#include "control/nearest.h"

namespace sluice::control {
namespace {

constexpr std::size_t kProblemsMax = 20;
constexpr std::array<std::string_view, 2> kSections = {"bridge", "workers"};
constexpr std::array<std::string_view, 3> kPortTables = {"vhost_user", "generator", "sink"};
constexpr std::string_view kPatches = "patches";

// The value of a node as assign() takes it, ...
Value value_of(const toml::node& node) {
  if (const auto flag = node.value_exact<bool>()) return *flag;
  if (const auto number = node.value_exact<std::int64_t>()) return *number;
  if (const auto text = node.value_exact<std::string>()) return *text;
  if (const toml::array* array = node.as_array()) {
    std::vector<std::int64_t> numbers;
    for (const toml::node& item : *array) {
      const auto number = item.value_exact<std::int64_t>();
      if (!number) return std::monostate{};
      numbers.push_back(*number);
    }
    return numbers;
  }
  return std::monostate{};
}

// ... and how a message shows it.
std::string text_of(const toml::node& node) {
  if (const auto flag = node.value_exact<bool>()) return *flag ? "true" : "false";
  if (const auto number = node.value_exact<std::int64_t>()) return fmt::format("{}", *number);
  if (const auto text = node.value_exact<std::string>()) return excerpt(*text);
  switch (node.type()) {
    case toml::node_type::table: return "a table";
    case toml::node_type::array: return "this list";
    case toml::node_type::floating_point: return "a number with a fraction";
    default: return "a date or time";
  }
}

bool contains(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

class Reader {
 public:
  explicit Reader(std::string_view name) : name_(name) {}

  void read(const toml::table& root);
  [[nodiscard]] Config& config() { return config_; }
  [[nodiscard]] Problems problems() const {
    Problems list;
    for (const auto& [place, problem] : problems_) list.push_back(problem);
    return list;
  }

 private:
  void report(const toml::source_region& at, std::string cause, std::string cure) {
    const std::pair place(at.begin.line, at.begin.column);
    problems_.emplace(place, Problem{fmt::format("{}:{}:{}", name_, place.first, place.second),
                                     std::move(cause), std::move(cure)});
    if (problems_.size() > kProblemsMax) problems_.erase(std::prev(problems_.end()));
  }

  void read_section(std::string_view section, const toml::table& table);
  void read_top_level(const toml::key& key, const toml::node& node);
  void read_patches(const toml::node& node);
  void unknown_config_key(const toml::key& key, std::string_view section);

  template <class T>
  void read_ports(std::string_view table, const toml::node& node, std::span<const Key<T>> keys,
                  std::vector<T>& ports);

  // Reads one key of a table; false if the tables of keys do not have it.
  template <class T, class Belongs>
  bool read_key(const toml::key& name, const toml::node& node, std::span<const Key<T>> keys,
                T& target, Belongs belongs) {
    for (const auto& key : keys) {
      if (key.setting.name != name.str() || !belongs(key.setting)) continue;
      auto fault =
          assign(key.setting, key.slot(target), value_of(node), text_of(node), Form::kFile);
      if (fault) report(node.source(), std::move(fault->cause), std::move(fault->cure));
      return true;
    }
    return false;
  }

  std::string_view name_;
  Config config_;
  // By line and column: toml++ hands out keys in alphabetical order.
  std::multimap<std::pair<toml::source_index, toml::source_index>, Problem> problems_;
};

void Reader::read(const toml::table& root) {
  for (const auto& [key, node] : root) {
    if (!contains(kSections, key.str())) {
      read_top_level(key, node);
    } else if (const toml::table* table = node.as_table()) {
      read_section(key.str(), *table);
    } else {
      report(node.source(), fmt::format("'{}' cannot be {}", key.str(), text_of(node)),
             fmt::format("begin a table by a line [{}]", key.str()));
    }
  }
}

void Reader::read_top_level(const toml::key& key, const toml::node& node) {
  const std::string_view name = key.str();
  if (name == "vhost_user") {
    read_ports(name, node, vhost_user_keys(), config_.fabric.vhost_user);
  } else if (name == "generator") {
    read_ports(name, node, generator_keys(), config_.fabric.generators);
  } else if (name == "sink") {
    read_ports(name, node, sink_keys(), config_.fabric.sinks);
  } else if (name == kPatches) {
    read_patches(node);
  } else if (!read_key(key, node, config_keys(), config_,
                       [](const Setting& s) { return s.section.empty(); })) {
    unknown_config_key(key, "");
  }
}

void Reader::read_section(std::string_view section, const toml::table& table) {
  for (const auto& [key, node] : table) {
    if (!read_key(key, node, config_keys(), config_,
                  [&](const Setting& s) { return s.section == section; })) {
      unknown_config_key(key, section);
    }
  }
}

// A key in the wrong table is the commonest mistake of TOML: say where it belongs.
void Reader::unknown_config_key(const toml::key& key, std::string_view section) {
  const std::string_view name = key.str();
  std::vector<std::string_view> here;
  std::string cure;
  for (const auto& row : config_keys()) {
    if (row.setting.section == section) here.push_back(row.setting.name);
    if (row.setting.name != name) continue;
    cure = row.setting.section.empty()
               ? std::string("write it at the top, before the first line in brackets")
               : fmt::format("write it below a line [{}]", row.setting.section);
  }
  if (section.empty()) {
    here.insert(here.end(), kSections.begin(), kSections.end());
    here.insert(here.end(), kPortTables.begin(), kPortTables.end());
    here.push_back(kPatches);
  }
  if (cure.empty()) {
    const std::string_view near = nearest(name, here);
    cure = near.empty() ? fmt::format("the keys are {}", fmt::join(here, ", "))
                        : fmt::format("did you mean '{}'?", near);
  }
  const std::string in = section.empty() ? "" : fmt::format(" in [{}]", section);
  report(key.source(), fmt::format("there is no key {}{}", excerpt(name), in), std::move(cure));
}

template <class T>
void Reader::read_ports(std::string_view table, const toml::node& node,
                        std::span<const Key<T>> keys, std::vector<T>& ports) {
  const toml::array* array = node.as_array();
  const bool tables = array != nullptr && std::ranges::all_of(*array, [](const toml::node& item) {
                        return item.is_table();
                      });
  if (!tables) {
    report(node.source(), fmt::format("'{}' cannot be {}", table, text_of(node)),
           fmt::format("begin each port by a line [[{}]] with two brackets", table));
    return;
  }
  for (const toml::node& item : *array) {
    T& port = ports.emplace_back();
    for (const auto& [key, value] : *item.as_table()) {
      if (read_key(key, value, keys, port, [](const Setting&) { return true; })) continue;
      std::vector<std::string_view> names;
      for (const auto& row : keys) names.push_back(row.setting.name);
      const std::string_view near = nearest(key.str(), names);
      report(key.source(), fmt::format("there is no key {} in [[{}]]", excerpt(key.str()), table),
             near.empty() ? fmt::format("the keys are {}", fmt::join(names, ", "))
                          : fmt::format("did you mean '{}'?", near));
    }
  }
}

void Reader::read_patches(const toml::node& node) {
  const auto refuse = [this](const toml::node& at) {
    report(at.source(), fmt::format("'{}' cannot be {}", kPatches, text_of(at)),
           "give pairs of port names, such as [[\"vm0\", \"vm1\"]]");
  };
  const toml::array* pairs = node.as_array();
  if (pairs == nullptr) return refuse(node);
  for (const toml::node& item : *pairs) {
    const toml::array* pair = item.as_array();
    if (pair == nullptr || pair->size() != 2) {
      refuse(item);
      continue;
    }
    const auto first = pair->get(0)->value_exact<std::string>();
    const auto second = pair->get(1)->value_exact<std::string>();
    if (first && second && valid_port_name(*first) && valid_port_name(*second)) {
      config_.fabric.patches.emplace_back(*first, *second);
    } else {
      refuse(item);
    }
  }
}

std::expected<toml::table, Problem> parse_toml(std::string_view text, std::string_view name) {
  // toml++ as Debian ships it reports by exception; it ends here.
  try {
    return toml::parse(text, name);
  } catch (const toml::parse_error& error) {
    const auto at = error.source().begin;
    return std::unexpected(Problem{fmt::format("{}:{}:{}", name, at.line, at.column),
                                   std::string(error.description()),
                                   "sluice.toml(5) shows what the file looks like"});
  }
}

}  // namespace

std::expected<Config, Problems> parse_config(std::string_view text, std::string_view name) {
  const auto root = parse_toml(text, name);
  if (!root) return std::unexpected(Problems{root.error()});
  Reader reader(name);
  reader.read(*root);
  Problems problems = reader.problems();
  if (!problems.empty()) return std::unexpected(std::move(problems));
  return std::move(reader.config());
}

void find_places(Problems& problems, std::string_view text, std::string_view name) {
  const auto root = parse_toml(text, name);
  for (Problem& problem : problems) {
    std::string place = std::exchange(problem.where, "");
    if (!root || place.empty()) continue;
    // A key that is not written (the name derived from the path, say) stands for its table.
    auto node = root->at_path(place);
    if (!node) node = root->at_path(place.substr(0, place.rfind('.')));
    if (!node) continue;
    const auto at = node.node()->source().begin;
    problem.where = fmt::format("{}:{}:{}", name, at.line, at.column);
  }
}

}  // namespace sluice::control
