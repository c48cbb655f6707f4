// Names of drop causes.
#include "net/drop.h"

namespace sluice::net {

std::string_view name_of(DropCause cause) {
  static constexpr std::array<std::string_view, kDropCauses> kNames = {
      "short_chain",    "too_long",         "bad_offload", "source_filter",
      "queue_disabled", "no_destination",   "not_ready",   "queue_busy",
      "no_buffers",     "buffer_too_small", "mtu",         "not_segmentable",
      "ring_broken"};
  static_assert(static_cast<std::size_t>(DropCause::kRingBroken) + 1 == kDropCauses);
  return kNames[static_cast<std::size_t>(cause)];
}

}  // namespace sluice::net
