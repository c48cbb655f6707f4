// Measuring pairs.
#include "app/bench_pair.h"

#include <fmt/format.h>

#include <memory>
#include <string>
#include <thread>

#include "app/action.h"
#include "app/bench_device.h"
#include "app/bench_driver.h"
#include "app/bench_probe.h"
#include "app/report.h"
#include "app/scratch_directory.h"

namespace sluice::app {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kWarmUp{200};

// The driver's end of a case; two of them on one core if packets go from one to another.
class Drivers {
 public:
  static Result<Drivers> create(const std::string& socket, const BenchCase& what, int core) {
    Drivers drivers;
    DriverEndOptions options;
    options.socket = socket;
    options.what = what;
    options.core = core;
    if (what.direction == Direction::kForward) {
      options.socket = second_socket(socket);
      // What the switch brings to one goes back to the other: as many frames as the rings bear
      // are on their way all the time, and none is dropped.
      options.what.direction = Direction::kLoopback;
      drivers.second_ = TRY(DriverEnd::create(options));
      options.socket = socket;
    }
    drivers.first_ = TRY(DriverEnd::create(options));
    return drivers;
  }
  void go() { second_ == nullptr ? first_->go() : first_->go_with(*second_); }
  // Packets received by all.
  [[nodiscard]] std::uint64_t received() const {
    return first_->received() + (second_ == nullptr ? 0 : second_->received());
  }
  [[nodiscard]] std::string path() const { return first_->path(); }
  Status stop() {
    for (DriverEnd* end : {first_.get(), second_.get()}) {
      if (end == nullptr) continue;
      end->stop();
      if (const auto error = end->error()) return std::unexpected(*error);
    }
    return {};
  }

 private:
  Drivers() = default;
  std::unique_ptr<DriverEnd> second_;  // Outlives the loop of the first.
  std::unique_ptr<DriverEnd> first_;
};

struct Count {
  std::uint64_t packets;
  double ns;
};

// What the receiver has counted by now, by its own clock.
Result<Count> count_of(const BenchCase& what, const Drivers& drivers, DeviceProcess& device) {
  if (what.direction == Direction::kFromDriver) {
    const auto reading = TRY(device.read());
    return Count{reading.packets, static_cast<double>(reading.nanoseconds)};
  }
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return Count{drivers.received(), std::chrono::duration<double, std::nano>(now).count()};
}

std::string row_text(const BenchRow& row) {
  return fmt::format(
      "{:<12} {:<7} {:<9} {:<4} {:>6} {:>6} {:>9.2f} {:>8.2f} {:>8.1f} {:>8.0f} {:>7.0f}  {}\n",
      name_of(row.what.direction), row.what.packed ? "packed" : "split",
      row.what.in_order ? "in-order" : "any", row.what.mergeable ? "on" : "off", row.what.queues,
      row.what.size_text(), row.mpps, row.gbits(), row.nanoseconds(), row.cycles,
      row.round_trip.mean_ns(), row.round_trip.state());
}

std::string heading() {
  return fmt::format("{:<12} {:<7} {:<9} {:<4} {:>6} {:>6} {:>9} {:>8} {:>8} {:>8} {:>7}  {}\n",
                     "CASE", "RING", "ORDER", "MRG", "QUEUES", "SIZE", "MPPS", "GBIT/S", "NS",
                     "CYCLES", "RTT NS", "STATE");
}

}  // namespace

Result<BenchRow> measure_pair(const BenchCase& what, const PairOptions& options) {
  BenchRow row;
  row.what = what;
  row.round_trip.before_ns = TRY(round_trip_ns(options.device_core, options.driver_core));
  const auto directory = TRY(ScratchDirectory::create());
  const std::string socket = directory.file("pair.sock");
  auto device = TRY(DeviceProcess::start({socket, what, options.device_core}));
  auto drivers = TRY(Drivers::create(socket, what, options.driver_core));
  drivers.go();
  std::this_thread::sleep_for(kWarmUp);
  const Count first = TRY(count_of(what, drivers, device));
  std::this_thread::sleep_for(options.window);
  const Count last = TRY(count_of(what, drivers, device));
  row.device_path = TRY(device.read()).path;
  row.driver_path = drivers.path();
  TRY(drivers.stop());
  TRY(device.stop());
  row.mpps = static_cast<double>(last.packets - first.packets) * 1e3 / (last.ns - first.ns);
  row.cycles = row.nanoseconds() * ticks_per_ns();
  row.round_trip.after_ns = TRY(round_trip_ns(options.device_core, options.driver_core));
  return row;
}

int run_pair(const PairOptions& options) {
  control::Json rows = control::Json::array();
  if (!options.json && !print(heading())) return static_cast<int>(ExitCode::kFailure);
  for (const BenchCase& what : options.cases) {
    const auto row = measure_pair(what, options);
    if (!row.has_value()) {
      return report(ExitCode::kFailure, fmt::format("measure {}", name_of(what.direction)),
                    describe(row.error()), "two cores that this process may use, and little load");
    }
    if (options.json) {
      rows.push_back(row->json());
    } else if (!print(row_text(*row))) {
      return static_cast<int>(ExitCode::kFailure);
    }
  }
  if (options.json && !print(control::Json{{"rows", rows}}.dump(2) + "\n")) {
    return static_cast<int>(ExitCode::kFailure);
  }
  return static_cast<int>(ExitCode::kOk);
}

}  // namespace sluice::app
