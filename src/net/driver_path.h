// DriverReceivePath, DriverTransmitPath: the queues of a virtio-net driver as a switch uses them,
// by bursts of packets. They are to a driver what net/path.h is to a device.
//
// The device is hostile: frames are views of memory that it may change at any time, so headers and
// the first bytes of each frame are copied once and the copies are looked at; marks that contradict
// the frame or the negotiation drop it (NET-10..NET-16).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "base/error.h"
#include "net/driver_queue.h"
#include "net/driver_start.h"
#include "net/drop.h"
#include "net/net_header.h"
#include "net/software_offload.h"
#include "packet/packet.h"

namespace sluice::net {

/// A running receiveq seen from the driver: packets come from the device.
/// Threads: one at a time; the port's queue lock sees to that.
class DriverReceivePath {
 public:
  DriverReceivePath() = default;
  /// Posts all buffers. `counters` outlives the path.
  DriverReceivePath(const DriverQueueStart& start, DirectionCounters& counters);

  /// Clears `burst` and fills it with at most kBurstMax packets from the device. Bad ones are
  /// dropped and counted here. The views stay valid until release(). If it returns 0, nothing is
  /// held.
  std::size_t take(packet::Burst& burst);
  /// Gives the buffers of everything taken back to the device.
  void release();

  /// After the device stopped using the ring: takes back the buffers that it had, each once.
  /// Returns how many. Only error() and name() may be called afterwards.
  std::size_t recall();

  /// Turns interrupts by the device on or off; after turning them on, ask has_work().
  void set_interrupts(bool wanted) { queue_.set_interrupts(wanted); }
  [[nodiscard]] bool has_work() const { return queue_.has_frames(); }
  /// Why the ring broke, if it did.
  [[nodiscard]] std::optional<Error> error() const { return queue_.error(); }
  [[nodiscard]] std::string_view name() const { return queue_.name(); }

 private:
  [[nodiscard]] bool build(std::span<const DriverFrame> parts, packet::Burst& burst,
                           packet::Packet& packet);
  std::uint32_t build_all(std::span<const DriverFrame> frames, packet::Burst& burst);
  bool drop(DropCause cause);

  DriverReceiveQueue queue_;
  OffloadRules rules_;
  DirectionCounters* counters_ = nullptr;
  std::size_t rest_ = 0;  // Buffers to come that belong to a packet which was dropped.
  std::array<DriverFrame, kDriverHeldMax> frames_{};
};

/// A running transmitq seen from the driver: packets go to the device.
class DriverTransmitPath {
 public:
  DriverTransmitPath() = default;
  /// `mtu`: largest payload (frame without Ethernet header), bytes; 65535: any.
  DriverTransmitPath(const DriverQueueStart& start, std::uint16_t mtu, DirectionCounters& counters);

  /// Copies the packets burst.packets[which[i]] into buffers and sends them, in that order. What
  /// the device does not do for them is done in software first. Returns how many went; the others
  /// were dropped and counted.
  std::size_t deliver(const packet::Burst& burst, std::span<const packet::PacketIndex> which);
  /// As DriverReceivePath::recall(). Buffers that were sent and not looked for since are among
  /// them.
  std::size_t recall();

  [[nodiscard]] std::optional<Error> error() const { return queue_.error(); }
  [[nodiscard]] std::string_view name() const { return queue_.name(); }

 private:
  bool deliver_one(const packet::Burst& burst, const packet::Packet& packet);
  bool place(const packet::Burst& burst, const packet::Packet& packet);
  bool open_buffer();
  void submit();
  bool drop(DropCause cause);

  DriverTransmitQueue queue_;
  OffloadRules rules_;
  std::uint32_t frame_max_ = 0;
  DirectionCounters* counters_ = nullptr;
  SoftwareOffload offload_;
  std::size_t have_ = 0;  // Buffers reserved, ...
  std::size_t used_ = 0;  // ... and how many of them are filled.
  bool dry_ = false;      // The device has all buffers: do not ask the ring again this burst.
  std::array<DriverFrame, kDriverBurstMax> frames_{};
};

}  // namespace sluice::net
