// Negotiation and the life of a driver's queues.
#include "net/net_driver.h"

#include <sys/random.h>

#include <algorithm>
#include <span>
#include <utility>

#include "base/check.h"

namespace sluice::net {
namespace {

using virtio::Feature;
using virtio::FeatureSet;

// A receive buffer for the largest segment that a device may hand over whole (5.1.6.3.1).
constexpr std::uint32_t kLargestReceive = 65'562;
constexpr std::size_t kMacOffset = 0;  // In virtio_net_config (5.1.4).

std::int64_t first_bit(const FeatureSet& set) {
  std::int64_t bit = 0;
  while (!set.has(static_cast<Feature>(bit))) ++bit;
  return bit;
}

Status check_options(const NetDriverOptions& options) {
  if (options.queue_pairs == 0 || options.queue_pairs > kQueuePairsMax) {
    return fail(ErrorCode::kInvalidArgument, "queue pairs must be 1 to 127", options.queue_pairs);
  }
  const FeatureSet unknown = (options.wanted | options.required) - kDriverFeatures;
  if (!unknown.empty()) {
    return fail(ErrorCode::kUnsupported, "the driver cannot use feature bit", first_bit(unknown));
  }
  return {};
}

// What to acknowledge of `offer`. Errors: kNotNegotiated.
Result<FeatureSet> choose(const NetDriverOptions& options, const FeatureSet& offer) {
  FeatureSet required = options.required;
  required.add(Feature::kVersion1);
  FeatureSet chosen = (options.wanted | required) & offer;
  if (!chosen.has(Feature::kMrgRxbuf) && options.buffer_stride < kLargestReceive) {
    // Without merging, such a segment must fit one buffer (NET-02).
    chosen = chosen - FeatureSet{Feature::kGuestTso4, Feature::kGuestTso6, Feature::kGuestEcn,
                                 Feature::kGuestUso4, Feature::kGuestUso6};
  }
  chosen = virtio::without_broken_dependencies(chosen);
  const FeatureSet missing = required - chosen;
  if (!missing.empty()) {
    return fail(ErrorCode::kNotNegotiated, "the device lacks required feature bit",
                first_bit(missing));
  }
  // MQ depends on CTRL_VQ, but the control queue is a shadow that the device never sees.
  if (options.queue_pairs > 1) {
    if (!offer.has(Feature::kMq)) {
      return fail(ErrorCode::kNotNegotiated, "the device has one queue pair only, no feature MQ",
                  static_cast<std::int64_t>(Feature::kMq));
    }
    chosen.add(Feature::kMq);
  }
  return chosen;
}

Result<std::shared_ptr<const EventFd>> new_event() {
  return std::make_shared<const EventFd>(TRY(EventFd::create()));
}

Status random_mac(MacAddress& mac) {
  if (::getrandom(mac.data(), mac.size(), 0) != static_cast<ssize_t>(mac.size())) {
    return fail_errno("cannot get random bytes");
  }
  mac[0] = static_cast<std::uint8_t>((mac[0] & 0xfc) | 0x02);  // Local, for one receiver.
  return {};
}

// Keeps the first error of several steps that must all be tried.
void note(Status& outcome, const Status& step) {
  if (outcome && !step) outcome = step;
}

}  // namespace

Result<NetDriver::Plan> NetDriver::plan(const NetDriverOptions& options,
                                        DriverTransport& transport) {
  const DeviceOffer offer = TRY(transport.offer());
  if (options.queue_pairs > offer.max_queue_pairs) {
    return fail(ErrorCode::kOutOfRange, "the device has fewer queue pairs", offer.max_queue_pairs);
  }
  const FeatureSet features = TRY(choose(options, offer.features));
  const auto count = static_cast<std::uint16_t>(options.queue_pairs * 2);
  DriverMemory memory = TRY(DriverMemory::create({.queues = count,
                                                  .queue_size = options.queue_size,
                                                  .queue_size_max = options.queue_size_max,
                                                  .buffer_stride = options.buffer_stride,
                                                  .buffer_lead = options.buffer_lead},
                                                 features));
  std::vector<Queue> queues(count);
  for (Queue& queue : queues) {
    queue.events.kick = TRY(new_event());
    queue.events.call = TRY(new_event());
  }
  return Plan{features, std::move(memory), std::move(queues)};
}

Result<std::unique_ptr<NetDriver>> NetDriver::create(const NetDriverOptions& options,
                                                     std::unique_ptr<DriverTransport> transport) {
  TRY(check_options(options));
  Plan made = TRY(plan(options, *transport));
  auto driver = std::make_unique<NetDriver>(options, std::move(transport), std::move(made));
  TRY(driver->find_mac());
  return driver;
}

NetDriver::NetDriver(const NetDriverOptions& options, std::unique_ptr<DriverTransport> transport,
                     Plan plan)
    : options_(options),
      transport_(std::move(transport)),
      features_(plan.features),
      memory_(std::move(plan.memory)),
      queues_(std::move(plan.queues)),
      active_pairs_(options.queue_pairs) {}

// A device that is left running would go on with memory it still has mapped; that harms nobody,
// but it is better told.
NetDriver::~NetDriver() {
  if (running_ && transport_->connected()) stop();
}

void NetDriver::keep(Plan plan) {
  features_ = plan.features;
  memory_ = std::move(plan.memory);
  queues_ = std::move(plan.queues);
  active_pairs_ = options_.queue_pairs;
}

Status NetDriver::find_mac() {
  if (options_.mac) {
    mac_ = *options_.mac;
    return {};
  }
  const DeviceOffer offer = TRY(transport_->offer());
  if (offer.features.has(Feature::kMac)) {
    // A vhost-user device may offer MAC and yet serve no configuration space.
    const auto bytes = std::as_writable_bytes(std::span(mac_));
    const Result<std::size_t> got = transport_->read_config(kMacOffset, bytes);
    if (got && *got == mac_.size()) return {};
    if (!got && got.error().code != ErrorCode::kNotNegotiated) {
      return std::unexpected(got.error());
    }
  }
  return random_mac(mac_);
}

RingSetup NetDriver::begin_epoch(QueueIndex index) {
  const Queue& queue = queues_[index.raw()];
  CHECK(queue.state == QueueState::kStopped, "an epoch begins on a stopped queue");
  memory_.clean(index);
  // Signals of the former epoch mean nothing in this one.
  queue.events.kick->drain();
  queue.events.call->drain();
  RingSetup setup = memory_.setup(index);
  setup.kick = queue.events.kick;
  setup.call = queue.events.call;
  setup.enabled = index.raw() / 2 < active_pairs_;
  return setup;
}

Status NetDriver::check_startable() const {
  if (running_) return fail(ErrorCode::kWrongState, "the driver is running");
  if (uncertain_) {
    return fail(ErrorCode::kWrongState, "the device may still use the memory: reset or reconnect");
  }
  return {};
}

Status NetDriver::start() {
  TRY(check_startable());
  std::vector<RingSetup> rings;
  memory_.deal_buffers();
  for (std::uint16_t i = 0; i < queue_count(); ++i) rings.push_back(begin_epoch(QueueIndex(i)));
  told_ = true;
  const Status started =
      transport_->start({.features = features_, .regions = regions(), .rings = rings});
  if (started) dma_->settle();
  uncertain_ = !started;
  running_ = started.has_value();
  for (Queue& queue : queues_) {
    queue.state = started ? QueueState::kRunning : QueueState::kUnknown;
  }
  return started;
}

Status NetDriver::stop() {
  if (uncertain_) {
    return fail(ErrorCode::kWrongState, "the device may still use the memory: reset or reconnect");
  }
  if (!running_) return {};
  running_ = false;
  // All are disabled before the first is stopped: else the device would spread the traffic of the
  // queues that stop first over those that stop last.
  for (std::uint16_t i = 0; i < active_pairs_ * 2; ++i) {
    const Status disabled = transport_->enable_queue(QueueIndex(i), false);
    if (!disabled && disabled.error().code != ErrorCode::kNotNegotiated) break;
  }
  Status outcome;
  for (std::uint16_t i = 0; i < queue_count(); ++i) {
    const Result<virtio::RingPosition> stopped = transport_->stop_queue(QueueIndex(i));
    queues_[i].state = stopped ? QueueState::kStopped : QueueState::kUnknown;
    if (!stopped) note(outcome, std::unexpected(stopped.error()));
  }
  uncertain_ = !outcome;
  return outcome;
}

Status NetDriver::reset_queue(QueueIndex index) {
  if (!running_) return fail(ErrorCode::kWrongState, "the driver is not running");
  if (index.raw() >= queue_count()) {
    return fail(ErrorCode::kOutOfRange, "the driver has no such queue", index.raw());
  }
  if (!features_.has(Feature::kRingReset)) {
    return fail(ErrorCode::kNotNegotiated,
                "the device cannot reset one queue (no RING_RESET): stop and start all",
                static_cast<std::int64_t>(Feature::kRingReset));
  }
  Queue& queue = queues_[index.raw()];
  if (queue.state == QueueState::kUnknown) {
    return fail(ErrorCode::kWrongState, "the device may still use the ring", index.raw());
  }
  if (queue.state == QueueState::kStopped) return {};
  queue.state = QueueState::kUnknown;
  TRY(transport_->stop_queue(index));
  queue.state = QueueState::kStopped;
  return {};
}

Status NetDriver::restart_queue(QueueIndex index, std::uint32_t size) {
  TRY(reset_queue(index));
  TRY(memory_.check_buffers(index));
  if (size != 0) TRY(memory_.resize(index, size));
  const RingSetup setup = begin_epoch(index);
  Queue& queue = queues_[index.raw()];
  queue.state = QueueState::kUnknown;
  TRY(transport_->start_queue(setup));
  queue.state = QueueState::kRunning;
  return {};
}

Status NetDriver::resize_queue(QueueIndex index, std::uint32_t size) {
  TRY(check_startable());
  if (index.raw() >= queue_count()) {
    return fail(ErrorCode::kOutOfRange, "the driver has no such queue", index.raw());
  }
  return memory_.resize(index, size);
}

Status NetDriver::reset() {
  running_ = false;
  uncertain_ = true;
  TRY(transport_->reset());
  uncertain_ = false;
  for (Queue& queue : queues_) queue.state = QueueState::kStopped;
  return {};
}

Status NetDriver::reconnect(std::unique_ptr<DriverTransport> transport) {
  NetDriverOptions same = options_;
  // MQ comes by itself with the number of queues.
  same.required = features_ - FeatureSet{Feature::kMq};
  same.wanted = same.required;
  Plan made = TRY(plan(same, *transport));
  TRY(dma_->renew());
  const std::uint16_t active = active_pairs_;
  transport_ = std::move(transport);
  keep(std::move(made));
  active_pairs_ = active;
  told_ = false;
  dma_->settle();
  running_ = false;
  uncertain_ = false;
  return {};
}

Status NetDriver::reconfigure(std::uint16_t queue_pairs, std::uint32_t queue_size) {
  TRY(check_startable());
  NetDriverOptions next = options_;
  next.queue_pairs = queue_pairs;
  next.queue_size = queue_size;
  if (next.queue_pairs == options_.queue_pairs && next.queue_size == options_.queue_size) return {};
  TRY(check_options(next));
  Plan made = TRY(plan(next, *transport_));
  options_ = next;
  keep(std::move(made));
  return {};
}

Status NetDriver::set_active_pairs(std::uint16_t pairs) {
  if (pairs == 0 || pairs > queue_pairs()) {
    return fail(ErrorCode::kOutOfRange, "queue pairs in use must be 1 to the driver's", pairs);
  }
  const std::uint16_t before = active_pairs_;
  if (running_) {
    const std::uint16_t first = std::min(pairs, before);
    const std::uint16_t last = std::max(pairs, before);
    for (std::uint16_t i = static_cast<std::uint16_t>(first * 2); i < last * 2; ++i) {
      TRY(transport_->enable_queue(QueueIndex(i), pairs > before));
    }
  }
  active_pairs_ = pairs;
  return {};
}

Result<DriverQueueStart> NetDriver::queue(QueueIndex index) const {
  if (index.raw() >= queue_count()) {
    return fail(ErrorCode::kOutOfRange, "the driver has no such queue", index.raw());
  }
  const Queue& queue = queues_[index.raw()];
  if (!running_ || queue.state != QueueState::kRunning) {
    return fail(ErrorCode::kWrongState, "the queue is not running", index.raw());
  }
  DriverQueueStart start = memory_.start(index);
  start.kick = queue.events.kick;
  start.call = queue.events.call;
  start.dma = dma_;
  return start;
}

// --- Memory of the application -------------------------------------------------------------------

std::vector<SharedRegion> NetDriver::regions() const {
  std::vector<SharedRegion> all = {memory_.region()};
  for (const memory::DmaRegion& region : dma_->regions()) all.push_back({region.record, region.fd});
  return all;
}

Result<memory::DmaMapping> NetDriver::map_memory(std::span<std::byte> bytes, int fd,
                                                 std::uint64_t offset) {
  return share(TRY(dma_->map_shared(bytes, fd, offset)));
}

Result<memory::DmaMapping> NetDriver::map_memory(std::span<std::byte> bytes) {
  return share(TRY(dma_->map_bounced(bytes)));
}

Result<memory::DmaMapping> NetDriver::share(const memory::DmaMapping& mapping) {
  if (!running_) return mapping;
  const Status shared = transport_->set_memory(regions());
  if (shared) {
    dma_->settle();  // The device has let go of whatever an unmap_memory() that failed left.
    return mapping;
  }
  TRY(dma_->retire(mapping.id));
  // A device that refuses a new table may have lost the old one.
  const bool kept = shared.error().code == ErrorCode::kOutOfRange ||
                    transport_->set_memory(regions()).has_value();
  if (kept) {
    dma_->cancel(mapping.id);
  } else {
    running_ = false;
    uncertain_ = true;
    for (Queue& queue : queues_) queue.state = QueueState::kUnknown;
  }
  return std::unexpected(shared.error());
}

Status NetDriver::unmap_memory(memory::DmaId id) {
  TRY(dma_->retire(id));
  if (told_) TRY(transport_->set_memory(regions()));
  dma_->settle();
  return {};
}

}  // namespace sluice::net
