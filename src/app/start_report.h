// What to say when `sluice run` cannot start: which port or socket it was, why, and the cure.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"
#include "switch/fabric.h"

namespace sluice::app {

/// The switch could not be made. Reports it; returns an ExitCode.
int report_fabric(const fabric::PortFault& fault, const Error& error);
/// The control socket `path` could not be opened.
int report_control(const std::string& path, const Error& error);
/// Something else failed that only the system can have refused.
int report_start(std::string_view what, const Error& error);

}  // namespace sluice::app
