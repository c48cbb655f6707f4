// Checks of offload marks, and the work they ask for.
#include "packet/offload.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "packet/bytes.h"
#include "packet/checksum.h"

namespace sluice::packet {

namespace {

// Offsets into the transport headers.
constexpr std::uint32_t kTcpSequenceAt = 4;
constexpr std::uint32_t kTcpFlagsAt = 13;
constexpr std::uint32_t kTcpChecksumAt = 16;
constexpr std::uint32_t kTcpUrgentAt = 18;
constexpr std::uint32_t kUdpLengthAt = 4;
constexpr std::uint32_t kUdpChecksumAt = 6;

constexpr std::uint8_t kTcpFin = 0x01;
constexpr std::uint8_t kTcpSyn = 0x02;
constexpr std::uint8_t kTcpRst = 0x04;
constexpr std::uint8_t kTcpPsh = 0x08;
constexpr std::uint8_t kTcpUrg = 0x20;
constexpr std::uint8_t kTcpCwr = 0x80;

std::uint8_t type_of(const Offload& offload) {
  return static_cast<std::uint8_t>(offload.gso_type & ~kGsoEcn);
}

bool is_known_gso(std::uint8_t gso_type) {
  switch (gso_type) {
    case kGsoTypeTcpIpv4:
    case kGsoTypeTcpIpv4 | kGsoEcn:
    case kGsoTypeTcpIpv6:
    case kGsoTypeTcpIpv6 | kGsoEcn:
    case kGsoTypeUdpFragments:
    case kGsoTypeUdpSegments: return true;
    default: return false;
  }
}

bool kinds_match(std::uint8_t type, const Headers& headers) {
  switch (type) {
    case kGsoTypeTcpIpv4:
      return headers.network == Network::kIpv4 && headers.transport == Transport::kTcp;
    case kGsoTypeTcpIpv6:
      return headers.network == Network::kIpv6 && headers.transport == Transport::kTcp;
    case kGsoTypeUdpSegments: return headers.transport == Transport::kUdp;
    default: return false;
  }
}

}  // namespace

bool offload_is_consistent(const Offload& offload, std::uint32_t frame_length) {
  const bool checksum = (offload.flags & kOffloadNeedsChecksum) != 0;
  if (checksum) {
    const std::uint64_t end =
        std::uint64_t{offload.csum_start} + offload.csum_offset + sizeof(std::uint16_t);
    if (offload.csum_start < kEthernetHeaderSize || end > frame_length) return false;
  }
  if (offload.gso_type == 0) return true;
  return checksum && offload.gso_size != 0 && is_known_gso(offload.gso_type);
}

void complete_checksum(std::span<std::byte> frame, const Offload& offload) {
  const std::size_t field = std::size_t{offload.csum_start} + offload.csum_offset;
  checksum_store(frame, field, checksum_transport(frame.subspan(offload.csum_start)));
}

Segmenter::Segmenter(std::span<const std::byte> frame, const Offload& offload)
    : frame_(frame), headers_(parse_headers(frame)), header_size_(headers_.payload_at) {
  if (!accepts(offload)) return;
  const auto payload = static_cast<std::uint32_t>(frame.size()) - header_size_;
  step_ = std::min<std::uint32_t>(offload.gso_size, payload);
  // Headers alone are one segment, as they were before.
  const std::uint32_t count = payload == 0 ? 1 : (payload + step_ - 1) / step_;
  if (count <= kSegmentsMax && lengths_fit()) count_ = count;
}

// IP and UDP have 16 bits for a length. Only a frame that stays (nearly) whole can exceed them.
bool Segmenter::lengths_fit() const {
  std::uint32_t counted = header_size_ + step_ - headers_.network_at;
  if (headers_.network == Network::kIpv6) counted -= std::uint32_t{kIpv6HeaderSize};
  return counted <= std::numeric_limits<std::uint16_t>::max();
}

bool Segmenter::accepts(const Offload& offload) const {
  if (frame_.size() > kFrameMax || offload.gso_size == 0) return false;
  if (!kinds_match(type_of(offload), headers_) || headers_.source_routed) return false;
  if (header_size_ > kHeadersMax) return false;
  const bool tcp = headers_.transport == Transport::kTcp;
  // The mark and the bytes must speak of the same header.
  if (offload.csum_start != headers_.transport_at ||
      offload.csum_offset != (tcp ? kTcpChecksumAt : kUdpChecksumAt)) {
    return false;
  }
  if (!tcp) return true;
  const auto flags = std::to_integer<std::uint8_t>(frame_[headers_.transport_at + kTcpFlagsAt]);
  return (flags & (kTcpSyn | kTcpRst)) == 0;
}

std::uint32_t Segmenter::next(std::span<std::byte> out) {
  if (index_ == count_) return 0;
  CHECK(out.size() >= longest(), "the scratch frame holds the longest segment");
  const Piece piece{index_ * step_, index_ == 0, index_ + 1 == count_};
  ++index_;
  const auto left = static_cast<std::uint32_t>(frame_.size()) - header_size_ - piece.offset;
  const std::uint32_t length = header_size_ + std::min(step_, left);
  const std::span<std::byte> segment = out.first(length);
  std::ranges::copy(frame_.first(header_size_), segment.begin());
  std::ranges::copy(frame_.subspan(header_size_ + piece.offset, length - header_size_),
                    segment.begin() + header_size_);
  finish_network(segment);

  const std::uint32_t transport_length = length - headers_.transport_at;
  const std::span<std::byte> transport = segment.subspan(headers_.transport_at);
  std::uint32_t checksum_at = kTcpChecksumAt;
  if (headers_.transport == Transport::kTcp) {
    finish_tcp(transport, piece);
  } else {
    checksum_at = kUdpChecksumAt;
    store_big(transport, kUdpLengthAt, static_cast<std::uint16_t>(transport_length));
  }
  // The sum that the sender left in the field is made for the whole frame's length.
  checksum_store(transport, checksum_at, 0);
  const ChecksumSum pseudo = checksum_pseudo(segment, headers_, transport_length);
  checksum_store(transport, checksum_at, checksum_transport(transport, pseudo));
  return length;
}

void Segmenter::finish_network(std::span<std::byte> segment) const {
  const std::span<std::byte> network = segment.subspan(headers_.network_at);
  if (headers_.network == Network::kIpv6) {
    store_big(network, 4, static_cast<std::uint16_t>(network.size() - kIpv6HeaderSize));
    return;
  }
  store_big(network, 2, static_cast<std::uint16_t>(network.size()));
  const auto identification = load_big<std::uint16_t>(network, 4);
  store_big(network, 4, static_cast<std::uint16_t>(identification + index_ - 1));
  checksum_ipv4_header(network.first(headers_.transport_at - headers_.network_at));
}

void Segmenter::finish_tcp(std::span<std::byte> transport, const Piece& piece) const {
  const auto sequence = load_big<std::uint32_t>(transport, kTcpSequenceAt);
  store_big(transport, kTcpSequenceAt, sequence + piece.offset);
  auto flags = load_big<std::uint8_t>(transport, kTcpFlagsAt);
  if (!piece.last) flags &= static_cast<std::uint8_t>(~(kTcpFin | kTcpPsh));
  if (!piece.first) flags &= static_cast<std::uint8_t>(~kTcpCwr);
  if ((flags & kTcpUrg) != 0) {
    const auto urgent = load_big<std::uint16_t>(transport, kTcpUrgentAt);
    const bool ahead = urgent > piece.offset;
    if (!ahead && !piece.first) flags &= static_cast<std::uint8_t>(~kTcpUrg);
    store_big(transport, kTcpUrgentAt,
              static_cast<std::uint16_t>(ahead ? urgent - piece.offset : 0));
  }
  store_big(transport, kTcpFlagsAt, flags);
}

}  // namespace sluice::packet
