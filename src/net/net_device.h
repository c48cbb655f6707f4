// What a virtio-net device of ours offers: feature bits and configuration space.
//
// A feature is offered only if the whole path behind it does it. What is left out on purpose:
// HOST_/GUEST_ECN and UFO (nothing here makes or cuts such frames), CTRL_VLAN and CTRL_RX_EXTRA,
// RSS and HASH_REPORT, ANNOUNCE without a control queue. The bits of the transport itself
// (PROTOCOL_FEATURES, LOG_ALL) are added by the transport.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "base/error.h"
#include "net/receive_filter.h"
#include "net/transport.h"
#include "virtio/features.h"
#include "virtio/spec.h"

namespace sluice::net {

/// Configuration space (virtio 1.3, 5.1.4); the whole of it can be read whatever was negotiated.
struct virtio_net_config {
  std::array<std::uint8_t, 6> mac;
  std::uint16_t status;
  std::uint16_t max_virtqueue_pairs;
  std::uint16_t mtu;
  std::uint32_t speed;  // Mbit/s; all ones: unknown.
  std::uint8_t duplex;
  std::uint8_t rss_max_key_size;
  std::uint16_t rss_max_indirection_table_length;
  std::uint32_t supported_hash_types;
};
static_assert(sizeof(virtio_net_config) == 24);

inline constexpr std::uint16_t kLinkUp = 1;          // VIRTIO_NET_S_LINK_UP
inline constexpr std::uint16_t kAnnounceNeeded = 2;  // VIRTIO_NET_S_ANNOUNCE
inline constexpr std::uint16_t kMtuMin = 68;         // virtio 1.3, 5.1.4.1
inline constexpr std::uint16_t kMtuMax = 65535;

/// What the owner of a device decides about it.
struct DeviceOptions {
  std::uint16_t queue_pairs = 1;
  std::optional<PackedMac> mac;  // Offered to the driver.
  std::uint16_t mtu = kMtuMax;   // Below the maximum, MTU is offered.
  bool offloads = true;
  bool packed = true;
  bool in_order = true;
  bool mrg_rxbuf = true;
  bool event_idx = true;
  bool indirect = true;
  bool ring_reset = false;
  bool control_queue = true;
};

/// The features of a device with these options. Their dependencies hold (virtio 1.3, 5.1.3.1).
[[nodiscard]] virtio::FeatureSet offered_features(const DeviceOptions& options);

/// Index of the control queue. Spec: virtio 1.3, 5.1.2: behind all pairs the device has if MQ was
/// negotiated, else 2.
[[nodiscard]] constexpr QueueIndex control_queue_index(std::uint16_t max_queue_pairs,
                                                       const virtio::FeatureSet& negotiated) {
  const int pairs = negotiated.has(virtio::Feature::kMq) ? max_queue_pairs : 1;
  return QueueIndex(static_cast<std::uint16_t>(2 * pairs));
}

/// GUEST_* offloads a driver can turn on and off by command (virtio 1.3, 5.1.6.5.6.1).
inline constexpr virtio::FeatureSet kGuestOffloads = {
    virtio::Feature::kGuestCsum, virtio::Feature::kGuestTso4, virtio::Feature::kGuestTso6,
    virtio::Feature::kGuestEcn,  virtio::Feature::kGuestUfo,  virtio::Feature::kGuestUso4,
    virtio::Feature::kGuestUso6};

/// The configuration space of one device. Threads: the control thread.
class ConfigSpace {
 public:
  explicit ConfigSpace(const DeviceOptions& options);

  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }
  [[nodiscard]] virtio_net_config record() const;

  /// No field of a modern device is writable. Errors: kPermission; kOutOfRange beyond the end.
  [[nodiscard]] Status write(std::uint32_t offset, std::span<const std::byte> data) const;

  /// Asks the driver to announce itself, until it acknowledges (virtio 1.3, 5.1.6.5.4).
  void set_announce(bool needed);

 private:
  void store(const virtio_net_config& record);
  std::array<std::byte, sizeof(virtio_net_config)> bytes_{};
};

}  // namespace sluice::net
