// Announcement: the frame that tells a network where a station is now (SEND_RARP).
#pragma once

#include <array>
#include <cstddef>

#include "net/receive_filter.h"

namespace sluice::fabric {

/// A reverse ARP request of `mac` for itself, broadcast: what QEMU sends for a guest that cannot
/// announce itself. Bridges learn the sender from it, and nobody answers.
using Announcement = std::array<std::byte, 60>;
[[nodiscard]] Announcement make_announcement(net::PackedMac mac);

}  // namespace sluice::fabric
