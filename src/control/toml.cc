// Builds the tree of tables, lists and values.
#include "control/toml.h"

#include <fmt/format.h>

#include <utility>

#include "control/setting.h"
#include "control/toml_scanner.h"

namespace sluice::control {
namespace {

using Kind = TomlValue::Kind;
using Origin = TomlValue::Origin;

struct KeyPart {
  std::string name;
  TextPlace place;
};
using KeyPath = std::vector<KeyPart>;

class Parser {
 public:
  explicit Parser(std::string_view text) : scanner_(text) { root_.origin = Origin::kHeader; }

  std::expected<TomlValue, TomlError> run() {
    while (document_line()) {
      if (scanner_.at_end()) return std::move(root_);
    }
    return std::unexpected(*scanner_.error());
  }

 private:
  // Reads to the end of a line that has content, or to the end of the text.
  bool document_line() {
    if (!scanner_.skip_lines()) return false;
    if (scanner_.at_end()) return true;
    const bool read = scanner_.here() == '[' ? header() : key_and_value(*table_, 0);
    return read && scanner_.expect_line_end();
  }

  bool header();
  bool key_and_value(TomlValue& table, int depth);
  bool read_path(KeyPath& path);
  bool read_value(TomlValue& value, int depth);
  bool read_list(TomlValue& list, int depth);
  bool read_inline_table(TomlValue& table, int depth);
  TomlValue* enter(TomlValue& table, const KeyPart& part, Origin origin);
  TomlValue* open_table(TomlValue& parent, const KeyPart& part);
  TomlValue* append_table(TomlValue& parent, const KeyPart& part);

  bool twice(const KeyPart& part) {
    return scanner_.fail(part.place, fmt::format("{} is there already", excerpt(part.name)),
                         "give each key and each table once");
  }
  bool too_deep(TextPlace at) {
    return scanner_.fail(at, fmt::format("nested more than {} deep", kTomlDepthMax),
                         "no key of the configuration needs that");
  }

