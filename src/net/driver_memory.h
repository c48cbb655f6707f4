// DriverMemory: the shared memory of a virtio-net driver: where rings and packet buffers lie, and
// how a ring looks before anybody used it.
//
//   | rings of queue 0 | rings of queue 1 | ... | buffers of all queues |
//   | indirect tables of queue 0 | ...     (only if negotiated; untouched pages cost nothing)
//
// Guest address = kGuestBase + offset, user address = kUserBase + offset; neither is a pointer of
// ours, so that one kind of address taken for another is found at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/unique_fd.h"
#include "memory/dma_map.h"
#include "memory/mapping.h"
#include "net/driver_start.h"
#include "net/driver_transport.h"
#include "virtio/features.h"
#include "virtio/ring.h"

namespace sluice::net {

class DriverMemory {
 public:
  static constexpr std::uint64_t kGuestBase = 0x1'0000'0000;
  static constexpr std::uint64_t kUserBase = 0x7e00'0000'0000;
  /// Where other memory can be shared beside this: behind the largest that create() can make.
  static constexpr memory::DmaWindow kDmaWindow{memory::GuestAddress(0x1000'0000'0000),
                                                memory::UserAddress(0x6000'0000'0000),
                                                0x1000'0000'0000};

  struct Geometry {
    std::uint16_t queues = 0;
    std::uint32_t queue_size = 0;      // Of each ring at first.
    std::uint32_t queue_size_max = 0;  // What a ring can be resized to; 0: queue_size.
    std::uint32_t buffer_stride = kBufferStride;
    std::uint32_t buffer_lead = 0;  // Where in a cache line a buffer begins.
    friend bool operator==(const Geometry&, const Geometry&) = default;
  };

  /// Errors: kInvalidArgument for a geometry that is not allowed; kNoMemory, kSystem.
  [[nodiscard]] static Result<DriverMemory> create(const Geometry& geometry,
                                                   const virtio::FeatureSet& features);

  [[nodiscard]] const Geometry& geometry() const { return geometry_; }
  [[nodiscard]] std::span<std::byte> bytes() const { return block_->mapping.bytes(); }
  /// The one region to share. Its descriptor is borrowed from this object.
  [[nodiscard]] SharedRegion region() const;

  /// The ring of `queue` at its start. Requires: queue < geometry().queues, here and below.
  [[nodiscard]] virtio::RingConfig ring(QueueIndex queue) const;
  /// The same, as the device is told of it; without descriptors of events.
  [[nodiscard]] RingSetup setup(QueueIndex queue) const;
  /// Everything of a queue's start but its events.
  [[nodiscard]] DriverQueueStart start(QueueIndex queue) const;

  /// Gives each queue its first buffers. Queues made before keep their lists, which mean nothing
  /// any more.
  void deal_buffers();
  /// Errors: kWrongState if the queue has exchanged buffers and was not recalled since.
  Status check_buffers(QueueIndex queue) const;

  /// Whether a ring may have this size. Errors: kOutOfRange above queue_size_max, which is
  /// `detail`; kInvalidArgument if the ring's format does not have it.
  Status check_resize(std::uint32_t size) const;
  /// Another size of a ring, in its place. Errors: those of check_resize().
  /// Requires: neither device nor driver uses the ring; clean() follows.
  Status resize(QueueIndex queue, std::uint32_t size);

  /// Makes the ring as new: all zero, interrupts off, nothing of an earlier life (H13).
  /// Requires: neither device nor driver uses the ring.
  void clean(QueueIndex queue) const;

 private:
  struct Places {  // Offsets into the block.
    std::uint64_t descriptors;
    std::uint64_t driver_area;
    std::uint64_t device_area;
    std::uint64_t tables;  // 0: none.
  };
  // The memory itself. Its pages go with the last user of ours, even if the device keeps the file:
  // we touched them, so they would stay charged to us.
  struct Block {
    memory::Mapping mapping;
    UniqueFd fd;
    Block(memory::Mapping made, UniqueFd file) : mapping(std::move(made)), fd(std::move(file)) {}
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;
    ~Block();
  };
  DriverMemory() = default;

  Geometry geometry_;
  virtio::FeatureSet features_;
  std::vector<Places> places_;
  std::vector<std::uint32_t> sizes_;                         // Of each ring now.
  std::uint64_t buffers_ = 0;                                // Offset of the first buffer.
  std::vector<std::shared_ptr<DriverBuffers>> own_buffers_;  // By queue.
  std::shared_ptr<const Block> block_;
};

}  // namespace sluice::net
