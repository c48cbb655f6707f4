// BlockSignals: which signals a thread of ours takes: for the time in which threads are started.
#pragma once

#include <signal.h>

#include "base/stall_watch.h"

namespace sluice {

/// Threads started while one of these lives begin with the process's signals blocked: those are the
/// main thread's business. Not blocked are the signals that a thread's own instruction raises (a
/// blocked SIGBUS would kill the process instead of reaching the fault guard, SEC-57), and that of
/// StallWatch.
class BlockSignals {
 public:
  BlockSignals() {
    sigset_t sent;
    ::sigfillset(&sent);
    for (const int raised : {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) {
      ::sigdelset(&sent, raised);
    }
    ::sigdelset(&sent, StallWatch::signal_number());
    ::pthread_sigmask(SIG_SETMASK, &sent, &old_);
  }
  BlockSignals(const BlockSignals&) = delete;
  BlockSignals& operator=(const BlockSignals&) = delete;
  ~BlockSignals() { ::pthread_sigmask(SIG_SETMASK, &old_, nullptr); }

 private:
  sigset_t old_{};
};

}  // namespace sluice
