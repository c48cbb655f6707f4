// The header before every virtio-net frame: how long it is, and what it may say.
// Spec: virtio 1.3, 5.1.6; 1.4 adds longer forms.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "packet/offload.h"
#include "packet/packet.h"
#include "virtio/features.h"
#include "virtio/spec.h"

namespace sluice::net {

static_assert(packet::kOffloadNeedsChecksum == virtio::kHdrNeedsCsum);
static_assert(packet::kGsoTypeNone == virtio::kGsoNone &&
              packet::kGsoTypeTcpIpv4 == virtio::kGsoTcpv4 &&
              packet::kGsoTypeTcpIpv6 == virtio::kGsoTcpv6 &&
              packet::kGsoTypeUdpFragments == virtio::kGsoUdp &&
              packet::kGsoTypeUdpSegments == virtio::kGsoUdpL4 &&
              packet::kGsoEcn == virtio::kGsoEcn);

/// Bytes of the header: the one place that knows (NET-01, SEC-41).
[[nodiscard]] constexpr std::size_t header_size(const virtio::FeatureSet& features) {
  using virtio::Feature;
  if (features.has(Feature::kOutNetHeader) || features.has(Feature::kIpsec)) return 32;
  if (features.has(Feature::kGuestUdpTunnelGso) || features.has(Feature::kHostUdpTunnelGso)) {
    return 24;
  }
  if (features.has(Feature::kHashReport)) return 20;
  if (features.has(Feature::kMrgRxbuf) || features.has(Feature::kVersion1)) return 12;
  return 10;
}
inline constexpr std::size_t kHeaderSizeMax = 32;

/// Which offload marks one direction of a device may carry, by what was negotiated.
class OffloadRules {
 public:
  OffloadRules() = default;
  /// What the driver may ask the device to do (HOST_*, CSUM).
  [[nodiscard]] static OffloadRules from_driver(const virtio::FeatureSet& features) {
    using virtio::Feature;
    OffloadRules rules;
    rules.checksum_ = features.has(Feature::kCsum);
    rules.allow(virtio::kGsoTcpv4, features.has(Feature::kHostTso4));
    rules.allow(virtio::kGsoTcpv6, features.has(Feature::kHostTso6));
    rules.allow(virtio::kGsoUdpL4, features.has(Feature::kHostUso));
    rules.ecn_ = features.has(Feature::kHostEcn);
    return rules;
  }
  /// What the device may hand to the driver undone (GUEST_*; NET-10, NET-16).
  [[nodiscard]] static OffloadRules to_driver(const virtio::FeatureSet& features) {
    using virtio::Feature;
    OffloadRules rules;
    rules.checksum_ = features.has(Feature::kGuestCsum);
    rules.allow(virtio::kGsoTcpv4, features.has(Feature::kGuestTso4));
    rules.allow(virtio::kGsoTcpv6, features.has(Feature::kGuestTso6));
    // 5.1.3.1 splits USO by IP version only towards the driver; a frame's version is looked at
    // nowhere on this path, so both are needed to pass one through.
    rules.allow(virtio::kGsoUdpL4,
                features.has(Feature::kGuestUso4) && features.has(Feature::kGuestUso6));
    rules.ecn_ = features.has(Feature::kGuestEcn);
    return rules;
  }

  [[nodiscard]] bool checksum() const { return checksum_; }
  /// May a packet with these marks pass as it is?
  [[nodiscard]] bool permits(const packet::Offload& offload) const {
    if (!checksum_) return offload.none();
    if (offload.gso_type == virtio::kGsoNone) return true;
    if ((offload.gso_type & virtio::kGsoEcn) != 0 && !ecn_) return false;
    const unsigned type = offload.gso_type & ~unsigned{virtio::kGsoEcn};
    return type < 8 && ((types_ >> type) & 1) != 0;
  }
  /// NET-10..NET-14: cleans the marks that a frame of `length` bytes came with. False if they
  /// contradict the frame or the negotiation: drop it.
  [[nodiscard]] bool accept(packet::Offload& offload, std::uint32_t length) const {
    offload.flags &= virtio::kHdrNeedsCsum;
    if (offload.none()) [[likely]] {
      offload = {};
      return true;
    }
    if (!permits(offload) || !packet::offload_is_consistent(offload, length)) return false;
    if (offload.gso_type == virtio::kGsoNone) offload.gso_size = 0;
    return true;
  }

 private:
  void allow(std::uint8_t type, bool yes) {
    if (yes) types_ = static_cast<std::uint8_t>(types_ | (1U << type));
  }
  bool checksum_ = false;
  bool ecn_ = false;
  std::uint8_t types_ = 0;  // Bit n: GSO type n.
};

}  // namespace sluice::net
