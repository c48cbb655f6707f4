// Writing to stderr and stdout.
#include "app/report.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>

namespace sluice::app {

int report(ExitCode code, std::string_view what, std::string_view cause, std::string_view cure) {
  fmt::print(stderr, "sluice: cannot {}: {}\n", what, cause);
  if (!cure.empty()) fmt::print(stderr, "  try: {}\n", cure);
  return static_cast<int>(code);
}

int report(std::string_view what, const control::Problems& problems) {
  for (const auto& problem : problems) {
    const std::string cause =
        problem.where.empty() ? problem.cause : fmt::format("{}: {}", problem.where, problem.cause);
    report(ExitCode::kUsage, what, cause, problem.cure);
  }
  return static_cast<int>(ExitCode::kUsage);
}

std::string describe(const Error& error) {
  // With kPermission the number need not be an errno.
  const bool denied = error.code == ErrorCode::kPermission &&
                      (error.detail == EACCES || error.detail == EPERM || error.detail == EROFS);
  const bool from_system =
      denied || error.code == ErrorCode::kSystem || error.code == ErrorCode::kNoMemory;
  if (from_system && error.detail > 0) {
    return fmt::format("{}: {}", error.text, std::strerror(static_cast<int>(error.detail)));
  }
  if (error.detail != 0) return fmt::format("{} ({})", error.text, error.detail);
  return error.text;
}

void log_event(std::string_view text) {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  fmt::print(stderr, "{:02}:{:02}:{:02} {}\n", local.tm_hour, local.tm_min, local.tm_sec, text);
}

bool print(std::string_view text) {
  const bool written =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (!written) report(ExitCode::kFailure, "write the output", std::strerror(errno), "");
  return written;
}

}  // namespace sluice::app
