// StopSignals: SIGINT, SIGTERM and SIGHUP as something to poll.
#pragma once

#include "base/error.h"
#include "base/unique_fd.h"

namespace sluice::app {

class StopSignals {
 public:
  /// Blocks the signals for this thread and those it starts later, and ignores SIGPIPE.
  /// Requires: called before any other thread is started.
  [[nodiscard]] static Result<StopSignals> block();

  /// Readable once a signal came.
  [[nodiscard]] int fd() const { return fd_.get(); }

  /// From now on another signal ends the process at once. Signals of the first half second still
  /// belong to the first: a supervisor may send one to us and one to our group.
  void let_next_one_kill() const;

 private:
  explicit StopSignals(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace sluice::app
