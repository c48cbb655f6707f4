// The tables of keys: every key of the configuration stands here and nowhere else.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "control/config.h"
#include "control/setting.h"

namespace sluice::control {

/// Longest path of a Unix socket: what sockaddr_un holds, less the terminating zero.
inline constexpr std::int64_t kSocketPathMax = 107;

[[nodiscard]] std::span<const Key<Config>> config_keys();
[[nodiscard]] std::span<const Key<fabric::VhostUserOptions>> vhost_user_keys();
[[nodiscard]] std::span<const Key<fabric::VirtioUserOptions>> virtio_user_keys();
[[nodiscard]] std::span<const Key<fabric::GeneratorOptions>> generator_keys();
[[nodiscard]] std::span<const Key<fabric::SinkOptions>> sink_keys();

/// Letters, digits, '.', '_' and '-', not beginning with '-'; 1 to 32 of them.
[[nodiscard]] bool valid_port_name(std::string_view name);
inline constexpr std::string_view kPortNameWords =
    "1 to 32 letters, digits, '.', '_' or '-', not beginning with '-'";

}  // namespace sluice::control
