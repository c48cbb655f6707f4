// Compares ports with what was known of them.
#include "app/events.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "app/table.h"
#include "net/drop.h"

namespace sluice::app {
namespace {

bool has_session(const std::string& state) {
  return state == "connected" || state == "running";
}

std::string running_text(const fabric::PortView& port) {
  return fmt::format("{}: running: {} queue pair{}, {} of memory in {} region{}, features {}",
                     port.name, port.queue_pairs, port.queue_pairs == 1 ? "" : "s",
                     in_bytes(port.memory_bytes), port.memory_regions,
                     port.memory_regions == 1 ? "" : "s", fmt::join(port.features, " "));
}

std::string cause_of(const fabric::PortView& port) {
  return port.last_error.empty() ? "the other side closed the connection" : port.last_error;
}

}  // namespace

std::vector<std::string> EventWatcher::look(const control::Views& views) {
  std::vector<std::string> events;
  for (const auto& port : views.ports()) {
    Known& known = ports_[port.name];
    const bool had = has_session(known.state);
    const std::uint64_t more = port.sessions - known.sessions;
    // Sessions that came and went between two looks are counted, not told one by one.
    bool told = had && (more > 0 || !has_session(port.state));
    if (told) events.push_back(fmt::format("{}: disconnected: {}", port.name, cause_of(port)));
    if (more == 1) {
      events.push_back(fmt::format("{}: connected, session {}", port.name, port.sessions));
    } else if (more > 1) {
      events.push_back(
          fmt::format("{}: connected {} times, session {}", port.name, more, port.sessions));
    }
    if (more > 0 && !has_session(port.state)) {
      events.push_back(fmt::format("{}: disconnected: {}", port.name, cause_of(port)));
      told = true;
    }
    const bool entered = port.state != known.state || more > 0;
    if (entered && port.state == "running") events.push_back(running_text(port));
    if (!told && !port.last_error.empty() && port.last_error != known.last_error) {
      events.push_back(fmt::format("{}: {}", port.name, port.last_error));
    }
    known.sessions = port.sessions;
    known.state = port.state;
    known.last_error = port.last_error;
    known.mac = port.mac;
    look_at_queues(views, port.name, known, events);
  }
  look_at_sources(views, events);
  return events;
}

// A guest whose address is not its port's `mac`: told once a session, and counted ever after.
void EventWatcher::look_at_sources(const control::Views& views, std::vector<std::string>& events) {
  constexpr auto kCause = static_cast<std::size_t>(net::DropCause::kSourceFilter);
  for (const auto& stats : views.stats()) {
    Known& known = ports_[stats.name];
    const std::uint64_t foreign = stats.from_driver.drops[kCause];
    const bool more = foreign > std::exchange(known.foreign, foreign);
    if (!more || known.mac.empty() || known.foreign_told == known.sessions) continue;
    known.foreign_told = known.sessions;
    events.push_back(fmt::format(
        "{}: the driver sends from another address than mac={}: such frames are dropped",
        stats.name, known.mac));
  }
}

void EventWatcher::look_at_queues(const control::Views& views, const std::string& port,
                                  Known& known, std::vector<std::string>& events) {
  std::map<std::uint16_t, std::string> broken;
  for (const auto& queue : views.queues(port)) {
    if (queue.state != "broken") continue;
    broken[queue.index] = queue.error;
    const auto before = known.broken.find(queue.index);
    if (before != known.broken.end() && before->second == queue.error) continue;
    events.push_back(fmt::format("{}: {} {} is broken: {}", port, queue.kind, queue.index,
                                 queue.error.empty() ? "no reason is known" : queue.error));
  }
  known.broken = std::move(broken);
}

}  // namespace sluice::app
