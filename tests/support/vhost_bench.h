// VhostBench: a vhost-user back-end of ours between a fake device and hand-made messages.
//
// It speaks the order of QEMU and DPDK unless a test sends messages of its own. Messages go
// straight into the state machine; tests of sessions put a socket between.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "support/fake_device.h"
#include "support/fake_guest.h"
#include "support/raw_driver.h"
#include "vhost/backend.h"
#include "vhost/connection.h"
#include "vhost/protocol.h"

namespace sluice::test {

inline constexpr std::uint64_t kVersion1Bit = 1ULL << 32;
inline constexpr std::uint64_t kPackedBit = 1ULL << 34;
inline constexpr std::uint64_t kInOrderBit = 1ULL << 35;
inline constexpr std::uint64_t kProtocolBit = 1ULL << 30;
inline constexpr std::uint64_t kLogAllBit = 1ULL << 26;
inline constexpr std::uint64_t kSplitFeatures = kVersion1Bit | kProtocolBit;
inline constexpr std::uint64_t kPackedFeatures = kSplitFeatures | kPackedBit;

/// A descriptor of a new eventfd that reads zero at first, and the test's end of it.
class TestEvent {
 public:
  TestEvent();
  [[nodiscard]] UniqueFd copy() const;
  /// The counter, which is zero afterwards.
  std::uint64_t take() const;
  void kick() const { event_.signal(); }

 private:
  EventFd event_;
};

/// A second descriptor of the same file.
[[nodiscard]] UniqueFd copy_of(int fd);

class VhostBench {
 public:
  explicit VhostBench(std::uint16_t pairs = 1,
                      std::shared_ptr<vhost::RingRecords> records = nullptr);

  /// A new session on the same device, as after a lost connection or a restart.
  void reconnect();
  void hang_up() { backend.reset(); }

  // --- Messages ---
  /// The answer, whatever it is; nothing if there was none.
  std::optional<vhost::Message> send(vhost::Message message);
  /// Asks for an acknowledgement and expects one: true if the message was accepted.
  bool accepted(vhost::Message message);
  /// The u64 of a query. An empty answer, i.e. a refusal, gives nothing.
  std::optional<std::uint64_t> query(vhost::Request request);

  static vhost::Message number(vhost::Request request, std::uint64_t value);
  static vhost::Message state(vhost::Request request, std::uint32_t index, std::uint32_t num);
  static vhost::Message with_fd(vhost::Message message, UniqueFd fd);
  /// SET_VRING_KICK, _CALL, _ERR.
  static vhost::Message ring_fd(vhost::Request request, std::uint32_t index, UniqueFd fd);
  vhost::Message mem_table() const { return mem_table({0}); }
  /// SET_MEM_TABLE with these regions of the guest.
  vhost::Message mem_table(const std::vector<std::size_t>& regions) const;
  vhost::MemoryRegion region(std::size_t index) const;
  static vhost::Message addresses(std::uint32_t index, const virtio::RingConfig& ring,
                                  const FakeGuest& guest, std::uint32_t flags = 0,
                                  std::uint64_t log = 0);

  // --- Whole steps; false if any message was refused ---
  /// SET_OWNER and all protocol features.
  bool greet();
  /// greet(), SET_FEATURES, SET_MEM_TABLE.
  bool negotiate(std::uint64_t features);
  /// CALL, NUM, BASE, ADDR, KICK; `base` as SET_VRING_BASE carries it.
  bool start_ring(std::uint32_t index, const RawDriver& driver, std::uint32_t base);
  bool enable(std::uint32_t index, bool on = true);
  /// GET_VRING_BASE. Nothing: refused.
  std::optional<std::uint32_t> stop_ring(std::uint32_t index);

  FakeGuest guest;
  FakeDevice device;
  std::shared_ptr<vhost::RingRecords> records;
  std::optional<vhost::Backend> backend;
  TestEvent call;
  TestEvent kick;
};

}  // namespace sluice::test
