// Chooses cures by what was opened and how it failed.
#include "app/start_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/report.h"

namespace sluice::app {
namespace {

std::string directory_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return path.substr(0, std::max<std::size_t>(slash, 1));
}

std::string cure_of_socket(const std::string& path, const Error& error) {
  switch (error.code) {
    case ErrorCode::kNotFound:
      return fmt::format("mkdir -p {}, or choose another path", directory_of(path));
    case ErrorCode::kInvalidArgument: return "remove that file, or choose another path";
    case ErrorCode::kExists: return "stop the other process, or choose another path";
    case ErrorCode::kPermission:
      return fmt::format("let this user write to {}, or choose another path", directory_of(path));
    default: return "choose another path";
  }
}

std::string cure_of_records(const std::string& path, const Error& error) {
  constexpr std::string_view kElsewhere = "keep the records elsewhere by --state-dir DIR";
  switch (error.code) {
    case ErrorCode::kNotFound:
      return fmt::format("mkdir -p {}, or {}", directory_of(path), kElsewhere);
    case ErrorCode::kInvalidArgument: return fmt::format("remove that file, or {}", kElsewhere);
    case ErrorCode::kExists: return fmt::format("stop the other process, or {}", kElsewhere);
    default: return std::string(kElsewhere);
  }
}

}  // namespace

int report_start(std::string_view what, const Error& error) {
  const bool usage =
      error.code == ErrorCode::kInvalidArgument || error.code == ErrorCode::kOutOfRange;
  std::string_view cure;
  if (error.code == ErrorCode::kNoMemory) cure = "fewer queues, or a higher memory limit";
  if (usage) cure = "sluice run --help, or sluice.toml(5)";
  return report(usage ? ExitCode::kUsage : ExitCode::kFailure, what, describe(error), cure);
}

int report_fabric(const fabric::PortFault& fault, const Error& error) {
  if (fault.port.empty()) return report_start("make the switch", error);
  const std::string what = fmt::format("open port {} ({})", fault.port, fault.path);
  const std::string cure =
      fault.records ? cure_of_records(fault.path, error) : cure_of_socket(fault.path, error);
  return report(ExitCode::kFailure, what, describe(error), cure);
}

int report_control(const std::string& path, const Error& error) {
  std::string cure = "give another socket by --control PATH";
  if (error.code == ErrorCode::kExists) {
    cure = "stop the other process, or give this one a socket by --control PATH";
  } else if (error.code == ErrorCode::kInvalidArgument) {
    cure = "remove that file, or " + cure;
  } else if (error.code == ErrorCode::kNotFound) {
    cure = fmt::format("mkdir -p {}, or {}", directory_of(path), cure);
  }
  return report(ExitCode::kFailure, fmt::format("open the control socket {}", path),
                describe(error), cure);
}

}  // namespace sluice::app
