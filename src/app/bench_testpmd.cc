// testpmd's command lines, and a window of it.
#include "app/bench_testpmd.h"

#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "app/bench_probe.h"

namespace sluice::app {

namespace {

constexpr std::string_view kTestpmdPrompt = "testpmd> ";
constexpr std::chrono::milliseconds kTestpmdWarmUp{300};
// testpmd's own default for two threads.
constexpr int kMbufs = 163'456;
// More bursts than a ring holds, so that it stays full in loopback.
constexpr int kFirstBursts = 32;

std::vector<std::string> command_line(const std::string& vdev, const BenchCase& what, int core) {
  return {std::string(TestpmdPair::kProgram), "--no-pci", "--no-telemetry", "--no-huge",
          "--no-shconf",
          // A buffer of 2.4 kB does not lie across small pages, hence the room.
          "-m", fmt::format("{}", 64 + kMbufs * 6 / 1024),
          // The idle main thread shares the core of the one that forwards.
          "--lcores", fmt::format("(0,1)@{}", core), "--vdev", vdev, "--", "-i", "--nb-cores=1",
          "--no-mlockall", fmt::format("--total-num-mbufs={}", kMbufs),
          fmt::format("--rxq={}", what.queues), fmt::format("--txq={}", what.queues),
          fmt::format("--rxd={}", what.queue_size), fmt::format("--txd={}", what.queue_size)};
}

std::string driver_vdev(const std::string& socket, const BenchCase& what) {
  return fmt::format(
      "net_virtio_user0,path={},queues={},queue_size={},packed_vq={:d},in_order={:d},"
      "mrg_rxbuf={:d}{}",
      socket, what.queues, what.queue_size, what.packed, what.in_order, what.mergeable,
      what.queues > 1 ? ",cq=1" : "");
}

Status forward(Dialogue& testpmd, std::string_view mode, int first_bursts = 0) {
  TRY(testpmd.command(fmt::format("set fwd {}", mode)));
  TRY(testpmd.command(first_bursts == 0 ? "start"
                                        : fmt::format("start tx_first {}", first_bursts)));
  return {};
}

}  // namespace

std::uint64_t received_rate(std::string_view text) {
  constexpr std::string_view kName = "Rx-pps:";
  std::uint64_t sum = 0;
  for (std::size_t at = text.find(kName); at != text.npos; at = text.find(kName, at)) {
    at += kName.size();
    const std::size_t digits = std::min(text.find_first_not_of(' ', at), text.size());
    std::uint64_t value = 0;
    std::from_chars(text.data() + digits, text.data() + text.size(), value);
    sum += value;
  }
  return sum;
}

TestpmdPair::TestpmdPair(const BenchCase& what, const PairOptions& options,
                         ScratchDirectory directory, Dialogue vhost, Dialogue virtio)
    : what_(what),
      options_(options),
      directory_(std::move(directory)),
      vhost_(std::move(vhost)),
      virtio_(std::move(virtio)) {}

Result<TestpmdPair> TestpmdPair::start(const BenchCase& what, const PairOptions& options) {
  auto directory = TRY(ScratchDirectory::create());
  const std::string socket = directory.file("testpmd.sock");
  const std::string vhost = fmt::format("net_vhost0,iface={},queues={}", socket, what.queues);
  auto device =
      TRY(Dialogue::start(command_line(vhost, what, options.device_core), kTestpmdPrompt));
  auto driver = TRY(Dialogue::start(
      command_line(driver_vdev(socket, what), what, options.driver_core), kTestpmdPrompt));
  for (Dialogue* testpmd : {&device, &driver}) {
    TRY(testpmd->command(fmt::format("set txpkts {}", what.size)));
  }
  return TestpmdPair(what, options, std::move(directory), std::move(device), std::move(driver));
}

Result<BenchRow> TestpmdPair::measure(Direction direction) {
  BenchRow row;
  row.what = what_;
  row.what.direction = direction;
  row.round_trip.before_ns = TRY(round_trip_ns(options_.device_core, options_.driver_core));
  // The receiver first, so that it misses nothing.
  if (direction == Direction::kFromDriver) {
    TRY(forward(vhost_, "rxonly"));
    TRY(forward(virtio_, "txonly"));
  } else if (direction == Direction::kToDriver) {
    TRY(forward(virtio_, "rxonly"));
    TRY(forward(vhost_, "txonly"));
  } else {
    TRY(forward(virtio_, "io"));
    TRY(forward(vhost_, "io", kFirstBursts));
  }
  std::this_thread::sleep_for(kTestpmdWarmUp);
  Dialogue& receiver = direction == Direction::kToDriver ? virtio_ : vhost_;
  TRY(receiver.command("show port stats all"));  // The next one counts from here.
  std::this_thread::sleep_for(options_.window);
  const std::string text = TRY(receiver.command("show port stats all"));
  Dialogue& sender = direction == Direction::kFromDriver ? virtio_ : vhost_;
  TRY(sender.command("stop"));
  TRY((&sender == &vhost_ ? virtio_ : vhost_).command("stop"));
  row.mpps = static_cast<double>(received_rate(text)) / 1e6;
  row.cycles = row.nanoseconds() * ticks_per_ns();
  row.round_trip.after_ns = TRY(round_trip_ns(options_.device_core, options_.driver_core));
  return row;
}

Status TestpmdPair::quit() {
  TRY(virtio_.quit("quit"));
  return vhost_.quit("quit");
}

}  // namespace sluice::app
