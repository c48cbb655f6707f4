// Layout of the driver's shared memory.
#include "net/driver_memory.h"

#include <fcntl.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/cache_line.h"
#include "base/check.h"
#include "virtio/indirect_tables.h"
#include "virtio/queue_config.h"
#include "virtio/spec.h"

namespace sluice::net {
namespace {

// Two lines: processors fetch lines in pairs, and the two ends of a ring write different areas.
constexpr std::uint64_t kAreaAlignment = 2 * kCacheLine;
// Shared memory is mapped by the page; a region that ends within one would be odd for a device.
constexpr std::uint64_t kPage = 4096;
constexpr std::uint32_t kSmallestStride = 3 * kCacheLine;
constexpr std::uint32_t kLargestStride = 1U << 20;
constexpr std::uint32_t kLargestLead = 52;  // Header and 64 bytes of frame then end with a line.

std::uint64_t round_up(std::uint64_t value, std::uint64_t to) {
  return (value + to - 1) / to * to;
}

Status check_size(std::uint32_t size, bool packed) {
  if (size == 0 || size > virtio::kQueueSizeMax) {
    return fail(ErrorCode::kInvalidArgument, "queue size must be 1 to 32768", size);
  }
  if (!packed && !std::has_single_bit(size)) {
    return fail(ErrorCode::kInvalidArgument, "size of a split ring must be a power of two", size);
  }
  return {};
}

Status check(const DriverMemory::Geometry& geometry, bool packed) {
  if (geometry.queues == 0 || geometry.queues > 2 * kQueuePairsMax) {
    return fail(ErrorCode::kInvalidArgument, "number of queues must be 2 to 254", geometry.queues);
  }
  TRY(check_size(geometry.queue_size, packed));
  if (geometry.queue_size_max != 0) TRY(check_size(geometry.queue_size_max, packed));
  const std::uint32_t stride = geometry.buffer_stride;
  if (stride < kSmallestStride || stride > kLargestStride || stride % (2 * kCacheLine) == 0 ||
      stride % kCacheLine != 0) {
    return fail(ErrorCode::kInvalidArgument,
                "packet buffers must lie an odd number of cache lines apart, 3 at least", stride);
  }
  if (geometry.buffer_lead > kLargestLead || geometry.buffer_lead % 2 != 0) {
    return fail(ErrorCode::kInvalidArgument, "a packet buffer begins at an even place, 0 to 52",
                geometry.buffer_lead);
  }
  return {};
}

void store(std::byte* to, std::uint16_t value) {
  std::memcpy(to, &value, sizeof value);
}

}  // namespace

DriverMemory::Block::~Block() {
  const auto size = static_cast<off_t>(mapping.bytes().size());
  ::fallocate(fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, size);
}

Result<DriverMemory> DriverMemory::create(const Geometry& geometry,
                                          const virtio::FeatureSet& features) {
  TRY(check(geometry, features.has(virtio::Feature::kRingPacked)));
  DriverMemory memory;
  memory.geometry_ = geometry;
  memory.features_ = features;
  const std::uint32_t size_max = std::max(geometry.queue_size, geometry.queue_size_max);
  memory.geometry_.queue_size_max = size_max;
  memory.sizes_.assign(geometry.queues, geometry.queue_size);
  const auto sizes = virtio::QueueConfig::area_sizes(size_max, features);
  // No sum can wrap: 254 queues of 32768 buffers of 1 MiB are 2^43 bytes.
  std::uint64_t end = 0;
  const auto place = [&end](std::uint64_t size, std::uint64_t alignment) {
    const std::uint64_t at = round_up(end, alignment);
    end = at + size;
    return at;
  };
  for (std::uint16_t i = 0; i < geometry.queues; ++i) {
    Places places{};
    places.descriptors = place(sizes.descriptors, kAreaAlignment);
    places.driver_area = place(sizes.driver_area, kAreaAlignment);
    places.device_area = place(sizes.device_area, kAreaAlignment);
    memory.places_.push_back(places);
  }
  end = round_up(end, kPage);
  memory.buffers_ = end + geometry.buffer_lead;
  // The last buffer reaches into one line more when buffers begin within a line.
  place(std::uint64_t{geometry.queues} * size_max * geometry.buffer_stride + kCacheLine,
        kCacheLine);
  if (features.has(virtio::Feature::kIndirectDesc)) {
    for (Places& places : memory.places_) {
      places.tables = place(virtio::IndirectTables::area_size(size_max), kAreaAlignment);
    }
  }
  CHECK(kGuestBase + end <= kDmaWindow.device.raw(), "other memory has addresses of its own");
  auto shared = TRY(memory::Mapping::create_shared("sluice-driver", round_up(end, kPage)));
  memory.block_ = std::make_shared<const Block>(std::move(shared.mapping), std::move(shared.fd));
  for (std::uint16_t i = 0; i < geometry.queues; ++i) memory.clean(QueueIndex(i));
  memory.deal_buffers();
  return memory;
}

SharedRegion DriverMemory::region() const {
  return {.record = {.guest = memory::GuestAddress(kGuestBase),
                     .size = bytes().size(),
                     .user = memory::UserAddress(kUserBase),
                     .offset = 0},
          .fd = block_->fd.get()};
}

virtio::RingConfig DriverMemory::ring(QueueIndex queue) const {
  CHECK(queue.raw() < places_.size(), "the driver has this queue");
  const Places& places = places_[queue.raw()];
  std::byte* const base = bytes().data();
  virtio::RingConfig ring;
  ring.size = sizes_[queue.raw()];
  ring.descriptors = base + places.descriptors;
  ring.driver_area = base + places.driver_area;
  ring.device_area = base + places.device_area;
  if (features_.has(virtio::Feature::kRingPacked)) {
    ring.position = {.avail = virtio::kPackedStart, .used = virtio::kPackedStart};
  }
  ring.event_idx = features_.has(virtio::Feature::kEventIdx);
  ring.indirect = features_.has(virtio::Feature::kIndirectDesc);
  if (places.tables != 0) ring.indirect_area = {base + places.tables, kGuestBase + places.tables};
  return ring;
}

RingSetup DriverMemory::setup(QueueIndex queue) const {
  const virtio::RingConfig config = ring(queue);
  const Places& places = places_[queue.raw()];
  RingSetup setup;
  setup.queue = queue;
  setup.size = config.size;
  setup.descriptors = memory::UserAddress(kUserBase + places.descriptors);
  setup.driver_area = memory::UserAddress(kUserBase + places.driver_area);
  setup.device_area = memory::UserAddress(kUserBase + places.device_area);
  setup.position = config.position;
  return setup;
}

DriverQueueStart DriverMemory::start(QueueIndex queue) const {
  DriverQueueStart start;
  start.ring = ring(queue);
  start.features = features_;
  const std::size_t stride = geometry_.buffer_stride;
  const std::size_t count = std::size_t{geometry_.queues} * geometry_.queue_size_max;
  start.buffers = bytes().subspan(buffers_, count * stride);
  start.buffers_guest_address = kGuestBase + buffers_;
  start.buffer_stride = stride;
  start.buffer_size = stride;
  start.own_buffers = own_buffers_[queue.raw()];
  start.memory = {block_, &block_->mapping};
  return start;
}

void DriverMemory::deal_buffers() {
  own_buffers_.clear();
  std::uint32_t next = 0;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    auto list = std::make_shared<DriverBuffers>();
    list->numbers.resize(geometry_.queue_size_max);
    std::iota(list->numbers.begin(), list->numbers.end(), next);
    next += geometry_.queue_size_max;
    own_buffers_.push_back(std::move(list));
  }
}

