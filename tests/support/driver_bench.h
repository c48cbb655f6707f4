// DriverBench: a driver ring of ours opposite the reference device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "support/fake_guest.h"
#include "support/reference_device.h"
#include "virtio/indirect_tables.h"
#include "virtio/ring.h"

namespace sluice::test {

/// `config` with indirect tables in the guest's memory.
[[nodiscard]] inline virtio::RingConfig with_tables(FakeGuest& guest, virtio::RingConfig config) {
  const std::uint64_t bytes = virtio::IndirectTables::area_size(config.size);
  const std::uint64_t address = guest.allocate(bytes);
  config.indirect = true;
  config.indirect_area = {guest.at(address, bytes), address};
  return config;
}

/// `Kind` is one of support/ring_kinds.h.
template <class Kind>
class DriverBench {
 public:
  explicit DriverBench(std::uint32_t size = 8, bool event_idx = false, bool indirect = false)
      : ring(guest, size, event_idx),
        device(ring, event_idx),
        config(indirect ? with_tables(guest, ring.config()) : ring.config()),
        driver(config) {}

  /// Offers one buffer of the given pieces.
  bool offer(std::span<const virtio::OfferSegment> segments, std::uint32_t token) {
    const virtio::Offer one{segments, token};
    return driver.offer(std::span(&one, 1)) == 1;
  }
  /// Offers one buffer of one piece with an address of its own; by turns in the general way and by
  /// that for plain buffers, which the device must not be able to tell apart.
  bool offer(std::uint32_t length, bool writable, std::uint32_t token) {
    const virtio::OfferSegment segment{buffer(length), length, writable};
    plain_ = !plain_;
    if (!plain_) return offer(std::span(&segment, 1), token);
    const auto make = [&](std::size_t) {
      return virtio::PlainOffer{segment.address, length, token};
    };
    using virtio::DeviceUse;
    return (writable ? driver.template offer_plain<DeviceUse::kWrites>(1, make)
                     : driver.template offer_plain<DeviceUse::kReads>(1, make)) == 1;
  }
  std::vector<virtio::Collected> collect(std::size_t max = 64) {
    std::vector<virtio::Collected> out(max);
    out.resize(driver.collect(out));
    return out;
  }
  /// The device uses up to `max` buffers, one entry each, and reports `written` bytes.
  std::size_t use(std::size_t max, std::uint32_t written) {
    std::size_t count = 0;
    for (; count < max; ++count) {
      const auto chain = device.take();
      if (!chain) break;
      device.give_back(*chain, written);
    }
    return count;
  }
  std::uint64_t buffer(std::uint32_t length) {
    if (pool_used_ + length > kPoolSize) pool_used_ = 0;
    const std::uint64_t address = pool_ + pool_used_;
    pool_used_ += length;
    return address;
  }

  FakeGuest guest;
  typename Kind::RawRing ring;
  typename Kind::Reference device;
  virtio::RingConfig config;
  typename Kind::Driver driver;

 private:
  static constexpr std::uint64_t kPoolSize = 1U << 20;
  std::uint64_t pool_ = guest.allocate(kPoolSize);
  std::uint64_t pool_used_ = 0;
  bool plain_ = false;
};

}  // namespace sluice::test
