// Port: the contract between the forwarder and everything that sends or takes packets.
//
// A worker visits the queues it owns: receive() a burst from the port, forward it, release() it.
// Another port's transmit() copies the packets it gets; it never keeps a view. Queue indices here
// are queue pairs: receive side q of a vhost-user port is its transmitq 2q+1, transmit side q its
// receiveq 2q.
//
// Conservation (DESIGN rule 9; checked by tests/support/conservation.h). Every packet is counted
// once per place it passes:
//   - from_driver(q).packets counts what was taken from queue q. Each is then forwarded, or dropped
//     there: a bad one by the path (kShortChain, kTooLong, kBadOffload), a good one by the port
//     (kSourceFilter, kQueueDisabled) or the forwarder (kNoDestination, kSourceFilter).
//   - A forwarded packet is offered to one port, a flooded one to several. Every offer ends in
//     to_driver(q).packets, in to_driver(q).drops, or in refusals() if no queue could be taken.
//
// Threads: receive/release/arm/disarm of one queue by the worker that owns it; transmit by any
// worker (the port takes the queue's lock, and drops the burst as kQueueBusy if it is held);
// counters, ready() and refusals() by any; the rest by the control thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/strong.h"
#include "base/unique_fd.h"
#include "net/drop.h"
#include "net/receive_filter.h"
#include "packet/packet.h"

namespace sluice::fabric {

using PortId = Strong<struct PortIdTag, std::uint16_t>;

/// How a worker that wants to sleep is woken for one queue.
struct WakeSource {
  std::shared_ptr<const EventFd> event;  // Readable when there is work; null if nothing can wake.
  std::uint64_t generation = 0;          // Changes whenever `event` does: register it anew.
  bool must_poll = false;                // Running without an event: look again every millisecond.
};

/// What is shown of one queue (`sluice queue show`).
struct QueueView {
  std::string_view kind;    // "receiveq", "transmitq", ...
  std::uint16_t index = 0;  // Virtqueue index, as the specification numbers them.
  std::string_view state;   // "stopped", "disabled", "running", "broken".
  std::string_view path;    // Name of the chosen path; empty if not running.
  std::string_view ring;    // "split" or "packed"; empty if it never ran.
  std::uint32_t size = 0;
  // As in virtio::RingPosition; empty while a worker is so busy with the queue that nobody can
  // look.
  std::optional<std::uint16_t> avail;
  std::optional<std::uint16_t> used;
  std::string error;                                 // Why it broke, if it did.
  const net::DirectionCounters* counters = nullptr;  // Lives as long as the port.
};

/// Packets offered to a port that had no queue for them. Written by several workers at once,
/// without any queue's lock, so these count with a locked instruction; they are off the fast path.
struct Refusals {
  std::atomic<std::uint64_t> not_ready{0};   // DropCause::kNotReady.
  std::atomic<std::uint64_t> queue_busy{0};  // DropCause::kQueueBusy.
};

class Port {
 public:
  virtual ~Port() = default;

  [[nodiscard]] virtual std::string_view name() const = 0;
  [[nodiscard]] virtual std::string_view kind() const = 0;
  /// Queue pairs the port may ever have; constant.
  [[nodiscard]] virtual std::uint16_t queue_pairs() const = 0;

  /// Takes up to kBurstMax packets that arrived on queue `q`. If it returns non-zero the queue is
  /// held, and the burst's views valid, until release(q); on zero there is nothing to release.
  virtual std::size_t receive(std::uint16_t q, packet::Burst& burst) = 0;
  virtual void release(std::uint16_t q) = 0;

  /// Sends burst.packets[which[i]] out. `hint` chooses the queue: any number, the same for
  /// packets that must stay in order. Returns how many went; the rest is dropped and counted here.
  virtual std::size_t transmit(std::uint32_t hint, const packet::Burst& burst,
                               std::span<const packet::PacketIndex> which) = 0;

  /// The counters of packets that came in on / go out to the port, queue by queue.
  [[nodiscard]] virtual const net::DirectionCounters& from_driver(std::uint16_t q) const = 0;
  [[nodiscard]] virtual const net::DirectionCounters& to_driver(std::uint16_t q) const = 0;
  /// For the forwarder, which drops on behalf of the port a packet came from. Between receive(q)
  /// and release(q) only.
  virtual net::DirectionCounters& from_driver(std::uint16_t q) = 0;
  [[nodiscard]] virtual const Refusals& refusals() const = 0;

  /// Before sleeping: asks to be woken for queue q. Returns true if there may be work already.
  virtual bool arm(std::uint16_t q) = 0;
  /// After waking: no more wake-ups wanted; also drains the wake source.
  virtual void disarm(std::uint16_t q) = 0;
  [[nodiscard]] virtual WakeSource wake_source(std::uint16_t q) = 0;

  /// True if packets can leave by this port now (link up).
  [[nodiscard]] virtual bool ready() const = 0;
  /// Which flooded packets the port wants, or null if all. Constant for the life of the port.
  [[nodiscard]] virtual const net::ReceiveFilter* filter() const { return nullptr; }
  [[nodiscard]] virtual std::vector<QueueView> queues() const = 0;
};

}  // namespace sluice::fabric
