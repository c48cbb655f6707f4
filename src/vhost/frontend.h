// Frontend: the driver's end of a vhost-user session; it leads a back-end through start, stop,
// restart of one ring and reset.
//
// Every request waits for its outcome, up to a deadline (vhost/frontend_channel.h), so a refusal is
// known at the request that was refused: kPermission, with the request's number as `detail`.
//
// Order of a start, which every back-end we know accepts: SET_VRING_CALL of all
// rings, SET_FEATURES, FEATURES_OK read back, memory; then for each ring NUM, BASE, ADDR and KICK
// last; then ENABLE; then DRIVER_OK.
//
// The back-end is hostile: answers are checked for number, flag and size, and what they say is
// bounded. After kTimeout, kClosed or kProtocol the session is over: connected() is false and every
// further call answers kClosed.
//
// Threads: one at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/unique_fd.h"
#include "memory/guest_memory.h"
#include "net/driver_transport.h"
#include "vhost/frontend_channel.h"
#include "vhost/protocol.h"
#include "virtio/features.h"
#include "virtio/ring.h"

namespace sluice::vhost {

struct FrontendOptions {
  std::chrono::milliseconds timeout{10'000};  // For each answer of the back-end.
  /// Protocol features to use if offered; those that we do not implement are never used.
  std::uint64_t protocol_features = ~std::uint64_t{0};
};

class Frontend final : public net::DriverTransport {
 public:
  /// Protocol features that this end implements.
  static constexpr std::uint64_t kProtocolFeatures =
      bit(ProtocolFeature::kMq) | bit(ProtocolFeature::kLogShmfd) | bit(ProtocolFeature::kRarp) |
      bit(ProtocolFeature::kReplyAck) | bit(ProtocolFeature::kNetMtu) |
      bit(ProtocolFeature::kBackendReq) | bit(ProtocolFeature::kConfig) |
      bit(ProtocolFeature::kInflightShmfd) | bit(ProtocolFeature::kResetDevice) |
      bit(ProtocolFeature::kConfigureMemSlots) | bit(ProtocolFeature::kStatus);

  /// Speaks over a connected stream socket (vhost/frontend_source.h gets one).
  [[nodiscard]] static Result<std::unique_ptr<Frontend>> adopt(UniqueFd socket,
                                                               const FrontendOptions& options);
  Frontend(FrontendChannel channel, const FrontendOptions& options)
      : channel_(std::move(channel)), wish_(options.protocol_features & kProtocolFeatures) {}

  // net::DriverTransport
  [[nodiscard]] Result<net::DeviceOffer> offer() override;
  Status start(const net::DeviceStart& start) override;
  /// With CONFIGURE_MEM_SLOTS, regions that stay are left alone. Without, the whole table is sent
  /// anew: vhost-user allows it while rings run, and back-ends pause them for it.
  Status set_memory(std::span<const net::SharedRegion> regions) override;
  Status start_queue(const net::RingSetup& ring) override;
  Result<virtio::RingPosition> stop_queue(net::QueueIndex queue) override;
  Status enable_queue(net::QueueIndex queue, bool enabled) override;
  Status reset() override;
  Result<std::size_t> read_config(std::uint32_t offset, std::span<std::byte> out) override;
  Status set_mtu(std::uint16_t mtu) override;
  [[nodiscard]] bool connected() override { return channel_.poll_now(); }
  [[nodiscard]] std::uint64_t config_changes() override;

  Status write_config(std::uint32_t offset, std::span<const std::byte> data);
  Status send_rarp(std::span<const std::byte, 6> mac);

  /// Dirty logging into `size` bytes at `offset` of `fd`; then on or off while rings run.
  /// Errors: kNotNegotiated without LOG_SHMFD; kWrongState for set_logging() before set_log().
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

  /// A second descriptor of the session's socket: shutdown(2) on it ends whatever call waits for
  /// the back-end. Errors: kClosed.
  [[nodiscard]] Result<UniqueFd> duplicate_socket() const { return channel_.duplicate_socket(); }
  /// The device status register. Errors: kNotNegotiated.
  [[nodiscard]] Result<std::uint8_t> status();
  /// Protocol features in use; valid after offer().
  [[nodiscard]] std::uint64_t protocol_features() const { return protocol_; }

 private:
  struct SharedFile {  // A region that the back-end has, and the file behind it.
    memory::RegionRecord record;
    std::uint64_t device = 0;
    std::uint64_t inode = 0;
    friend bool operator==(const SharedFile&, const SharedFile&) = default;
  };

  Status negotiate_protocol();
  Status open_back_channel();
  [[nodiscard]] Result<std::uint16_t> ask_queue_pairs();
  Status require(ProtocolFeature feature);
  Status set_status(std::uint8_t status);
  Status begin_status();
  Status send_features();
  Status check_features_ok();
  Status send_vring_fd(Request request, const net::RingSetup& ring, const EventFd* event);
  Status send_ring(const net::RingSetup& ring);
  Status send_address(const net::RingSetup& ring);
  Status send_enable(net::QueueIndex queue, bool enabled);
  Status send_table(std::span<const net::SharedRegion> regions);
  Status send_slots(std::span<const net::SharedRegion> regions);
  Status remove_regions();
  [[nodiscard]] static Result<SharedFile> identify(const net::SharedRegion& region);
  [[nodiscard]] Result<std::uint64_t> guest_address(memory::UserAddress address) const;

  FrontendChannel channel_;
  std::uint64_t wish_;
  std::optional<net::DeviceOffer> offer_;  // Once asked.
  virtio::FeatureSet transport_offer_;     // Offered bits that are not the driver's business.
  std::uint64_t protocol_ = 0;             // In use.
  std::uint64_t slots_ = kTableRegionsMax;
  virtio::FeatureSet features_;  // The driver's, as sent last.
  std::uint8_t status_ = 0;      // As written last.
  bool log_set_ = false;
  bool logging_ = false;
  std::vector<SharedFile> regions_;
  std::map<net::QueueIndex, net::RingSetup> running_;
};

}  // namespace sluice::vhost
