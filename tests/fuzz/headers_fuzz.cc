// Fuzz target: any bytes as a frame. parse_headers() must keep every promise that Headers makes.
#include "packet/headers.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "packet/packet.h"

namespace {

using namespace sluice::packet;

void require(bool promise) {
  if (!promise) std::abort();
}

void check_offsets(const Headers& headers, std::size_t size) {
  require(headers.network_at <= headers.transport_at);
  require(headers.transport_at <= headers.payload_at && headers.payload_at <= size);
  require(headers.vlan_tags <= kVlanTagsMax);
}

void check_kinds(const Headers& headers, std::size_t size) {
  const std::size_t transport = headers.payload_at - headers.transport_at;
  if (headers.network == Network::kNone) {
    require(headers.transport == Transport::kNone && headers.payload_at == headers.network_at);
  } else {
    require(headers.addresses_at() + headers.addresses_size() <= size);
  }
  if (headers.transport == Transport::kNone) require(transport == 0);
  if (headers.transport == Transport::kUdp) require(transport == kUdpHeaderSize);
  if (headers.transport == Transport::kTcp) require(transport >= kTcpHeaderSize);
  if (headers.transport == Transport::kTcp) require(transport <= 60 && transport % 4 == 0);
  if (headers.fragment) require(headers.transport == Transport::kNone);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto frame = std::as_bytes(std::span(data, size));
  const Headers headers = parse_headers(frame);
  if (size < kEthernetHeaderSize) {
    require(headers.payload_at == 0 && headers.network == Network::kNone);
    return 0;
  }
  check_offsets(headers, size);
  check_kinds(headers, size);
  // The headers are all that parsing may look at.
  const Headers again = parse_headers(frame.first(headers.payload_at));
  require(again.payload_at == headers.payload_at && again.transport == headers.transport);
  require(flow_hash(frame, headers) == flow_hash(frame.first(headers.payload_at), headers));
  return 0;
}
