// RawPackedRing: literal offsets of the packed virtqueue.
#include "support/raw_packed.h"

#include <algorithm>

namespace sluice::test {

namespace {

constexpr std::uint8_t kPackedCanary = 0xA5;
constexpr std::uint64_t kPackedCanarySize = 12;

}  // namespace

RawPackedRing::RawPackedRing(FakeGuest& guest, std::uint32_t size, bool event_idx)
    : guest_(&guest), size_(size), event_idx_(event_idx) {
  ring_ = guest.allocate(16 * std::uint64_t{size} + kPackedCanarySize, 16);
  driver_ = guest.allocate(4 + kPackedCanarySize, 4);
  device_ = guest.allocate(4 + kPackedCanarySize, 4);
  guest.fill(ring_ + 16 * std::uint64_t{size}, kPackedCanarySize, kPackedCanary);
  guest.fill(driver_ + 4, kPackedCanarySize, kPackedCanary);
  guest.fill(device_ + 4, kPackedCanarySize, kPackedCanary);
}

void RawPackedRing::put_descriptor(std::uint64_t address,
                                   const PackedDescriptor& descriptor) const {
  guest_->put(address, std::as_bytes(std::span(&descriptor.addr, 1)));
  guest_->put(address + 8, std::as_bytes(std::span(&descriptor.len, 1)));
  guest_->put(address + 12, std::as_bytes(std::span(&descriptor.id, 1)));
  guest_->write(address + 14, descriptor.flags);
}

PackedDescriptor RawPackedRing::descriptor(std::uint32_t slot) const {
  const std::uint64_t address = ring_ + 16 * std::uint64_t{slot};
  PackedDescriptor found{};
  found.flags = guest_->read<std::uint16_t>(address + 14);
  found.addr = guest_->read<std::uint64_t>(address);
  found.len = guest_->read<std::uint32_t>(address + 8);
  found.id = guest_->read<std::uint16_t>(address + 12);
  return found;
}

void RawPackedRing::put_event(std::uint64_t address, Event event) const {
  guest_->write(address, event.desc);
  guest_->write(address + 2, event.flags);
}

RawPackedRing::Event RawPackedRing::event_at(std::uint64_t address) const {
  return {.desc = guest_->read<std::uint16_t>(address),
          .flags = guest_->read<std::uint16_t>(address + 2)};
}

bool RawPackedRing::canaries_intact() const {
  const auto intact = [&](std::uint64_t address) {
    return std::ranges::all_of(guest_->get(address, kPackedCanarySize),
                               [](std::byte byte) { return byte == std::byte{kPackedCanary}; });
  };
  return intact(ring_ + 16 * std::uint64_t{size_}) && intact(driver_ + 4) && intact(device_ + 4);
}

virtio::RingConfig RawPackedRing::config() const {
  virtio::RingConfig config;
  config.size = size_;
  config.descriptors = guest_->device_view(ring_, 16 * std::uint64_t{size_});
  config.driver_area = guest_->device_view(driver_, 4);
  config.device_area = guest_->device_view(device_, 4);
  config.position = {.avail = virtio::kPackedStart, .used = virtio::kPackedStart};
  config.event_idx = event_idx_;
  return config;
}

}  // namespace sluice::test
