// FakeDevice: a net::Device that writes down what a transport calls, and serves queues with the
// product's rings only when a test says so.
//
// It enforces the contract of net/transport.h: a queue that is started twice, stopped when it does
// not run, or touched with memory that does not hold its ring ends in `complaint()`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "net/transport.h"
#include "support/counting_notifier.h"
#include "virtio/ring.h"

namespace sluice::test {

class FakeDevice final : public net::Device {
 public:
  /// One of the product's device rings, whichever was negotiated.
  class Ring;

  struct Queue {
    Queue();
    Queue(Queue&&) noexcept;
    ~Queue();
    bool running = false;
    bool enabled = false;
    net::QueueStart start;                // Of the last start.
    std::shared_ptr<net::Notifier> call;  // By the last start or set_call.
    virtio::RingPosition position;        // Where it was stopped.
    std::size_t starts = 0;
    std::size_t kicks = 0;
    std::unique_ptr<Ring> ring;  // While it runs.
  };

  explicit FakeDevice(std::uint16_t pairs = 1);
  ~FakeDevice() override;

  // What it offers and answers; set before the session.
  virtio::FeatureSet offered;
  std::vector<std::byte> config_space;
  Status features_status;  // Answer to set_features,
  Status start_status;     // start_queue,
  Status mtu_status;       // and set_mtu.

  // What it was told.
  virtio::FeatureSet features;
  std::uint8_t status = 0;
  std::size_t resets = 0;  // set_status(0).
  std::uint16_t mtu = 0;
  std::vector<std::byte> rarp;   // The last MAC.
  std::vector<std::string> log;  // "start 0", "stop 0", "enable 0 1", "call 0", "kick 0".

  [[nodiscard]] Queue& queue(std::size_t index) { return queues_[index]; }
  [[nodiscard]] const Queue& queue(std::size_t index) const { return queues_[index]; }
  [[nodiscard]] bool any_running() const;
  [[nodiscard]] const std::string& complaint() const { return complaint_; }

  /// Takes up to `max` buffers and gives them back, `written` bytes in each; calls the driver if it
  /// wants that. A queue that does not run, or is a disabled receiveq, gives nothing.
  std::size_t serve(std::size_t index, std::size_t max = 1000, std::uint32_t written = 0);
  /// The same as far as the ring; the batch is never published (the process was killed).
  std::size_t take_and_forget(std::size_t index, std::size_t max = 1000);
  /// Is there anything a worker would take?
  [[nodiscard]] bool has_work(std::size_t index) const;

  // net::Device
  [[nodiscard]] virtio::FeatureSet offered_features() const override { return offered; }
  [[nodiscard]] std::uint16_t max_queue_pairs() const override { return pairs_; }
  Status set_features(const virtio::FeatureSet& set) override;
  Status start_queue(net::QueueIndex queue, net::QueueStart start) override;
  Result<virtio::RingPosition> stop_queue(net::QueueIndex queue) override;
  void enable_queue(net::QueueIndex queue, bool enabled) override;
  void set_call(net::QueueIndex queue, std::shared_ptr<net::Notifier> call) override;
  void kick(net::QueueIndex queue) override;
  [[nodiscard]] std::span<const std::byte> config() const override { return config_space; }
  Status write_config(std::uint32_t offset, std::span<const std::byte> data) override;
  Status set_mtu(std::uint16_t value) override;
  Status send_rarp(std::span<const std::byte, 6> mac) override;
  void set_status(std::uint8_t value) override;

 private:
  Queue& known(net::QueueIndex index);
  void complain(const std::string& text);

  std::uint16_t pairs_;
  std::vector<Queue> queues_;
  std::string complaint_;
};

}  // namespace sluice::test
