// GrowingPause: how long a link waits before the next session, when sessions come to nothing.
#pragma once

#include <algorithm>
#include <chrono>

namespace sluice::fabric {

class GrowingPause {
 public:
  static constexpr std::chrono::milliseconds kFirst{10};
  static constexpr std::chrono::milliseconds kMost{1000};

  /// The pause after a session: twice the last one if it was `in_vain`, else none.
  std::chrono::milliseconds after(bool in_vain) {
    pause_ = in_vain ? std::clamp(2 * pause_, kFirst, kMost) : std::chrono::milliseconds(0);
    return pause_;
  }

 private:
  std::chrono::milliseconds pause_{0};
};

}  // namespace sluice::fabric
