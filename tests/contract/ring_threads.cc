// Both ends of a ring in two threads: bytes arrive whole, and nobody sleeps over work. Under
// ThreadSanitizer (preset tsan) a missing barrier of the rings is a data race here.
#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "support/device_bench.h"
#include "support/random.h"
#include "support/ring_kinds.h"

namespace sluice::test {
namespace {

using Kinds = testing::Types<SplitAny, SplitInOrder, PackedAny, PackedInOrder>;

constexpr std::uint32_t kSlot = 64;  // Bytes of a buffer; each slot of the pool has its own.

// One ring, both ends of ours, and a pool of buffers. Both threads use the same mapping, so that
// ThreadSanitizer knows that the bytes are the same.
template <class Kind>
struct SharedRing {
  SharedRing(std::uint32_t size, bool event_idx)
      : ring(guest, size, event_idx),
        device(ring.config()),
        driver(ring.config()),
        pool(guest.allocate(std::uint64_t{size} * kSlot)) {}

  [[nodiscard]] std::uint64_t address(std::uint32_t number) const {
    return pool + std::uint64_t{number % ring.size()} * kSlot;
  }
  [[nodiscard]] std::byte* bytes(std::uint32_t number) const {
    return guest.device_view(address(number), kSlot);
  }
  bool offer(std::uint32_t number) {
    // A readable piece and a writable one: the request and its answer.
    const std::array<virtio::OfferSegment, 2> pair = {
        {{address(number), kSlot / 2, false}, {address(number) + kSlot / 2, 16, true}}};
    const virtio::OfferSegment whole{address(number), kSlot / 2, false};
    const bool two = number % 3 == 0 && ring.size() > 1;
    const virtio::Offer one{
        two ? std::span<const virtio::OfferSegment>(pair) : std::span(&whole, 1), number};
    return driver.offer(std::span(&one, 1)) == 1;
  }

  FakeGuest guest;
  typename Kind::RawRing ring;
  typename Kind::Device device;
  typename Kind::Driver driver;
  std::uint64_t pool;
};

std::uint64_t mark_of(std::uint32_t number) {
  return number * 0x9E3779B97F4A7C15U + 1;
}

// Fills the request with words that depend on the number; the reader checks every one.
void write_request(std::byte* at, std::uint32_t number) {
  for (std::uint32_t word = 0; word < kSlot / 16; ++word) {
    const std::uint64_t value = mark_of(number) + word;
    std::memcpy(at + 8 * word, &value, sizeof value);
  }
}
bool request_intact(const std::byte* at, std::uint32_t number) {
  for (std::uint32_t word = 0; word < kSlot / 16; ++word) {
    std::uint64_t value = 0;
    std::memcpy(&value, at + 8 * word, sizeof value);
    if (value != mark_of(number) + word) return false;
  }
  return true;
}

template <class Kind>
class RingThreads : public testing::Test {
 protected:
  static constexpr std::uint32_t kBuffers = 40'000;

  // The device: takes, checks and answers until it has had every buffer.
  static std::uint32_t serve(SharedRing<Kind>& shared, std::uint32_t seed) {
    Random random(seed);
    auto arena = std::make_unique<virtio::SegmentArena>();
    std::uint32_t next = 0;
    std::uint32_t bad = 0;
    while (next < kBuffers && !shared.device.error()) {
      arena->clear();
      std::array<virtio::Chain, virtio::kTakeMax> chains;
      const std::size_t wanted = 1 + random.below(16);
      const std::size_t count =
          shared.device.take(shared.guest.memory(), std::span(chains).first(wanted), *arena);
      if (count == 0) std::this_thread::yield();
      bool answers = false;
      for (std::size_t i = 0; i < count; ++i, ++next) {
        const auto segments = segments_of(chains[i], *arena);
        bad += request_intact(segments[0].data, next) ? 0 : 1;
        if (segments.size() < 2) continue;
        const std::uint64_t answer = ~mark_of(next);
        std::memcpy(segments[1].data, &answer, sizeof answer);
        chains[i].written = sizeof answer;
        answers = true;
      }
      const bool one_entry = Kind::kInOrder && !answers && random.one_in(2);
      shared.device.give_back(std::span(chains).first(count), one_entry);
    }
    return bad;
  }

