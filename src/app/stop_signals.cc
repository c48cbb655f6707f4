// signalfd for the first signal, a handler for the second.
#include "app/stop_signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <string_view>

#include "app/action.h"

namespace sluice::app {
namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP};
constexpr std::int64_t kSameSignalMs = 500;

// Written before the handler is installed, read by the handler only.
std::int64_t first_signal_ms = 0;

std::int64_t now_ms() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

void end_at_once(int) {
  if (now_ms() - first_signal_ms < kSameSignalMs) return;
  constexpr std::string_view kText = "sluice: stopped at once by a second signal\n";
  (void)!::write(STDERR_FILENO, kText.data(), kText.size());
  ::_exit(static_cast<int>(ExitCode::kFailure));
}

sigset_t stop_set() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : kSignals) ::sigaddset(&set, signal);
  return set;
}

}  // namespace

Result<StopSignals> StopSignals::block() {
  const sigset_t set = stop_set();
  if (::pthread_sigmask(SIG_BLOCK, &set, nullptr) != 0) return fail_errno("cannot block signals");
  ::signal(SIGPIPE, SIG_IGN);
  UniqueFd fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd) return fail_errno("cannot make a signalfd");
  return StopSignals(std::move(fd));
}

void StopSignals::let_next_one_kill() const {
  signalfd_siginfo info{};
  while (::read(fd_.get(), &info, sizeof(info)) > 0) {
  }
  first_signal_ms = now_ms();
  struct sigaction action{};
  action.sa_handler = end_at_once;
  for (const int signal : kSignals) ::sigaction(signal, &action, nullptr);
  const sigset_t set = stop_set();
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

}  // namespace sluice::app
