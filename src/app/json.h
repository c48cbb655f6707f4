// Reading members of a reply that may lack them: a missing member is null, zero or empty.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "control/views.h"

namespace sluice::app {

/// The member of an object, or null.
[[nodiscard]] const control::Json& member(const control::Json& object, std::string_view name);
/// A number that is not negative, else 0.
[[nodiscard]] std::uint64_t as_number(const control::Json& value);
[[nodiscard]] std::uint64_t number(const control::Json& object, std::string_view name);
/// A member as a table shows it: texts without quotes, lists joined by blanks, null as "".
[[nodiscard]] std::string text(const control::Json& object, std::string_view name);

}  // namespace sluice::app
