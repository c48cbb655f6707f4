// Vring and RingSet: what a session knows of each ring, and when a ring runs.
//
// A ring runs when all of this is there, in whatever order it came (virtio.md 2.5.1):
//   - its size and addresses, and memory that holds them;
//   - the driver's features;
//   - a kick: SET_VRING_KICK with a descriptor or without one, or a VRING_KICK message. The front-
//     end sends it last, so it starts the ring; the first kick of the guest may long be over (H04);
//   - DRIVER_OK, if the front-end ever told a device status in this session. Front-ends that
//     negotiate STATUS and never use it exist, so negotiating it alone does not hold a ring back.
// Whether a running ring is enabled is the device's business, once told.
//
// Where a ring starts:
//   split    at used.idx of ring memory, which is true even if the last server died. What lies
//            between it and avail.idx is taken again: transmitted frames perhaps twice, nothing
//            lost. If that index cannot be (a new driver on stale memory, H13), at the base.
//   packed   at the base, or after a crash where the record says (vhost/ring_records.h). The base
//            is the lower half of SET_VRING_BASE for both ends: peers leave the upper half zero
//            . It counts only beside an in-flight region.
//   paused   rings that we stopped ourselves, to change memory or logging, go on where they were.
//
// Threads: the control thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/unique_fd.h"
#include "memory/address.h"
#include "memory/dirty_log.h"
#include "memory/guest_memory.h"
#include "net/transport.h"
#include "vhost/inflight.h"
#include "vhost/ring_records.h"
#include "virtio/features.h"
#include "virtio/queue_config.h"

namespace sluice::vhost {

struct Vring {
  virtio::QueueConfig config;  // Its position is chosen at the start.
  bool has_addresses = false;
  std::optional<memory::GuestAddress> log_used;   // SET_VRING_ADDR with the log flag.
  std::optional<std::uint32_t> base;              // As SET_VRING_BASE or our own stop left it.
  std::optional<std::uint32_t> left_at;           // Where the last reset stopped it.
  std::optional<virtio::RingPosition> paused_at;  // Where we stopped it ourselves.

  std::shared_ptr<EventFd> kick;
  std::shared_ptr<net::Notifier> call;
  std::shared_ptr<net::Notifier> error;
  bool call_is_fd = false;  // Else it is null or in-band.
  bool error_is_fd = false;

  bool kicked = false;
  bool enabled = false;
  bool running = false;          // The device has it.
  std::optional<Error> failure;  // Why it could not start.
};

/// What all rings of a session share.
struct RingEnvironment {
  virtio::FeatureSet features;  // For the device: dependencies hold, no bits of the transport.
  bool features_known = false;
  bool driver_ready = true;
  std::shared_ptr<const memory::GuestMemory> memory;
  std::shared_ptr<const memory::DirtyLog> log;  // Null unless logging is on.
  std::shared_ptr<InflightRegion> inflight;
  std::shared_ptr<RingRecords> records;
};

class RingSet {
 public:
  RingSet(net::Device& device, std::uint16_t count) : device_(device), rings_(count) {}

  [[nodiscard]] std::size_t count() const { return rings_.size(); }
  /// Requires: index < count(), here and below.
  [[nodiscard]] Vring& at(std::size_t index) { return rings_[index]; }
  [[nodiscard]] const Vring& at(std::size_t index) const { return rings_[index]; }
  [[nodiscard]] bool any_running() const;
  /// Set once the device did not let go of a ring in time. Where that ring stands is not known, so
  /// no answer would be true: the session must end; the next one finds the position in the ring or
  /// its record.
  [[nodiscard]] const std::optional<Error>& stuck() const { return stuck_; }

  /// Read by everybody, changed only within change().
  [[nodiscard]] const RingEnvironment& environment() const { return environment_; }

  /// Pauses all running rings, lets `edit` change the environment, lets them go on, and starts
  /// those that can start now.
  template <class Edit>
  void change(Edit edit) {
    const std::vector<std::size_t> paused = pause();
    edit(environment_);
    start_ready();
    report_lost(paused);
  }
  /// The same for one ring and its configuration. Errors: it cannot start as it is now.
  template <class Edit>
  Status change_ring(std::size_t index, Edit edit) {
    pause_ring(index);
    edit(at(index));
    return start(index);
  }

  /// GET_VRING_BASE: stops the ring and forgets its kick; all else stays. Returns the base.
  std::uint32_t stop(std::size_t index);
  void enable(std::size_t index, bool enabled);
  void set_call(std::size_t index, std::shared_ptr<net::Notifier> call, bool is_fd);

  /// Device reset: all rings stopped, disabled, without configuration. Call and error targets
  /// stay: whoever wants others sends others.
  void reset();
  /// The front-end is gone without a word: like a crash of ours, records stay live.
  void abandon();

 private:
  [[nodiscard]] bool ready(const Vring& ring) const;
  Status start(std::size_t index);
  Status try_start(std::size_t index);
  void start_ready();
  void pause_ring(std::size_t index);
  std::vector<std::size_t> pause();
  void report_lost(const std::vector<std::size_t>& paused);

  [[nodiscard]] bool packed() const;
  [[nodiscard]] virtio::RingPosition base_position(const Vring& ring) const;
  [[nodiscard]] RingFingerprint fingerprint(const Vring& ring) const;
  [[nodiscard]] virtio::RingPosition restart_position(std::size_t index,
                                                      const virtio::RingConfig& ring) const;
  std::shared_ptr<void> begin_record(std::size_t index, virtio::RingConfig& ring);
  void end_record(std::size_t index, virtio::RingPosition position);

  net::Device& device_;
  std::vector<Vring> rings_;
  RingEnvironment environment_;
  std::optional<Error> stuck_;
};

}  // namespace sluice::vhost
