// Starts the parts in an order in which each failure leaves nothing behind, and serves them.
#include "app/run_loop.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <optional>

#include "app/events.h"
#include "app/report.h"
#include "app/start_report.h"
#include "app/stats_view.h"
#include "app/stop_signals.h"
#include "app/table.h"
#include "control/control_socket.h"
#include "control/orders.h"
#include "control/requests.h"
#include "control/setting.h"
#include "control/version.h"
#include "switch/fabric.h"

namespace sluice::app {
namespace {

using control::Config;
using control::Json;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kLookInterval{1000};  // At the ports, if nothing happens.
constexpr milliseconds kLookPause{100};      // Between two looks, whatever happens, ...
constexpr int kLookShare = 200;              // ... and so many times what a look takes.

Json stats_of(const control::Views& views) {
  return Json::parse(control::answer_request(control::request_line("stats", ""), views));
}

class RunLoop {
 public:
  RunLoop(fabric::Fabric& running, control::ControlServer& server, const StopSignals& signals)
      : fabric_(running), server_(server), signals_(signals), views_(running), controls_(running) {}

  // Until a stop signal. `stats_interval` of zero: no lines of counters.
  void serve(std::chrono::seconds stats_interval) {
    last_stats_ = stats_of(views_);
    Clock::time_point next_stats = Clock::now() + stats_interval;
    while (!wait()) {
      fabric_.poll(milliseconds(0));
      server_.serve(
          [this](std::string_view line) { return control::answer(line, views_, controls_); });
      if (Clock::now() >= next_look_) look();
      if (stats_interval.count() > 0 && Clock::now() >= next_stats) {
        print_rates();
        next_stats += stats_interval;
      }
    }
  }

  // Tells what happened since the last look.
  void look() {
    const auto began = Clock::now();
    for (const std::string& event : events_.look(views_)) log_event(event);
    const auto now = Clock::now();
    next_look_ = now + kLookInterval;
    soonest_look_ = now + std::max<Clock::duration>(kLookPause, (now - began) * kLookShare);
  }

  void print_totals() const {
    const Json reply = stats_of(views_);
    fmt::print(stderr, "{}\n{}", totals_text(reply), balance_text(reply));
  }

 private:
  // Waits for something to do; true if it is the end.
  bool wait() {
    std::array<pollfd, 3> fds = {{{signals_.fd(), POLLIN, 0},
                                  {fabric_.poll_fd(), POLLIN, 0},
                                  {server_.poll_fd(), POLLIN, 0}}};
    const auto left = std::chrono::ceil<milliseconds>(next_look_ - Clock::now());
    const int timeout = static_cast<int>(std::clamp(left, milliseconds(0), kLookInterval).count());
    if (::poll(fds.data(), fds.size(), timeout) > 0 && fds[1].revents != 0) {
      next_look_ = std::min(next_look_, soonest_look_);
    }
    return fds[0].revents != 0;
  }

  void print_rates() {
    Json now = stats_of(views_);
    fmt::print(stderr, "{}", rates_text(last_stats_, now));
    last_stats_ = std::move(now);
  }

  fabric::Fabric& fabric_;
  control::ControlServer& server_;
  const StopSignals& signals_;
  control::FabricViews views_;
  control::FabricControls controls_;
  EventWatcher events_;
  Json last_stats_;
  Clock::time_point next_look_ = Clock::now();
  Clock::time_point soonest_look_ = Clock::now();
};

}  // namespace

std::string summary(const Config& config) {
  const auto& options = config.fabric;
  Table table({{"PORT"}, {"KIND"}, {"ROLE"}, {"QUEUES", Align::kRight}, {"SOCKET"}});
  for (const auto& port : options.vhost_user) {
    table.add({control::effective_name(port), "vhost-user", port.client ? "client" : "server",
               fmt::format("{}", port.queues), port.path});
  }
  for (const auto& port : options.virtio_user) {
    table.add({control::effective_name(port), "virtio-user", port.server ? "server" : "client",
               fmt::format("{}", port.queues), port.path});
  }
  for (const auto& port : options.generators) {
    table.add({port.name, "generator", "", fmt::format("{}", port.queues), ""});
  }
  for (const auto& port : options.sinks) table.add({port.name, "sink", "", "", ""});
  const auto& workers = options.workers;
  const std::string cores =
      workers.cores.empty() ? "" : fmt::format(" on cores {}", fmt::join(workers.cores, ","));
  return fmt::format("{}forwarder {}; {} worker{}, {}{}\ncontrol socket {}\n", table.text(),
                     control::to_string(options.forward), workers.count,
                     workers.count == 1 ? "" : "s", control::to_string(workers.poll), cores,
                     config.control);
}

// A port of 127 queue pairs may be given 765 eventfds, and the usual limit is 1,024. The hard limit
// is what the administrator allows.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

int run_switch(const Config& config) {
  raise_descriptor_limit();
  const auto signals = StopSignals::block();
  if (!signals) return report_start("start", signals.error());
  auto server = control::ControlServer::listen(config.control, control::too_long_reply());
  if (!server) return report_control(config.control, server.error());
  fabric::PortFault fault;
  auto fabric = fabric::Fabric::create(config.fabric, &fault);
  if (!fabric) return report_fabric(fault, fabric.error());
  if (const Status started = (*fabric)->start(); !started) {
    return report_start("start the workers", started.error());
  }
  fmt::print(stderr, "sluice {}\n{}", control::kVersion, summary(config));
  RunLoop loop(**fabric, **server, *signals);
  loop.serve(config.stats_interval);
  loop.look();
  log_event("stopping");
  signals->let_next_one_kill();
  (*fabric)->stop();
  loop.print_totals();
  return static_cast<int>(ExitCode::kOk);
}

}  // namespace sluice::app
