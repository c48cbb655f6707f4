// FakePort: a port for tests. What it receives is injected, what is sent to it is kept.
//
// It enforces the contract of switch/port.h on its users: a queue is released exactly once after a
// receive() that gave packets, and views are not used after that (the frames are overwritten).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "switch/port.h"

namespace sluice::test {

using Frame = std::vector<std::byte>;

/// A frame of `size` bytes between two stations, with `tag` behind its header.
[[nodiscard]] Frame make_frame(net::PackedMac destination, net::PackedMac source, std::uint32_t tag,
                               std::size_t size = 64);

[[nodiscard]] inline std::uint32_t tag_of(const Frame& frame) {
  std::uint32_t tag = 0;
  std::memcpy(&tag, frame.data() + 14, sizeof tag);
  return tag;
}

class FakePort : public fabric::Port {
 public:
  explicit FakePort(std::string name, std::uint16_t pairs = 1)
      : name_(std::move(name)), queues_(pairs) {}

  /// What the next receive() calls of queue `q` give.
  void inject(Frame frame, std::uint16_t q = 0) {
    const std::lock_guard guard(mutex_);
    queues_[q].waiting.push_back(std::move(frame));
  }
  /// What was sent to the port since the last call, in order.
  [[nodiscard]] std::vector<Frame> sent() {
    const std::lock_guard guard(mutex_);
    return std::exchange(sent_, {});
  }
  /// Frames it has room for; then it drops them as kNoBuffers.
  void set_room(std::size_t frames) { room_ = frames; }
  void set_ready(bool ready) { ready_ = ready; }
  void set_filter(const net::ReceiveFilter* filter) { filter_ = filter; }
  [[nodiscard]] const std::vector<std::uint32_t>& hints() const { return hints_; }

  [[nodiscard]] std::string_view name() const override { return name_; }
  [[nodiscard]] std::string_view kind() const override { return "fake"; }
  [[nodiscard]] std::uint16_t queue_pairs() const override {
    return static_cast<std::uint16_t>(queues_.size());
  }

  std::size_t receive(std::uint16_t q, packet::Burst& burst) override {
    const std::lock_guard guard(mutex_);
    Queue& queue = queues_[q];
    EXPECT_FALSE(queue.held) << "receive() before release()";
    burst.clear();
    queue.taken.clear();
    while (!queue.waiting.empty() && burst.count < packet::kBurstMax) {
      queue.taken.push_back(std::move(queue.waiting.front()));
      queue.waiting.pop_front();
      const Frame& frame = queue.taken.back();
      packet::Packet& packet = burst.packets[burst.count++];
      packet = {.data = frame.data(),
                .length = static_cast<std::uint32_t>(frame.size()),
                .first_length = static_cast<std::uint32_t>(frame.size()),
                .more_first = 0,
                .more_count = 0,
                .offload = {},
                .head = {}};
      std::memcpy(packet.head.data(), frame.data(), std::min(packet::kHeadSize, frame.size()));
      queue.from.bytes.add(frame.size());
    }
    queue.from.packets.add(burst.count);
    queue.held = burst.count != 0;
    return burst.count;
  }
  void release(std::uint16_t q) override {
    const std::lock_guard guard(mutex_);
    EXPECT_TRUE(queues_[q].held) << "release() of a queue that is not held";
    queues_[q].held = false;
    for (Frame& frame : queues_[q].taken) std::ranges::fill(frame, std::byte{0xdd});
  }

  std::size_t transmit(std::uint32_t hint, const packet::Burst& burst,
                       std::span<const packet::PacketIndex> which) override {
    const std::lock_guard guard(mutex_);
    if (!ready_) {
      refusals_.not_ready.fetch_add(which.size());
      return 0;
    }
    hints_.push_back(hint);
    net::DirectionCounters& to = queues_[hint % queues_.size()].to;
    std::size_t delivered = 0;
    for (const packet::PacketIndex index : which) {
      if (room_ == 0) {
        to.drop(net::DropCause::kNoBuffers);
        continue;
      }
      --room_;
      const packet::Packet& packet = burst.packets[index];
      Frame frame(packet.length);
      packet::copy_frame(burst, packet, 0, frame);
      to.bytes.add(frame.size());
      sent_.push_back(std::move(frame));
      ++delivered;
    }
    to.packets.add(delivered);
    return delivered;
  }

  [[nodiscard]] const net::DirectionCounters& from_driver(std::uint16_t q) const override {
    return queues_[q].from;
  }
  net::DirectionCounters& from_driver(std::uint16_t q) override { return queues_[q].from; }
  [[nodiscard]] const net::DirectionCounters& to_driver(std::uint16_t q) const override {
    return queues_[q].to;
  }
  [[nodiscard]] const fabric::Refusals& refusals() const override { return refusals_; }

  bool arm(std::uint16_t q) override {
    const std::lock_guard guard(mutex_);
    return !queues_[q].waiting.empty();
  }
  void disarm(std::uint16_t) override {}
  [[nodiscard]] fabric::WakeSource wake_source(std::uint16_t) override {
    return {.event = nullptr, .generation = 0, .must_poll = true};
  }
  [[nodiscard]] bool ready() const override { return ready_; }
  [[nodiscard]] const net::ReceiveFilter* filter() const override { return filter_; }
  [[nodiscard]] std::vector<fabric::QueueView> queues() const override { return {}; }

 private:
  struct Queue {
    std::deque<Frame> waiting;
    std::deque<Frame> taken;
    bool held = false;
    net::DirectionCounters from;
    net::DirectionCounters to;
  };
  const std::string name_;
  std::mutex mutex_;
  std::vector<Queue> queues_;
  std::vector<Frame> sent_;
  std::vector<std::uint32_t> hints_;
  std::size_t room_ = SIZE_MAX;
  bool ready_ = true;
  const net::ReceiveFilter* filter_ = nullptr;
  fabric::Refusals refusals_;
};

}  // namespace sluice::test
