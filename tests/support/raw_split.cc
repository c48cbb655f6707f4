// RawSplitRing: literal offsets of the split virtqueue.
#include "support/raw_split.h"

#include <algorithm>

namespace sluice::test {

namespace {

constexpr std::uint8_t kSplitCanary = 0xA5;
constexpr std::uint64_t kSplitCanarySize = 16;

}  // namespace

RawSplitRing::RawSplitRing(FakeGuest& guest, std::uint32_t size, bool event_idx)
    : guest_(&guest), size_(size), event_idx_(event_idx) {
  const std::uint64_t event = event_idx ? 2 : 0;
  table_ = guest.allocate(16 * std::uint64_t{size}, 16);
  avail_ = guest.allocate(4 + 2 * std::uint64_t{size} + event + kSplitCanarySize, 2);
  used_ = guest.allocate(4 + 8 * std::uint64_t{size} + event + kSplitCanarySize, 4);
  guest.fill(avail_ + 4 + 2 * std::uint64_t{size} + event, kSplitCanarySize, kSplitCanary);
  guest.fill(used_ + 4 + 8 * std::uint64_t{size} + event, kSplitCanarySize, kSplitCanary);
}

void RawSplitRing::put_descriptor(std::uint64_t address, const SplitDescriptor& descriptor) const {
  guest_->put(address, std::as_bytes(std::span(&descriptor.addr, 1)));
  guest_->put(address + 8, std::as_bytes(std::span(&descriptor.len, 1)));
  guest_->put(address + 12, std::as_bytes(std::span(&descriptor.flags, 1)));
  guest_->put(address + 14, std::as_bytes(std::span(&descriptor.next, 1)));
}

SplitDescriptor RawSplitRing::descriptor(std::uint32_t index) const {
  const std::uint64_t address = table_ + 16 * std::uint64_t{index};
  return {.addr = guest_->read<std::uint64_t>(address),
          .len = guest_->read<std::uint32_t>(address + 8),
          .flags = guest_->read<std::uint16_t>(address + 12),
          .next = guest_->read<std::uint16_t>(address + 14)};
}

void RawSplitRing::set_used_entry(std::uint32_t slot, UsedElement element) const {
  guest_->write(used_ + 4 + 8 * std::uint64_t{slot}, element.id);
  guest_->write(used_ + 8 + 8 * std::uint64_t{slot}, element.len);
}

RawSplitRing::UsedElement RawSplitRing::used_entry(std::uint32_t slot) const {
  return {.id = guest_->read<std::uint32_t>(used_ + 4 + 8 * std::uint64_t{slot}),
          .len = guest_->read<std::uint32_t>(used_ + 8 + 8 * std::uint64_t{slot})};
}

void RawSplitRing::publish(std::uint16_t head) const {
  const std::uint16_t index = avail_index();
  set_avail_entry(index % size_, head);
  set_avail_index(static_cast<std::uint16_t>(index + 1));
}

void RawSplitRing::poison_used(std::uint8_t value) const {
  guest_->fill(used_ + 4, 8 * std::uint64_t{size_}, value);
}

bool RawSplitRing::canaries_intact() const {
  const std::uint64_t event = event_idx_ ? 2 : 0;
  const auto intact = [&](std::uint64_t address) {
    return std::ranges::all_of(guest_->get(address, kSplitCanarySize),
                               [](std::byte byte) { return byte == std::byte{kSplitCanary}; });
  };
  return intact(avail_ + 4 + 2 * std::uint64_t{size_} + event) &&
         intact(used_ + 4 + 8 * std::uint64_t{size_} + event);
}

virtio::RingConfig RawSplitRing::config() const {
  virtio::RingConfig config;
  config.size = size_;
  config.descriptors = guest_->device_view(table_, 16 * std::uint64_t{size_});
  config.driver_area = guest_->device_view(avail_, 4 + 2 * std::uint64_t{size_});
  config.device_area = guest_->device_view(used_, 4 + 8 * std::uint64_t{size_});
  config.event_idx = event_idx_;
  return config;
}

}  // namespace sluice::test
