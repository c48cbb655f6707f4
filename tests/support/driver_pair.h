// DriverPair: one queue pair of a NetDriver with the product's packet path on it, for tests.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>

#include "net/driver_queue.h"
#include "net/net_driver.h"

namespace sluice::test {

/// Waits until `done` or half a minute is over; false then.
template <class Condition>
[[nodiscard]] bool wait_for(Condition done) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!done()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return true;
}

struct DriverPair {
  explicit DriverPair(net::NetDriver& driver, std::uint16_t pair = 0) {
    const auto receive = driver.queue(net::QueueIndex(static_cast<std::uint16_t>(2 * pair)));
    const auto transmit = driver.queue(net::QueueIndex(static_cast<std::uint16_t>(2 * pair + 1)));
    EXPECT_TRUE(receive && transmit);
    if (!receive || !transmit) return;
    receiveq = net::DriverReceiveQueue::make(*receive);
    transmitq = net::DriverTransmitQueue::make(*transmit);
  }

  /// Sends `count` frames of 60 bytes; how many found room.
  std::size_t send(std::size_t count) {
    std::size_t sent = 0;
    std::array<net::DriverFrame, net::kDriverBurstMax> frames;
    while (sent < count) {
      const auto room = std::span(frames).first(std::min(count - sent, frames.size()));
      const std::size_t got = transmitq.reserve(room);
      if (got == 0) break;
      for (net::DriverFrame& frame : room.first(got)) {
        std::memset(frame.data, 0x5a, 60);
        frame.length = 60;
      }
      transmitq.submit(room.first(got));
      sent += got;
    }
    return sent;
  }
  /// Waits for `count` frames; how many came.
  std::size_t receive(std::size_t count) {
    std::size_t got = 0;
    std::array<net::DriverFrame, net::kDriverBurstMax> frames;
    const bool all = wait_for([&] {
      got += receiveq.receive(frames);
      receiveq.repost();
      return got >= count;
    });
    EXPECT_TRUE(all) << got << " of " << count;
    return got;
  }

  net::DriverReceiveQueue receiveq;
  net::DriverTransmitQueue transmitq;
};

}  // namespace sluice::test
