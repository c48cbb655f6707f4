// Running the device's end, and the pipe between it and the one who measures.
#include "app/bench_device.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <utility>
#include <vector>

#include "app/action.h"
#include "app/report.h"
#include "app/start_report.h"
#include "switch/fabric.h"

namespace sluice::app {

namespace {

using std::chrono::milliseconds;

constexpr const char* kPort = "bench";

fabric::SwitchOptions switch_options(const DeviceEndOptions& options) {
  fabric::SwitchOptions result;
  fabric::VhostUserOptions port;
  port.path = options.socket;
  port.name = kPort;
  port.queues = options.what.queues;
  port.one_used_entry = options.what.one_used_entry;
  result.vhost_user.push_back(port);
  std::string peer = kPort;  // Loopback: what comes in goes out again.
  if (options.what.direction == Direction::kForward) {
    port.path = second_socket(options.socket);
    port.name = peer = "second";
    result.vhost_user.push_back(port);
  }
  if (options.what.direction == Direction::kToDriver) {
    result.generators.push_back({.name = "generator",
                                 .queues = options.what.queues,
                                 .size = options.what.size,
                                 .imix = options.what.imix});
    peer = "generator";
  } else if (options.what.direction == Direction::kFromDriver) {
    result.sinks.push_back({.name = "sink", .touch = options.what.touch});
    peer = "sink";
  }
  result.forward = fabric::Forward::kPatch;
  result.patches.emplace_back(kPort, peer);
  result.workers.poll = options.sleepy ? fabric::PollMode::kAdaptive : fabric::PollMode::kBusy;
  if (options.core >= 0) result.workers.cores = {static_cast<std::uint16_t>(options.core)};
  return result;
}

// One line on standard input asks for one on standard output; the end of the input is the end.
class Readings {
 public:
  explicit Readings(const fabric::Fabric& running, bool to_driver)
      : fabric_(running), to_driver_(to_driver) {}

  // False at the end of the input.
  [[nodiscard]] bool answer() const {
    std::array<char, 64> line{};
    const ssize_t length = ::read(STDIN_FILENO, line.data(), line.size());
    if (length <= 0) return false;
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    std::uint64_t packets = 0;
    for (const fabric::PortStats& port : fabric_.stats()) {
      if (port.name == kPort) packets = port.from_driver.packets;
    }
    fmt::print("{} {} {}\n", packets, std::chrono::nanoseconds(now).count(), path());
    return std::fflush(stdout) == 0;
  }

