// The vhost-user protocol as it goes over the wire: request numbers, protocol features, records.
//
// Spec: "Vhost-user Protocol" of QEMU's documentation. All integers are in the host's byte order,
// which is little-endian here. What a back-end does with each request: vhost/messages.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace sluice::vhost {

/// Requests of the front-end.
enum class Request : std::uint32_t {
  kGetFeatures = 1,
  kSetFeatures = 2,
  kSetOwner = 3,
  kResetOwner = 4,
  kSetMemTable = 5,
  kSetLogBase = 6,
  kSetLogFd = 7,
  kSetVringNum = 8,
  kSetVringAddr = 9,
  kSetVringBase = 10,
  kGetVringBase = 11,
  kSetVringKick = 12,
  kSetVringCall = 13,
  kSetVringErr = 14,
  kGetProtocolFeatures = 15,
  kSetProtocolFeatures = 16,
  kGetQueueNum = 17,
  kSetVringEnable = 18,
  kSendRarp = 19,
  kNetSetMtu = 20,
  kSetBackendReqFd = 21,
  kIotlbMsg = 22,
  kSetVringEndian = 23,
  kGetConfig = 24,
  kSetConfig = 25,
  kCreateCryptoSession = 26,
  kCloseCryptoSession = 27,
  kPostcopyAdvise = 28,
  kPostcopyListen = 29,
  kPostcopyEnd = 30,
  kGetInflightFd = 31,
  kSetInflightFd = 32,
  kGpuSetSocket = 33,
  kResetDevice = 34,
  kVringKick = 35,
  kGetMaxMemSlots = 36,
  kAddMemReg = 37,
  kRemMemReg = 38,
  kSetStatus = 39,
  kGetStatus = 40,
  kGetSharedObject = 41,
  kSetDeviceStateFd = 42,
  kCheckDeviceState = 43,
  kGetShmemConfig = 44,
};

/// Requests of the back-end, on the channel of SET_BACKEND_REQ_FD.
enum class BackendRequest : std::uint32_t {
  kIotlbMsg = 1,
  kConfigChangeMsg = 2,
  kVringHostNotifierMsg = 3,
  kVringCall = 4,
  kVringErr = 5,
  kSharedObjectAdd = 6,
  kSharedObjectRemove = 7,
  kSharedObjectLookup = 8,
  kShmemMap = 9,
  kShmemUnmap = 10,
};

/// Bit numbers of GET/SET_PROTOCOL_FEATURES. Those above 19 moved between releases of the
/// document and are left out on purpose.
enum class ProtocolFeature : std::uint8_t {
  kMq = 0,
  kLogShmfd = 1,
  kRarp = 2,
  kReplyAck = 3,
  kNetMtu = 4,
  kBackendReq = 5,
  kCrossEndian = 6,
  kCryptoSession = 7,
  kPagefault = 8,
  kConfig = 9,
  kBackendSendFd = 10,
  kHostNotifier = 11,
  kInflightShmfd = 12,
  kResetDevice = 13,
  kInbandNotifications = 14,
  kConfigureMemSlots = 15,
  kStatus = 16,
  kXenMmap = 17,
  kSharedObject = 18,
  kDeviceState = 19,
};

[[nodiscard]] constexpr std::uint64_t bit(ProtocolFeature feature) {
  return std::uint64_t{1} << static_cast<unsigned>(feature);
}
[[nodiscard]] constexpr bool has(std::uint64_t features, ProtocolFeature feature) {
  return (features & bit(feature)) != 0;
}
/// Names of all bits set that have one, without prefix, in order of number.
[[nodiscard]] std::vector<std::string_view> protocol_feature_names(std::uint64_t features);

/// INBAND_NOTIFICATIONS without BACKEND_REQ and REPLY_ACK: the connection must end.
[[nodiscard]] constexpr bool inband_is_lawful(std::uint64_t features) {
  const std::uint64_t needed = bit(ProtocolFeature::kBackendReq) | bit(ProtocolFeature::kReplyAck);
  return !has(features, ProtocolFeature::kInbandNotifications) || (features & needed) == needed;
}

// --- Framing -------------------------------------------------------------------------------------
struct MessageHeader {
  std::uint32_t request;
  std::uint32_t flags;
  std::uint32_t size;  // Of the payload that follows, bytes.
};
static_assert(sizeof(MessageHeader) == 12);

inline constexpr std::uint32_t kVersionMask = 3;
inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::uint32_t kFlagReply = 4;
inline constexpr std::uint32_t kFlagNeedReply = 8;

/// Longest payload that is read at all. Known ones end at 272; the rest is room for messages of a
/// later protocol, which are refused without losing the place in the stream.
inline constexpr std::uint32_t kPayloadMax = 4096;
/// Most descriptors of one message ("Memory regions description").
inline constexpr std::size_t kFdsMax = 8;

// --- Payloads ------------------------------------------------------------------------------------
struct VringState {
  std::uint32_t index;
  std::uint32_t num;
};
static_assert(sizeof(VringState) == 8);

struct VringAddress {
  std::uint32_t index;
  std::uint32_t flags;
  std::uint64_t descriptor;
  std::uint64_t used;
  std::uint64_t available;
  std::uint64_t log;
};
static_assert(sizeof(VringAddress) == 40);
inline constexpr std::uint32_t kVringAddressLog = 1;  // VHOST_VRING_F_LOG

// SET_VRING_KICK, _CALL and _ERR carry one integer.
inline constexpr std::uint64_t kVringIndexMask = 0xff;
inline constexpr std::uint64_t kVringNoFd = 0x100;

struct MemoryRegion {
  std::uint64_t guest_address;
  std::uint64_t size;
  std::uint64_t user_address;
  std::uint64_t mmap_offset;
};
static_assert(sizeof(MemoryRegion) == 32);

/// Head of SET_MEM_TABLE; `num_regions` MemoryRegion follow.
struct MemoryTable {
  std::uint32_t num_regions;
  std::uint32_t padding;
};
static_assert(sizeof(MemoryTable) == 8);
inline constexpr std::uint32_t kTableRegionsMax = 8;

/// ADD_MEM_REG, REM_MEM_REG.
struct SingleRegion {
  std::uint64_t padding;
  MemoryRegion region;
};
static_assert(sizeof(SingleRegion) == 40);

struct LogDescription {
  std::uint64_t size;
  std::uint64_t offset;
};
static_assert(sizeof(LogDescription) == 16);

/// GET/SET_INFLIGHT_FD. The document ends it after queue_size (20 bytes); peers that send the C
/// record as it lies in memory send 24.
struct InflightDescription {
  std::uint64_t mmap_size;
  std::uint64_t mmap_offset;
  std::uint16_t num_queues;
  std::uint16_t queue_size;
  std::uint32_t padding;
};
static_assert(sizeof(InflightDescription) == 24);
inline constexpr std::uint32_t kInflightShort = 20;

/// Head of GET_CONFIG and SET_CONFIG; `size` bytes follow.
struct ConfigDescription {
  std::uint32_t offset;
  std::uint32_t size;
  std::uint32_t flags;
};
static_assert(sizeof(ConfigDescription) == 12);
inline constexpr std::uint32_t kConfigMax = 256;
inline constexpr std::uint32_t kConfigWritable = 0;
inline constexpr std::uint32_t kConfigMigration = 1;

}  // namespace sluice::vhost