  // The driver: keeps the ring as full as it gets and checks the answers.
  static std::uint32_t drive(SharedRing<Kind>& shared) {
    std::uint32_t offered = 0;
    std::uint32_t returned = 0;
    std::uint32_t bad = 0;
    while (returned < kBuffers && !shared.driver.error()) {
      while (offered < kBuffers && shared.driver.free_slots() >= 2) {
        write_request(shared.bytes(offered), offered);
        if (!shared.offer(offered)) break;
        ++offered;
      }
      std::array<virtio::Collected, 32> out;
      const std::size_t count = shared.driver.collect(out);
      if (count == 0) std::this_thread::yield();
      for (std::size_t i = 0; i < count; ++i, ++returned) {
        if (out[i].token != returned) ++bad;
        if (out[i].written == 0) continue;
        std::uint64_t answer = 0;
        std::memcpy(&answer, shared.bytes(out[i].token) + kSlot / 2, sizeof answer);
        if (answer != ~mark_of(out[i].token)) ++bad;
      }
    }
    return bad;
  }
};
TYPED_TEST_SUITE(RingThreads, Kinds, KindNames);

// SPL-09, SPL-10, PKD-06, PKD-14: what is published is there, whole, when the other side sees it.
TYPED_TEST(RingThreads, SPL_09_SPL_10_PKD_06_PKD_14_EveryByteIsThereWhenItIsPublished) {
  for (const std::uint32_t size : {2U, 64U}) {
    SharedRing<TypeParam> shared(size, false);
    std::uint32_t bad_at_device = ~0U;
    std::thread device([&] { bad_at_device = this->serve(shared, size); });
    const std::uint32_t bad_at_driver = this->drive(shared);
    device.join();
    EXPECT_EQ(bad_at_device, 0U);
    EXPECT_EQ(bad_at_driver, 0U);
    EXPECT_EQ(shared.driver.error(), std::nullopt);
    EXPECT_EQ(shared.device.error(), std::nullopt);
    EXPECT_EQ(shared.driver.free_slots(), size);
  }
}

// One sleeper: waits for its eventfd, at most so long that a stall is certain.
struct Sleeper {
  EventFd wake = std::move(*EventFd::create());
  std::uint64_t sleeps = 0;

  bool sleep() {
    ++sleeps;
    pollfd waiting{.fd = wake.fd(), .events = POLLIN, .revents = 0};
    const int ready = poll(&waiting, 1, 20'000);
    wake.drain();
    return ready == 1;
  }
};

// A short pause of random length moves the two sides' windows against each other.
void dawdle(Random& random) {
  std::atomic<std::uint32_t> spin{random.below(200)};
  while (spin.load(std::memory_order_relaxed) > 0) spin.fetch_sub(1, std::memory_order_relaxed);
}

template <class Kind>
class RingWakeups : public testing::Test {
 protected:
  static constexpr std::uint32_t kRounds = 20'000;

  // Arms, looks again, and only then sleeps (EVI-05). True if it stalled.
  static bool device_side(SharedRing<Kind>& shared, Sleeper& self, const Sleeper& peer) {
    Random random(1);
    auto arena = std::make_unique<virtio::SegmentArena>();
    for (std::uint32_t done = 0; done < kRounds;) {
      arena->clear();
      std::array<virtio::Chain, 8> chains;
      const std::size_t count = shared.device.take(shared.guest.memory(), chains, *arena);
      done += static_cast<std::uint32_t>(count);
      if (count > 0) {
        shared.device.give_back(std::span(chains).first(count), false);
        if (shared.device.should_notify()) peer.wake.signal();
        dawdle(random);
        continue;
      }
      shared.device.set_kicks(true);
      if (!shared.device.has_work() && !self.sleep()) return true;
      shared.device.set_kicks(false);
    }
    return false;
  }

  static bool driver_side(SharedRing<Kind>& shared, Sleeper& self, const Sleeper& peer) {
    Random random(2);
    std::uint32_t offered = 0;
    for (std::uint32_t returned = 0; returned < kRounds;) {
      // One at a time half of the time: then both sides sleep in each round.
      const std::uint32_t burst = random.one_in(2) ? 1 : 1 + random.below(4);
      for (std::uint32_t i = 0; i < burst && offered < kRounds; ++i) {
        if (!shared.offer(offered)) break;
        ++offered;
      }
      if (shared.driver.should_notify()) peer.wake.signal();
      dawdle(random);
      while (returned < offered) {
        std::array<virtio::Collected, 8> out;
        const std::size_t count = shared.driver.collect(out);
        returned += static_cast<std::uint32_t>(count);
        if (count > 0) continue;
        shared.driver.set_interrupts(true);
        if (!shared.driver.has_used() && !self.sleep()) return true;
        shared.driver.set_interrupts(false);
      }
    }
    return false;
  }
};
TYPED_TEST_SUITE(RingWakeups, Kinds, KindNames);

// H20, EVI-04, EVI-05, PKD-17: both sides sleep whenever they may; neither sleeps over work.
TYPED_TEST(RingWakeups, H20_H21_EVI_04_EVI_05_PKD_17_NobodySleepsOverWork) {
  for (const bool event_idx : {false, true}) {
    SharedRing<TypeParam> shared(16, event_idx);
    Sleeper device_sleeper;
    Sleeper driver_sleeper;
    bool device_stalled = false;
    std::thread device(
        [&] { device_stalled = this->device_side(shared, device_sleeper, driver_sleeper); });
    const bool driver_stalled = this->driver_side(shared, driver_sleeper, device_sleeper);
    device.join();
    EXPECT_FALSE(device_stalled) << "event_idx " << event_idx;
    EXPECT_FALSE(driver_stalled) << "event_idx " << event_idx;
    EXPECT_GT(device_sleeper.sleeps + driver_sleeper.sleeps, kSlot) << "the test tested nothing";
  }
}

}  // namespace
}  // namespace sluice::test
