// The first signal is something to poll, the second one kills, and a doubled first one does not.
#include "app/stop_signals.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <thread>

namespace sluice::app {
namespace {

using std::chrono::milliseconds;

bool readable(int fd) {
  pollfd ready{fd, POLLIN, 0};
  return ::poll(&ready, 1, 0) == 1;
}

// What the child of a death test does: stops as asked, then gets another signal after `pause`.
[[noreturn]] void stop_and_signal_again(milliseconds pause) {
  const auto signals = StopSignals::block();
  if (!signals || readable(signals->fd())) ::_exit(10);
  ::kill(::getpid(), SIGINT);
  if (!readable(signals->fd())) ::_exit(11);
  signals->let_next_one_kill();
  std::this_thread::sleep_for(pause);
  ::kill(::getpid(), SIGTERM);
  ::_exit(0);
}

TEST(StopSignals, ALateSecondSignalEndsTheProcess) {
  EXPECT_EXIT(stop_and_signal_again(milliseconds(600)), ::testing::ExitedWithCode(1),
              "stopped at once by a second signal");
}

TEST(StopSignals, ASignalThatBelongsToTheFirstDoesNot) {
  EXPECT_EXIT(stop_and_signal_again(milliseconds(0)), ::testing::ExitedWithCode(0), "");
}

TEST(StopSignals, AClosedPipeIsAnErrorAndNoSignal) {
  const auto child = [] {
    const auto signals = StopSignals::block();
    int ends[2];
    if (!signals || ::pipe(ends) != 0 || ::close(ends[0]) != 0) ::_exit(10);
    ::_exit(::write(ends[1], "x", 1) == -1 && errno == EPIPE ? 0 : 11);
  };
  EXPECT_EXIT(child(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace sluice::app
