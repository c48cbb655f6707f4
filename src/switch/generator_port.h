// GeneratorPort: makes frames without end, for benchmarks and tests; swallows what is sent to it.
//
// All frames are built once: an Ethernet, IPv4 and UDP header as far as the size permits, the same
// in each, with a sequence number of the buffer in the payload. A burst is a row of views of them.
#pragma once

#include <string>
#include <vector>

#include "base/cache_line.h"
#include "memory/mapping.h"
#include "switch/options.h"
#include "switch/port.h"
#include "switch/swallow.h"

namespace sluice::fabric {

class GeneratorPort final : public Port {
  struct Passkey {};

 public:
  GeneratorPort(Passkey, const GeneratorOptions& options, memory::Mapping pool);

  static constexpr std::uint32_t kSizeMin = packet::kEthernetHeaderSize;
  static constexpr std::uint32_t kSizeMax = 65'549;
  /// Frames in the pool: enough that the copies read many lines, few enough to stay in a cache.
  static constexpr std::size_t kFramesMax = 256;
  static constexpr std::size_t kPoolBytes = 512 * 1024;

  /// Errors: kOutOfRange for a size or a number of queues that is not allowed; kNoMemory.
  [[nodiscard]] static Result<std::unique_ptr<GeneratorPort>> create(
      const GeneratorOptions& options);

  [[nodiscard]] std::string_view name() const override { return name_; }
  [[nodiscard]] std::string_view kind() const override { return "generator"; }
  [[nodiscard]] std::uint16_t queue_pairs() const override {
    return static_cast<std::uint16_t>(queues_.size());
  }

  std::size_t receive(std::uint16_t q, packet::Burst& burst) override;
  void release(std::uint16_t) override {}
  std::size_t transmit(std::uint32_t hint, const packet::Burst& burst,
                       std::span<const packet::PacketIndex> which) override {
    return swallow_.take(hint, burst, which);
  }

  [[nodiscard]] const net::DirectionCounters& from_driver(std::uint16_t q) const override {
    return queues_[q].made;
  }
  net::DirectionCounters& from_driver(std::uint16_t q) override { return queues_[q].made; }
  [[nodiscard]] const net::DirectionCounters& to_driver(std::uint16_t q) const override {
    return swallow_.counters(q);
  }
  [[nodiscard]] const Refusals& refusals() const override { return swallow_.refusals(); }

  /// There is always work.
  bool arm(std::uint16_t) override { return true; }
  void disarm(std::uint16_t) override {}
  [[nodiscard]] WakeSource wake_source(std::uint16_t) override { return {}; }
  [[nodiscard]] bool ready() const override { return true; }
  [[nodiscard]] std::vector<QueueView> queues() const override { return {}; }

 private:
  struct alignas(kCacheLine) Queue {
    net::DirectionCounters made;
    std::size_t next = 0;  // The pool's frame that begins the next burst.
  };

  const std::string name_;
  const memory::Mapping pool_;
  std::vector<packet::Packet> frames_;
  std::vector<Queue> queues_;
  Swallow swallow_;
};

}  // namespace sluice::fabric
