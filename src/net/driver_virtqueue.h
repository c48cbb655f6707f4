// DriverVirtqueue: one virtqueue of a driver with the application's own buffers, on any of the four
// rings; which one is chosen once, from the negotiated features.
//
//   add_*buf*() -> kick() -> collect()
//
// Out: the device reads. In: it writes. A buffer is named by our addresses, which are translated
// (add_outbuf, add_inbuf), or by the device's, which are in hand since NetDriver::map_memory()
// (premapped); both kinds may be in one ring. All of it must lie in mappings or in the driver's own
// buffers (DriverQueueStart::buffers), else the buffer is refused. In memory behind a bounce area
// ordinary buffers are copied here; premapped ones by the caller, who knows when and how much:
// memory().sync_for_device() before they are added, sync_for_cpu() after they came back.
//
// A buffer of several segments takes one ring slot if INDIRECT_DESC was negotiated and it has at
// most virtio::kIndirectSegmentsMax of them, else a slot for each.
//
// The virtio-net header is part of the buffers here (net/net_header.h).
//
// The device is hostile: a buffer comes back at most once, `written` is bounded by what it may
// write, and a ring that breaks stops with error().
//
// Threads: one at a time for each queue; NetDriver's control thread may map and unmap meanwhile.
// Bursts never wait, log or allocate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "base/error.h"
#include "memory/dma_map.h"
#include "net/driver_start.h"

namespace sluice::net {

/// Bytes by the device's address.
struct DmaSegment {
  memory::GuestAddress address;
  std::uint32_t length = 0;
};
/// Buffers to add in a burst. `token` comes back in collect(), whatever it is.
struct PremappedBuffer {
  std::uint64_t token = 0;
  std::span<const DmaSegment> segments;
};
struct OutBuffer {
  std::uint64_t token = 0;
  std::span<const std::span<const std::byte>> pieces;
};
struct InBuffer {
  std::uint64_t token = 0;
  std::span<const std::span<std::byte>> pieces;
};
/// A buffer that the device is done with.
struct ReturnedBuffer {
  std::uint64_t token = 0;
  std::uint32_t written = 0;  // Bytes, from its start; never more than it has for the device.
};

class DriverVirtqueue {
 public:
  struct Options {
    bool indirect = true;  // Use indirect tables where they were negotiated.
  };

  DriverVirtqueue();
  DriverVirtqueue(DriverVirtqueue&&) noexcept;
  DriverVirtqueue& operator=(DriverVirtqueue&&) noexcept;
  ~DriverVirtqueue();
  [[nodiscard]] static DriverVirtqueue make(const DriverQueueStart& start, const Options& options);
  [[nodiscard]] static DriverVirtqueue make(const DriverQueueStart& start);

  /// Add one buffer and publish it. Errors: kBadAddress if a byte of it is in no mapping;
  /// kInvalidArgument without segments, for an empty one, or 4 GiB and more; kOutOfRange for more
  /// segments than the queue has entries (or virtio::kChainSegmentsMax); kUnsupported for an
  /// ordinary in-buffer of several pieces behind a bounce area (premap it); kWrongState if there is
  /// no room now; error() if the ring broke.
  Status add_outbuf(std::uint64_t token, std::span<const std::span<const std::byte>> pieces);
  Status add_inbuf(std::uint64_t token, std::span<const std::span<std::byte>> pieces);
  Status add_outbuf_premapped(std::uint64_t token, std::span<const DmaSegment> segments);
  Status add_inbuf_premapped(std::uint64_t token, std::span<const DmaSegment> segments);

  /// The same for bursts. They stop before the first buffer that cannot be added, which the
  /// function for one buffer says more of, and return how many were.
  std::size_t add_outbufs(std::span<const OutBuffer> buffers);
  std::size_t add_inbufs(std::span<const InBuffer> buffers);
  std::size_t add_outbufs_premapped(std::span<const PremappedBuffer> buffers);
  std::size_t add_inbufs_premapped(std::span<const PremappedBuffer> buffers);

  /// Buffers that came back; in the order added, if IN_ORDER was negotiated.
  std::size_t collect(std::span<ReturnedBuffer> out);
  /// After NetDriver::reset_queue() or stop(): hands the token of every buffer that the device had
  /// to `back`, each once. The queue does nothing more: error() says so.
  void recall(const std::function<void(std::uint64_t)>& back);

  /// Must the device be told of what was added since the last call? Once a burst.
  [[nodiscard]] bool should_notify();
  /// Tells it if it must be.
  void kick();
  /// Interrupts by DriverQueueStart::call; after turning them on look at has_used().
  void set_interrupts(bool wanted);
  [[nodiscard]] bool has_used() const;

  /// The application's memory as it is mapped now: needs_sync(), sync_for_device(), sync_for_cpu().
  [[nodiscard]] const memory::DmaTable& memory();

  [[nodiscard]] std::size_t free_slots() const;
  [[nodiscard]] std::size_t outstanding() const;  // Buffers added, not yet collected.
  [[nodiscard]] std::uint64_t kicks() const;
  [[nodiscard]] std::optional<Error> error() const;
  [[nodiscard]] std::string_view name() const;

  struct Impl;

 private:
  explicit DriverVirtqueue(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::net
