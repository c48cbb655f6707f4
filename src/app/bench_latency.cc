// Frames that carry the time at which they should have left.
#include "app/bench_latency.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>

#include "app/action.h"
#include "app/bench_device.h"
#include "app/bench_driver.h"
#include "app/bench_probe.h"
#include "app/histogram.h"
#include "app/report.h"
#include "app/scratch_directory.h"

namespace sluice::app {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::size_t kEchoBurst = 32;
constexpr std::size_t kStampAt = 42;  // Behind the UDP header.
// From idle: time between frames. An adaptive worker sleeps after 50 microseconds.
constexpr milliseconds kIdle{2};
constexpr int kIdleFrames = 200;
constexpr milliseconds kPatience{1000};  // For frames still on their way.

std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
          .count());
}

struct LatencyRow {
  BenchCase what;
  std::string load;  // "10 %", or "from idle".
  double offered_mpps = 0;
  std::uint64_t sent = 0;
  Histogram times;
  RoundTrip round_trip;

  [[nodiscard]] std::uint64_t lost() const { return sent - std::min(sent, times.count()); }
  [[nodiscard]] control::Json json() const {
    return {{"case", "latency"},
            {"ring", what.packed ? "packed" : "split"},
            {"order", what.in_order ? "in-order" : "any"},
            {"mrg", what.mergeable ? "on" : "off"},
            {"queues", what.queues},
            {"size", what.size},
            {"load", load},
            {"mpps", offered_mpps},
            {"p50_ns", times.quantile(0.5)},
            {"p99_ns", times.quantile(0.99)},
            {"p999_ns", times.quantile(0.999)},
            {"max_ns", times.max()},
            {"frames", times.count()},
            {"lost", lost()},
            {"rtt_ns", round_trip.mean_ns()},
            {"state", round_trip.state()}};
  }
};

// The switch, whose only port echoes, and a driver.
class Echo {
 public:
  static Result<std::unique_ptr<Echo>> start(const BenchCase& what, const PairOptions& options,
                                             bool sleepy) {
    auto directory = TRY(ScratchDirectory::create());
    DriverEndOptions driver;
    driver.socket = directory.file("latency.sock");
    driver.what = what;
    auto device = TRY(DeviceProcess::start({driver.socket, what, options.device_core, sleepy}));
    auto made = TRY(start_driver(driver));
    const auto receiveq = TRY(made->queue(net::QueueIndex(0)));
    const auto transmitq = TRY(made->queue(net::QueueIndex(1)));
    auto echo = std::make_unique<Echo>(std::move(directory), std::move(device), std::move(made));
    echo->receiveq_ = net::DriverReceiveQueue::make(receiveq);
    echo->transmitq_ = net::DriverTransmitQueue::make(transmitq);
    echo->call_ = receiveq.call;
    echo->head_ = frame_head(driver);
    echo->size_ = what.size;
    return echo;
  }
  Echo(ScratchDirectory directory, DeviceProcess device, std::unique_ptr<net::NetDriver> driver)
      : directory_(std::move(directory)), device_(std::move(device)), driver_(std::move(driver)) {}

  // Frames at an even rate for as long as the window, each stamped with the time when it was due:
  // a delay of the sender counts.
  void pace(double frames_per_ns, std::chrono::nanoseconds window, LatencyRow& row) {
    const std::uint64_t begin = now_ns();
    const auto end = begin + static_cast<std::uint64_t>(window.count());
    std::uint64_t due_sent = 0;
    for (std::uint64_t now = begin; now < end; now = now_ns()) {
      const auto due =
          static_cast<std::uint64_t>(static_cast<double>(now - begin) * frames_per_ns) + 1;
      if (due > due_sent) {
        due_sent += send(std::min<std::uint64_t>(due - due_sent, kEchoBurst), [&](std::size_t i) {
          return begin +
                 static_cast<std::uint64_t>(static_cast<double>(due_sent + i) / frames_per_ns);
        });
      }
      receive(row.times);
    }
    row.sent = due_sent;
    drain(row);
  }

  // One frame at a time, each after a rest in which the worker falls asleep; so does the driver.
  void wake(LatencyRow& row) {
    for (int i = 0; i < kIdleFrames; ++i) {
      std::this_thread::sleep_for(kIdle);
      receiveq_.set_interrupts(true);
      row.sent += send(1, [](std::size_t) { return now_ns(); });
      pollfd item{.fd = call_->fd(), .events = POLLIN, .revents = 0};
      if (!receiveq_.has_frames()) ::poll(&item, 1, static_cast<int>(kPatience.count()));
      receive(row.times);
      receiveq_.set_interrupts(false);
      call_->drain();
    }
    drain(row);
  }

  Status stop() {
    if (const auto error = receiveq_.error()) return std::unexpected(*error);
    if (const auto error = transmitq_.error()) return std::unexpected(*error);
    TRY(driver_->stop());
    return device_.stop();
  }

