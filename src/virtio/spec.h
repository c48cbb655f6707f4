// Constants and wire records of the virtio specification, in its own spelling.
//
// tests/unit/virtio/spec_test.cc checks them against <linux/virtio_*.h> (which C++ cannot include
// as they are). Wire integers are little-endian; hosts that are not are refused at compile time.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace sluice::virtio {

static_assert(std::endian::native == std::endian::little, "virtio 1.x is little-endian");

// --- Descriptor flags (2.7.5, 2.8.1) -------------------------------------------------------------
inline constexpr std::uint16_t kDescNext = 1;
inline constexpr std::uint16_t kDescWrite = 2;
inline constexpr std::uint16_t kDescIndirect = 4;
inline constexpr std::uint16_t kPackedAvail = 1U << 7;
inline constexpr std::uint16_t kPackedUsed = 1U << 15;

inline constexpr std::uint16_t kAvailNoInterrupt = 1;  // 2.7.6: VIRTQ_AVAIL_F_NO_INTERRUPT
inline constexpr std::uint16_t kUsedNoNotify = 1;      // 2.7.8: VIRTQ_USED_F_NO_NOTIFY

/// Largest queue of either format (2.7, 2.8.10).
inline constexpr std::uint32_t kQueueSizeMax = 32768;

/// Split ring: descriptor table entry (2.7.5).
struct alignas(16) virtq_desc {
  std::uint64_t addr;
  std::uint32_t len;
  std::uint16_t flags;
  std::uint16_t next;
};
static_assert(sizeof(virtq_desc) == 16);

/// Split ring: used ring entry (2.7.8).
struct virtq_used_elem {
  std::uint32_t id;
  std::uint32_t len;
};
static_assert(sizeof(virtq_used_elem) == 8);

/// Packed ring: descriptor (2.8.13).
struct alignas(16) pvirtq_desc {
  std::uint64_t addr;
  std::uint32_t len;
  std::uint16_t id;
  std::uint16_t flags;
};
static_assert(sizeof(pvirtq_desc) == 16);

/// Packed ring: event suppression structure (2.8.14). desc: offset 15 bits, wrap 1 bit.
struct alignas(4) pvirtq_event_suppress {
  std::uint16_t desc;
  std::uint16_t flags;
};
static_assert(sizeof(pvirtq_event_suppress) == 4);
inline constexpr std::uint16_t kRingEventFlagsEnable = 0;
inline constexpr std::uint16_t kRingEventFlagsDisable = 1;
inline constexpr std::uint16_t kRingEventFlagsDesc = 2;

// --- Device status (2.1) -------------------------------------------------------------------------
inline constexpr std::uint8_t kStatusAcknowledge = 1;
inline constexpr std::uint8_t kStatusDriver = 2;
inline constexpr std::uint8_t kStatusDriverOk = 4;
inline constexpr std::uint8_t kStatusFeaturesOk = 8;
inline constexpr std::uint8_t kStatusNeedsReset = 64;
inline constexpr std::uint8_t kStatusFailed = 128;

// --- Feature bit numbers (5.1.3, 6, and vhost-user's own) ----------------------------------------
enum class Feature : std::uint8_t {
  kCsum = 0,
  kGuestCsum = 1,
  kCtrlGuestOffloads = 2,
  kMtu = 3,
  kMac = 5,
  kGuestTso4 = 7,
  kGuestTso6 = 8,
  kGuestEcn = 9,
  kGuestUfo = 10,
  kHostTso4 = 11,
  kHostTso6 = 12,
  kHostEcn = 13,
  kHostUfo = 14,
  kMrgRxbuf = 15,
  kStatus = 16,
  kCtrlVq = 17,
  kCtrlRx = 18,
  kCtrlVlan = 19,
  kCtrlRxExtra = 20,
  kGuestAnnounce = 21,
  kMq = 22,
  kCtrlMacAddr = 23,
  kNotifyOnEmpty = 24,
  kLogAll = 26,  // VHOST_F_LOG_ALL
  kAnyLayout = 27,
  kIndirectDesc = 28,
  kEventIdx = 29,
  kProtocolFeatures = 30,  // VHOST_USER_F_PROTOCOL_FEATURES
  kVersion1 = 32,
  kAccessPlatform = 33,
  kRingPacked = 34,
  kInOrder = 35,
  kOrderPlatform = 36,
  kSrIov = 37,
  kNotificationData = 38,
  kNotifConfigData = 39,
  kRingReset = 40,
  kHashTunnel = 51,
  kVqNotfCoal = 52,
  kNotfCoal = 53,
  kGuestUso4 = 54,
  kGuestUso6 = 55,
  kHostUso = 56,
  kHashReport = 57,
  kGuestHdrlen = 59,
  kRss = 60,
  kRscExt = 61,
  kStandby = 62,
  kSpeedDuplex = 63,
  kGuestUdpTunnelGso = 65,
  kGuestUdpTunnelGsoCsum = 66,
  kHostUdpTunnelGso = 67,
  kHostUdpTunnelGsoCsum = 68,
  kOutNetHeader = 69,
  kIpsec = 70,
};

// --- virtio-net header (5.1.6) -------------------------------------------------------------------
inline constexpr std::uint8_t kHdrNeedsCsum = 1;
inline constexpr std::uint8_t kHdrDataValid = 2;
inline constexpr std::uint8_t kHdrRscInfo = 4;
inline constexpr std::uint8_t kGsoNone = 0;
inline constexpr std::uint8_t kGsoTcpv4 = 1;
inline constexpr std::uint8_t kGsoUdp = 3;  // UFO
inline constexpr std::uint8_t kGsoTcpv6 = 4;
inline constexpr std::uint8_t kGsoUdpL4 = 5;  // USO
inline constexpr std::uint8_t kGsoEcn = 0x80;

/// The 12-byte header of every VERSION_1 device.
struct virtio_net_hdr_v1 {
  std::uint8_t flags;
  std::uint8_t gso_type;
  std::uint16_t hdr_len;
  std::uint16_t gso_size;
  std::uint16_t csum_start;
  std::uint16_t csum_offset;
  std::uint16_t num_buffers;
};
static_assert(sizeof(virtio_net_hdr_v1) == 12);

}  // namespace sluice::virtio
