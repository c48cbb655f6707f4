// Fuzz target: the driver side of a split ring whose device is hostile.
#include <cstddef>
#include <cstdint>
#include <optional>

#include "fuzz/driver_ring_fuzz.h"
#include "support/raw_split.h"
#include "support/ring_kinds.h"

namespace {

using namespace sluice::test;

void write_something(const RawSplitRing& ring, FuzzInput& in) {
  const std::uint32_t size = ring.size();
  switch (in.below(6)) {
    case 0: ring.set_used_index(in.take<std::uint16_t>()); break;
    case 1: ring.set_used_flags(in.take<std::uint16_t>()); break;
    case 2: ring.set_avail_event(in.take<std::uint16_t>()); break;
    case 3:  // What the driver wrote, overwritten: it must not read it back.
      ring.set_descriptor(in.below(size), {in.take<std::uint64_t>(), in.take<std::uint32_t>(),
                                           in.take<std::uint16_t>(), in.take<std::uint16_t>()});
      break;
    case 4: ring.set_avail_entry(in.below(size), in.take<std::uint16_t>()); break;
    default: {
      // One more entry used, with an id that may even be right.
      const std::uint16_t index = ring.used_index();
      const std::uint32_t id = in.chance(8) ? in.take<std::uint32_t>() : in.below(size);
      ring.set_used_entry(index % size, {id, in.take<std::uint32_t>()});
      ring.set_used_index(static_cast<std::uint16_t>(index + 1 + in.below(2)));
    }
  }
}

template <class Kind>
void run(FuzzInput& in, bool flip, bool indirect) {
  FakeGuest& guest = FuzzGuest::fresh();
  const RawSplitRing ring(guest, 1U << in.below(6), true);
  sluice::virtio::RingConfig config = ring.config();
  config.event_idx = in.chance(2);
  DriverCalls<Kind> driver(fuzz_tables(guest, config, indirect));
  std::optional<Flipper> flipper;
  if (flip) flipper.emplace(guest, in.take<std::uint8_t>(), FuzzGuest::kPage);
  while (!in.empty()) {
    if (in.chance(2)) {
      driver.call(in);
    } else {
      write_something(ring, in);
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
    run<SplitAny>(in, flip, indirect);
  } else {
    run<SplitInOrder>(in, flip, indirect);
  }
  return 0;
}
