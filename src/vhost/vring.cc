// Starting, pausing and stopping rings, and the positions they start at.
#include "vhost/vring.h"

#include <algorithm>
#include <array>
#include <utility>

#include "vhost/packed_restart.h"
#include "virtio/split_layout.h"

namespace sluice::vhost {
namespace {

net::QueueIndex queue(std::size_t index) {
  return net::QueueIndex(static_cast<std::uint16_t>(index));
}

virtio::RingPosition both(std::uint16_t position) {
  return {position, position};
}

// SET_VRING_BASE and GET_VRING_BASE: lower half avail, upper half used (packed rings only).
std::uint32_t encode(virtio::RingPosition position, bool packed) {
  const std::uint32_t used = packed ? position.used : 0;
  return position.avail | used << 16;
}

// Features that change what the bytes of a ring mean, for the fingerprint.
std::uint32_t ring_features(const virtio::FeatureSet& features) {
  constexpr std::array kFormat = {virtio::Feature::kRingPacked, virtio::Feature::kInOrder,
                                  virtio::Feature::kEventIdx, virtio::Feature::kIndirectDesc};
  std::uint32_t bits = 0;
  for (const virtio::Feature feature : kFormat) bits = bits << 1 | (features.has(feature) ? 1 : 0);
  return bits;
}

std::uint16_t split_restart_position(const virtio::RingConfig& ring, std::uint16_t base) {
  const virtio::SplitLayout layout(ring);
  const std::uint16_t used = layout.used_idx().load_acquire();
  const auto ahead = static_cast<std::uint16_t>(layout.avail_idx().load_acquire() - used);
  return ahead <= ring.size ? used : base;
}

}  // namespace

bool RingSet::any_running() const {
  return std::ranges::any_of(rings_, &Vring::running);
}

bool RingSet::packed() const {
  return environment_.features.has(virtio::Feature::kRingPacked);
}

bool RingSet::ready(const Vring& ring) const {
  return !ring.running && ring.kicked && ring.has_addresses && ring.config.size != 0 &&
         environment_.features_known && environment_.driver_ready && environment_.memory != nullptr;
}

Status RingSet::start(std::size_t index) {
  Vring& ring = at(index);
  if (!ready(ring)) return {};
  const Status started = try_start(index);
  ring.failure = started ? std::nullopt : std::optional(started.error());
  if (!started && started.error().code == ErrorCode::kTimeout) stuck_ = started.error();
  if (!started && ring.error != nullptr) ring.error->notify();
  return started;
}

Status RingSet::try_start(std::size_t index) {
  Vring& ring = at(index);
  virtio::QueueConfig config = ring.config;
  config.position = ring.paused_at.value_or(base_position(ring));
  virtio::RingConfig laid_out = TRY(config.layout(*environment_.memory, environment_.features));
  laid_out.memory = environment_.memory.get();
  laid_out.log = environment_.log.get();
  laid_out.log_used = ring.log_used;
  if (!ring.paused_at) laid_out.position = restart_position(index, laid_out);
  const std::uint16_t first = packed() ? virtio::kPackedStart : std::uint16_t{0};
  const bool goes_on = !ring.paused_at && laid_out.position != both(first);
  std::shared_ptr<void> record = begin_record(index, laid_out);
  device_.enable_queue(queue(index), ring.enabled);
  TRY(device_.start_queue(queue(index), {.ring = laid_out,
                                         .features = environment_.features,
                                         .memory = environment_.memory,
                                         .log = environment_.log,
                                         .keep_alive = std::move(record),
                                         .kick = ring.kick,
                                         .call = ring.call,
                                         .error = ring.error}));
  ring.running = true;
  ring.paused_at.reset();
  // Whoever served the ring before may have died between giving back and telling the driver.
  if (goes_on && ring.call != nullptr) ring.call->notify();
  return {};
}

void RingSet::start_ready() {
  // A ring that cannot start keeps its reason, and does not stop the others. Even ones first: see
  // pause().
  for (const std::size_t first : {std::size_t{0}, std::size_t{1}}) {
    for (std::size_t i = first; i < count(); i += 2) static_cast<void>(start(i));
  }
}

void RingSet::pause_ring(std::size_t index) {
  Vring& ring = at(index);
  if (!ring.running) return;
  ring.running = false;
  const Result<virtio::RingPosition> stopped = device_.stop_queue(queue(index));
  if (stopped) {
    ring.paused_at = *stopped;
  } else {
    stuck_ = stopped.error();
  }
}

// Odd rings, which packets come from (virtio 1.3, 5.1.2), pause first and go on last: what one
// queue pair sends to another of the same device waits in its ring and is not lost.
std::vector<std::size_t> RingSet::pause() {
  std::vector<std::size_t> paused;
  for (const std::size_t first : {std::size_t{1}, std::size_t{0}}) {
    for (std::size_t i = first; i < count(); i += 2) {
      if (at(i).running) paused.push_back(i);
      pause_ring(i);
    }
  }
  return paused;
}

// A ring that ran and cannot go on, because memory is gone altogether, tells its driver's side.
// (One that failed to start has told it already.)
void RingSet::report_lost(const std::vector<std::size_t>& paused) {
  for (const std::size_t index : paused) {
    Vring& ring = at(index);
    if (ring.running || ring.failure || environment_.memory != nullptr) continue;
    ring.failure = Error{ErrorCode::kBadAddress, "the memory of a running ring was taken away"};
    if (ring.error != nullptr) ring.error->notify();
  }
}

std::uint32_t RingSet::stop(std::size_t index) {
  Vring& ring = at(index);
  pause_ring(index);
  ring.kicked = false;
  ring.kick.reset();
  ring.failure.reset();
  if (ring.paused_at) {
    end_record(index, *ring.paused_at);
    ring.base = encode(*ring.paused_at, packed());
    ring.paused_at.reset();
  }
  if (!ring.base && ring.left_at) return *ring.left_at;
  return ring.base.value_or(encode(base_position(ring), packed()));
}

void RingSet::enable(std::size_t index, bool enabled) {
  at(index).enabled = enabled;
  if (at(index).running) device_.enable_queue(queue(index), enabled);
}

void RingSet::set_call(std::size_t index, std::shared_ptr<net::Notifier> call, bool is_fd) {
  Vring& ring = at(index);
  ring.call = std::move(call);
  ring.call_is_fd = is_fd;
  device_.set_call(queue(index), ring.call);
  // What was told to the former target, a moment ago, may not have reached the driver.
  if (ring.running && ring.call != nullptr) ring.call->notify();
}

void RingSet::reset() {
  for (std::size_t i = 0; i < count(); ++i) {
    const bool stood = at(i).running || at(i).paused_at || at(i).base || at(i).left_at;
    const std::uint32_t left_at = stop(i);
    enable(i, false);
    Vring fresh;
    // QEMU 7.2 resets the device before it asks where the rings stand (live migration). A ring that
    // stood nowhere has no such answer: its start depends on features that are yet to come.
    if (stood) fresh.left_at = left_at;
    fresh.call = std::move(at(i).call);
    fresh.error = std::move(at(i).error);
    fresh.call_is_fd = at(i).call_is_fd;
    fresh.error_is_fd = at(i).error_is_fd;
    at(i) = std::move(fresh);
  }
}

void RingSet::abandon() {
  for (std::size_t i = 0; i < count(); ++i) {
    pause_ring(i);
    if (at(i).enabled) device_.enable_queue(queue(i), false);
    if (at(i).call != nullptr) device_.set_call(queue(i), nullptr);
    at(i) = Vring();
  }
}

virtio::RingPosition RingSet::base_position(const Vring& ring) const {
  if (!ring.base) return packed() ? both(virtio::kPackedStart) : both(0);
  const auto avail = static_cast<std::uint16_t>(*ring.base & 0xffff);
  const auto used = static_cast<std::uint16_t>(*ring.base >> 16);
  const bool use_used = packed() && used != 0 && environment_.inflight != nullptr;
  return both(use_used ? used : avail);
}

RingFingerprint RingSet::fingerprint(const Vring& ring) const {
  RingFingerprint print;
  print.descriptors = ring.config.descriptors.raw();
  print.driver_area = ring.config.driver_area.raw();
  print.device_area = ring.config.device_area.raw();
  print.size = ring.config.size;
  print.features = ring_features(environment_.features);
  for (const auto& region : environment_.memory->regions()) {
    const std::uint64_t offset = print.descriptors - region->record.user.raw();
    if (offset >= region->record.size) continue;
    print.file_device = region->file_device;
    print.file_inode = region->file_inode;
    print.file_offset = region->record.offset + offset;
    print.region_size = region->record.size;
  }
  return print;
}

virtio::RingPosition RingSet::restart_position(std::size_t index,
                                               const virtio::RingConfig& ring) const {
  const std::uint16_t base = ring.position.avail;
  if (!packed()) return both(split_restart_position(ring, base));
  const auto number = static_cast<std::uint16_t>(index);
  const RingFingerprint print = fingerprint(at(index));
  const virtio::UsedPositionRecord* record = nullptr;
  const RingEnvironment& env = environment_;
  if (env.inflight != nullptr && env.inflight->table(number) != nullptr) {
    record = env.inflight->table(number)->find(number, print);
  }
  if (record == nullptr && env.records != nullptr && number < env.records->table().rings()) {
    record = env.records->table().find(number, print);
  }
  std::uint16_t position = base;
  if (record != nullptr) {
    position = packed_restart_position(ring, *record, base);
  } else if (const auto foreign = env.inflight == nullptr
                                      ? std::nullopt
                                      : env.inflight->foreign_position(number, ring.size)) {
    position = packed_restart_position(ring, *foreign, base);
  }
  // Finishing a dead server's batch wrote descriptors, which ones is not worth knowing.
  if (record != nullptr && env.log != nullptr) {
    env.log->mark(env.memory->guest_address(ring.descriptors),
                  std::uint64_t{ring.size} * sizeof(virtio::pvirtq_desc));
  }
  return both(position);
}

std::shared_ptr<void> RingSet::begin_record(std::size_t index, virtio::RingConfig& ring) {
  if (!packed()) return nullptr;
  const auto number = static_cast<std::uint16_t>(index);
  const RingFingerprint print = fingerprint(at(index));
  const RingEnvironment& env = environment_;
  const bool in_file = env.records != nullptr && number < env.records->table().rings();
  if (env.inflight != nullptr && env.inflight->table(number) != nullptr) {
    ring.used_record = env.inflight->table(number)->begin(number, print, ring.position.used);
    if (in_file) env.records->table().end(number);
    return env.inflight;
  }
  if (!in_file) return nullptr;
  ring.used_record = env.records->table().begin(number, print, ring.position.used);
  return env.records;
}

void RingSet::end_record(std::size_t index, virtio::RingPosition position) {
  const auto number = static_cast<std::uint16_t>(index);
  const RingEnvironment& env = environment_;
  if (env.records != nullptr && number < env.records->table().rings()) {
    env.records->table().end(number);
  }
  if (env.inflight == nullptr) return;
  if (const RecordTable* table = env.inflight->table(number)) table->end(number);
  if (packed()) env.inflight->note_stop(number, at(index).config.size, position.used);
}

}  // namespace sluice::vhost