  TomlScanner scanner_;
  TomlValue root_;
  TomlValue* table_ = &root_;  // To which keys are added.
};

bool Parser::read_path(KeyPath& path) {
  do {
    scanner_.skip_blanks();
    KeyPart part{.name = {}, .place = scanner_.place()};
    if (!scanner_.read_key(part.name)) return false;
    if (path.size() >= static_cast<std::size_t>(kTomlDepthMax)) return too_deep(part.place);
    path.push_back(std::move(part));
    scanner_.skip_blanks();
  } while (scanner_.take('.'));
  return true;
}

// The table behind one part of a path, made if it is not there. Null if it may not be entered:
// a value is complete as it stands, and a dotted key adds only to what dotted keys made.
TomlValue* Parser::enter(TomlValue& table, const KeyPart& part, Origin origin) {
  const auto [found, added] = table.members.try_emplace(part.name);
  TomlValue* inner = &found->second;
  if (added) {
    inner->origin = origin;
    inner->place = inner->key_place = part.place;
    return inner;
  }
  const bool list_of_tables = inner->kind == Kind::kList && inner->origin == Origin::kHeader;
  if (list_of_tables && origin == Origin::kImplied) return &inner->items.back();
  const bool open = inner->kind == Kind::kTable && inner->origin != Origin::kValue &&
                    (origin != Origin::kDotted || inner->origin == Origin::kDotted);
  if (open) return inner;
  (void)twice(part);
  return nullptr;
}

// [part]: a table that no header and no key has made.
TomlValue* Parser::open_table(TomlValue& parent, const KeyPart& part) {
  const auto [found, added] = parent.members.try_emplace(part.name);
  TomlValue& table = found->second;
  if (!added && (table.kind != Kind::kTable || table.origin != Origin::kImplied)) {
    (void)twice(part);
    return nullptr;
  }
  table.origin = Origin::kHeader;
  table.place = table.key_place = part.place;
  return &table;
}

// [[part]]: one more table in a list.
TomlValue* Parser::append_table(TomlValue& parent, const KeyPart& part) {
  const auto [found, added] = parent.members.try_emplace(part.name);
  TomlValue& list = found->second;
  if (added) {
    list.kind = Kind::kList;
    list.origin = Origin::kHeader;
    list.place = list.key_place = part.place;
  } else if (list.kind != Kind::kList || list.origin != Origin::kHeader) {
    (void)twice(part);
    return nullptr;
  }
  TomlValue& table = list.items.emplace_back();
  table.origin = Origin::kHeader;
  table.place = part.place;
  return &table;
}

bool Parser::header() {
  const TextPlace start = scanner_.place();
  (void)scanner_.take('[');
  const bool list = scanner_.take('[');
  KeyPath path;
  if (!read_path(path)) return false;
  if (!scanner_.expect(']', "behind the table's name")) return false;
  if (list && !scanner_.expect(']', "behind the table's name")) return false;
  TomlValue* parent = &root_;
  for (std::size_t i = 0; i + 1 < path.size(); ++i) {
    parent = enter(*parent, path[i], Origin::kImplied);
    if (parent == nullptr) return false;
  }
  TomlValue* table = list ? append_table(*parent, path.back()) : open_table(*parent, path.back());
  if (table == nullptr) return false;
  table->place = start;
  table_ = table;
  return true;
}

bool Parser::key_and_value(TomlValue& table, int depth) {
  KeyPath path;
  if (!read_path(path)) return false;
  if (!scanner_.expect('=', "between key and value")) return false;
  scanner_.skip_blanks();
  TomlValue* parent = &table;
  for (std::size_t i = 0; i + 1 < path.size(); ++i) {
    parent = enter(*parent, path[i], Origin::kDotted);
    if (parent == nullptr) return false;
  }
  const KeyPart& last = path.back();
  const auto [found, added] = parent->members.try_emplace(last.name);
  if (!added) return twice(last);
  found->second.key_place = last.place;
  return read_value(found->second, depth + static_cast<int>(path.size()));
}

bool Parser::read_value(TomlValue& value, int depth) {
  value.place = scanner_.place();
  value.origin = Origin::kValue;
  if (depth > kTomlDepthMax) return too_deep(value.place);
  switch (scanner_.here()) {
    case '"':
    case '\'': value.kind = Kind::kText; return scanner_.read_string(value.text);
    case '[': return read_list(value, depth);
    case '{': return read_inline_table(value, depth);
    default: return scanner_.read_scalar(value);
  }
}

bool Parser::read_list(TomlValue& list, int depth) {
  list.kind = Kind::kList;
  (void)scanner_.take('[');
  while (true) {
    if (!scanner_.skip_lines()) return false;
    if (scanner_.take(']')) return true;
    if (!read_value(list.items.emplace_back(), depth + 1)) return false;
    if (!scanner_.skip_lines()) return false;
    if (scanner_.take(',')) continue;
    return scanner_.expect(']', "at the end of the list, or a comma between its members");
  }
}

bool Parser::read_inline_table(TomlValue& table, int depth) {
  table.kind = Kind::kTable;
  (void)scanner_.take('{');
  scanner_.skip_blanks();
  if (scanner_.take('}')) return true;
  do {
    // Dotted keys add to tables of this one only, which kDotted would forbid for kValue itself.
    if (!key_and_value(table, depth)) return false;
    scanner_.skip_blanks();
  } while (scanner_.take(','));
  return scanner_.expect('}', "at the end of the table");
}

}  // namespace

std::expected<TomlValue, TomlError> parse_toml(std::string_view text) {
  if (const auto bad = find_bad_utf8(text)) {
    return std::unexpected(
        TomlError{*bad, "the text is not UTF-8", "store the file in the encoding UTF-8"});
  }
  return Parser(text).run();
}

}  // namespace sluice::control
