// The flag form of the configuration: `--vhost-user PATH[,key=value]...` and the simple flags.
#pragma once

#include <expected>
#include <optional>
#include <string>
#include <string_view>

#include "control/config.h"
#include "control/keys.h"
#include "control/problem.h"

namespace sluice::control {

/// Reads "PATH[,queues=N][,client][,mac=..]...": the socket first, then keys in any order. A path
/// with a comma can only be given in a file.
[[nodiscard]] std::expected<fabric::VhostUserOptions, Problem> parse_vhost_user_flag(
    std::string_view text);
/// The same for a virtio-user port.
[[nodiscard]] std::expected<fabric::VirtioUserOptions, Problem> parse_virtio_user_flag(
    std::string_view text);
/// Reads "name=gen0[,queues=N][,size=BYTES]".
[[nodiscard]] std::expected<fabric::GeneratorOptions, Problem> parse_generator_flag(
    std::string_view text);
/// Reads "name=sink0[,touch]".
[[nodiscard]] std::expected<fabric::SinkOptions, Problem> parse_sink_flag(std::string_view text);
/// Reads "NAME,NAME": two ports joined in both directions.
[[nodiscard]] std::expected<std::pair<std::string, std::string>, Problem> parse_patch_flag(
    std::string_view text);

/// Puts the value of a simple flag, such as `--workers 2`, into `config`.
[[nodiscard]] std::optional<Problem> apply_flag(Config& config, const Key<Config>& key,
                                                std::string_view text);

}  // namespace sluice::control
