// What ends the session of a virtio-user port whose device does not take kicks.
#pragma once

#include "base/error.h"

namespace sluice::fabric {

inline constexpr Error kKickWaited{ErrorCode::kProtocol, "the back-end made a kick wait", 0};

}  // namespace sluice::fabric
