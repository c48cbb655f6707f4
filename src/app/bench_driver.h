// DriverEnd: the driver's half of a benchmark or a demo: a NetDriver on a vhost-user socket and the
// loop that drives its queues, on a pinned thread of its own.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "app/bench_case.h"
#include "base/counter.h"
#include "base/error.h"
#include "net/driver_queue.h"
#include "net/net_driver.h"

namespace sluice::app {

struct DriverEndOptions {
  std::string socket;
  BenchCase what;
  int core = -1;                                        // Not pinned if negative.
  net::MacAddress mac = {0x02, 0, 0, 0, 0, 0x01};       // Source of the frames sent.
  net::MacAddress peer_mac = {0x02, 0, 0, 0, 0, 0x02};  // Their destination.
  std::uint64_t limit = 0;      // Frames to send, then only receive; 0: no end.
  bool swap_addresses = false;  // Loopback: send back to the sender, as a bridge needs it.
};

/// A driver on the device at options.socket, with exactly what.features(), started.
/// Errors: kNotNegotiated if the device lacks a feature; those of NetDriver and Frontend.
[[nodiscard]] Result<std::unique_ptr<net::NetDriver>> start_driver(const DriverEndOptions& options);
/// The first 64 bytes of the frames it sends: Ethernet, IPv4, UDP to the discard port.
[[nodiscard]] std::array<std::byte, 64> frame_head(const DriverEndOptions& options);

class DriverEnd {
  struct Passkey {};

 public:
  DriverEnd(Passkey, const DriverEndOptions& options, std::unique_ptr<net::NetDriver> driver);
  /// Starts a driver and its queues; the loop waits for go(). Errors: those of start_driver().
  [[nodiscard]] static Result<std::unique_ptr<DriverEnd>> create(const DriverEndOptions& options);
  ~DriverEnd();

  /// Starts the loop.
  void go();
  /// The same with a loop that serves `other`, too, by turns: two drivers on one core. `other`
  /// outlives the loop.
  void go_with(DriverEnd& other);
  /// Ends the loop and stops the device. Counters stay readable.
  void stop();

  [[nodiscard]] std::uint64_t received() const { return received_.value(); }
  [[nodiscard]] std::uint64_t sent() const { return sent_.value(); }
  [[nodiscard]] std::string path() const;
  /// Why a ring broke, if one did. After stop().
  [[nodiscard]] std::optional<Error> error() const;
  [[nodiscard]] const net::NetDriver& driver() const { return *driver_; }

 private:
  struct Pair {
    net::DriverReceiveQueue receiveq;
    net::DriverTransmitQueue transmitq;
  };
  Status open_queues();
  void step();
  void receive(Pair& pair);
  void send(Pair& pair);
  void echo(Pair& pair);

  DriverEndOptions options_;
  std::unique_ptr<net::NetDriver> driver_;
  std::vector<Pair> pairs_;
  const std::array<std::byte, 64> frame_;  // What is sent, as far as it is written each time.
  std::size_t next_size_ = 0;              // In fabric::kImixSizes.
  std::atomic<std::uint64_t> sum_{0};  // Of what was read: keeps the reading from being left out.
  Counter received_;
  Counter sent_;
  std::atomic<bool> stop_{false};
  std::array<net::DriverFrame, net::kDriverBurstMax> in_;
  std::array<net::DriverFrame, net::kDriverBurstMax> out_;
  std::thread thread_;
};

}  // namespace sluice::app
