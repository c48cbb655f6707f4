// Fuzz target: the device side of a packed ring in a memory that a hostile driver writes.
#include <cstddef>
#include <cstdint>
#include <optional>

#include "fuzz/device_ring_fuzz.h"
#include "support/raw_packed.h"
#include "support/ring_kinds.h"

namespace {

using namespace sluice::test;

PackedDescriptor draw_descriptor(FuzzInput& in) {
  return {.addr = FuzzGuest::address(in),
          .len = FuzzGuest::length(in),
          .id = in.take<std::uint16_t>(),
          .flags = static_cast<std::uint16_t>(in.below(8))};
}

void write_something(const RawPackedRing& ring, FuzzInput& in) {
  switch (in.below(4)) {
    case 0:
      ring.set_driver_event({in.take<std::uint16_t>(), static_cast<std::uint16_t>(in.below(4))});
      break;
    case 1: {  // Entries of indirect tables.
      const std::uint64_t at = FuzzGuest::kFirst + FuzzGuest::kPage;
      PackedDescriptor entry = draw_descriptor(in);
      entry.flags = in.take<std::uint16_t>();
      ring.put_descriptor(at + 16 * std::uint64_t{in.below(256)}, entry);
      break;
    }
    case 2: ring.set_flags(in.below(ring.size()), in.take<std::uint16_t>()); break;
    default: {
      PackedDescriptor descriptor = draw_descriptor(in);
      descriptor.flags = in.take<std::uint16_t>();
      ring.set_descriptor(in.below(ring.size()), descriptor);
    }
  }
}

template <class Kind>
void run(FuzzInput& in, bool flip) {
  FakeGuest& guest = FuzzGuest::fresh();
  const std::uint32_t size = 1 + in.below(33);
  const RawPackedRing ring(guest, size, true);
  sluice::virtio::RingConfig config = ring.config();
  config.event_idx = in.chance(2);
  config.indirect = in.chance(2);
  PackedPlace place{.slot = in.below(size), .wrap = in.chance(2)};
  config.position = {place.encoded(), place.encoded()};
  DeviceCalls<Kind> device(guest, config);
  std::optional<Flipper> flipper;
  if (flip) flipper.emplace(guest, size, 2 * FuzzGuest::kPage);
  while (!in.empty()) {
    switch (in.below(5)) {
      case 0:
      case 1: {  // The next slot becomes available, as a driver would do it.
        PackedDescriptor descriptor = draw_descriptor(in);
        descriptor.flags = static_cast<std::uint16_t>(descriptor.flags | available(place.wrap));
        ring.set_descriptor(place.slot, descriptor);
        place.advance(1, size);
        break;
      }
      case 2:
      case 3: device.call(in); break;
      default: write_something(ring, in);
    }
  }
  device.finish();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  FuzzInput in(data, size);
  const auto mode = in.take<std::uint8_t>();
  const bool flip = mode % 16 == 15;
  if ((mode & 0x10) == 0) {
    run<PackedAny>(in, flip);
  } else {
    run<PackedInOrder>(in, flip);
  }
  return 0;
}
