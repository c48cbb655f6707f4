// Building, running and stopping a switch.
#include "switch/fabric.h"

#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <utility>

#include "switch/announcement.h"
#include "switch/fabric_impl.h"
#include "switch/generator_port.h"
#include "switch/options_check.h"
#include "switch/sink_port.h"

namespace sluice::fabric {

namespace {

// Descriptors of the epoll set: links by number, and behind them the timer and outcomes of resets.
constexpr std::uint64_t kTimer = kPortsMax;
constexpr std::uint64_t kResetDone = kTimer + 1;
constexpr long kHousekeepingNanoseconds = 100'000'000;
constexpr std::chrono::seconds kTableTick{1};

Result<std::uint64_t> random_word() {
  std::uint64_t word = 0;
  if (::getrandom(&word, sizeof word, 0) != static_cast<ssize_t>(sizeof word)) {
    return fail_errno("cannot get random bytes");
  }
  return word;
}

// Where a port's used positions are kept: beside its socket, if nothing else is said.
std::string state_path(const SwitchOptions& options, const VhostUserOptions& port) {
  if (options.state_directory.empty()) return port.path + ".rings";
  return options.state_directory + "/" + port.name + ".rings";
}

}  // namespace

Result<std::unique_ptr<Fabric>> Fabric::create(const SwitchOptions& options, PortFault* fault) {
  auto impl = std::make_unique<Impl>(TRY(complete(options)));
  const Status opened = impl->open();
  if (!opened.has_value()) {
    if (fault != nullptr) *fault = std::move(impl->fault);
    return std::unexpected(opened.error());
  }
  return std::make_unique<Fabric>(Passkey{}, std::move(impl));
}

Fabric::Fabric(Passkey, std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Fabric::~Fabric() = default;

Status Fabric::Impl::open() {
  epoll = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return fail_errno("cannot make an epoll set");
  timer = UniqueFd(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  if (!timer) return fail_errno("cannot make a timer");
  const itimerspec period{.it_interval = {.tv_sec = 0, .tv_nsec = kHousekeepingNanoseconds},
                          .it_value = {.tv_sec = 0, .tv_nsec = kHousekeepingNanoseconds}};
  if (::timerfd_settime(timer.get(), 0, &period, nullptr) != 0) {
    return fail_errno("cannot set a timer");
  }
  TRY(watch(timer.get(), kTimer));
  reset_done = std::make_shared<const EventFd>(TRY(EventFd::create()));
  TRY(watch(reset_done->fd(), kResetDone));
  stall_watch = TRY(StallWatch::start());
  TRY(open_ports());
  TRY(open_forwarder());
  TRY(open_workers());
  TRY(open_links());
  return open_driver_links();
}

Status Fabric::Impl::watch(int fd, std::uint64_t tag) const {
  epoll_event event{.events = EPOLLIN, .data = {.u64 = tag}};
  if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    return fail_errno("cannot wait for a descriptor");
  }
  return {};
}

Status Fabric::Impl::open_ports() {
  for (const VhostUserOptions& port : options.vhost_user) {
    const auto number = static_cast<std::uint16_t>(ports.size());
    auto made = TRY(VhostUserPort::create(port, number, *this));
    vhost_ports.push_back(made.get());
    ports.push_back(std::move(made));
  }
  for (const VirtioUserOptions& port : options.virtio_user) {
    auto made = std::make_unique<VirtioUserPort>(port);
    driver_ports.push_back(made.get());
    ports.push_back(std::move(made));
  }
  for (const GeneratorOptions& port : options.generators) {
    ports.push_back(TRY(GeneratorPort::create(port)));
  }
  for (const SinkOptions& port : options.sinks) {
    ports.push_back(std::make_unique<SinkPort>(port));
  }
  return {};
}

Status Fabric::Impl::open_forwarder() {
  std::vector<Port*> all;
  for (const auto& port : ports) all.push_back(port.get());
  sender = std::make_unique<Sender>();
  if (options.forward == Forward::kPatch) {
    forwarder = std::make_unique<Forwarder>(std::move(all), patch_peers(options));
    return {};
  }
  table = std::make_unique<MacTable>(options.bridge.table_size, ports.size(), options.bridge.ageing,
                                     TRY(random_word()));
  for (std::size_t i = 0; i < vhost_ports.size(); ++i) {
    const auto mac = vhost_ports[i]->mac();
    if (mac.has_value() && !table->add_static(*mac, static_cast<std::uint16_t>(i))) {
      return fail(ErrorCode::kInvalidArgument, "bridge.table_size: no room for the ports' own mac",
                  static_cast<std::int64_t>(i));
    }
  }
  forwarder = std::make_unique<Forwarder>(std::move(all), *table);
  return {};
}

Status Fabric::Impl::open_workers() {
  std::vector<std::vector<WorkerQueue>> shares(options.workers.count);
  std::size_t next = 0;
  const std::size_t senders = ports.size() - options.sinks.size();
  for (std::size_t number = 0; number < senders; ++number) {
    Port* const port = ports[number].get();
    for (std::uint16_t q = 0; q < port->queue_pairs(); ++q) {
      shares[next++ % shares.size()].push_back(
          {.port = port, .port_number = static_cast<std::uint16_t>(number), .queue = q});
    }
  }
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const auto& cores = options.workers.cores;
    const Worker::Options worker{.id = static_cast<std::uint16_t>(i),
                                 .core = cores.empty() ? Worker::kNoCore : cores[i],
                                 .poll = options.workers.poll,
                                 .spin = options.workers.spin};
    workers.push_back(TRY(Worker::create(worker, std::move(shares[i]), *forwarder)));
  }
  return {};
}

Status Fabric::Impl::open_links() {
  for (std::size_t i = 0; i < vhost_ports.size(); ++i) {
    const VhostUserOptions& port = options.vhost_user[i];
    const std::string records = state_path(options, port);
    auto link = TRY(VhostLink::create(*vhost_ports[i]));
    fault = {.port = port.name, .path = port.path};
    TRY(link->open_socket(port));
    fault = {.port = port.name, .path = records, .records = true};
    // A client's socket may lie in a directory of somebody else. Then packed rings work all the
    // same, but a killed daemon cannot go on with them; whoever looks at the port is told.
    const bool optional = port.client && options.state_directory.empty();
    TRY(link->open_records(port, records, optional));
    fault = {};
    TRY(watch(link->fd(), i));
    links.push_back(std::move(link));
  }
  return {};
}

Status Fabric::Impl::open_driver_links() {
  for (std::size_t i = 0; i < driver_ports.size(); ++i) {
    const VirtioUserOptions& port = options.virtio_user[i];
    fault = {.port = port.name, .path = port.path};
    driver_links.push_back(TRY(VirtioUserLink::create(port, *driver_ports[i], *this)));
    fault = {};
  }
  return {};
}

Status Fabric::Impl::start() {
  if (state != State::kCreated) {
    return fail(ErrorCode::kWrongState, "the switch was started already");
  }
  for (const auto& worker : workers) {
    const Status started = worker->start();
    if (started.has_value()) continue;
    stop();
    return started;
  }
  for (const auto& link : driver_links) {
    const Status started = link->start();
    if (started.has_value()) continue;
    stop();
    return started;
  }
  state = State::kRunning;
  return {};
}

void Fabric::Impl::stop() {
  // Workers first: they give back what they hold, and then nobody disputes the queues.
  for (const auto& worker : workers) worker->stop();
  for (const auto& link : driver_links) link->request_stop();
  for (const auto& link : links) link->close();
  for (const auto& link : driver_links) link->close();
  state = State::kStopped;
}

// --- The control thread's loop -------------------------------------------------------------------

void Fabric::Impl::serve(std::uint64_t tag) {
  if (tag == kTimer) {
    std::uint64_t expirations = 0;
    [[maybe_unused]] const ssize_t got = ::read(timer.get(), &expirations, sizeof expirations);
    housekeeping();
  } else if (tag == kResetDone) {
    reset_done->drain();  // Whoever waits for an outcome looks after each poll().
  } else if (tag < links.size() && links[tag]->on_ready()) {
    link_changed(tag);
  }
}

void Fabric::Impl::link_changed(std::size_t index) {
  // Whoever comes next need not be who was there.
  if (table != nullptr && !links[index]->connected()) {
    table->forget(static_cast<std::uint16_t>(index));
  }
}

// A virtio-user port's sessions begin and end on its own thread.
void Fabric::Impl::look_at_driver_links() {
  for (std::size_t i = 0; i < driver_links.size(); ++i) {
    if (driver_links[i]->take_change() && table != nullptr) {
      table->forget(static_cast<std::uint16_t>(vhost_ports.size() + i));
    }
  }
}

void Fabric::Impl::housekeeping() {
  for (std::size_t i = 0; i < links.size(); ++i) {
    if (links[i]->housekeeping()) link_changed(i);
  }
  look_at_driver_links();
  const auto now = Clock::now();
  if (now - last_tick < kTableTick) return;
  last_tick = now;
  if (table != nullptr) table->tick(std::chrono::duration_cast<std::chrono::seconds>(now - began));
}

void Fabric::Impl::queues_changed() {
  for (const auto& worker : workers) worker->wake();
}

void Fabric::Impl::config_changed(std::uint16_t port) {
  links[port]->config_changed();
}

void Fabric::Impl::announce(std::uint16_t port, net::PackedMac mac) {
  const Announcement frame = make_announcement(mac);
  packet::Packet& packet = sender->burst.packets[0];
  packet = {.data = frame.data(),
            .length = frame.size(),
            .first_length = frame.size(),
            .more_first = 0,
            .more_count = 0,
            .offload = {},
            .head = {}};
  std::memcpy(packet.head.data(), frame.data(), packet.head.size());
  sender->burst.clear();
  sender->burst.count = 1;
  const Ingress from{.port = port, .hint = 0, .counters = &sender->counters};
  forwarder->forward(from, sender->burst, sender->scratch);
}

// --- Fabric --------------------------------------------------------------------------------------

Status Fabric::start() {
  return impl_->start();
}
int Fabric::poll_fd() const {
  return impl_->epoll.get();
}
void Fabric::stop() {
  impl_->stop();
}
const SwitchOptions& Fabric::options() const {
  return impl_->options;
}

Result<std::shared_ptr<const PendingReset>> Fabric::begin_reset(const std::string& port,
                                                                const ResetOrder& order) {
  for (std::size_t i = 0; i < impl_->driver_ports.size(); ++i) {
    if (impl_->driver_ports[i]->name() != port) continue;
    return impl_->driver_links[i]->begin_reset(order, impl_->reset_done);
  }
  for (const auto& other : impl_->ports) {
    if (other->name() == port) {
      return fail(ErrorCode::kUnsupported, "only a virtio-user port resets queues");
    }
  }
  return fail(ErrorCode::kNotFound, "no port has this name");
}

void Fabric::poll(std::chrono::milliseconds timeout) {
  std::array<epoll_event, 16> events;
  const int count = ::epoll_wait(impl_->epoll.get(), events.data(), static_cast<int>(events.size()),
                                 static_cast<int>(timeout.count()));
  for (int i = 0; i < count; ++i) {
    impl_->serve(events[static_cast<std::size_t>(i)].data.u64);
  }
}

}  // namespace sluice::fabric
