// ScratchDirectory: a directory of its own for the sockets of one run, gone at the end.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace sluice::app {

class ScratchDirectory {
 public:
  /// Errors: kSystem.
  [[nodiscard]] static Result<ScratchDirectory> create() {
    std::error_code ignored;
    std::string name = (std::filesystem::temp_directory_path(ignored) / "sluice-bench-XXXXXX");
    if (::mkdtemp(name.data()) == nullptr) return fail_errno("cannot make a temporary directory");
    return ScratchDirectory(name);
  }
  ScratchDirectory(ScratchDirectory&& other) noexcept : name_(std::exchange(other.name_, {})) {}
  ScratchDirectory& operator=(ScratchDirectory&&) = delete;
  ~ScratchDirectory() {
    std::error_code ignored;
    if (!name_.empty()) std::filesystem::remove_all(name_, ignored);
  }
  [[nodiscard]] std::string file(const char* leaf) const { return name_ + "/" + leaf; }

 private:
  explicit ScratchDirectory(std::string name) : name_(std::move(name)) {}
  std::string name_;
};

}  // namespace sluice::app
