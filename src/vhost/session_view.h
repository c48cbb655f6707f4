// SessionView: what is shown of a vhost-user session.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "virtio/features.h"

namespace sluice::vhost {

/// What is shown of a session.
struct SessionView {
  virtio::FeatureSet features;                      // Negotiated, transport's bits included.
  std::vector<std::string_view> protocol_features;  // Negotiated, by name.
  std::uint64_t memory_bytes = 0;
  std::uint32_t memory_regions = 0;
  std::uint8_t status = 0;  // Last SET_STATUS; 0 if none came.
  bool logging = false;     // Dirty pages are being logged.
  std::uint64_t messages = 0;
  std::uint64_t refused = 0;            // Of them.
  std::optional<Error> last_error;      // Why the last one was refused.
  std::string_view last_error_request;  // Its name; empty if none was.
};

}  // namespace sluice::vhost
