// Help texts made from the tables of keys.
#pragma once

#include <string>
#include <string_view>

#include "control/setting.h"

namespace sluice::app {

/// A key's sentence with its limits or choices and its default, for a terminal.
[[nodiscard]] std::string help_text(const control::Setting& setting, control::Slot defaults);

/// The keys of --vhost-user, --generator and --sink, one a line.
[[nodiscard]] std::string port_keys_help();

/// Breaks lines that are too long for a terminal; what follows is indented like the description.
[[nodiscard]] std::string wrapped(std::string_view help);

}  // namespace sluice::app
