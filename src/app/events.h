// EventWatcher: turns what changed between two looks at the ports into sentences.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "control/views.h"

namespace sluice::app {

class EventWatcher {
 public:
  using Clock = std::chrono::steady_clock;

  /// Looks at all ports; returns one sentence for each thing that happened since the last look.
  /// The first look finds what is there already and reports sessions, and errors of the past.
  /// Of a port whose sessions come and go without running there is one sentence a second at most.
  [[nodiscard]] std::vector<std::string> look(const control::Views& views,
                                              Clock::time_point now = Clock::now());

 private:
  struct Known {
    std::uint64_t sessions = 0;
    std::string state;
    std::string last_error;
    std::string mac;
    std::map<std::uint16_t, std::string> broken;  // Virtqueue index -> why.
    std::uint64_t foreign = 0;                    // Frames dropped for their source address, ...
    std::uint64_t foreign_told = 0;               // ... and the session in which that was told.
    std::size_t pairs = 0;                        // Of queues that run.
    Clock::time_point since;                      // The session began.
    bool lack_told = false;                       // Of memory, in this session.
    int in_vain = 0;                              // Ends in a row of sessions that never ran.
    Clock::time_point quiet_until;
  };
  using Sentences = std::vector<std::string>;
  static void look_at_sessions(const fabric::PortView& port, Known& known, Clock::time_point now,
                               Sentences& events);
  static void look_at_driver(const control::Views& views, const fabric::PortView& port,
                             Known& known, Clock::time_point now, Sentences& events);
  void look_at_sources(const control::Views& views, Sentences& events);
  static void look_at_queues(const control::Views& views, const std::string& port, Known& known,
                             Sentences& events);
  std::map<std::string, Known> ports_;
};

}  // namespace sluice::app
