// The four rings behind DriverVirtqueue: staging, translation and the account of buffers.
#include "net/driver_virtqueue.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <numeric>
#include <utility>
#include <variant>
#include <vector>

#include "virtio/packed_driver.h"
#include "virtio/split_driver.h"

namespace sluice::net {
namespace {

using virtio::DeviceUse;
using virtio::Order;
using AnyDriverRing =
    std::variant<virtio::SplitDriverRing<Order::kAny>, virtio::SplitDriverRing<Order::kInOrder>,
                 virtio::PackedDriverRing<Order::kAny>, virtio::PackedDriverRing<Order::kInOrder>>;
constexpr std::array<std::string_view, 4> kRingNames = {"split", "split in-order", "packed",
                                                        "packed in-order"};

constexpr std::size_t kStagedMax = 64;             // Buffers published at once.
constexpr std::uint64_t kLengthMax = 0xffff'ffff;  // Of a buffer: used lengths have 32 bits.

AnyDriverRing make_driver_ring(const virtio::RingConfig& config,
                               const virtio::FeatureSet& features) {
  const bool in_order = features.has(virtio::Feature::kInOrder);
  if (features.has(virtio::Feature::kRingPacked)) {
    if (in_order) return AnyDriverRing(std::in_place_index<3>, config);
    return AnyDriverRing(std::in_place_index<2>, config);
  }
  if (in_order) return AnyDriverRing(std::in_place_index<1>, config);
  return AnyDriverRing(std::in_place_index<0>, config);
}

virtio::RingConfig config_of(const DriverQueueStart& start,
                             const DriverVirtqueue::Options& options) {
  virtio::RingConfig config = start.ring;
  if (!options.indirect) config.indirect_area = {};
  return config;
}

// The queue's own buffers are not in the map, for they live as long as the queue.
memory::DmaRange own_range(const DriverQueueStart& start) {
  return {.host = std::bit_cast<std::uintptr_t>(start.buffers.data()),
          .device = start.buffers_guest_address,
          .size = start.buffers.size(),
          .bytes = start.buffers.data()};
}

}  // namespace

struct DriverVirtqueue::Impl {
  // What is known of an outstanding buffer; its number is the ring's token.
  struct Record {
    std::uint64_t token = 0;
    std::uint64_t marks = 0;  // Of the mappings it lies in.
    memory::GuestAddress sync_address;
    std::uint32_t sync_length = 0;  // To be copied from the bounce area when it comes back.
  };
  // A buffer on its way into the ring.
  struct Staged {
    Record record;
    std::size_t first = 0;  // In segments.
    std::size_t count = 0;
  };

  Impl(const DriverQueueStart& queue, const Options& options)
      : start(queue),
        ring(make_driver_ring(config_of(queue, options), queue.features)),
        view(queue.dma, own_range(queue)),
        segments_max(std::min<std::size_t>(queue.ring.size, virtio::kChainSegmentsMax)),
        records(queue.ring.size),
        spare(queue.ring.size),
        spare_count(queue.ring.size),
        segments(virtio::kChainSegmentsMax) {
    std::iota(spare.begin(), spare.end(), std::uint16_t{0});
    std::visit([](auto& one) { one.set_interrupts(false); }, ring);
  }

  // --- Staging: false if the buffer is refused (`why`) or has to wait for the next burst.

  bool refuse(ErrorCode code, const char* text) {
    why = Error{code, text, 0};
    return false;
  }
  bool open(Staged& item, std::size_t count) {
    if (count == 0) return refuse(ErrorCode::kInvalidArgument, "a buffer has a segment at least");
    if (count > segments_max) {
      return refuse(ErrorCode::kOutOfRange, "more segments than the queue has entries");
    }
    item = {};
    item.first = segment_count;
    return count <= segments.size() - segment_count;
  }
  bool add_segment(Staged& item, const memory::DmaRange* range, std::uint64_t address,
                   std::uint64_t length, bool writable) {
    if (length == 0) return refuse(ErrorCode::kInvalidArgument, "a segment of no bytes");
    if (range == nullptr) {
      return refuse(ErrorCode::kBadAddress, "a byte of the buffer is in no mapping for the device");
    }
    staged_bytes += length;
    if (length > kLengthMax || staged_bytes > kLengthMax) {
      return refuse(ErrorCode::kInvalidArgument, "a buffer has less than 4 GiB");
    }
    segments[segment_count++] = {address, static_cast<std::uint32_t>(length), writable};
    ++item.count;
    item.record.marks |= range->mark;
    return true;
  }
  bool stage(const PremappedBuffer& buffer, bool writable, Staged& item) {
    if (!open(item, buffer.segments.size())) return false;
    staged_bytes = 0;
    for (const DmaSegment& segment : buffer.segments) {
      const memory::DmaRange* range = view.find_device(segment.address, segment.length);
      if (!add_segment(item, range, segment.address.raw(), segment.length, writable)) return false;
    }
    item.record.token = buffer.token;
    return true;
  }
  bool stage(const OutBuffer& buffer, bool writable, Staged& item) {
    if (!open(item, buffer.pieces.size())) return false;
    staged_bytes = 0;
    for (const std::span<const std::byte> piece : buffer.pieces) {
      const memory::DmaRange* range = view.find_host(piece.data(), piece.size());
      const std::uint64_t address = range == nullptr ? 0 : range->device_address(piece.data());
      if (!add_segment(item, range, address, piece.size(), writable)) return false;
      if (range->bounce != nullptr) {
        std::memcpy(range->bounce + (address - range->device), piece.data(), piece.size());
      }
    }
    item.record.token = buffer.token;
    return true;
  }
  bool stage(const InBuffer& buffer, bool writable, Staged& item) {
    if (!open(item, buffer.pieces.size())) return false;
    staged_bytes = 0;
    for (const std::span<std::byte> piece : buffer.pieces) {
      const memory::DmaRange* range = view.find_host(piece.data(), piece.size());
      const std::uint64_t address = range == nullptr ? 0 : range->device_address(piece.data());
      if (!add_segment(item, range, address, piece.size(), writable)) return false;
      if (range->bounce != nullptr) {
        if (buffer.pieces.size() > 1) {
          return refuse(ErrorCode::kUnsupported,
                        "an in-buffer of several pieces behind a bounce area must be premapped");
        }
        item.record.sync_address = memory::GuestAddress(address);
        item.record.sync_length = static_cast<std::uint32_t>(piece.size());
      }
    }
    item.record.token = buffer.token;
    return true;
  }

