// Names of features, and the dependencies between them (virtio 1.3, 5.1.3.1) as one table.
#include "virtio/features.h"

#include <array>
namespace sluice::virtio {
namespace {

struct NamedFeature {
  Feature feature;
  std::string_view name;
};

// In order of number, so that names_of() needs no sorting.
constexpr auto kNames = std::to_array<NamedFeature>({
    {Feature::kCsum, "CSUM"},
    {Feature::kGuestCsum, "GUEST_CSUM"},
    {Feature::kCtrlGuestOffloads, "CTRL_GUEST_OFFLOADS"},
    {Feature::kMtu, "MTU"},
    {Feature::kMac, "MAC"},
    {Feature::kGuestTso4, "GUEST_TSO4"},
    {Feature::kGuestTso6, "GUEST_TSO6"},
    {Feature::kGuestEcn, "GUEST_ECN"},
    {Feature::kGuestUfo, "GUEST_UFO"},
    {Feature::kHostTso4, "HOST_TSO4"},
    {Feature::kHostTso6, "HOST_TSO6"},
    {Feature::kHostEcn, "HOST_ECN"},
    {Feature::kHostUfo, "HOST_UFO"},
    {Feature::kMrgRxbuf, "MRG_RXBUF"},
    {Feature::kStatus, "STATUS"},
    {Feature::kCtrlVq, "CTRL_VQ"},
    {Feature::kCtrlRx, "CTRL_RX"},
    {Feature::kCtrlVlan, "CTRL_VLAN"},
    {Feature::kCtrlRxExtra, "CTRL_RX_EXTRA"},
    {Feature::kGuestAnnounce, "GUEST_ANNOUNCE"},
    {Feature::kMq, "MQ"},
    {Feature::kCtrlMacAddr, "CTRL_MAC_ADDR"},
    {Feature::kNotifyOnEmpty, "NOTIFY_ON_EMPTY"},
    {Feature::kLogAll, "LOG_ALL"},
    {Feature::kAnyLayout, "ANY_LAYOUT"},
    {Feature::kIndirectDesc, "INDIRECT_DESC"},
    {Feature::kEventIdx, "EVENT_IDX"},
    {Feature::kProtocolFeatures, "PROTOCOL_FEATURES"},
    {Feature::kVersion1, "VERSION_1"},
    {Feature::kAccessPlatform, "ACCESS_PLATFORM"},
    {Feature::kRingPacked, "RING_PACKED"},
    {Feature::kInOrder, "IN_ORDER"},
    {Feature::kOrderPlatform, "ORDER_PLATFORM"},
    {Feature::kSrIov, "SR_IOV"},
    {Feature::kNotificationData, "NOTIFICATION_DATA"},
    {Feature::kNotifConfigData, "NOTIF_CONFIG_DATA"},
    {Feature::kRingReset, "RING_RESET"},
    {Feature::kHashTunnel, "HASH_TUNNEL"},
    {Feature::kVqNotfCoal, "VQ_NOTF_COAL"},
    {Feature::kNotfCoal, "NOTF_COAL"},
    {Feature::kGuestUso4, "GUEST_USO4"},
    {Feature::kGuestUso6, "GUEST_USO6"},
    {Feature::kHostUso, "HOST_USO"},
    {Feature::kHashReport, "HASH_REPORT"},
    {Feature::kGuestHdrlen, "GUEST_HDRLEN"},
    {Feature::kRss, "RSS"},
    {Feature::kRscExt, "RSC_EXT"},
    {Feature::kStandby, "STANDBY"},
    {Feature::kSpeedDuplex, "SPEED_DUPLEX"},
    {Feature::kGuestUdpTunnelGso, "GUEST_UDP_TUNNEL_GSO"},
    {Feature::kGuestUdpTunnelGsoCsum, "GUEST_UDP_TUNNEL_GSO_CSUM"},
    {Feature::kHostUdpTunnelGso, "HOST_UDP_TUNNEL_GSO"},
    {Feature::kHostUdpTunnelGsoCsum, "HOST_UDP_TUNNEL_GSO_CSUM"},
    {Feature::kOutNetHeader, "OUT_NET_HEADER"},
    {Feature::kIpsec, "IPSEC"},
});

// `feature` needs at least one of `any_of`. A feature that needs several things has several rows.
struct Requirement {
  Feature feature;
  FeatureSet any_of;
};

constexpr auto kRequirements = std::to_array<Requirement>({
    {Feature::kGuestTso4, {Feature::kGuestCsum}},
    {Feature::kGuestTso6, {Feature::kGuestCsum}},
    {Feature::kGuestEcn, {Feature::kGuestTso4, Feature::kGuestTso6}},
    {Feature::kGuestUfo, {Feature::kGuestCsum}},
    {Feature::kGuestUso4, {Feature::kGuestCsum}},
    {Feature::kGuestUso6, {Feature::kGuestCsum}},
    {Feature::kGuestUdpTunnelGso,
     {Feature::kGuestTso4, Feature::kGuestTso6, Feature::kGuestUso4, Feature::kGuestUso6}},
    {Feature::kGuestUdpTunnelGsoCsum, {Feature::kGuestUdpTunnelGso}},
    {Feature::kHostTso4, {Feature::kCsum}},
    {Feature::kHostTso6, {Feature::kCsum}},
    {Feature::kHostEcn, {Feature::kHostTso4, Feature::kHostTso6}},
    {Feature::kHostUfo, {Feature::kCsum}},
    {Feature::kHostUso, {Feature::kCsum}},
    {Feature::kHostUdpTunnelGso, {Feature::kHostTso4, Feature::kHostTso6, Feature::kHostUso}},
    {Feature::kHostUdpTunnelGsoCsum, {Feature::kHostUdpTunnelGso}},
    {Feature::kRscExt, {Feature::kHostTso4, Feature::kHostTso6}},
    {Feature::kCtrlRx, {Feature::kCtrlVq}},
    {Feature::kCtrlVlan, {Feature::kCtrlVq}},
    {Feature::kGuestAnnounce, {Feature::kCtrlVq}},
    {Feature::kMq, {Feature::kCtrlVq}},
    {Feature::kCtrlMacAddr, {Feature::kCtrlVq}},
    {Feature::kCtrlGuestOffloads, {Feature::kCtrlVq}},
    {Feature::kNotfCoal, {Feature::kCtrlVq}},
    {Feature::kVqNotfCoal, {Feature::kCtrlVq}},
    {Feature::kRss, {Feature::kCtrlVq}},
    {Feature::kHashTunnel, {Feature::kCtrlVq}},
    {Feature::kHashTunnel, {Feature::kRss, Feature::kHashReport}},
});

}  // namespace

std::string_view name_of(Feature feature) {
  for (const NamedFeature& named : kNames) {
    if (named.feature == feature) return named.name;
  }
  return "";
}

std::vector<std::string_view> names_of(const FeatureSet& set) {
  std::vector<std::string_view> names;
  for (const NamedFeature& named : kNames) {
    if (set.has(named.feature)) names.push_back(named.name);
  }
  return names;
}

std::optional<Feature> broken_dependency(const FeatureSet& set) {
  for (const Requirement& requirement : kRequirements) {
    if (set.has(requirement.feature) && (set & requirement.any_of).empty()) {
      return requirement.feature;
    }
  }
  return std::nullopt;
}

FeatureSet without_broken_dependencies(FeatureSet set) {
  // Each round removes one feature, so it ends; a removal can break what was fine before.
  while (const std::optional<Feature> broken = broken_dependency(set)) set.remove(*broken);
  return set;
}

}  // namespace sluice::virtio
