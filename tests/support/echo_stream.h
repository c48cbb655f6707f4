// EchoStream: traffic of which nothing may be lost while something else happens.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <thread>

#include "net/driver_queue.h"
#include "net/net_driver.h"
#include "support/driver_pair.h"

namespace sluice::test {

/// Sends frames on pair 0 in a thread of its own and gets each back: somebody echoes them.
class EchoStream {
 public:
  explicit EchoStream(net::NetDriver& driver) : pair_(driver, 0) {
    thread_ = std::thread([this] { run(); });
  }
  EchoStream(const EchoStream&) = delete;
  EchoStream& operator=(const EchoStream&) = delete;
  ~EchoStream() { stop(); }
  void stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  [[nodiscard]] std::uint64_t sent() const { return sent_; }
  [[nodiscard]] std::uint64_t received() const { return received_; }

 private:
  // More would overrun a ring; fewer would leave it idle.
  static constexpr std::uint64_t kWindow = 128;

  void run() {
    while (!stop_) {
      if (sent_ - received_ <= kWindow - 32) sent_ += pair_.send(32);
      take();
    }
    EXPECT_TRUE(wait_for([this] {
      take();
      return received_ >= sent_;
    })) << received_
        << " of " << sent_;
  }
  void take() {
    std::array<net::DriverFrame, net::kDriverBurstMax> frames;
    received_ += pair_.receiveq.receive(frames);
    pair_.receiveq.repost();
  }

  DriverPair pair_;
  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> sent_{0};
  std::atomic<std::uint64_t> received_{0};
  std::thread thread_;
};

}  // namespace sluice::test
