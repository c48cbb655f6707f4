// Fuzz target: the device side of a split ring in a memory that a hostile driver writes.
#include <cstddef>
#include <cstdint>
#include <optional>

#include "fuzz/device_ring_fuzz.h"
#include "support/raw_split.h"
#include "support/ring_kinds.h"

namespace {

using namespace sluice::test;

void write_something(const RawSplitRing& ring, FuzzInput& in) {
  const SplitDescriptor descriptor{
      .addr = FuzzGuest::address(in),
      .len = FuzzGuest::length(in),
      .flags = static_cast<std::uint16_t>(in.below(8)),
      .next = in.chance(8) ? in.take<std::uint16_t>()
                           : static_cast<std::uint16_t>(in.below(ring.size() + 1))};
  switch (in.below(6)) {
    case 0: ring.set_avail_index(in.take<std::uint16_t>()); break;
    case 1: ring.set_avail_flags(in.take<std::uint16_t>()); break;
    case 2: ring.set_used_event(in.take<std::uint16_t>()); break;
    case 3: {  // Any word of the table's pages: entries of indirect tables lie there.
      const std::uint64_t at = FuzzGuest::kFirst + FuzzGuest::kPage;
      ring.put_descriptor(at + 16 * std::uint64_t{in.below(256)}, descriptor);
      break;
    }
    default: ring.set_descriptor(in.below(ring.size()), descriptor);
  }
}

void publish(const RawSplitRing& ring, FuzzInput& in) {
  const auto head =
      in.chance(16) ? in.take<std::uint16_t>() : static_cast<std::uint16_t>(in.below(ring.size()));
  ring.publish(head);
}

template <class Kind>
void run(FuzzInput& in, bool flip) {
  FakeGuest& guest = FuzzGuest::fresh();
  const std::uint32_t size = 1U << in.below(6);
  const RawSplitRing ring(guest, size, true);
  sluice::virtio::RingConfig config = ring.config();
  config.event_idx = in.chance(2);
  config.indirect = in.chance(2);
  const auto start = in.take<std::uint16_t>();
  config.position = {start, start};
  ring.set_avail_index(start);
  DeviceCalls<Kind> device(guest, config);
  std::optional<Flipper> flipper;
  if (flip) flipper.emplace(guest, start, 2 * FuzzGuest::kPage);
  while (!in.empty()) {
    switch (in.below(4)) {
      case 0: publish(ring, in); break;
      case 1: device.call(in); break;
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
    run<SplitAny>(in, flip);
  } else {
    run<SplitInOrder>(in, flip);
  }
  return 0;
}
