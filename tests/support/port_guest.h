// PortGuest: a guest with raw rings, attached to a VhostUserPort by the calls a session makes.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "net/net_device.h"
#include "net/transport.h"
#include "support/counting_notifier.h"
#include "support/fake_guest.h"
#include "support/fake_port.h"
#include "support/raw_driver.h"
#include "switch/vhost_user_port.h"

namespace sluice::test {

/// Takes what a port tells the switch.
class RecordingEvents : public fabric::PortEvents {
 public:
  void queues_changed() override { ++changes; }
  void announce(std::uint16_t port, net::PackedMac mac) override {
    announced.emplace_back(port, mac);
  }
  void config_changed(std::uint16_t) override { ++config_changes; }
  std::atomic<int> changes{0};
  int config_changes = 0;
  std::vector<std::pair<std::uint16_t, net::PackedMac>> announced;
};

struct GuestOptions {
  bool packed = false;
  bool in_order = false;
  bool event_idx = false;
  bool mrg_rxbuf = false;
  std::uint16_t pairs = 1;
  std::uint32_t size = 64;
  virtio::FeatureSet more;  // Negotiated beside what the fields above say.
};

class PortGuest {
 public:
  static constexpr std::uint32_t kHeader = 12;
  static constexpr std::uint32_t kBuffer = 2048;

  /// Negotiates; the queues are stopped.
  PortGuest(fabric::VhostUserPort& port, const GuestOptions& options)
      : port_(port), options_(options) {
    features_ = virtio::FeatureSet{virtio::Feature::kVersion1} | options.more;
    const auto add = [&](bool wanted, virtio::Feature feature) {
      if (wanted) features_.add(feature);
    };
    add(options.packed, virtio::Feature::kRingPacked);
    add(options.in_order, virtio::Feature::kInOrder);
    add(options.event_idx, virtio::Feature::kEventIdx);
    add(options.mrg_rxbuf, virtio::Feature::kMrgRxbuf);
    add(options.pairs > 1, virtio::Feature::kMq);
    EXPECT_TRUE(port.set_features(features_).has_value());
    for (std::uint16_t i = 0; i < 2 * options.pairs; ++i) queues_.push_back(make_queue());
  }

  /// Starts and enables a virtqueue (receiveq of pair n: 2n, transmitq: 2n + 1).
  Status start(std::uint16_t index, bool enabled = true) {
    Queue& queue = queues_.at(index);
    const Status started = port_.start_queue(net::QueueIndex(index), start_record(queue));
    port_.enable_queue(net::QueueIndex(index), enabled);
    return started;
  }
  void start_all() {
    for (std::uint16_t i = 0; i < queues_.size(); ++i) ASSERT_TRUE(start(i).has_value());
  }
  void stop(std::uint16_t index) {
    Queue& queue = queues_.at(index);
    const auto stopped = port_.stop_queue(net::QueueIndex(index));
    ASSERT_TRUE(stopped.has_value());
    queue.config.position = *stopped;
  }
  void stop_all() {
    for (std::uint16_t i = 0; i < queues_.size(); ++i) stop(i);
  }

  /// Posts `count` receive buffers on pair `pair`.
  void post_receive(std::uint16_t pair, std::size_t count, std::uint32_t bytes = kBuffer) {
    Queue& queue = queues_.at(2U * pair);
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t address = take_buffer(queue);
      const auto id = queue.driver->post({.address = address, .length = bytes, .writable = true});
      ASSERT_TRUE(id.has_value()) << "the test posts more than the ring holds";
      queue.posted[*id] = address;
    }
  }
  /// Posts a frame for transmission, its header in the same buffer. False if the ring is full.
  bool send(std::uint16_t pair, const Frame& frame) {
    Queue& queue = queues_.at(2U * pair + 1);
    const std::uint64_t address = take_buffer(queue);
    guest_.fill(address, kHeader, 0);
    guest_.put(address + kHeader, frame);
    const auto length = static_cast<std::uint32_t>(kHeader + frame.size());
    return queue.driver->post({.address = address, .length = length}).has_value();
  }
  /// Frames the device delivered to pair `pair` since the last call (one buffer each).
  std::vector<Frame> received(std::uint16_t pair) {
    Queue& queue = queues_.at(2U * pair);
    std::vector<Frame> frames;
    for (const Returned& returned : queue.driver->reap()) {
      if (returned.length <= kHeader) continue;
      frames.push_back(guest_.get(queue.posted[returned.id] + kHeader, returned.length - kHeader));
    }
    return frames;
  }
  /// How many transmitted buffers came back since the last call.
  std::size_t sent_back(std::uint16_t pair) {
    return queues_.at(2U * pair + 1).driver->reap().size();
  }

  [[nodiscard]] RawDriver& driver(std::uint16_t index) { return *queues_.at(index).driver; }
  [[nodiscard]] CountingNotifier& call(std::uint16_t index) { return *queues_.at(index).call; }
  [[nodiscard]] CountingNotifier& error(std::uint16_t index) { return *queues_.at(index).error; }
  [[nodiscard]] FakeGuest& guest() { return guest_; }
  [[nodiscard]] const virtio::FeatureSet& features() const { return features_; }

  struct Queue {
    std::unique_ptr<RawDriver> driver;
    virtio::RingConfig config;
    std::shared_ptr<CountingNotifier> call = std::make_shared<CountingNotifier>();
    std::shared_ptr<CountingNotifier> error = std::make_shared<CountingNotifier>();
    std::map<std::uint16_t, std::uint64_t> posted;  // Id to buffer.
    std::uint64_t buffers = 0;                      // A buffer a slot, used round and round.
    std::uint32_t next_buffer = 0;
  };
  /// A ring in this guest's memory, for queues the class does not know (the control queue).
  Queue make_queue() {
    Queue queue;
    const DriverOptions driver{.size = options_.size,
                               .event_idx = options_.event_idx,
                               .in_order = options_.in_order,
                               .seed = static_cast<std::uint32_t>(queues_.size() + 1)};
    if (options_.packed) {
      queue.driver = std::make_unique<RawPackedDriver>(guest_, driver);
    } else {
      queue.driver = std::make_unique<RawSplitDriver>(guest_, driver);
    }
    queue.config = queue.driver->config();
    queue.buffers = guest_.allocate(std::uint64_t{options_.size} * kBuffer);
    return queue;
  }
  /// What a session says when it starts `queue`.
  net::QueueStart start_record(Queue& queue) {
    queue.config.event_idx = options_.event_idx;
    auto kick = EventFd::create();
    EXPECT_TRUE(kick.has_value());
    net::QueueStart start;
    start.ring = queue.config;
    start.features = features_;
    start.memory = guest_.shared_memory();
    start.kick = std::make_shared<EventFd>(*std::move(kick));
    start.call = queue.call;
    start.error = queue.error;
    return start;
  }

 private:
  std::uint64_t take_buffer(Queue& queue) const {
    const std::uint64_t address = queue.buffers + std::uint64_t{queue.next_buffer} * kBuffer;
    queue.next_buffer = (queue.next_buffer + 1) % options_.size;
    return address;
  }

  fabric::VhostUserPort& port_;
  const GuestOptions options_;
  virtio::FeatureSet features_;
  FakeGuest guest_;
  std::vector<Queue> queues_;
};

}  // namespace sluice::test
