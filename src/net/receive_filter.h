// ReceiveFilter: which frames a driver wants, as it said over the control queue.
//
// Best effort, as the specification has it ("unwanted packets could still arrive", virtio 1.3,
// 5.1.6.5.1): the switch asks only before it floods a frame. A frame for a learned address is
// delivered in any case.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice::net {

/// Six address bytes in the low 48 bits, the first one lowest: what a little-endian load gives.
using PackedMac = std::uint64_t;
inline constexpr PackedMac kMacMask = 0xffff'ffff'ffff;
inline constexpr PackedMac kBroadcastMac = kMacMask;

[[nodiscard]] constexpr bool is_multicast(PackedMac mac) {
  return (mac & 1) != 0;
}

/// Threads: setters by the control thread, wants() by any. A frame that meets a change half way is
/// judged by the old or the new wish.
class ReceiveFilter {
 public:
  static constexpr std::size_t kTableMax = 64;  // Addresses of each kind; more: take all.

  /// Everything is wanted until the driver says otherwise (virtio 1.3, 5.1.6.5.1).
  void reset();

  void set_promiscuous(bool on) { promiscuous_.store(on, std::memory_order_relaxed); }
  void set_all_multicast(bool on) { all_multicast_.store(on, std::memory_order_relaxed); }
  void set_address(PackedMac mac) { address_.store(mac, std::memory_order_relaxed); }
  /// Replaces both tables. A table that is too long counts as "all of this kind".
  void set_tables(std::span<const PackedMac> unicast, std::span<const PackedMac> multicast);

  [[nodiscard]] bool wants(PackedMac destination) const {
    if (promiscuous_.load(std::memory_order_relaxed)) return true;
    return wants_slow(destination);
  }

 private:
  struct Table {
    std::atomic<std::uint32_t> count{0};
    std::atomic<bool> all{false};
    std::array<std::atomic<PackedMac>, kTableMax> entries{};

    void set(std::span<const PackedMac> macs);
    [[nodiscard]] bool holds(PackedMac mac) const;
  };
  [[nodiscard]] bool wants_slow(PackedMac destination) const;

  std::atomic<bool> promiscuous_{true};
  std::atomic<bool> all_multicast_{false};
  std::atomic<PackedMac> address_{0};  // 0: not known, so any unicast frame may be meant.
  Table unicast_;
  Table multicast_;
};

}  // namespace sluice::net
