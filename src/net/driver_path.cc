// Bursts of packets from and to the queues of a driver.
#include "net/driver_path.h"

#include <algorithm>
#include <cstring>

#include "base/cache_line.h"
#include "packet/copy.h"
#include "packet/offload.h"
#include "virtio/spec.h"

namespace sluice::net {

// --- Receive -------------------------------------------------------------------------------------

DriverReceivePath::DriverReceivePath(const DriverQueueStart& start, DirectionCounters& counters)
    : queue_(DriverReceiveQueue::make(start)),
      rules_(OffloadRules::to_driver(start.features)),
      counters_(&counters) {}

std::size_t DriverReceivePath::take(packet::Burst& burst) {
  burst.clear();
  std::size_t count = queue_.receive(std::span(frames_).first(packet::kBurstMax));
  if (count == 0) return 0;
  // The burst's end may cut a merged packet. Its other buffers are there already (NET-06), unless
  // the device is at fault.
  if (const std::size_t missing = frames_[count - 1].continues; missing != 0) [[unlikely]] {
    count += queue_.receive(std::span(frames_).subspan(count, std::min(missing, kDriverBurstMax)));
  }
  const std::span<const DriverFrame> frames = std::span(frames_).first(count);
  // Buffers of a packet that was dropped because they had not come with it.
  const std::size_t late = std::min(rest_, count);
  rest_ -= late;
  const std::uint32_t packets = build_all(frames.subspan(late), burst);
  std::uint64_t bytes = 0;
  for (std::uint32_t i = 0; i < burst.count; ++i) bytes += burst.packets[i].length;
  counters_->packets.add(packets);
  counters_->bytes.add(bytes);
  counters_->bursts.add(packets != 0 ? 1 : 0);
  if (burst.count == 0) release();
  return burst.count;
}

void DriverReceivePath::release() {
  queue_.repost();
}

std::size_t DriverReceivePath::recall() {
  std::size_t count = 0;
  queue_.recall([&count](std::uint32_t) { ++count; });
  rest_ = 0;
  return count;
}

// Makes packets of complete rows of buffers. Returns how many packets there were, good and bad.
std::uint32_t DriverReceivePath::build_all(std::span<const DriverFrame> frames,
                                           packet::Burst& burst) {
  std::uint32_t packets = 0;
  for (std::size_t i = 0; i < frames.size();) {
    const std::size_t parts = std::size_t{1} + frames[i].continues;
    ++packets;
    if (parts > frames.size() - i) [[unlikely]] {
      rest_ = parts - (frames.size() - i);
      drop(DropCause::kShortChain);
      break;
    }
    packet::Packet& packet = burst.packets[burst.count];
    if (build(frames.subspan(i, parts), burst, packet)) ++burst.count;
    i += parts;
  }
  return packets;
}

bool DriverReceivePath::build(std::span<const DriverFrame> parts, packet::Burst& burst,
                              packet::Packet& packet) {
  std::uint64_t total = 0;
  for (const DriverFrame& part : parts) total += part.length;
  if (total < packet::kEthernetHeaderSize) return drop(DropCause::kShortChain);
  if (total > packet::kFrameMax) return drop(DropCause::kTooLong);
  packet.data = parts[0].data;
  packet.length = static_cast<std::uint32_t>(total);
  packet.first_length = parts[0].length;
  packet.more_first = static_cast<std::uint16_t>(burst.more_count);
  packet.more_count = static_cast<std::uint16_t>(parts.size() - 1);
  packet.offload = parts[0].offload;
  if (packet.first_length >= packet::kHeadSize) [[likely]] {
    std::memcpy(packet.head.data(), packet.data, packet::kHeadSize);
  } else {
    packet.head = {};
    std::size_t have = 0;
    for (const DriverFrame& part : parts) {
      const std::size_t peek = std::min<std::size_t>(packet::kHeadSize - have, part.length);
      std::memcpy(packet.head.data() + have, part.data, peek);
      have += peek;
    }
  }
  // Room is guaranteed: a burst has fewer buffers than Burst::more has places.
  static_assert(packet::Burst::kMoreMax >= kDriverHeldMax);
  for (const DriverFrame& part : parts.subspan(1)) {
    burst.more[burst.more_count++] = {part.data, part.length};
  }
  return rules_.accept(packet.offload, packet.length) || drop(DropCause::kBadOffload);
}

bool DriverReceivePath::drop(DropCause cause) {
  counters_->drop(cause);
  return false;
}

// --- Transmit ------------------------------------------------------------------------------------

DriverTransmitPath::DriverTransmitPath(const DriverQueueStart& start, std::uint16_t mtu,
                                       DirectionCounters& counters)
    : queue_(DriverTransmitQueue::make(start)),
      rules_(OffloadRules::from_driver(start.features)),
      frame_max_(frame_max(mtu)),
      counters_(&counters) {}

std::size_t DriverTransmitPath::deliver(const packet::Burst& burst,
                                        std::span<const packet::PacketIndex> which) {
  // All of each frame is read now; whoever made the burst looked at its first line only.
  for (const packet::PacketIndex index : which) {
    prefetch_for_read(burst.packets[index].data + kCacheLine);
  }
  dry_ = false;
  used_ = 0;
  have_ = queue_.reserve(std::span(frames_).first(which.size()));
  std::uint64_t bytes = 0;
  std::size_t delivered = 0;
  for (const packet::PacketIndex index : which) {
    const packet::Packet& packet = burst.packets[index];
    if (!deliver_one(burst, packet)) continue;
    ++delivered;
    bytes += packet.length;
  }
  submit();
  counters_->packets.add(delivered);
  counters_->bytes.add(bytes);
  counters_->bursts.add(delivered != 0 ? 1 : 0);
  return delivered;
}

std::size_t DriverTransmitPath::recall() {
  std::size_t count = 0;
  queue_.recall([&count](std::uint32_t) { ++count; });
  return count;
}

bool DriverTransmitPath::deliver_one(const packet::Burst& burst, const packet::Packet& packet) {
  if (rules_.permits(packet.offload)) [[likely]] {
    const bool whole = packet.offload.gso_type == virtio::kGsoNone;
    if (whole && packet.length > frame_max_) return drop(DropCause::kMtu);
    return place(burst, packet);
  }
  bool placed = true;
  // Counted once for the whole packet: a part that does not fit drops the rest with it.
  const auto why =
      offload_.complete(burst, packet, frame_max_, [&](std::span<const std::byte> frame) {
        return placed = place(burst, packet::linear_packet(frame));
      });
  return why ? drop(*why) : placed;
}

bool DriverTransmitPath::place(const packet::Burst& burst, const packet::Packet& packet) {
  if (used_ == have_ && !open_buffer()) {
    return drop(queue_.error() ? DropCause::kRingBroken : DropCause::kNoBuffers);
  }
  DriverFrame& frame = frames_[used_];
  if (packet.length > frame.length) return drop(DropCause::kBufferTooSmall);
  if (packet.more_count == 0 && packet.length >= packet::kHeadSize) [[likely]] {
    packet::copy_16(frame.data, packet.head.data());
    packet::copy_bytes(frame.data + packet::kHeadSize, packet.data + packet::kHeadSize,
                       packet.length - packet::kHeadSize);
  } else {
    packet::copy_frame(burst, packet, 0, std::span(frame.data, packet.length));
  }
  frame.length = packet.length;
  frame.offload = packet.offload.none() ? packet::Offload{} : packet.offload;
  ++used_;
  return true;
}

// Sees to it that frames_[used_] is a free buffer: segments may take more than one each packet.
bool DriverTransmitPath::open_buffer() {
  if (dry_) return false;
  submit();
  have_ = queue_.reserve(frames_);
  dry_ = have_ == 0;
  return !dry_;
}

void DriverTransmitPath::submit() {
  if (used_ == 0) return;
  const std::uint64_t kicks = queue_.counters().kicks.value();
  queue_.submit(std::span(frames_).first(used_));
  counters_->notifications.add(queue_.counters().kicks.value() - kicks);
  have_ = 0;
  used_ = 0;
}

bool DriverTransmitPath::drop(DropCause cause) {
  counters_->drop(cause);
  return false;
}

}  // namespace sluice::net
