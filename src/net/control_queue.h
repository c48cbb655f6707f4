// The control queue: commands of the driver (virtio 1.3, 5.1.6.5), one row each in a table.
//
// Every command gets an answer: one byte, OK or ERR, in the first writable byte of its buffer
// (CTL-01). A command may be cut into descriptors anywhere (CTL-02); it is copied out whole, once,
// and only the copy is looked at. What was not negotiated, is unknown, too short or too long is
// answered ERR and changes nothing.
//
// Threads: the control thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "net/receive_filter.h"
#include "net/transport.h"
#include "virtio/features.h"
#include "virtio/ring.h"

namespace sluice::net {

/// Longest command that is read: two tables of more than a thousand addresses each.
inline constexpr std::size_t kControlCommandMax = 16 * 1024;

inline constexpr std::uint8_t kControlOk = 0;     // VIRTIO_NET_OK
inline constexpr std::uint8_t kControlError = 1;  // VIRTIO_NET_ERR

/// What commands change. Whoever implements it has done so when the call returns, for the driver
/// then sees the command used.
class ControlTarget {
 public:
  virtual ~ControlTarget() = default;
  virtual void set_promiscuous(bool on) = 0;
  virtual void set_all_multicast(bool on) = 0;
  virtual void set_mac_tables(std::span<const PackedMac> unicast,
                              std::span<const PackedMac> multicast) = 0;
  /// False if the device does not let its driver choose this address.
  virtual bool set_mac_address(PackedMac mac) = 0;
  virtual void announced() = 0;
  /// Requires: 1 <= pairs <= max_queue_pairs().
  virtual bool use_queue_pairs(std::uint16_t pairs) = 0;
  [[nodiscard]] virtual std::uint16_t command_max_queue_pairs() const = 0;
  /// GUEST_* features in force from now on; a subset of those negotiated. False if a queue could
  /// not be told.
  virtual bool set_guest_offloads(const virtio::FeatureSet& offloads) = 0;
};

/// Carries out one command (class, command, data; without the answer's byte). True if it was OK.
[[nodiscard]] bool execute_control_command(std::span<const std::byte> command,
                                           const virtio::FeatureSet& negotiated,
                                           ControlTarget& target);

/// A running control queue.
class ControlQueue {
 public:
  /// Requires: start.ring is valid.
  ControlQueue(const QueueStart& start, ControlTarget& target);
  ~ControlQueue();
  ControlQueue(const ControlQueue&) = delete;
  ControlQueue& operator=(const ControlQueue&) = delete;

  /// Carries out what the driver posted, a bounded number at a time. True if there is more.
  bool serve();
  void set_call(std::shared_ptr<Notifier> call);

  [[nodiscard]] std::uint32_t size() const;
  [[nodiscard]] virtio::RingPosition position() const;
  [[nodiscard]] const std::optional<Error>& error() const;
  [[nodiscard]] std::uint64_t commands() const;
  [[nodiscard]] std::uint64_t refused() const;

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::net