  // --- Adding

  [[nodiscard]] std::uint16_t spare_record(std::size_t i) const {
    const std::size_t at = spare_first + i;
    return spare[at < spare.size() ? at : at - spare.size()];
  }

  template <DeviceUse kUse, class Ring>
  std::size_t publish(Ring& one, std::size_t count) {
    if (segment_count == count) {  // Plain buffers, which rings write faster.
      return one.template offer_plain<kUse>(count, [&](std::size_t i) {
        return virtio::PlainOffer{segments[i].address, segments[i].length, spare_record(i)};
      });
    }
    std::array<virtio::Offer, kStagedMax> offers;
    for (std::size_t i = 0; i < count; ++i) {
      offers[i] = {std::span(segments).subspan(staged[i].first, staged[i].count), spare_record(i)};
    }
    return one.offer(std::span(offers).first(count));
  }

  template <DeviceUse kUse, class Ring, class Buffer>
  std::size_t add_to(Ring& one, std::span<const Buffer> buffers) {
    std::size_t added = 0;
    while (added < buffers.size()) {
      const std::size_t limit = std::min({kStagedMax, spare_count, buffers.size() - added});
      std::size_t count = 0;
      segment_count = 0;
      while (count < limit) {
        const std::size_t before = segment_count;
        if (!stage(buffers[added + count], kUse == DeviceUse::kWrites, staged[count])) {
          segment_count = before;
          break;
        }
        ++count;
      }
      const std::size_t offered = count == 0 ? 0 : publish<kUse>(one, count);
      for (std::size_t i = 0; i < offered; ++i) {
        records[spare_record(i)] = staged[i].record;
        view.hold(staged[i].record.marks);
      }
      spare_first = (spare_first + offered) % spare.size();
      spare_count -= offered;
      added += offered;
      if (offered == 0 || offered < count || why) break;
    }
    return added;
  }
  template <DeviceUse kUse, class Buffer>
  std::size_t add(std::span<const Buffer> buffers) {
    why.reset();
    view.refresh();
    return std::visit([&](auto& one) { return add_to<kUse>(one, buffers); }, ring);
  }
  template <DeviceUse kUse, class Buffer>
  Status add_one(const Buffer& buffer) {
    if (add<kUse>(std::span(&buffer, 1)) == 1) return {};
    if (why) return std::unexpected(*why);
    if (const auto broken = error()) return std::unexpected(*broken);
    return fail(ErrorCode::kWrongState, "the queue has no room for the buffer now");
  }

  // --- Coming back

  std::uint64_t take_back(std::uint32_t number, std::uint32_t written) {
    const Record& record = records[number];
    if (record.sync_length != 0 && written != 0) [[unlikely]] {
      // It is mapped still: the mapping is held.
      static_cast<void>(
          view.table().sync_for_cpu(record.sync_address, std::min(written, record.sync_length)));
    }
    view.drop(record.marks);
    const std::size_t at = spare_first + spare_count;
    spare[at < spare.size() ? at : at - spare.size()] = static_cast<std::uint16_t>(number);
    ++spare_count;
    return record.token;
  }
  template <class Ring>
  std::size_t collect_from(Ring& one, std::span<ReturnedBuffer> out) {
    std::array<virtio::Collected, kStagedMax> got;
    std::size_t collected = 0;
    while (collected < out.size()) {
      const std::size_t wanted = std::min(got.size(), out.size() - collected);
      const std::size_t count = one.collect(std::span(got).first(wanted));
      for (std::size_t i = 0; i < count; ++i) {
        out[collected + i] = {take_back(got[i].token, got[i].written), got[i].written};
      }
      collected += count;
      if (count < wanted) break;
    }
    return collected;
  }

