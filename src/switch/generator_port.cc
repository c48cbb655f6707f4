// Building the generator's frames, and handing out views of them.
#include "switch/generator_port.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "net/transport.h"

namespace sluice::fabric {

namespace {

using packet::Packet;

// An odd number of cache lines: frames a power of two apart would share few cache sets (DESIGN
// section 4).
std::size_t stride_of(std::uint32_t size) {
  const std::size_t lines = (size + kCacheLine - 1) / kCacheLine;
  return (lines | 1) * kCacheLine;
}

std::size_t frames_of(std::uint32_t size) {
  return std::clamp<std::size_t>(GeneratorPort::kPoolBytes / stride_of(size), 8,
                                 GeneratorPort::kFramesMax);
}

std::uint32_t longest_of(const GeneratorOptions& options) {
  return options.imix ? std::ranges::max(kImixSizes) : options.size;
}

void put_be16(std::span<std::byte> out, std::size_t at, std::uint32_t value) {
  out[at] = static_cast<std::byte>(value >> 8);
  out[at + 1] = static_cast<std::byte>(value);
}

std::uint32_t header_sum(std::span<const std::byte> header) {
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i + 1 < header.size(); i += 2) {
    sum += std::to_integer<std::uint32_t>(header[i]) << 8;
    sum += std::to_integer<std::uint32_t>(header[i + 1]);
  }
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return ~sum & 0xffff;
}

constexpr std::size_t kIpAt = 14;
constexpr std::size_t kUdpAt = kIpAt + 20;
constexpr std::size_t kPayloadAt = kUdpAt + 8;

// IPv4 and UDP between addresses that RFC 2544 sets aside for benchmarks; UDP without checksum.
void write_ip_udp(std::span<std::byte> frame) {
  constexpr std::array<unsigned char, 20> kIp = {0x45, 0, 0,   0,  0, 0, 0,   0,  64, 17,
                                                 0,    0, 198, 18, 0, 1, 198, 18, 0,  2};
  std::memcpy(frame.data() + kIpAt, kIp.data(), kIp.size());
  put_be16(frame, kIpAt + 2, static_cast<std::uint32_t>(frame.size() - kIpAt));
  put_be16(frame, kIpAt + 10, header_sum(frame.subspan(kIpAt, kIp.size())));
  put_be16(frame, kUdpAt, 9);
  put_be16(frame, kUdpAt + 2, 9);  // "discard"
  put_be16(frame, kUdpAt + 4, static_cast<std::uint32_t>(frame.size() - kUdpAt));
}

void write_frame(std::span<std::byte> frame, std::uint32_t number) {
  constexpr std::array<unsigned char, 14> kEthernet = {0x02, 0,   0, 0, 0, 2,  // To.
                                                       0x02, 0,   0, 0, 0, 1,  // From.
                                                       0x88, 0xb5};            // Experimental.
  std::memcpy(frame.data(), kEthernet.data(), kEthernet.size());
  if (frame.size() < kPayloadAt) return;
  put_be16(frame, 12, 0x0800);
  write_ip_udp(frame);
  if (frame.size() >= kPayloadAt + sizeof number) {
    std::memcpy(frame.data() + kPayloadAt, &number, sizeof number);
  }
}

}  // namespace

Result<std::unique_ptr<GeneratorPort>> GeneratorPort::create(const GeneratorOptions& options) {
  if (options.size < kSizeMin || options.size > kSizeMax) {
    return fail(ErrorCode::kOutOfRange, "generator: size is outside 14..65549", options.size);
  }
  if (options.queues < 1 || options.queues > net::kQueuePairsMax) {
    return fail(ErrorCode::kOutOfRange, "generator: queues is outside 1..127", options.queues);
  }
  const std::uint32_t longest = longest_of(options);
  auto pool = TRY(memory::Mapping::create_private(frames_of(longest) * stride_of(longest)));
  return std::make_unique<GeneratorPort>(Passkey{}, options, std::move(pool));
}

GeneratorPort::GeneratorPort(Passkey, const GeneratorOptions& options, memory::Mapping pool)
    : name_(options.name),
      pool_(std::move(pool)),
      frames_(frames_of(longest_of(options))),
      queues_(options.queues),
      swallow_(false, options.queues) {
  if (options.imix) frames_.resize(frames_.size() / kImixSizes.size() * kImixSizes.size());
  const std::size_t stride = stride_of(longest_of(options));
  for (std::size_t i = 0; i < frames_.size(); ++i) {
    const std::uint32_t size = options.imix ? kImixSizes[i % kImixSizes.size()] : options.size;
    const auto bytes = pool_.bytes().subspan(i * stride, size);
    write_frame(bytes, static_cast<std::uint32_t>(i));
    frames_[i] = packet::linear_packet(bytes);
  }
}

std::size_t GeneratorPort::receive(std::uint16_t q, packet::Burst& burst) {
  Queue& queue = queues_[q];
  burst.clear();
  for (std::size_t have = 0; have < packet::kBurstMax;) {
    const std::size_t run = std::min(packet::kBurstMax - have, frames_.size() - queue.next);
    std::copy_n(frames_.begin() + static_cast<std::ptrdiff_t>(queue.next), run,
                burst.packets.begin() + static_cast<std::ptrdiff_t>(have));
    have += run;
    queue.next = queue.next + run == frames_.size() ? 0 : queue.next + run;
  }
  burst.count = packet::kBurstMax;
  queue.made.packets.add(packet::kBurstMax);
  std::uint64_t bytes = 0;
  for (const Packet& packet : burst.packets) bytes += packet.length;
  queue.made.bytes.add(bytes);
  queue.made.bursts.add();
  return packet::kBurstMax;
}

}  // namespace sluice::fabric
