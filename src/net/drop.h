// Why a packet was dropped: one cause, one counter (DESIGN rule 9).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/counter.h"

namespace sluice::net {

enum class DropCause : std::uint8_t {
  // Where the packet came in:
  kShortChain,     // NET-08: chain shorter than header and an Ethernet header.
  kTooLong,        // Longer than any frame may be.
  kBadOffload,     // NET-11, NET-12: offload facts that contradict the frame or the negotiation.
  kSourceFilter,   // `mac=`: the source address is not the port's.
  kQueueDisabled,  // Started but disabled ring: taken and discarded.
  kNoDestination,  // Nowhere to go: no other port, or own address as destination.
  // Where it should have gone out:
  kNotReady,        // The receiving port has no started, enabled receive queue.
  kQueueBusy,       // Another worker holds the receive queue right now.
  kNoBuffers,       // The driver posted no (or too few) receive buffers.
  kBufferTooSmall,  // NET-02: does not fit the buffer, and merging was not negotiated.
  kMtu,             // Larger than the receiving port's MTU.
  kNotSegmentable,  // Needs software checksum or segmentation that its bytes do not permit.
  kRingBroken,      // The receive ring broke while delivering.
};
inline constexpr std::size_t kDropCauses = 13;

/// Stable snake_case name, as `sluice stats --json` prints it.
[[nodiscard]] std::string_view name_of(DropCause cause);

/// One direction of one queue. Threads: written by the holder of the queue, read by any.
struct DirectionCounters {
  Counter packets;        // From the driver: taken from the ring. To the driver: delivered.
  Counter bytes;          // Of these packets; frame bytes without virtio header.
  Counter bursts;         // Visits that moved at least one packet.
  Counter notifications;  // Calls sent to the driver.
  std::array<Counter, kDropCauses> drops;

  void drop(DropCause cause, std::uint64_t n = 1) { drops[static_cast<std::size_t>(cause)].add(n); }
};

}  // namespace sluice::net
