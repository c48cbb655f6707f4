// A Unix socket address made from a path.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <string>

#include "base/error.h"

namespace sluice::control {

struct UnixAddress {
  sockaddr_un storage{};

  [[nodiscard]] const sockaddr* get() const {
    return static_cast<const sockaddr*>(static_cast<const void*>(&storage));
  }
  [[nodiscard]] static constexpr socklen_t size() { return sizeof(sockaddr_un); }
};

/// Errors: kOutOfRange for a path that is empty or longer than the address can hold.
[[nodiscard]] inline Result<UnixAddress> unix_address(const std::string& path) {
  UnixAddress address;
  address.storage.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.storage.sun_path)) {
    return fail(ErrorCode::kOutOfRange, "a socket's path has 1 to 107 bytes",
                static_cast<std::int64_t>(path.size()));
  }
  std::memcpy(address.storage.sun_path, path.data(), path.size());
  return address;
}

}  // namespace sluice::control
