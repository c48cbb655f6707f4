// Feature offer and configuration space of a virtio-net device.
#include "net/net_device.h"

#include <bit>

namespace sluice::net {

namespace {

using virtio::Feature;
using virtio::FeatureSet;

constexpr FeatureSet kOffloads = {Feature::kCsum,      Feature::kGuestCsum, Feature::kHostTso4,
                                  Feature::kHostTso6,  Feature::kHostUso,   Feature::kGuestTso4,
                                  Feature::kGuestTso6, Feature::kGuestUso4, Feature::kGuestUso6};

}  // namespace

virtio::FeatureSet offered_features(const DeviceOptions& options) {
  FeatureSet features = {Feature::kVersion1, Feature::kStatus};
  const auto offer = [&](bool wanted, Feature feature) {
    if (wanted) features.add(feature);
  };
  offer(options.packed, Feature::kRingPacked);
  offer(options.in_order, Feature::kInOrder);
  offer(options.mrg_rxbuf, Feature::kMrgRxbuf);
  offer(options.event_idx, Feature::kEventIdx);
  offer(options.indirect, Feature::kIndirectDesc);
  offer(options.ring_reset, Feature::kRingReset);
  offer(options.mac.has_value(), Feature::kMac);
  offer(options.mtu < kMtuMax, Feature::kMtu);
  if (options.offloads) features = features | kOffloads;
  offer(options.control_queue, Feature::kCtrlVq);
  offer(options.control_queue, Feature::kCtrlRx);
  offer(options.control_queue, Feature::kGuestAnnounce);
  offer(options.control_queue && options.offloads, Feature::kCtrlGuestOffloads);
  // A port with an address of its own drops frames with another source: the driver must keep it.
  offer(options.control_queue && !options.mac.has_value(), Feature::kCtrlMacAddr);
  // With vhost-user the front-end may serve the control queue itself and enable rings instead
  // (CTL-08), but MQ still stands for several pairs.
  offer(options.queue_pairs > 1, Feature::kMq);
  return virtio::without_broken_dependencies(features);
}

ConfigSpace::ConfigSpace(const DeviceOptions& options) {
  virtio_net_config record{};
  const PackedMac mac = options.mac.value_or(0);
  std::memcpy(record.mac.data(), &mac, record.mac.size());
  record.status = kLinkUp;
  record.max_virtqueue_pairs = options.queue_pairs;
  record.mtu = options.mtu;
  record.speed = ~std::uint32_t{0};
  record.duplex = 0xff;
  store(record);
}

virtio_net_config ConfigSpace::record() const {
  return std::bit_cast<virtio_net_config>(bytes_);
}

Status ConfigSpace::write(std::uint32_t offset, std::span<const std::byte> data) const {
  if (offset > bytes_.size() || data.size() > bytes_.size() - offset) {
    return fail(ErrorCode::kOutOfRange, "a write beyond the configuration space", offset);
  }
  return fail(ErrorCode::kPermission, "the configuration space is read-only", offset);
}

void ConfigSpace::set_announce(bool needed) {
  virtio_net_config changed = record();
  changed.status = static_cast<std::uint16_t>(needed ? changed.status | kAnnounceNeeded
                                                     : changed.status & ~kAnnounceNeeded);
  store(changed);
}

void ConfigSpace::store(const virtio_net_config& record) {
  bytes_ = std::bit_cast<decltype(bytes_)>(record);
}

}  // namespace sluice::net
