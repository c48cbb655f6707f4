// LeakCheck: descriptors and mappings of this process, before and after.
#pragma once

#include <dirent.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <thread>

#include "memory/mapping.h"

namespace sluice::test {

/// Open descriptors of this process (one of them is the directory that is read; it cancels out).
inline std::size_t open_descriptors() {
  std::size_t count = 0;
  DIR* directory = ::opendir("/proc/self/fd");
  while (::readdir(directory) != nullptr) ++count;
  ::closedir(directory);
  return count;
}

/// Waits until there are at most `count`: some are closed by threads of their own
/// (base/foreign_fd.h), those that others left, too. False after half a minute.
inline bool descriptors_settle_at(std::size_t count) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (open_descriptors() > count) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

/// Expects at its end the descriptors and mappings that there were at its beginning.
class LeakCheck {
 public:
  LeakCheck() : descriptors_(open_descriptors()), mappings_(memory::Mapping::live_count()) {}
  LeakCheck(const LeakCheck&) = delete;
  LeakCheck& operator=(const LeakCheck&) = delete;
  ~LeakCheck() {
    EXPECT_TRUE(descriptors_settle_at(descriptors_));
    EXPECT_EQ(memory::Mapping::live_count(), mappings_);
  }

 private:
  std::size_t descriptors_;
  std::size_t mappings_;
};

}  // namespace sluice::test
