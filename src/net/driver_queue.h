// The packet path of a virtio-net driver: DriverTransmitQueue and DriverReceiveQueue, seen by the
// application. The variants behind them are chosen once, from the negotiated features.
//
// Transmit: reserve() gives buffers to write frames into, submit() sends them; no copy is made.
// Receive: receive() gives filled buffers, repost() gives them back to the device; the frames are
// valid in between. In order, buffer i stays with ring slot i for ever, so descriptors are written
// once (see virtio/split_driver.h).
//
// The device is hostile: lengths and counts are clamped to what was posted, and a ring that breaks
// stops with error().
//
// Threads: one at a time for each queue.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "base/counter.h"
#include "base/error.h"
#include "net/driver_start.h"
#include "packet/packet.h"

namespace sluice::net {

/// A frame in a driver's buffer.
struct DriverFrame {
  std::byte* data;          // First byte of the frame (behind the virtio header).
  std::uint32_t length;     // Transmit: capacity on reserve(), set to the frame's length.
  std::uint32_t token;      // The buffer's number.
  packet::Offload offload;  // Marks: to send with (transmit), or as received.
  std::uint16_t continues;  // Receive: how many of the next frames belong to this packet too.
};

struct DriverCounters {
  Counter packets;
  Counter bytes;
  Counter kicks;
  Counter bad_headers;  // num_buffers that cannot be (NET-09), lengths below the header.
};

/// Most frames in one call.
inline constexpr std::size_t kDriverBurstMax = 64;
/// Most received frames that the application has at once.
inline constexpr std::size_t kDriverHeldMax = 2 * kDriverBurstMax;

class DriverReceiveQueue;

class DriverTransmitQueue {
 public:
  DriverTransmitQueue();
  DriverTransmitQueue(DriverTransmitQueue&&) noexcept;
  DriverTransmitQueue& operator=(DriverTransmitQueue&&) noexcept;
  ~DriverTransmitQueue();
  [[nodiscard]] static DriverTransmitQueue make(const DriverQueueStart& start);

  /// Up to out.size() (<= kDriverBurstMax) buffers to write frames into; frees what the device has
  /// sent first. Frames reserved and not submitted are simply reserved again next time.
  std::size_t reserve(std::span<DriverFrame> out);
  /// Sends frames of the last reserve(), which must be its first ones in order, and kicks the
  /// device if it sleeps. A length beyond the buffer is cut.
  void submit(std::span<const DriverFrame> frames);

  /// Sends frames on that `from`, a receiveq of the same driver, received since its last repost(),
  /// where they lie: their buffers become this queue's, and `from` reposts free ones of it instead.
  /// `frames` are some of those, in order; length and marks may have been changed. Returns how many
  /// went: fewer if the ring is full, or at a packet of several buffers. The others are still
  /// `from`'s, and so is the call of repost(). None goes to a queue of another driver.
  /// Threads: the holder of both queues.
  std::size_t forward(DriverReceiveQueue& from, std::span<const DriverFrame> frames);

  /// After NetDriver::reset_queue(): hands the token of every buffer that the device had to `back`,
  /// each once; in order, as they were sent. The queue does nothing more: error() says so.
  void recall(const std::function<void(std::uint32_t)>& back);

  [[nodiscard]] std::size_t outstanding() const;
  [[nodiscard]] const DriverCounters& counters() const;
  [[nodiscard]] std::optional<Error> error() const;
  [[nodiscard]] std::string_view name() const;

  struct Impl;

 private:
  explicit DriverTransmitQueue(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

class DriverReceiveQueue {
 public:
  DriverReceiveQueue();
  DriverReceiveQueue(DriverReceiveQueue&&) noexcept;
  DriverReceiveQueue& operator=(DriverReceiveQueue&&) noexcept;
  ~DriverReceiveQueue();
  /// Posts all buffers.
  [[nodiscard]] static DriverReceiveQueue make(const DriverQueueStart& start);

  /// Frames that arrived, one entry a buffer; `continues` says which belong together (mergeable
  /// receive buffers). Valid until repost(). Several calls may come before it, as long as they ask
  /// for no more than kDriverHeldMax frames together.
  std::size_t receive(std::span<DriverFrame> out);
  /// Gives all buffers received since the last repost() back to the device.
  void repost();

  /// Interrupts for a receiver that wants to sleep; after turning them on look again.
  void set_interrupts(bool wanted);
  [[nodiscard]] bool has_frames() const;

  /// As DriverTransmitQueue::recall(). Frames that the application has are its own: their tokens
  /// do not come again.
  void recall(const std::function<void(std::uint32_t)>& back);
  [[nodiscard]] std::size_t outstanding() const;
  [[nodiscard]] const DriverCounters& counters() const;
  [[nodiscard]] std::optional<Error> error() const;
  [[nodiscard]] std::string_view name() const;

  struct Impl;

 private:
  friend class DriverTransmitQueue;
  explicit DriverReceiveQueue(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::net
