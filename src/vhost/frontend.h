// Frontend: the driver's end of a vhost-user session; it leads a back-end through start, stop,
// restart of one ring and reset.
//
// Every request waits for its outcome: where REPLY_ACK was negotiated each message asks for an
// acknowledgement, so a refusal is known at the message that was refused. Every wait has a
// deadline. Every reply is checked for request number, reply flag and size, and nothing in it is
// trusted further. A back-end that closes the socket has refused what it was just told.
// While waiting, the back-end's own channel is served, so that neither end waits for the other.
//
// Order of a start, which every back-end we know accepts: SET_VRING_CALL of all
// rings, SET_FEATURES, FEATURES_OK read back, memory; then for each ring NUM, BASE, ADDR and KICK
// last; then ENABLE; then DRIVER_OK.
//
// After an error of kTimeout, kClosed or kProtocol the session is over: connected() is false and
// every further call answers kClosed.
//
// Threads: one at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/unique_fd.h"
#include "memory/mapping.h"
#include "net/driver_transport.h"
#include "virtio/features.h"
#include "virtio/ring.h"

namespace sluice::vhost {

struct FrontendOptions {
  std::string path;                           // Of the Unix socket.
  bool server = false;                        // We listen, the back-end connects.
  std::chrono::milliseconds timeout{10'000};  // For each answer of the back-end.
  /// Protocol features to use if offered; those that we do not implement are never used.
  std::uint64_t protocol_features = ~std::uint64_t{0};
};

class Frontend final : public net::DriverTransport {
 public:
  /// Speaks over a stream socket that is connected already.
  [[nodiscard]] static Result<std::unique_ptr<Frontend>> adopt(UniqueFd socket,
                                                               const FrontendOptions& options);
  ~Frontend() override;

  // net::DriverTransport
  [[nodiscard]] Result<net::DeviceOffer> offer() override;
  Status start(const net::DeviceStart& start) override;
  Status start_queue(const net::RingSetup& ring) override;
  Result<virtio::RingPosition> stop_queue(net::QueueIndex queue) override;
  Status enable_queue(net::QueueIndex queue, bool enabled) override;
  Status reset() override;
  Result<std::size_t> read_config(std::uint32_t offset, std::span<std::byte> out) override;
  Status set_mtu(std::uint16_t mtu) override;
  [[nodiscard]] bool connected() override;
  [[nodiscard]] std::uint64_t config_changes() override;

  /// Shares exactly these regions from now on; regions shared before stay shared without gap.
  /// Errors: kOutOfRange if the back-end has fewer slots.
  Status set_memory(std::span<const net::SharedRegion> regions);
  Status write_config(std::uint32_t offset, std::span<const std::byte> data);
  Status send_rarp(std::span<const std::byte, 6> mac);

  /// Dirty logging into `size` bytes at `offset` of `fd`; then on or off while rings run.
  Status set_log(int fd, std::uint64_t offset, std::uint64_t size);
  Status set_logging(bool on);

  /// The in-flight region of the back-end, to be handed to its successor.
  struct Inflight {
    UniqueFd fd;
    std::uint64_t size = 0;
    std::uint64_t offset = 0;
    std::uint16_t queues = 0;
    std::uint16_t queue_size = 0;
  };
  [[nodiscard]] Result<Inflight> get_inflight(std::uint16_t queues, std::uint16_t queue_size);
  Status set_inflight(const Inflight& inflight);

  /// The device status register. Errors: kNotNegotiated.
  [[nodiscard]] Result<std::uint8_t> status();
  /// Protocol features in use; valid after offer().
  [[nodiscard]] std::uint64_t protocol_features() const;

 private:
  class Session;
  explicit Frontend(std::unique_ptr<Session> session);
  std::unique_ptr<Session> session_;
};

/// Where front-ends come from: connects, or listens and accepts, as often as it is asked. For
/// reconnecting: a back-end that is gone is followed by the next one.
class FrontendSource {
 public:
  /// Server: binds and listens at once. Errors: kExists if another process listens there.
  [[nodiscard]] static Result<FrontendSource> create(const FrontendOptions& options);
  FrontendSource(FrontendSource&&) noexcept;
  FrontendSource& operator=(FrontendSource&&) noexcept;
  ~FrontendSource();

  /// Waits up to `wait` for a back-end. Errors: kTimeout if none came.
  [[nodiscard]] Result<std::unique_ptr<Frontend>> next(std::chrono::milliseconds wait);

 private:
  struct State;
  explicit FrontendSource(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace sluice::vhost
