// Layout of the in-flight region: the protocol's blocks, then our table.
#include "vhost/inflight.h"

#include <bit>
#include <utility>

#include "memory/shared.h"
#include "virtio/spec.h"

namespace sluice::vhost {
namespace {

constexpr std::uint64_t kBlockAlignment = 64;
constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 30;  // Of a whole region.
constexpr std::uint16_t kBlockVersion = 1;

// Head of the block of a packed ring ("QueueRegionPacked"). 32 bytes per entry follow.
struct PackedBlock {
  std::uint64_t features;
  std::uint16_t version;
  std::uint16_t desc_num;
  std::uint16_t free_head;
  std::uint16_t old_free_head;
  std::uint16_t used_idx;
  std::uint16_t old_used_idx;
  std::uint8_t used_wrap_counter;
  std::uint8_t old_used_wrap_counter;
  std::uint8_t padding[10];
};
static_assert(sizeof(PackedBlock) == 32);
constexpr std::uint64_t kPackedEntry = 32;
constexpr std::uint64_t kSplitHead = 16;  // "QueueRegionSplit"
constexpr std::uint64_t kSplitEntry = 16;

std::uint16_t encode(std::uint16_t slot, std::uint8_t wrap) {
  return static_cast<std::uint16_t>((slot & 0x7fff) | (wrap != 0 ? 0x8000 : 0));
}

Status check_numbers(const InflightDescription& description, std::uint16_t rings_max) {
  if (description.num_queues == 0 || description.num_queues > rings_max) {
    return fail(ErrorCode::kOutOfRange, "in-flight region for a wrong number of queues",
                description.num_queues);
  }
  if (description.queue_size == 0 || description.queue_size > virtio::kQueueSizeMax) {
    return fail(ErrorCode::kOutOfRange, "in-flight region for a wrong queue size",
                description.queue_size);
  }
  return {};
}

}  // namespace

std::uint64_t InflightRegion::block_bytes(std::uint16_t queue_size, bool packed) {
  const std::uint64_t bytes = packed ? sizeof(PackedBlock) + queue_size * kPackedEntry
                                     : kSplitHead + queue_size * kSplitEntry;
  return (bytes + kBlockAlignment - 1) / kBlockAlignment * kBlockAlignment;
}

Result<InflightRegion::Created> InflightRegion::create(const InflightDescription& wanted,
                                                       std::uint16_t rings_max, bool packed) {
  TRY(check_numbers(wanted, rings_max));
  const std::uint64_t blocks = block_bytes(wanted.queue_size, packed) * wanted.num_queues;
  const std::uint64_t size = blocks + RecordTable::bytes_for(wanted.num_queues);
  auto memory = TRY(memory::Mapping::create_shared("vhost-inflight", size));
  RecordTable(memory.mapping.bytes().data() + blocks, wanted.num_queues).clear();
  return Created{std::move(memory.fd), {size, 0, wanted.num_queues, wanted.queue_size, 0}};
}

Result<std::shared_ptr<InflightRegion>> InflightRegion::map(int fd,
                                                            const InflightDescription& description,
                                                            std::uint16_t rings_max) {
  TRY(check_numbers(description, rings_max));
  // The format may not be known yet (H06: the message may come first), so the smaller one is the
  // least that must fit; what a packed ring reads is checked again in packed_block().
  const std::uint64_t least = block_bytes(description.queue_size, false) * description.num_queues;
  if (description.mmap_size < least) {
    return fail(ErrorCode::kOutOfRange, "in-flight region is smaller than its queues need",
                static_cast<std::int64_t>(description.mmap_size));
  }
  if (description.mmap_size > kMaxBytes) {
    return fail(ErrorCode::kOutOfRange, "an in-flight region of more than 1 GiB",
                static_cast<std::int64_t>(description.mmap_size));
  }
  memory::Mapping mapping =
      TRY(memory::Mapping::map_file(fd, description.mmap_offset, description.mmap_size));
  if (std::bit_cast<std::uintptr_t>(mapping.bytes().data()) % kBlockAlignment != 0) {
    return fail(ErrorCode::kInvalidArgument, "in-flight region is not aligned",
                static_cast<std::int64_t>(description.mmap_offset));
  }
  return std::make_shared<InflightRegion>(Key(), std::move(mapping), description);
}

InflightRegion::InflightRegion(Key, memory::Mapping mapping, const InflightDescription& description)
    : mapping_(std::move(mapping)),
      queues_(description.num_queues),
      queue_size_(description.queue_size),
      stride_(block_bytes(queue_size_, true)),
      has_table_(false) {
  const std::uint64_t size = mapping_.bytes().size();
  const std::uint64_t table = RecordTable::bytes_for(queues_);
  if (size <= table || (size - table) % kBlockAlignment != 0) return;
  table_ = RecordTable(mapping_.bytes().data() + (size - table), queues_);
  has_table_ = table_.valid();
  if (has_table_) stride_ = (size - table) / queues_;
}

const RecordTable* InflightRegion::table(std::uint16_t ring) const {
  return has_table_ && ring < queues_ ? &table_ : nullptr;
}

std::byte* InflightRegion::packed_block(std::uint16_t ring) const {
  const std::uint64_t needed = block_bytes(queue_size_, true);
  if (ring >= queues_ || stride_ < needed || stride_ % kBlockAlignment != 0) return nullptr;
  const std::uint64_t offset = stride_ * ring;
  const std::uint64_t size = mapping_.bytes().size();
  if (offset > size || needed > size - offset) return nullptr;
  return mapping_.bytes().data() + offset;
}

std::optional<InflightRegion::Positions> InflightRegion::foreign_position(
    std::uint16_t ring, std::uint32_t size) const {
  std::byte* const place = packed_block(ring);
  if (has_table_ || place == nullptr) return std::nullopt;
  const PackedBlock block = memory::shared_at<PackedBlock>(place)->snapshot();
  if (block.version != kBlockVersion || block.desc_num != size) return std::nullopt;
  return Positions{encode(block.old_used_idx, block.old_used_wrap_counter),
                   encode(block.used_idx, block.used_wrap_counter)};
}

void InflightRegion::note_stop(std::uint16_t ring, std::uint32_t size,
                               std::uint16_t position) const {
  std::byte* const place = packed_block(ring);
  if (place == nullptr || size > queue_size_) return;
  auto* const shared = memory::shared_at<PackedBlock>(place);
  PackedBlock block = shared->snapshot();
  block.version = kBlockVersion;
  block.desc_num = static_cast<std::uint16_t>(size);
  block.used_idx = block.old_used_idx = position & 0x7fff;
  block.used_wrap_counter = block.old_used_wrap_counter = (position & 0x8000) != 0 ? 1 : 0;
  shared->store(block);
}

}  // namespace sluice::vhost
