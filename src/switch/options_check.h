// Completing and checking SwitchOptions before anything is opened.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "switch/options.h"

namespace sluice::fabric {

/// Most workers of one switch.
inline constexpr std::uint16_t kWorkersMax = 256;

/// What a person would call the port behind a socket: its file name without ".sock".
[[nodiscard]] std::string name_from(std::string_view path);

/// The options with default names filled in. Every port has a name of its own; vhost-user ports
/// come first, then virtio-user ports, generators, sinks: that order is the ports' numbering.
/// Errors: kInvalidArgument, kOutOfRange, kNotFound (a patch of an unknown port), kExists (a name,
/// path or mac used twice); `text` names the field, `detail` is the index of the port or pair.
[[nodiscard]] Result<SwitchOptions> complete(const SwitchOptions& options);

/// Names of all ports, by number. Requires: `options` came from complete().
[[nodiscard]] std::vector<std::string> port_names(const SwitchOptions& options);

/// For forward = patch: the number of each port's peer, or Forwarder::kNoPeer.
/// Requires: `options` came from complete().
[[nodiscard]] std::vector<std::uint16_t> patch_peers(const SwitchOptions& options);

}  // namespace sluice::fabric
