// Tolerant access to JSON.
#include "app/json.h"

namespace sluice::app {
namespace {

std::string shown(const control::Json& value) {
  if (value.is_null()) return "";
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return control::dump(value);
  std::string joined;
  for (const auto& item : value) {
    if (!joined.empty()) joined += ' ';
    joined += shown(item);
  }
  return joined;
}

}  // namespace

const control::Json& member(const control::Json& object, std::string_view name) {
  static const control::Json kNull;
  if (!object.is_object()) return kNull;
  const auto found = object.find(std::string(name));
  return found == object.end() ? kNull : *found;
}

std::uint64_t as_number(const control::Json& value) {
  if (value.is_number_unsigned()) return value.get<std::uint64_t>();
  const bool usable = value.is_number_integer() && value.get<std::int64_t>() > 0;
  return usable ? static_cast<std::uint64_t>(value.get<std::int64_t>()) : 0;
}

std::uint64_t number(const control::Json& object, std::string_view name) {
  return as_number(member(object, name));
}

std::string text(const control::Json& object, std::string_view name) {
  return shown(member(object, name));
}

}  // namespace sluice::app
