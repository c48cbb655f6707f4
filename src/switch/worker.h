// Worker: a thread that moves packets. It owns receive queues of ports, and its own scratch.
//
// How it works. One round visits every queue: receive, forward, release. What it does when a round
// found nothing is its poll mode:
//   busy       the next round, for ever.
//   adaptive   rounds for `spin` more, then sleep.
//   interrupt  sleep at once.
// To sleep, it asks every queue for a wake-up, *then looks again* at all of them (EVI-05, H21), and
// only then waits on their kick descriptors and on its own wake(). While awake it wants no kicks.
// A queue that runs but has no descriptor to wait on is looked at every millisecond.
//
// Threads: create, start, stop, wake and views by the control thread; wake by any.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <thread>
#include <vector>

#include "base/counter.h"
#include "base/error.h"
#include "base/unique_fd.h"
#include "packet/packet.h"
#include "switch/forwarder.h"
#include "switch/options.h"
#include "switch/port.h"

namespace sluice::fabric {

/// A receive queue that a worker owns.
struct WorkerQueue {
  Port* port = nullptr;
  std::uint16_t port_number = 0;
  std::uint16_t queue = 0;
};

struct WorkerCounters {
  Counter iterations;       // Rounds over all queues.
  Counter busy_iterations;  // Those that moved packets.
  Counter sleeps;
};

class Worker {
  struct Passkey {};
  struct Wait {
    UniqueFd epoll;
    EventFd bell;
  };

 public:
  /// How long a queue that cannot wake us may wait for its turn.
  static constexpr std::chrono::milliseconds kPollInterval{1};
  static constexpr int kNoCore = -1;

  struct Options {
    std::uint16_t id = 0;
    int core = kNoCore;  // Pinned there.
    PollMode poll = PollMode::kAdaptive;
    std::chrono::microseconds spin{50};
  };

  Worker(Passkey, const Options& options, std::vector<WorkerQueue> queues, Forwarder& forwarder,
         Wait wait);
  /// The ports and the forwarder outlive the worker. Errors: kSystem.
  [[nodiscard]] static Result<std::unique_ptr<Worker>> create(const Options& options,
                                                              std::vector<WorkerQueue> queues,
                                                              Forwarder& forwarder);
  ~Worker();

  /// Errors: kSystem if the thread cannot be made or pinned to its core.
  Status start();
  /// Ends the thread after its burst. On return everything taken was given back.
  void stop();
  /// Makes a sleeping worker look at all queues, and at their wake sources, again.
  void wake();

  [[nodiscard]] const Options& options() const { return options_; }
  [[nodiscard]] const std::vector<WorkerQueue>& queues() const { return queues_; }
  [[nodiscard]] const WorkerCounters& counters() const { return counters_; }
  [[nodiscard]] const ForwardCounters& forward_counters() const {
    return scratch_->forward.counters;
  }

  /// One round over all queues. Returns how many packets moved. For the worker's thread, and for
  /// tests without one.
  std::size_t run_once();

 private:
  struct Scratch {
    packet::Burst burst;
    Forwarder::Scratch forward;
  };
  enum class Woken : bool { kByEvent, kByClock };

  void loop(const std::stop_token& stop);
  Woken sleep();
  void register_sources();
  void register_source(std::size_t index, const WakeSource& source);

  const Options options_;
  const std::vector<WorkerQueue> queues_;
  Forwarder& forwarder_;
  const Wait wait_;
  std::atomic<bool> look_again_{true};  // wake() was called: wake sources may have changed.

  // Owned by the worker's thread while it runs.
  std::vector<WakeSource> registered_;  // As they stand in the epoll set, one a queue.
  bool poll_by_clock_ = false;          // Some queue cannot wake us.
  std::unique_ptr<Scratch> scratch_;
  WorkerCounters counters_;
  std::jthread thread_;
};

}  // namespace sluice::fabric
