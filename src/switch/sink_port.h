// SinkPort: takes and counts frames, and never sends one.
#pragma once

#include <string>

#include "switch/options.h"
#include "switch/port.h"
#include "switch/swallow.h"

namespace sluice::fabric {

class SinkPort final : public Port {
 public:
  /// Queues that packets are spread over, so that workers seldom meet.
  static constexpr std::uint16_t kQueues = 4;

  explicit SinkPort(const SinkOptions& options)
      : name_(options.name), swallow_(options.touch, kQueues) {}

  [[nodiscard]] std::string_view name() const override { return name_; }
  [[nodiscard]] std::string_view kind() const override { return "sink"; }
  [[nodiscard]] std::uint16_t queue_pairs() const override { return kQueues; }

  std::size_t receive(std::uint16_t, packet::Burst&) override { return 0; }
  void release(std::uint16_t) override {}
  std::size_t transmit(std::uint32_t hint, const packet::Burst& burst,
                       std::span<const packet::PacketIndex> which) override {
    return swallow_.take(hint, burst, which);
  }

  [[nodiscard]] const net::DirectionCounters& from_driver(std::uint16_t) const override {
    return nothing_;
  }
  net::DirectionCounters& from_driver(std::uint16_t) override { return nothing_; }
  [[nodiscard]] const net::DirectionCounters& to_driver(std::uint16_t q) const override {
    return swallow_.counters(q);
  }
  [[nodiscard]] const Refusals& refusals() const override { return swallow_.refusals(); }

  bool arm(std::uint16_t) override { return false; }
  void disarm(std::uint16_t) override {}
  [[nodiscard]] WakeSource wake_source(std::uint16_t) override { return {}; }
  [[nodiscard]] bool ready() const override { return true; }
  [[nodiscard]] std::vector<QueueView> queues() const override { return {}; }

 private:
  const std::string name_;
  Swallow swallow_;
  net::DirectionCounters nothing_;
};

}  // namespace sluice::fabric
