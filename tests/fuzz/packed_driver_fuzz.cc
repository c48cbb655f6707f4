// Fuzz target: the driver side of a packed ring whose device is hostile.
#include <cstddef>
#include <cstdint>
#include <optional>

#include "fuzz/driver_ring_fuzz.h"
#include "support/raw_packed.h"
#include "support/ring_kinds.h"

namespace {

using namespace sluice::test;

template <class Kind>
void run(FuzzInput& in, bool flip, bool indirect) {
  FakeGuest& guest = FuzzGuest::fresh();
  const std::uint32_t size = 1 + in.below(33);
  const RawPackedRing ring(guest, size, true);
  sluice::virtio::RingConfig config = ring.config();
  config.event_idx = in.chance(2);
  DriverCalls<Kind> driver(fuzz_tables(guest, config, indirect));
  std::optional<Flipper> flipper;
  if (flip) flipper.emplace(guest, in.take<std::uint8_t>(), FuzzGuest::kPage);
  PackedPlace place;
  while (!in.empty()) {
    switch (in.below(4)) {
      case 0:  // The next slot becomes used, with an id that may even be right.
      case 1: {
        const auto id =
            in.chance(8) ? in.take<std::uint16_t>() : static_cast<std::uint16_t>(in.below(size));
        const auto flags = static_cast<std::uint16_t>(used_on(place.wrap) | (in.below(8)));
        ring.set_descriptor(place.slot,
                            {in.take<std::uint64_t>(), in.take<std::uint32_t>(), id, flags});
        place.advance(1 + in.below(std::min(size, 3U)), size);
        break;
      }
      case 2:
        if (in.chance(4)) {
          ring.set_device_event(
              {in.take<std::uint16_t>(), static_cast<std::uint16_t>(in.below(4))});
        } else {
          ring.set_flags(in.below(size), in.take<std::uint16_t>());
        }
        break;
      default: driver.call(in);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  FuzzInput in(data, size);
  const auto mode = in.take<std::uint8_t>();
  const bool flip = mode % 16 == 15;
  const bool indirect = (mode & 0x20) != 0;
  if ((mode & 0x10) == 0) {
    run<PackedAny>(in, flip, indirect);
  } else {
    run<PackedInOrder>(in, flip, indirect);
  }
  return 0;
}
