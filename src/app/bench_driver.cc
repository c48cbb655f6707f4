// The driver's loops.
#include "app/bench_driver.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <span>
#include <utility>

#include "app/bench_probe.h"
#include "base/cache_line.h"
#include "packet/copy.h"
#include "packet/touch.h"
#include "switch/options.h"
#include "vhost/frontend.h"
#include "vhost/frontend_source.h"

namespace sluice::app {

namespace {

// As testpmd's default.
constexpr std::size_t kDriverBurst = 32;
// Frames that circulate in loopback; fewer than a ring has, so that both ends find room.
constexpr std::size_t kInFlight = 192;

net::NetDriverOptions driver_options(const DriverEndOptions& options) {
  net::NetDriverOptions driver;
  driver.queue_pairs = options.what.queues;
  driver.queue_size = options.what.queue_size;
  driver.wanted = options.what.features();
  driver.required = driver.wanted;
  driver.mac = options.mac;
  // Room for header and frame, an odd number of cache lines.
  const std::uint32_t longest =
      options.what.imix ? std::ranges::max(fabric::kImixSizes) : options.what.size;
  const std::uint32_t lines = (longest + 12 + 63) / 64 | 1;
  driver.buffer_stride = std::max(net::kBufferStride, lines * 64);
  return driver;
}

void pause_core() {
#ifdef __x86_64__
  __builtin_ia32_pause();
#endif
}

}  // namespace

Result<std::unique_ptr<net::NetDriver>> start_driver(const DriverEndOptions& options) {
  vhost::FrontendSource::Options source_options;
  source_options.path = options.socket;
  auto source = TRY(vhost::FrontendSource::create(source_options));
  auto frontend = TRY(source.next(std::chrono::seconds(5)));
  auto driver = TRY(net::NetDriver::create(driver_options(options), std::move(frontend)));
  TRY(driver->start());
  return driver;
}

std::array<std::byte, 64> frame_head(const DriverEndOptions& options) {
  std::array<std::uint8_t, 64> bytes{};
  std::ranges::copy(options.peer_mac, bytes.begin());
  std::ranges::copy(options.mac, bytes.begin() + 6);
  const auto ip_length = static_cast<std::uint16_t>(std::min(options.what.size, 65'535U) - 14);
  const auto udp_length = static_cast<std::uint16_t>(ip_length - 20);
  const auto high = [](std::uint16_t value) { return static_cast<std::uint8_t>(value >> 8); };
  const auto low = [](std::uint16_t value) { return static_cast<std::uint8_t>(value); };
  // IPv4 from 10.0.0.1 to 10.0.0.2, UDP without a checksum.
  const std::array<std::uint8_t, 2> type = {0x08, 0x00};
  const std::array<std::uint8_t, 20> ip = {
      0x45, 0, high(ip_length), low(ip_length), 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0,
      0,    2};
  const std::array<std::uint8_t, 8> udp = {0x10, 0, 0, 9, high(udp_length), low(udp_length), 0, 0};
  std::ranges::copy(type, bytes.begin() + 12);
  std::ranges::copy(ip, bytes.begin() + 14);
  std::ranges::copy(udp, bytes.begin() + 34);
  return std::bit_cast<std::array<std::byte, 64>>(bytes);
}

DriverEnd::DriverEnd(Passkey, const DriverEndOptions& options,
                     std::unique_ptr<net::NetDriver> driver)
    : options_(options), driver_(std::move(driver)), frame_(frame_head(options)) {}

DriverEnd::~DriverEnd() {
  stop();
}

Result<std::unique_ptr<DriverEnd>> DriverEnd::create(const DriverEndOptions& options) {
  auto driver = TRY(start_driver(options));
  auto end = std::make_unique<DriverEnd>(Passkey{}, options, std::move(driver));
  TRY(end->open_queues());
  return end;
}

Status DriverEnd::open_queues() {
  for (std::uint16_t i = 0; i < driver_->queue_pairs(); ++i) {
    const auto receiveq = TRY(driver_->queue(net::QueueIndex(static_cast<std::uint16_t>(2 * i))));
    const auto transmitq =
        TRY(driver_->queue(net::QueueIndex(static_cast<std::uint16_t>(2 * i + 1))));
    pairs_.push_back(
        {net::DriverReceiveQueue::make(receiveq), net::DriverTransmitQueue::make(transmitq)});
  }
  return {};
}

void DriverEnd::go() {
  thread_ = std::thread([this] {
    if (options_.core >= 0) [[maybe_unused]]
      const Status pinned = pin_to_core(options_.core);
    while (!stop_.load(std::memory_order_relaxed)) step();
  });
}

void DriverEnd::go_with(DriverEnd& other) {
  thread_ = std::thread([this, &other] {
    if (options_.core >= 0) [[maybe_unused]]
      const Status pinned = pin_to_core(options_.core);
    while (!stop_.load(std::memory_order_relaxed)) {
      step();
      other.step();
    }
  });
}

void DriverEnd::stop() {
  stop_.store(true, std::memory_order_relaxed);
  if (thread_.joinable()) thread_.join();
  if (driver_->running()) [[maybe_unused]]
    const Status stopped = driver_->stop();
}

std::string DriverEnd::path() const {
  return std::string(pairs_.front().receiveq.name());
}

std::optional<Error> DriverEnd::error() const {
  for (const Pair& pair : pairs_) {
    if (const auto error = pair.receiveq.error()) return error;
    if (const auto error = pair.transmitq.error()) return error;
  }
  return std::nullopt;
}

void DriverEnd::step() {
  const Direction direction = options_.what.direction;
  const bool sends = direction == Direction::kFromDriver || direction == Direction::kBoth;
  for (Pair& pair : pairs_) {
    if (direction == Direction::kLoopback) {
      echo(pair);
    } else {
      if (direction != Direction::kFromDriver) receive(pair);
      if (sends) send(pair);
    }
  }
}

void DriverEnd::receive(Pair& pair) {
  const std::size_t count = pair.receiveq.receive(std::span(in_).first(kDriverBurst));
  if (count == 0) return pause_core();
  std::uint64_t packets = 0;
  for (std::size_t i = 0; i < count; ++i) packets += in_[i].continues == 0 ? 1 : 0;
  if (options_.what.touch) {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < count; ++i) sum += packet::read_all({in_[i].data, in_[i].length});
    sum_.store(sum, std::memory_order_relaxed);
  }
  pair.receiveq.repost();
  received_.add(packets);
}

void DriverEnd::send(Pair& pair) {
  std::size_t wanted = kDriverBurst;
  if (options_.limit != 0) {
    wanted = static_cast<std::size_t>(
        std::min<std::uint64_t>(wanted, options_.limit - std::min(options_.limit, sent_.value())));
  }
  const std::size_t count = pair.transmitq.reserve(std::span(out_).first(wanted));
  if (count == 0) return pause_core();
  const std::uint32_t size = std::min(options_.what.size, out_[0].length);
  // All of the shortest frame is written anew each time. (testpmd's txonly writes headers only.)
  const std::size_t written = std::min<std::size_t>(size, frame_.size());
  for (std::size_t i = 0; i < count; ++i) {
    packet::copy_bytes(out_[i].data, frame_.data(), written);
    out_[i].length = size;
  }
  if (options_.what.imix) {
    for (std::size_t i = 0; i < count; ++i) {
      out_[i].length = fabric::kImixSizes[next_size_];
      if (++next_size_ == fabric::kImixSizes.size()) next_size_ = 0;
    }
  }
  pair.transmitq.submit(std::span(out_).first(count));
  sent_.add(count);
}

// Sends every frame back that arrives; the first ones are its own.
void DriverEnd::echo(Pair& pair) {
  if (sent_.value() < kInFlight * pairs_.size()) send(pair);
  const auto frames =
      std::span(in_).first(pair.receiveq.receive(std::span(in_).first(kDriverBurst)));
  if (frames.empty()) return pause_core();
  if (options_.swap_addresses) {
    for (const net::DriverFrame& frame : frames) {
      std::swap_ranges(frame.data, frame.data + 6, frame.data + 6);
    }
  }
  const std::size_t sent = pair.transmitq.forward(pair.receiveq, frames);
  pair.receiveq.repost();
  received_.add(frames.size());
  sent_.add(sent);
}

}  // namespace sluice::app
