// The file form of the configuration: TOML, read with every mistake named by line and column.
#pragma once

#include <expected>
#include <string>
#include <string_view>

#include "control/config.h"
#include "control/problem.h"

namespace sluice::control {

/// Largest configuration file that is read.
inline constexpr std::size_t kConfigFileMax = 1 << 20;

/// Reads the text of a file called `name`. Does not check() what the keys mean together, because
/// flags may add to it; find_places() turns the places of such problems into lines.
[[nodiscard]] std::expected<Config, Problems> parse_config(std::string_view text,
                                                           std::string_view name);

/// Fills `where` of problems from check(): "vhost_user[1].name" becomes "name:12:8". Places that
/// the file does not have, because a flag gave them, become empty.
void find_places(Problems& problems, std::string_view text, std::string_view name);

/// Reads the whole file, at most kConfigFileMax bytes.
[[nodiscard]] std::expected<std::string, Problem> read_config_text(const std::string& path);

/// Writes a file that parse_config() reads as the same configuration. Values that are defaults
/// are left out.
[[nodiscard]] std::string to_toml(const Config& config);

}  // namespace sluice::control
