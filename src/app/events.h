// EventWatcher: turns what changed between two looks at the ports into sentences.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "control/views.h"

namespace sluice::app {

class EventWatcher {
 public:
  /// Looks at all ports; returns one sentence for each thing that happened since the last look.
  /// The first look finds what is there already and reports sessions, and errors of the past.
  [[nodiscard]] std::vector<std::string> look(const control::Views& views);

 private:
  struct Known {
    std::uint64_t sessions = 0;
    std::string state;
    std::string last_error;
    std::string mac;
    std::map<std::uint16_t, std::string> broken;  // Virtqueue index -> why.
    std::uint64_t foreign = 0;                    // Frames dropped for their source address, ...
    std::uint64_t foreign_told = 0;               // ... and the session in which that was told.
  };
  void look_at_sources(const control::Views& views, std::vector<std::string>& events);
  void look_at_queues(const control::Views& views, const std::string& port, Known& known,
                      std::vector<std::string>& events);
  std::map<std::string, Known> ports_;
};

}  // namespace sluice::app
