// The paths of a device's queues, and the only place that selects one.
//
// A path = ring format x order (x receive-buffer mode). It is chosen once, when the queue starts,
// held in a variant, and visited once per burst. Its name is what `sluice queue show` prints.
// Views of guest memory (the Burst) never outlive the lock of the queue they came from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "base/error.h"
#include "net/drop.h"
#include "net/transport.h"
#include "packet/packet.h"
#include "virtio/ring.h"

namespace sluice::net {

/// What the port decides for its queues, beside what was negotiated.
struct QueueOptions {
  bool one_used_entry = false;  // ORD-03/04 towards drivers known to walk batches; in order only.
  std::uint16_t mtu = 65535;    // Largest payload (frame without Ethernet header) to the driver.
};

/// A running transmitq seen from the device: packets come from the driver.
/// Threads: one at a time; the port's queue lock sees to that.
class TransmitPath {
 public:
  TransmitPath();
  TransmitPath(TransmitPath&&) noexcept;
  TransmitPath& operator=(TransmitPath&&) noexcept;
  ~TransmitPath();

  /// Chooses and starts the path. Requires: start.ring is valid.
  [[nodiscard]] static TransmitPath make(const QueueStart& start, const QueueOptions& options,
                                         DirectionCounters& counters);

  /// Clears `burst` and fills it with what the driver transmitted, at most `max` (<= kBurstMax)
  /// packets. Bad packets are dropped and counted here. The views stay valid until release().
  std::size_t take(packet::Burst& burst, std::size_t max);
  /// Gives everything taken back to the driver and interrupts it if it wants that.
  void release();

  /// Another target for interrupts; null: the driver polls.
  void set_call(std::shared_ptr<Notifier> call);
  [[nodiscard]] bool has_work() const;
  /// Turns kicks by the driver on or off; after turning them on, ask has_work() again (EVI-05).
  void set_kicks(bool wanted);
  [[nodiscard]] virtio::RingPosition position() const;
  /// Why the ring broke, if it did. Nothing is taken from a broken ring.
  [[nodiscard]] std::optional<Error> error() const;
  [[nodiscard]] std::string_view name() const;

  struct Impl;

 private:
  explicit TransmitPath(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// A running receiveq seen from the device: packets go to the driver.
class ReceivePath {
 public:
  ReceivePath();
  ReceivePath(ReceivePath&&) noexcept;
  ReceivePath& operator=(ReceivePath&&) noexcept;
  ~ReceivePath();

  [[nodiscard]] static ReceivePath make(const QueueStart& start, const QueueOptions& options,
                                        DirectionCounters& counters);

  /// Copies the packets burst.packets[which[i]] into the driver's buffers, in that order, and
  /// publishes once. Offload facts the driver did not negotiate are completed in software first.
  /// Returns how many were delivered; the others were dropped and counted.
  std::size_t deliver(const packet::Burst& burst, std::span<const packet::PacketIndex> which);

  void set_call(std::shared_ptr<Notifier> call);
  [[nodiscard]] bool has_buffers() const;
  void set_kicks(bool wanted);
  [[nodiscard]] virtio::RingPosition position() const;
  [[nodiscard]] std::optional<Error> error() const;
  [[nodiscard]] std::string_view name() const;

  struct Impl;

 private:
  explicit ReceivePath(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::net
