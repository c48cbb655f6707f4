// Names of protocol features.
#include "vhost/protocol.h"

#include <array>

namespace sluice::vhost {
namespace {

// By bit number.
constexpr auto kNames = std::to_array<std::string_view>({
    "MQ",
    "LOG_SHMFD",
    "RARP",
    "REPLY_ACK",
    "NET_MTU",
    "BACKEND_REQ",
    "CROSS_ENDIAN",
    "CRYPTO_SESSION",
    "PAGEFAULT",
    "CONFIG",
    "BACKEND_SEND_FD",
    "HOST_NOTIFIER",
    "INFLIGHT_SHMFD",
    "RESET_DEVICE",
    "INBAND_NOTIFICATIONS",
    "CONFIGURE_MEM_SLOTS",
    "STATUS",
    "XEN_MMAP",
    "SHARED_OBJECT",
    "DEVICE_STATE",
});
static_assert(kNames.size() == static_cast<std::size_t>(ProtocolFeature::kDeviceState) + 1);

}  // namespace

std::vector<std::string_view> protocol_feature_names(std::uint64_t features) {
  std::vector<std::string_view> names;
  for (std::size_t number = 0; number < kNames.size(); ++number) {
    if (((features >> number) & 1) != 0) names.push_back(kNames[number]);
  }
  return names;
}

}  // namespace sluice::vhost
