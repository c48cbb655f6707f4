// Fuzz target: ten bytes of offload marks and a frame. What is consistent must be done in bounds,
// and right by a slow reference; what is cut must give the payload back.
#include "packet/offload.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "support/frame_builder.h"

namespace {

using namespace sluice::packet;
using sluice::test::slow_sum;

using Frame = std::vector<std::byte>;

void require(bool promise) {
  if (!promise) std::abort();
}

// The sum with the new checksum and what the field held before is all ones. (Not where the field
// lies at an odd place, where no protocol has one.)
void check_completion(Frame frame, const Offload& offload) {
  const std::size_t field = std::size_t{offload.csum_start} + offload.csum_offset;
  const std::uint16_t before = slow_sum(std::span(frame).subspan(field, 2));
  complete_checksum(frame, offload);
  if (offload.csum_offset % 2 != 0) return;
  require(slow_sum(std::span(frame).subspan(offload.csum_start), before) == 0xFFFF);
}

std::uint16_t transport_sum(std::span<const std::byte> segment, const Headers& headers) {
  const auto length = static_cast<std::uint32_t>(segment.size() - headers.transport_at);
  std::uint16_t sum = slow_sum(segment.subspan(headers.addresses_at(), headers.addresses_size()));
  const std::byte tail[8] = {std::byte{0},
                             static_cast<std::byte>(length >> 16),
                             static_cast<std::byte>(length >> 8 & 0xFF),
                             static_cast<std::byte>(length & 0xFF),
                             std::byte{0},
                             std::byte{0},
                             std::byte{0},
                             static_cast<std::byte>(headers.ip_protocol)};
  sum = slow_sum(tail, sum);
  return slow_sum(segment.subspan(headers.transport_at), sum);
}

void check_segment(std::span<const std::byte> segment, const Headers& whole) {
  const Headers headers = parse_headers(segment);
  require(headers.network == whole.network && headers.transport == whole.transport);
  require(headers.payload_at == whole.payload_at);
  if (headers.network == Network::kIpv4) {
    require(slow_sum(segment.subspan(headers.network_at,
                                     headers.transport_at - headers.network_at)) == 0xFFFF);
  }
  require(transport_sum(segment, headers) == 0xFFFF);
}

void check_segmentation(const Frame& frame, const Offload& offload) {
  Segmenter segmenter(frame, offload);
  require(segmenter.valid() == (segmenter.count() != 0));
  require(segmenter.count() <= Segmenter::kSegmentsMax);
  const Headers headers = parse_headers(frame);
  Frame out(segmenter.longest());
  Frame payload;
  std::uint32_t count = 0;
  while (const std::uint32_t length = segmenter.next(out)) {
    require(length <= out.size() && ++count <= segmenter.count());
    check_segment(std::span(out).first(length), headers);
    payload.insert(payload.end(), out.begin() + headers.payload_at, out.begin() + length);
  }
  require(count == segmenter.count());
  if (!segmenter.valid()) return;
  require(
      std::equal(payload.begin(), payload.end(), frame.begin() + headers.payload_at, frame.end()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Offload offload;
  if (size < sizeof offload) return 0;
  std::memcpy(&offload, data, sizeof offload);
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(sizeof offload);
  const Frame frame(bytes.begin(), bytes.end());
  if (!offload_is_consistent(offload, static_cast<std::uint32_t>(frame.size()))) return 0;
  if (offload.gso_type != 0) {
    check_segmentation(frame, offload);
  } else if ((offload.flags & kOffloadNeedsChecksum) != 0) {
    check_completion(frame, offload);
  }
  return 0;
}
