// A switch that notes what it is told to do.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "control/orders.h"

namespace sluice::control {

class FakeControls final : public Controls {
 public:
  Result<std::shared_ptr<const fabric::PendingReset>> begin_reset(
      const std::string& port, const fabric::ResetOrder& order) override {
    orders.emplace_back(port, order);
    if (!allowed) return std::unexpected(allowed.error());
    pending = std::make_shared<fabric::PendingReset>(nullptr);
    return pending;
  }

  Status allowed;
  std::vector<std::pair<std::string, fabric::ResetOrder>> orders;
  std::shared_ptr<fabric::PendingReset> pending;  // Of the last order.
};

}  // namespace sluice::control
