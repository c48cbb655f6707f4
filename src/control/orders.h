// Requests at the control socket that change something, beside the questions of requests.h.
//
//   {"request": "reset_queue", "port": "up", "queue": 3, "size": 512}
//     ->  {"reset": {"port": "up", "queue": 3, "size": 512, "whole_device": false, "buffers": 256}}
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/error.h"
#include "control/control_socket.h"
#include "control/views.h"
#include "switch/fabric.h"

namespace sluice::control {

/// What requests can do to a switch: a running fabric, or a stand-in in tests.
class Controls {
 public:
  virtual ~Controls() = default;
  /// As Fabric::begin_reset().
  [[nodiscard]] virtual Result<std::shared_ptr<const fabric::PendingReset>> begin_reset(
      const std::string& port, const fabric::ResetOrder& order) = 0;
};

class FabricControls final : public Controls {
 public:
  /// Requires: `running` outlives this object.
  explicit FabricControls(fabric::Fabric& running) : fabric_(running) {}
  [[nodiscard]] Result<std::shared_ptr<const fabric::PendingReset>> begin_reset(
      const std::string& port, const fabric::ResetOrder& order) override {
    return fabric_.begin_reset(port, order);
  }

 private:
  fabric::Fabric& fabric_;
};

/// The reply to one line from a client, question or not; never fails. What takes time is begun, and
/// answered later.
[[nodiscard]] Reply answer(std::string_view line, const Views& views, Controls& controls);

/// The line that asks for a reset.
[[nodiscard]] std::string reset_line(const std::string& port, const fabric::ResetOrder& order);

}  // namespace sluice::control
