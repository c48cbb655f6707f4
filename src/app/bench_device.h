// The device's half of a benchmark: the ports and workers of `sluice run`, with a generator, a
// sink, or the port itself behind the vhost-user port; as a process of its own.
#pragma once

#include <cstdint>
#include <string>

#include "app/bench_case.h"
#include "base/error.h"
#include "base/unique_fd.h"

namespace sluice::app {

struct DeviceEndOptions {
  std::string socket;
  BenchCase what;
  int core = -1;        // Of the worker; not pinned if negative.
  bool sleepy = false;  // The worker polls adaptively instead of busily.
};

/// Of the second port, which the first one's packets go to, in a case of kForward.
[[nodiscard]] inline std::string second_socket(const std::string& socket) {
  return socket + ".2";
}

/// Runs the device's end in this process until standard input closes. For each line read there it
/// prints one: the packets its worker took from the driver so far, and the time in nanoseconds.
/// Returns an ExitCode.
int run_device_end(const DeviceEndOptions& options);

/// The same as a child process, seen from the other end.
class DeviceProcess {
 public:
  /// Starts it and waits until its socket is there. Errors: kSystem; kTimeout.
  [[nodiscard]] static Result<DeviceProcess> start(const DeviceEndOptions& options);
  DeviceProcess(DeviceProcess&& other) noexcept;
  DeviceProcess& operator=(DeviceProcess&&) = delete;
  ~DeviceProcess();

  struct Reading {
    std::uint64_t packets = 0;
    std::uint64_t nanoseconds = 0;
    std::string path;  // Of the queue that is measured.
  };
  [[nodiscard]] Result<Reading> read();
  /// Ends it. Errors: kSystem with its exit status if it failed.
  Status stop();

 private:
  DeviceProcess(int pid, UniqueFd input, UniqueFd output);
  Result<std::string> read_line();
  int pid_ = -1;
  UniqueFd input_;
  UniqueFd output_;
  std::string rest_;
};

}  // namespace sluice::app