 private:
  template <class Stamp>
  std::size_t send(std::size_t wanted, Stamp stamp) {
    const std::size_t count = transmitq_.reserve(std::span(frames_).first(wanted));
    for (std::size_t i = 0; i < count; ++i) {
      std::memcpy(frames_[i].data, head_.data(), head_.size());
      const std::uint64_t time = stamp(i);
      std::memcpy(frames_[i].data + kStampAt, &time, sizeof time);
      frames_[i].length = size_;
    }
    transmitq_.submit(std::span(frames_).first(count));
    return count;
  }
  void receive(Histogram& times) {
    const std::size_t count = receiveq_.receive(std::span(frames_).first(kEchoBurst));
    if (count == 0) return;
    const std::uint64_t now = now_ns();
    for (std::size_t i = 0; i < count; ++i) {
      std::uint64_t then = 0;
      std::memcpy(&then, frames_[i].data + kStampAt, sizeof then);
      times.add(now - std::min(now, then));
    }
    receiveq_.repost();
  }
  void drain(LatencyRow& row) {
    const auto end = Clock::now() + kPatience;
    while (row.times.count() < row.sent && Clock::now() < end) receive(row.times);
  }

  ScratchDirectory directory_;
  DeviceProcess device_;
  std::unique_ptr<net::NetDriver> driver_;
  net::DriverReceiveQueue receiveq_;
  net::DriverTransmitQueue transmitq_;
  std::shared_ptr<const EventFd> call_;
  std::array<std::byte, 64> head_{};
  std::uint32_t size_ = 0;
  std::array<net::DriverFrame, kEchoBurst> frames_{};
};

// Runs `measure` on a thread of the driver's core.
Result<LatencyRow> on_driver_core(const PairOptions& options, LatencyRow row, Echo& echo,
                                  const std::function<void(LatencyRow&)>& measure) {
  row.round_trip.before_ns = TRY(round_trip_ns(options.device_core, options.driver_core));
  Status pinned;
  std::thread([&] {
    pinned = pin_to_core(options.driver_core);
    if (pinned) measure(row);
  }).join();
  TRY(pinned);
  TRY(echo.stop());
  row.round_trip.after_ns = TRY(round_trip_ns(options.device_core, options.driver_core));
  return row;
}

Result<LatencyRow> measure_load(const BenchCase& what, const PairOptions& options, double mpps,
                                int load) {
  LatencyRow row;
  row.what = what;
  row.load = fmt::format("{} %", load);
  row.offered_mpps = mpps * load / 100;
  const auto echo = TRY(Echo::start(what, options, false));
  return on_driver_core(options, std::move(row), *echo, [&](LatencyRow& filled) {
    echo->pace(filled.offered_mpps * 1e-3, options.window, filled);
  });
}

Result<LatencyRow> measure_wake(const BenchCase& what, const PairOptions& options) {
  LatencyRow row;
  row.what = what;
  row.load = "from idle";
  row.offered_mpps = 1e-6 * 1000 / static_cast<double>(kIdle.count());
  const auto echo = TRY(Echo::start(what, options, true));
  return on_driver_core(options, std::move(row), *echo,
                        [&](LatencyRow& filled) { echo->wake(filled); });
}

std::string latency_heading() {
  return fmt::format("{:<7} {:<9} {:<10} {:>9} {:>9} {:>9} {:>9} {:>10} {:>8} {:>7}  {}\n", "RING",
                     "ORDER", "LOAD", "MPPS", "P50 NS", "P99 NS", "P99.9 NS", "MAX NS", "LOST",
                     "RTT NS", "STATE");
}

std::string latency_text(const LatencyRow& row) {
  return fmt::format("{:<7} {:<9} {:<10} {:>9.4f} {:>9} {:>9} {:>9} {:>10} {:>8} {:>7.0f}  {}\n",
                     row.what.packed ? "packed" : "split", row.what.in_order ? "in-order" : "any",
                     row.load, row.offered_mpps, row.times.quantile(0.5), row.times.quantile(0.99),
                     row.times.quantile(0.999), row.times.max(), row.lost(),
                     row.round_trip.mean_ns(), row.round_trip.state());
}

// All loads of one kind of ring, each handed to `show`.
Status measure_case(const LatencyOptions& options, const BenchCase& what,
                    const std::function<Status(const LatencyRow&)>& show) {
  const BenchRow most = TRY(measure_pair(what, options.pair));
  for (const int load : options.loads) {
    const LatencyRow row = TRY(measure_load(what, options.pair, most.mpps, load));
    TRY(show(row));
  }
  const LatencyRow row = TRY(measure_wake(what, options.pair));
  return show(row);
}

}  // namespace

int run_latency(const LatencyOptions& options) {
  control::Json rows = control::Json::array();
  const auto show = [&](const LatencyRow& row) -> Status {
    if (options.pair.json) {
      rows.push_back(row.json());
    } else if (!print(latency_text(row))) {
      return fail(ErrorCode::kSystem, "the table cannot be written");
    }
    return {};
  };
  if (!options.pair.json && !print(latency_heading())) return static_cast<int>(ExitCode::kFailure);
  for (const BenchCase& what : options.pair.cases) {
    const Status measured = measure_case(options, what, show);
    if (measured) continue;
    return report(ExitCode::kFailure, "measure latency", describe(measured.error()),
                  "two cores that this process may use, and little load");
  }
  if (options.pair.json && !print(control::Json{{"rows", rows}}.dump(2) + "\n")) {
    return static_cast<int>(ExitCode::kFailure);
  }
  return static_cast<int>(ExitCode::kOk);
}

}  // namespace sluice::app
