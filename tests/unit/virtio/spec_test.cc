// Constants and wire records of virtio/spec.h against the kernel's headers. What a header of 2022
// does not have yet is compared with the number that the specification prints.
#include "virtio/spec.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <type_traits>

// The kernel's header has a member called `class`, and inline functions that are not C++.
#pragma GCC diagnostic push
#ifdef __clang__
#pragma GCC diagnostic ignored "-Wkeyword-macro"
#endif
#define class class_
#define VIRTIO_RING_NO_LEGACY
#include <linux/vhost_types.h>
#include <linux/virtio_config.h>
#include <linux/virtio_net.h>
#include <linux/virtio_ring.h>
#undef class
#pragma GCC diagnostic pop

namespace sluice::virtio {
namespace {

constexpr int bit(Feature feature) {
  return static_cast<int>(feature);
}

TEST(Spec, DescriptorFlagsAreTheKernels) {
  EXPECT_EQ(kDescNext, VRING_DESC_F_NEXT);
  EXPECT_EQ(kDescWrite, VRING_DESC_F_WRITE);
  EXPECT_EQ(kDescIndirect, VRING_DESC_F_INDIRECT);
  EXPECT_EQ(kPackedAvail, 1 << VRING_PACKED_DESC_F_AVAIL);
  EXPECT_EQ(kPackedUsed, 1 << VRING_PACKED_DESC_F_USED);
}

TEST(Spec, SuppressionFlagsAreTheKernels) {
  EXPECT_EQ(kAvailNoInterrupt, VRING_AVAIL_F_NO_INTERRUPT);
  EXPECT_EQ(kUsedNoNotify, VRING_USED_F_NO_NOTIFY);
  EXPECT_EQ(kRingEventFlagsEnable, VRING_PACKED_EVENT_FLAG_ENABLE);
  EXPECT_EQ(kRingEventFlagsDisable, VRING_PACKED_EVENT_FLAG_DISABLE);
  EXPECT_EQ(kRingEventFlagsDesc, VRING_PACKED_EVENT_FLAG_DESC);
}

TEST(Spec, StatusBitsAreTheKernels) {
  EXPECT_EQ(kStatusDriverOk, VIRTIO_CONFIG_S_DRIVER_OK);
  EXPECT_EQ(kStatusFeaturesOk, VIRTIO_CONFIG_S_FEATURES_OK);
  EXPECT_EQ(kStatusNeedsReset, VIRTIO_CONFIG_S_NEEDS_RESET);
}

TEST(Spec, RingRecordsHaveTheKernelsLayout) {
  static_assert(sizeof(virtq_desc) == sizeof(vring_desc));
  static_assert(alignof(virtq_desc) >= alignof(vring_desc));
  EXPECT_EQ(offsetof(virtq_desc, addr), offsetof(vring_desc, addr));
  EXPECT_EQ(offsetof(virtq_desc, len), offsetof(vring_desc, len));
  EXPECT_EQ(offsetof(virtq_desc, flags), offsetof(vring_desc, flags));
  EXPECT_EQ(offsetof(virtq_desc, next), offsetof(vring_desc, next));

  static_assert(sizeof(virtq_used_elem) == sizeof(vring_used_elem));
  EXPECT_EQ(offsetof(virtq_used_elem, id), offsetof(vring_used_elem, id));
  EXPECT_EQ(offsetof(virtq_used_elem, len), offsetof(vring_used_elem, len));

  static_assert(sizeof(pvirtq_desc) == sizeof(vring_packed_desc));
  EXPECT_EQ(offsetof(pvirtq_desc, addr), offsetof(vring_packed_desc, addr));
  EXPECT_EQ(offsetof(pvirtq_desc, len), offsetof(vring_packed_desc, len));
  EXPECT_EQ(offsetof(pvirtq_desc, id), offsetof(vring_packed_desc, id));
  EXPECT_EQ(offsetof(pvirtq_desc, flags), offsetof(vring_packed_desc, flags));

  static_assert(sizeof(pvirtq_event_suppress) == sizeof(vring_packed_desc_event));
  EXPECT_EQ(offsetof(pvirtq_event_suppress, desc), offsetof(vring_packed_desc_event, off_wrap));
  EXPECT_EQ(offsetof(pvirtq_event_suppress, flags), offsetof(vring_packed_desc_event, flags));
}

TEST(Spec, NetHeaderHasTheKernelsLayout) {
  using Kernel = ::virtio_net_hdr_v1;
  using Ours = virtio::virtio_net_hdr_v1;
  static_assert(!std::is_same_v<Kernel, Ours>);
  static_assert(sizeof(Ours) == sizeof(Kernel));
  EXPECT_EQ(offsetof(Ours, flags), offsetof(Kernel, flags));
  EXPECT_EQ(offsetof(Ours, gso_type), offsetof(Kernel, gso_type));
  EXPECT_EQ(offsetof(Ours, hdr_len), offsetof(Kernel, hdr_len));
  EXPECT_EQ(offsetof(Ours, gso_size), offsetof(Kernel, gso_size));
  EXPECT_EQ(offsetof(Ours, csum_start), offsetof(Kernel, csum_start));
  EXPECT_EQ(offsetof(Ours, csum_offset), offsetof(Kernel, csum_offset));
  EXPECT_EQ(offsetof(Ours, num_buffers), offsetof(Kernel, num_buffers));

  EXPECT_EQ(kHdrNeedsCsum, VIRTIO_NET_HDR_F_NEEDS_CSUM);
  EXPECT_EQ(kHdrDataValid, VIRTIO_NET_HDR_F_DATA_VALID);
  EXPECT_EQ(kHdrRscInfo, VIRTIO_NET_HDR_F_RSC_INFO);
  EXPECT_EQ(kGsoNone, VIRTIO_NET_HDR_GSO_NONE);
  EXPECT_EQ(kGsoTcpv4, VIRTIO_NET_HDR_GSO_TCPV4);
  EXPECT_EQ(kGsoUdp, VIRTIO_NET_HDR_GSO_UDP);
  EXPECT_EQ(kGsoTcpv6, VIRTIO_NET_HDR_GSO_TCPV6);
  EXPECT_EQ(kGsoEcn, VIRTIO_NET_HDR_GSO_ECN);
  EXPECT_EQ(kGsoUdpL4, 5);
}

TEST(Spec, NetFeatureBitsAreTheKernels) {
  EXPECT_EQ(bit(Feature::kCsum), VIRTIO_NET_F_CSUM);
  EXPECT_EQ(bit(Feature::kGuestCsum), VIRTIO_NET_F_GUEST_CSUM);
  EXPECT_EQ(bit(Feature::kCtrlGuestOffloads), VIRTIO_NET_F_CTRL_GUEST_OFFLOADS);
  EXPECT_EQ(bit(Feature::kMtu), VIRTIO_NET_F_MTU);
  EXPECT_EQ(bit(Feature::kMac), VIRTIO_NET_F_MAC);
  EXPECT_EQ(bit(Feature::kGuestTso4), VIRTIO_NET_F_GUEST_TSO4);
  EXPECT_EQ(bit(Feature::kGuestTso6), VIRTIO_NET_F_GUEST_TSO6);
  EXPECT_EQ(bit(Feature::kGuestEcn), VIRTIO_NET_F_GUEST_ECN);
  EXPECT_EQ(bit(Feature::kGuestUfo), VIRTIO_NET_F_GUEST_UFO);
  EXPECT_EQ(bit(Feature::kHostTso4), VIRTIO_NET_F_HOST_TSO4);
  EXPECT_EQ(bit(Feature::kHostTso6), VIRTIO_NET_F_HOST_TSO6);
  EXPECT_EQ(bit(Feature::kHostEcn), VIRTIO_NET_F_HOST_ECN);
  EXPECT_EQ(bit(Feature::kHostUfo), VIRTIO_NET_F_HOST_UFO);
  EXPECT_EQ(bit(Feature::kMrgRxbuf), VIRTIO_NET_F_MRG_RXBUF);
  EXPECT_EQ(bit(Feature::kStatus), VIRTIO_NET_F_STATUS);
  EXPECT_EQ(bit(Feature::kCtrlVq), VIRTIO_NET_F_CTRL_VQ);
  EXPECT_EQ(bit(Feature::kCtrlRx), VIRTIO_NET_F_CTRL_RX);
  EXPECT_EQ(bit(Feature::kCtrlVlan), VIRTIO_NET_F_CTRL_VLAN);
  EXPECT_EQ(bit(Feature::kCtrlRxExtra), VIRTIO_NET_F_CTRL_RX_EXTRA);
  EXPECT_EQ(bit(Feature::kGuestAnnounce), VIRTIO_NET_F_GUEST_ANNOUNCE);
  EXPECT_EQ(bit(Feature::kMq), VIRTIO_NET_F_MQ);
  EXPECT_EQ(bit(Feature::kCtrlMacAddr), VIRTIO_NET_F_CTRL_MAC_ADDR);
  EXPECT_EQ(bit(Feature::kNotfCoal), VIRTIO_NET_F_NOTF_COAL);
  EXPECT_EQ(bit(Feature::kHashReport), VIRTIO_NET_F_HASH_REPORT);
  EXPECT_EQ(bit(Feature::kRss), VIRTIO_NET_F_RSS);
  EXPECT_EQ(bit(Feature::kRscExt), VIRTIO_NET_F_RSC_EXT);
  EXPECT_EQ(bit(Feature::kStandby), VIRTIO_NET_F_STANDBY);
  EXPECT_EQ(bit(Feature::kSpeedDuplex), VIRTIO_NET_F_SPEED_DUPLEX);
}

TEST(Spec, RingFeatureBitsAreTheKernels) {
  EXPECT_EQ(bit(Feature::kNotifyOnEmpty), VIRTIO_F_NOTIFY_ON_EMPTY);
  EXPECT_EQ(bit(Feature::kLogAll), VHOST_F_LOG_ALL);
  EXPECT_EQ(bit(Feature::kAnyLayout), VIRTIO_F_ANY_LAYOUT);
  EXPECT_EQ(bit(Feature::kIndirectDesc), VIRTIO_RING_F_INDIRECT_DESC);
  EXPECT_EQ(bit(Feature::kEventIdx), VIRTIO_RING_F_EVENT_IDX);
  EXPECT_EQ(bit(Feature::kVersion1), VIRTIO_F_VERSION_1);
  EXPECT_EQ(bit(Feature::kAccessPlatform), VIRTIO_F_ACCESS_PLATFORM);
  EXPECT_EQ(bit(Feature::kRingPacked), VIRTIO_F_RING_PACKED);
  EXPECT_EQ(bit(Feature::kInOrder), VIRTIO_F_IN_ORDER);
  EXPECT_EQ(bit(Feature::kOrderPlatform), VIRTIO_F_ORDER_PLATFORM);
  EXPECT_EQ(bit(Feature::kSrIov), VIRTIO_F_SR_IOV);
  EXPECT_EQ(bit(Feature::kRingReset), VIRTIO_F_RING_RESET);
}

TEST(Spec, YoungFeatureBitsAreThoseOfTheSpecification) {
  EXPECT_EQ(bit(Feature::kProtocolFeatures), 30);
  EXPECT_EQ(bit(Feature::kNotificationData), 38);
  EXPECT_EQ(bit(Feature::kNotifConfigData), 39);
  EXPECT_EQ(bit(Feature::kHashTunnel), 51);
  EXPECT_EQ(bit(Feature::kVqNotfCoal), 52);
  EXPECT_EQ(bit(Feature::kGuestUso4), 54);
  EXPECT_EQ(bit(Feature::kGuestUso6), 55);
  EXPECT_EQ(bit(Feature::kHostUso), 56);
  EXPECT_EQ(bit(Feature::kGuestHdrlen), 59);
  EXPECT_EQ(bit(Feature::kGuestUdpTunnelGso), 65);
  EXPECT_EQ(bit(Feature::kGuestUdpTunnelGsoCsum), 66);
  EXPECT_EQ(bit(Feature::kHostUdpTunnelGso), 67);
  EXPECT_EQ(bit(Feature::kHostUdpTunnelGsoCsum), 68);
  EXPECT_EQ(bit(Feature::kOutNetHeader), 69);
  EXPECT_EQ(bit(Feature::kIpsec), 70);
}

}  // namespace
}  // namespace sluice::virtio
