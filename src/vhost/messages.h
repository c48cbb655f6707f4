// The one table of front-end messages: what each must look like, what it needs, how it is answered.
//
// Generic code checks size, descriptors and negotiation from the row, so that a handler sees only
// messages that are well formed and allowed (SEC-20). A row with kRefused is a message we know and
// do not implement: it is answered with an error, never silently accepted.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "vhost/connection.h"
#include "vhost/protocol.h"

namespace sluice::vhost {

/// How many descriptors come with a message.
enum class FdRule : std::uint8_t {
  kNone,
  kOne,
  kAtMostOne,  // REM_MEM_REG: the document allows one, which means nothing.
  kRing,       // One, or none if bit 8 of the payload says so.
  kTable,      // As many as the table has regions.
};

/// How a message is answered.
enum class ReplyKind : std::uint8_t {
  kAck,     // A u64, 0 for success, if REPLY_ACK was negotiated and the message asks for it.
  kStatus,  // The same u64, always.
  kData,    // Always, with data. An empty payload says that the request was refused.
};

enum class Support : std::uint8_t { kHandled, kRefused };

struct MessageRow {
  Request request;
  std::string_view name;
  std::uint32_t size_min;  // Payload, bytes.
  std::uint32_t size_max;
  FdRule fds;
  ReplyKind reply;
  std::optional<ProtocolFeature> needs;
  Support support = Support::kHandled;
};

// Short names for the table alone.
namespace message_table {
using R = Request;
using F = FdRule;
using A = ReplyKind;
using P = ProtocolFeature;
using S = Support;

// In order of number, without gap: row of request n is kRows[n - 1].
inline constexpr auto kRows = std::to_array<MessageRow>({
    // Request, name, payload from, to, descriptors, answer, protocol feature, support
    {R::kGetFeatures, "GET_FEATURES", 0, 0, F::kNone, A::kData, {}},
    {R::kSetFeatures, "SET_FEATURES", 8, 8, F::kNone, A::kAck, {}},
    {R::kSetOwner, "SET_OWNER", 0, 0, F::kNone, A::kAck, {}},
    {R::kResetOwner, "RESET_OWNER", 0, 0, F::kNone, A::kAck, {}},
    {R::kSetMemTable, "SET_MEM_TABLE", 8, 264, F::kTable, A::kAck, {}},
    {R::kSetLogBase, "SET_LOG_BASE", 16, 16, F::kOne, A::kStatus, P::kLogShmfd},
    {R::kSetLogFd, "SET_LOG_FD", 0, 8, F::kOne, A::kAck, {}, S::kRefused},
    {R::kSetVringNum, "SET_VRING_NUM", 8, 8, F::kNone, A::kAck, {}},
    {R::kSetVringAddr, "SET_VRING_ADDR", 40, 40, F::kNone, A::kAck, {}},
    {R::kSetVringBase, "SET_VRING_BASE", 8, 8, F::kNone, A::kAck, {}},
    {R::kGetVringBase, "GET_VRING_BASE", 8, 8, F::kNone, A::kData, {}},
    {R::kSetVringKick, "SET_VRING_KICK", 8, 8, F::kRing, A::kAck, {}},
    {R::kSetVringCall, "SET_VRING_CALL", 8, 8, F::kRing, A::kAck, {}},
    {R::kSetVringErr, "SET_VRING_ERR", 8, 8, F::kRing, A::kAck, {}},
    {R::kGetProtocolFeatures, "GET_PROTOCOL_FEATURES", 0, 0, F::kNone, A::kData, {}},
    {R::kSetProtocolFeatures, "SET_PROTOCOL_FEATURES", 8, 8, F::kNone, A::kAck, {}},
    {R::kGetQueueNum, "GET_QUEUE_NUM", 0, 0, F::kNone, A::kData, P::kMq},
    {R::kSetVringEnable, "SET_VRING_ENABLE", 8, 8, F::kNone, A::kAck, {}},
    {R::kSendRarp, "SEND_RARP", 8, 8, F::kNone, A::kAck, P::kRarp},
    {R::kNetSetMtu, "NET_SET_MTU", 8, 8, F::kNone, A::kAck, P::kNetMtu},
    {R::kSetBackendReqFd, "SET_BACKEND_REQ_FD", 0, 8, F::kOne, A::kAck, P::kBackendReq},
    {R::kIotlbMsg, "IOTLB_MSG", 0, 64, F::kNone, A::kAck, {}, S::kRefused},
    {R::kSetVringEndian, "SET_VRING_ENDIAN", 8, 8, F::kNone, A::kAck, P::kCrossEndian, S::kRefused},
    {R::kGetConfig, "GET_CONFIG", 12, 268, F::kNone, A::kData, P::kConfig},
    {R::kSetConfig, "SET_CONFIG", 12, 268, F::kNone, A::kAck, P::kConfig},
    {R::kCreateCryptoSession, "CREATE_CRYPTO_SESSION", 0, 4096, F::kNone, A::kData,
     P::kCryptoSession, S::kRefused},
    {R::kCloseCryptoSession, "CLOSE_CRYPTO_SESSION", 8, 8, F::kNone, A::kAck, P::kCryptoSession,
     S::kRefused},
    {R::kPostcopyAdvise, "POSTCOPY_ADVISE", 0, 0, F::kNone, A::kData, P::kPagefault, S::kRefused},
    {R::kPostcopyListen, "POSTCOPY_LISTEN", 0, 0, F::kNone, A::kAck, P::kPagefault, S::kRefused},
    {R::kPostcopyEnd, "POSTCOPY_END", 0, 0, F::kNone, A::kStatus, P::kPagefault, S::kRefused},
    {R::kGetInflightFd, "GET_INFLIGHT_FD", 20, 24, F::kNone, A::kData, P::kInflightShmfd},
    {R::kSetInflightFd, "SET_INFLIGHT_FD", 20, 24, F::kOne, A::kAck, P::kInflightShmfd},
    {R::kGpuSetSocket, "GPU_SET_SOCKET", 0, 0, F::kOne, A::kAck, {}, S::kRefused},
    {R::kResetDevice, "RESET_DEVICE", 0, 0, F::kNone, A::kAck, P::kResetDevice},
    {R::kVringKick, "VRING_KICK", 8, 8, F::kNone, A::kAck, P::kInbandNotifications},
    {R::kGetMaxMemSlots, "GET_MAX_MEM_SLOTS", 0, 0, F::kNone, A::kData, P::kConfigureMemSlots},
    {R::kAddMemReg, "ADD_MEM_REG", 40, 40, F::kOne, A::kAck, P::kConfigureMemSlots},
    {R::kRemMemReg, "REM_MEM_REG", 40, 40, F::kAtMostOne, A::kAck, P::kConfigureMemSlots},
    {R::kSetStatus, "SET_STATUS", 8, 8, F::kNone, A::kAck, P::kStatus},
    {R::kGetStatus, "GET_STATUS", 0, 0, F::kNone, A::kData, P::kStatus},
    {R::kGetSharedObject, "GET_SHARED_OBJECT", 16, 16, F::kNone, A::kData, P::kSharedObject,
     S::kRefused},
    {R::kSetDeviceStateFd, "SET_DEVICE_STATE_FD", 8, 8, F::kOne, A::kStatus, P::kDeviceState,
     S::kRefused},
    {R::kCheckDeviceState, "CHECK_DEVICE_STATE", 0, 0, F::kNone, A::kStatus, P::kDeviceState,
     S::kRefused},
    {R::kGetShmemConfig, "GET_SHMEM_CONFIG", 0, 0, F::kNone, A::kData, {}, S::kRefused},
});
}  // namespace message_table

inline constexpr const auto& kMessages = message_table::kRows;
static_assert(
    [] {
      for (std::size_t i = 0; i < kMessages.size(); ++i) {
        if (static_cast<std::size_t>(kMessages[i].request) != i + 1) return false;
      }
      return true;
    }(),
    "the row of request n is row n - 1");

/// The row of a request number, or null for one that nobody knows yet.
[[nodiscard]] constexpr const MessageRow* find_message(std::uint32_t request) {
  if (request == 0 || request > kMessages.size()) return nullptr;
  return &kMessages[request - 1];
}

/// Is `message` well formed, supported, and allowed with these protocol features?
/// Errors: kUnsupported, kProtocol for size or descriptors, kNotNegotiated.
[[nodiscard]] Status check_message(const MessageRow& row, const Message& message,
                                   std::uint64_t protocol_features);

}  // namespace sluice::vhost