 private:
  [[nodiscard]] std::string path() const {
    const std::uint16_t wanted = to_driver_ ? 0 : 1;
    for (const fabric::QueueView& queue : fabric_.queues(kPort)) {
      if (queue.index == wanted) return std::string(queue.path);
    }
    return "";
  }
  const fabric::Fabric& fabric_;
  bool to_driver_;
};

}  // namespace

int run_device_end(const DeviceEndOptions& options) {
  fabric::PortFault fault;
  auto created = fabric::Fabric::create(switch_options(options), &fault);
  if (!created.has_value()) return report_fabric(fault, created.error());
  fabric::Fabric& running = **created;
  if (const Status started = running.start(); !started.has_value()) {
    return report(ExitCode::kFailure, "start the device's end", describe(started.error()), "");
  }
  const Readings readings(running, options.what.direction == Direction::kToDriver);
  for (;;) {
    std::array<pollfd, 2> fds = {{{STDIN_FILENO, POLLIN, 0}, {running.poll_fd(), POLLIN, 0}}};
    ::poll(fds.data(), fds.size(), 200);
    running.poll(milliseconds(0));
    if (fds[0].revents != 0 && !readings.answer()) break;
  }
  running.stop();
  return static_cast<int>(ExitCode::kOk);
}

DeviceProcess::DeviceProcess(int pid, UniqueFd input, UniqueFd output)
    : pid_(pid), input_(std::move(input)), output_(std::move(output)) {}
DeviceProcess::DeviceProcess(DeviceProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      input_(std::move(other.input_)),
      output_(std::move(other.output_)),
      rest_(std::move(other.rest_)) {}
DeviceProcess::~DeviceProcess() {
  if (pid_ > 0) [[maybe_unused]]
    const Status stopped = stop();
}

Result<DeviceProcess> DeviceProcess::start(const DeviceEndOptions& options) {
  std::array<int, 2> in{};
  std::array<int, 2> out{};
  if (::pipe2(in.data(), O_CLOEXEC) != 0) return fail_errno("cannot make a pipe");
  UniqueFd child_in(in[0]);
  UniqueFd our_out(in[1]);
  if (::pipe2(out.data(), O_CLOEXEC) != 0) return fail_errno("cannot make a pipe");
  UniqueFd our_in(out[0]);
  UniqueFd child_out(out[1]);

  const BenchCase& what = options.what;
  std::vector<std::string> words = {"sluice",
                                    "bench",
                                    "device",
                                    "--socket",
                                    options.socket,
                                    "--direction",
                                    std::string(name_of(what.direction)),
                                    "--size",
                                    fmt::format("{}", what.size),
                                    "--queues",
                                    fmt::format("{}", what.queues),
                                    "--core",
                                    fmt::format("{}", options.core)};
  if (options.sleepy) words.emplace_back("--sleep");
  if (what.one_used_entry) words.emplace_back("--one-used-entry");
  if (what.imix) words.emplace_back("--imix");
  if (what.touch) words.emplace_back("--touch");
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, child_in.get(), STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, child_out.get(), STDOUT_FILENO);
  pid_t pid = -1;
  const int failed =
      ::posix_spawn(&pid, "/proc/self/exe", &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return fail(ErrorCode::kSystem, "cannot start the device's process", failed);

  DeviceProcess process(pid, std::move(our_out), std::move(our_in));
  const bool two = what.direction == Direction::kForward;
  const std::string last = two ? second_socket(options.socket) : options.socket;
  for (int i = 0; i < 500; ++i) {
    if (::access(last.c_str(), F_OK) == 0) return process;
    if (::waitpid(pid, nullptr, WNOHANG) == pid) {
      process.pid_ = -1;
      return fail(ErrorCode::kSystem, "the device's process ended at once");
    }
    ::usleep(10'000);
  }
  return fail(ErrorCode::kTimeout, "the device's process did not open its socket");
}

Result<std::string> DeviceProcess::read_line() {
  for (;;) {
    if (const std::size_t end = rest_.find('\n'); end != std::string::npos) {
      std::string line = rest_.substr(0, end);
      rest_.erase(0, end + 1);
      return line;
    }
    pollfd item{output_.get(), POLLIN, 0};
    if (::poll(&item, 1, 5000) <= 0) {
      return fail(ErrorCode::kTimeout, "the device's process does not answer");
    }
    std::array<char, 256> part{};
    const ssize_t length = ::read(output_.get(), part.data(), part.size());
    if (length <= 0) return fail(ErrorCode::kClosed, "the device's process ended");
    rest_.append(part.data(), static_cast<std::size_t>(length));
  }
}

Result<DeviceProcess::Reading> DeviceProcess::read() {
  if (::write(input_.get(), "?\n", 2) != 2) return fail_errno("cannot ask the device's process");
  const std::string line = TRY(read_line());
  Reading reading;
  int at = 0;
  unsigned long long packets = 0;
  unsigned long long nanoseconds = 0;
  if (std::sscanf(line.c_str(), "%llu %llu %n", &packets, &nanoseconds, &at) != 2) {
    return fail(ErrorCode::kProtocol, "the device's process gave no reading");
  }
  reading.packets = packets;
  reading.nanoseconds = nanoseconds;
  reading.path = line.substr(static_cast<std::size_t>(at));
  return reading;
}

Status DeviceProcess::stop() {
  input_.reset();
  int status = 0;
  const pid_t pid = std::exchange(pid_, -1);
  for (int i = 0; i < 500; ++i) {
    if (::waitpid(pid, &status, WNOHANG) == pid) {
      if (status == 0) return {};
      return fail(ErrorCode::kSystem, "the device's process failed", status);
    }
    ::usleep(10'000);
  }
  ::kill(pid, SIGKILL);
  ::waitpid(pid, &status, 0);
  return fail(ErrorCode::kTimeout, "the device's process did not end");
}

}  // namespace sluice::app
