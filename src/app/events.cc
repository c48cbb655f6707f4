// Compares ports with what was known of them.
#include "app/events.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "app/table.h"
#include "net/drop.h"

namespace sluice::app {
namespace {

constexpr std::chrono::seconds kQuiet{1};  // After a session that came to nothing, not the first.
constexpr std::chrono::seconds kPatience{5};  // Until the lack of memory is worth a sentence.

bool has_session(const std::string& state) {
  return state == "connected" || state == "running";
}

// Pairs that the driver uses now: the others are stopped or disabled.
std::size_t running_pairs(const control::Views& views, const std::string& port) {
  const auto queues = views.queues(port);
  return static_cast<std::size_t>(std::ranges::count_if(queues, [](const fabric::QueueView& queue) {
    return queue.kind == "transmitq" && queue.state == "running";
  }));
}

// "1 queue pair", "1 of 4 queue pairs".
std::string pairs_text(std::size_t running, std::size_t all) {
  const std::string part = running < all ? fmt::format("{} of ", running) : "";
  return fmt::format("{}{} queue pair{}", part, all, all == 1 ? "" : "s");
}

std::string running_text(const fabric::PortView& port, std::size_t pairs) {
  return fmt::format("{}: running: {}, {} of memory in {} region{}, features {}", port.name,
                     pairs_text(pairs, port.queue_pairs), in_bytes(port.memory_bytes),
                     port.memory_regions, port.memory_regions == 1 ? "" : "s",
                     fmt::join(port.features, " "));
}

std::string cause_of(const fabric::PortView& port) {
  return port.last_error.empty() ? "the other side closed the connection" : port.last_error;
}

}  // namespace

std::vector<std::string> EventWatcher::look(const control::Views& views, Clock::time_point now) {
  Sentences events;
  for (const auto& port : views.ports()) {
    Known& known = ports_[port.name];
    // What happens until then is told then, in one sentence.
    if (port.state != "running" && now < known.quiet_until) continue;
    look_at_sessions(port, known, now, events);
    look_at_driver(views, port, known, now, events);
    known.sessions = port.sessions;
    known.state = port.state;
    known.last_error = port.last_error;
    known.mac = port.mac;
    look_at_queues(views, port.name, known, events);
  }
  look_at_sources(views, events);
  return events;
}

void EventWatcher::look_at_sessions(const fabric::PortView& port, Known& known,
                                    Clock::time_point now, Sentences& events) {
  const bool had = has_session(known.state);
  const bool has = has_session(port.state);
  const std::uint64_t more = port.sessions - known.sessions;
  const bool ended = (had && (more > 0 || !has)) || (more > 0 && !has);
  if (more > 0) {
    known.since = now;
    known.lack_told = false;
  }
  if (port.state == "running" || known.state == "running") known.in_vain = 0;
  // Of several new sessions all but the last have ended.
  const bool in_vain = (ended || more > 1) && known.state != "running";
  if (in_vain && ++known.in_vain > 1 && port.state != "running") {
    known.quiet_until = now + kQuiet;
    if (more > 0) {
      events.push_back(fmt::format("{}: connected {} more time{}, never running: {}", port.name,
                                   more, more == 1 ? "" : "s", cause_of(port)));
      return;
    }
  }
  // Sessions that came and went between two looks are counted, not told one by one.
  if (had && ended)
    events.push_back(fmt::format("{}: disconnected: {}", port.name, cause_of(port)));
  if (more == 1) {
    events.push_back(fmt::format("{}: connected, session {}", port.name, port.sessions));
  } else if (more > 1) {
    events.push_back(
        fmt::format("{}: connected {} times, session {}", port.name, more, port.sessions));
  }
  if (more > 0 && !has) {
    events.push_back(fmt::format("{}: disconnected: {}", port.name, cause_of(port)));
  }
  if (!ended && !port.last_error.empty() && port.last_error != known.last_error) {
    events.push_back(fmt::format("{}: {}", port.name, port.last_error));
  }
}

void EventWatcher::look_at_driver(const control::Views& views, const fabric::PortView& port,
                                  Known& known, Clock::time_point now, Sentences& events) {
  const bool lacks_memory = port.kind == "vhost-user" && port.memory_bytes == 0;
  if (port.state == "connected" && lacks_memory && !known.lack_told &&
      now - known.since >= kPatience) {
    known.lack_told = true;
    events.push_back(
        fmt::format("{}: connected, but shares no memory yet (the guest boots, or QEMU's "
                    "memory-backend lacks share=on)",
                    port.name));
  }
  if (port.state != "running") return;
  const std::size_t pairs = running_pairs(views, port.name);
  const bool entered = known.state != "running" || port.sessions != known.sessions;
  if (entered) {
    events.push_back(running_text(port, pairs));
  } else if (pairs != known.pairs) {
    events.push_back(fmt::format("{}: now {}", port.name, pairs_text(pairs, port.queue_pairs)));
  }
  known.pairs = pairs;
}

// A guest whose address is not its port's `mac`: told once a session, and counted ever after.
void EventWatcher::look_at_sources(const control::Views& views, Sentences& events) {
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
                                  Known& known, Sentences& events) {
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