Status DriverMemory::check_buffers(QueueIndex queue) const {
  if (own_buffers_[queue.raw()]->stale) {
    return fail(ErrorCode::kWrongState, "the queue has exchanged buffers: recall it first");
  }
  return {};
}

Status DriverMemory::check_resize(std::uint32_t size) const {
  TRY(check_size(size, features_.has(virtio::Feature::kRingPacked)));
  if (size > geometry_.queue_size_max) {
    return fail(ErrorCode::kOutOfRange, "a ring cannot grow beyond queue_size_max",
                geometry_.queue_size_max);
  }
  return {};
}

Status DriverMemory::resize(QueueIndex queue, std::uint32_t size) {
  TRY(check_resize(size));
  sizes_[queue.raw()] = size;
  return {};
}

void DriverMemory::clean(QueueIndex queue) const {
  const virtio::RingConfig config = ring(queue);
  const auto sizes = virtio::QueueConfig::area_sizes(config.size, features_);
  std::fill_n(config.descriptors, sizes.descriptors, std::byte{0});
  std::fill_n(config.driver_area, sizes.driver_area, std::byte{0});
  std::fill_n(config.device_area, sizes.device_area, std::byte{0});
  // The driver polls until somebody wishes otherwise.
  if (features_.has(virtio::Feature::kRingPacked)) {
    store(config.driver_area + 2, virtio::kRingEventFlagsDisable);  // 2.8.14
  } else if (config.event_idx) {
    // flags must stay 0 (EVI-01); an event index just passed is the furthest away (2.7.7).
    store(config.driver_area + sizes.driver_area - 2, 0xffff);
  } else {
    store(config.driver_area, virtio::kAvailNoInterrupt);  // 2.7.6
  }
}

}  // namespace sluice::net
