// Fuzz target: a control queue whose ring, descriptors and commands are written by the input.
//
// Every command that was taken must come back; the target must never be told a value out of range.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "net/control_queue.h"
#include "net/net_device.h"
#include "support/fake_guest.h"
#include "support/fuzz_input.h"
#include "support/raw_driver.h"

namespace {

using namespace sluice;
using virtio::Feature;

[[noreturn]] void complain(const char* text) {
  std::fprintf(stderr, "control_queue_fuzz: %s\n", text);
  std::abort();
}

class Target final : public net::ControlTarget {
 public:
  void set_promiscuous(bool) override {}
  void set_all_multicast(bool) override {}
  void set_mac_tables(std::span<const net::PackedMac> u,
                      std::span<const net::PackedMac> m) override {
    if (6 * (u.size() + m.size()) > net::kControlCommandMax) complain("tables out of nothing");
    filter_.set_tables(u, m);
  }
  bool set_mac_address(net::PackedMac mac) override {
    if (mac == 0 || net::is_multicast(mac)) complain("an address that no station has");
    return true;
  }
  void announced() override {}
  bool use_queue_pairs(std::uint16_t pairs) override {
    if (pairs < 1 || pairs > 3) complain("a pair count out of range");
    return true;
  }
  [[nodiscard]] std::uint16_t command_max_queue_pairs() const override { return 3; }
  bool set_guest_offloads(const virtio::FeatureSet& offloads) override {
    if (!net::kGuestOffloads.contains(offloads)) complain("an offload that is none");
    return true;
  }

 private:
  net::ReceiveFilter filter_;
};

struct World {
  test::FakeGuest guest;
  std::uint64_t area = guest.allocate(0x8000, 4096);
  test::RawSplitRing split{guest, 16};
  test::RawPackedRing packed{guest, 16};
};

World& world() {
  static World instance;
  return instance;
}

// A row of commands as a driver posts them, cut anywhere.
void post_commands(test::FuzzInput& in, test::RawDriver& driver) {
  World& w = world();
  std::uint64_t at = w.area;
  std::vector<test::Piece> pieces;
  for (std::uint32_t i = 1 + in.below(5); i > 0; --i) {
    const auto bytes = in.bytes(in.below(48));
    w.guest.put(at, std::as_bytes(bytes));
    pieces.push_back({.address = at, .length = static_cast<std::uint32_t>(bytes.size())});
    at += 64;
  }
  if (!in.chance(8)) pieces.push_back({.address = at, .length = in.below(4), .writable = true});
  driver.post(pieces, in.chance(3) ? test::Shape::kTable : test::Shape::kChained);
}

void well_formed(test::FuzzInput& in, bool packed, const virtio::FeatureSet& features) {
  World& w = world();
  w.guest.allocate_from(w.area + 0x4000);
  std::unique_ptr<test::RawDriver> driver;
  if (packed) {
    driver = std::make_unique<test::RawPackedDriver>(w.guest, test::DriverOptions{.size = 16});
  } else {
    driver = std::make_unique<test::RawSplitDriver>(w.guest, test::DriverOptions{.size = 16});
  }
  net::QueueStart start;
  start.ring = driver->config();
  start.ring.indirect = true;
  start.features = features;
  start.memory = w.guest.shared_memory();
  Target target;
  net::ControlQueue queue(start, target);
  while (!in.empty()) {
    post_commands(in, *driver);
    if (queue.serve() || queue.error().has_value()) complain("a good ring was not served");
    driver->reap();
    if (driver->outstanding() != 0) complain("a command was kept");
  }
}

// The ring itself is whatever the input says.
void hostile(test::FuzzInput& in, bool packed, const virtio::FeatureSet& features) {
  World& w = world();
  net::QueueStart start;
  start.ring = packed ? w.packed.config() : w.split.config();
  start.ring.indirect = in.chance(2);
  start.features = features;
  start.memory = w.guest.shared_memory();
  const std::uint64_t ring = w.guest.memory().guest_address(start.ring.descriptors).raw();
  const std::uint64_t driver = w.guest.memory().guest_address(start.ring.driver_area).raw();
  w.guest.fill(ring, 256, 0);
  w.guest.fill(driver, 36, 0);
  Target target;
  net::ControlQueue queue(start, target);
  while (!in.empty()) {
    w.guest.put(ring + 16 * in.below(14), std::as_bytes(in.bytes(16 + in.below(17))));
    if (!packed) w.guest.put(driver + in.below(20), std::as_bytes(in.bytes(in.below(8))));
    w.guest.put(w.area + in.below(200), std::as_bytes(in.bytes(in.below(32))));
    queue.serve();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  test::FuzzInput in(data, size);
  const auto choice = in.take<std::uint8_t>();
  const bool packed = (choice & 1) != 0;
  auto features = virtio::FeatureSet::from_low(in.take<std::uint64_t>());
  features.remove(Feature::kRingPacked);
  features.remove(Feature::kInOrder);
  if (packed) features.add(Feature::kRingPacked);
  if ((choice & 4) != 0)
    features = net::offered_features({.queue_pairs = 3, .packed = packed, .in_order = false});
  if ((choice & 2) != 0) {
    well_formed(in, packed, features);
  } else {
    hostile(in, packed, features);
  }
  return 0;
}