  [[nodiscard]] std::optional<Error> error() const {
    return std::visit([](const auto& one) { return one.error(); }, ring);
  }

  DriverQueueStart start;
  AnyDriverRing ring;
  memory::DmaView view;
  std::size_t segments_max;
  std::vector<Record> records;
  // Numbers of free records, a queue: in order, each meets the same slot again and again.
  std::vector<std::uint16_t> spare;
  std::size_t spare_first = 0;
  std::size_t spare_count;
  // Scratch of one burst.
  std::array<Staged, kStagedMax> staged{};
  std::vector<virtio::OfferSegment> segments;
  std::size_t segment_count = 0;
  std::uint64_t staged_bytes = 0;
  std::optional<Error> why;  // The buffer that a burst stopped at was refused.
  std::uint64_t kicks = 0;
};

DriverVirtqueue::DriverVirtqueue() = default;
DriverVirtqueue::DriverVirtqueue(DriverVirtqueue&&) noexcept = default;
DriverVirtqueue& DriverVirtqueue::operator=(DriverVirtqueue&&) noexcept = default;
DriverVirtqueue::~DriverVirtqueue() = default;
DriverVirtqueue::DriverVirtqueue(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

DriverVirtqueue DriverVirtqueue::make(const DriverQueueStart& start, const Options& options) {
  return DriverVirtqueue(std::make_unique<Impl>(start, options));
}
DriverVirtqueue DriverVirtqueue::make(const DriverQueueStart& start) {
  return make(start, Options{});
}

Status DriverVirtqueue::add_outbuf(std::uint64_t token,
                                   std::span<const std::span<const std::byte>> pieces) {
  return impl_->add_one<DeviceUse::kReads>(OutBuffer{token, pieces});
}
Status DriverVirtqueue::add_inbuf(std::uint64_t token,
                                  std::span<const std::span<std::byte>> pieces) {
  return impl_->add_one<DeviceUse::kWrites>(InBuffer{token, pieces});
}
Status DriverVirtqueue::add_outbuf_premapped(std::uint64_t token,
                                             std::span<const DmaSegment> segments) {
  return impl_->add_one<DeviceUse::kReads>(PremappedBuffer{token, segments});
}
Status DriverVirtqueue::add_inbuf_premapped(std::uint64_t token,
                                            std::span<const DmaSegment> segments) {
  return impl_->add_one<DeviceUse::kWrites>(PremappedBuffer{token, segments});
}
std::size_t DriverVirtqueue::add_outbufs(std::span<const OutBuffer> buffers) {
  return impl_->add<DeviceUse::kReads>(buffers);
}
std::size_t DriverVirtqueue::add_inbufs(std::span<const InBuffer> buffers) {
  return impl_->add<DeviceUse::kWrites>(buffers);
}
std::size_t DriverVirtqueue::add_outbufs_premapped(std::span<const PremappedBuffer> buffers) {
  return impl_->add<DeviceUse::kReads>(buffers);
}
std::size_t DriverVirtqueue::add_inbufs_premapped(std::span<const PremappedBuffer> buffers) {
  return impl_->add<DeviceUse::kWrites>(buffers);
}

std::size_t DriverVirtqueue::collect(std::span<ReturnedBuffer> out) {
  return std::visit([&](auto& one) { return impl_->collect_from(one, out); }, impl_->ring);
}
void DriverVirtqueue::recall(const std::function<void(std::uint64_t)>& back) {
  std::visit(
      [&](auto& one) {
        one.recall([&](std::uint32_t number) { back(impl_->take_back(number, 0)); });
      },
      impl_->ring);
}
bool DriverVirtqueue::should_notify() {
  return std::visit([](auto& one) { return one.should_notify(); }, impl_->ring);
}
void DriverVirtqueue::kick() {
  if (impl_->start.kick == nullptr || !should_notify()) return;
  ++impl_->kicks;
  impl_->start.kick->signal();
}
void DriverVirtqueue::set_interrupts(bool wanted) {
  std::visit([&](auto& one) { one.set_interrupts(wanted); }, impl_->ring);
}
bool DriverVirtqueue::has_used() const {
  return std::visit([](const auto& one) { return one.has_used(); }, impl_->ring);
}
const memory::DmaTable& DriverVirtqueue::memory() {
  impl_->view.refresh();
  return impl_->view.table();
}
std::size_t DriverVirtqueue::free_slots() const {
  return std::visit([](const auto& one) { return one.free_slots(); }, impl_->ring);
}
std::size_t DriverVirtqueue::outstanding() const {
  return std::visit([](const auto& one) { return one.outstanding(); }, impl_->ring);
}
std::uint64_t DriverVirtqueue::kicks() const {
  return impl_->kicks;
}
std::optional<Error> DriverVirtqueue::error() const {
  return impl_->error();
}
std::string_view DriverVirtqueue::name() const {
  return kRingNames[impl_->ring.index()];
}

}  // namespace sluice::net
