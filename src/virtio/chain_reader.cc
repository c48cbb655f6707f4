// Walking chains and indirect tables.
#include "virtio/chain_reader.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace sluice::virtio {

using memory::GuestAddress;

Status ChainReader::add(std::uint64_t address, std::uint32_t length, bool writable) {
  if (writable) {
    writable_seen_ = true;
  } else if (writable_seen_) {
    // Virtio 1.3, 2.7.4.2: device-readable parts come first.
    return fail(ErrorCode::kRingCorrupt, "a readable descriptor follows a writable one");
  }
  bytes_ += length;
  if (bytes_ > std::numeric_limits<std::uint32_t>::max()) {
    return fail(ErrorCode::kRingCorrupt, "a chain is longer than 2^32 bytes");
  }
  if (length == 0 && memory_.translate(GuestAddress(address), 0, hint_) == nullptr) {
    return fail(ErrorCode::kBadAddress, "an empty descriptor points outside shared memory");
  }
  while (length > 0) {
    const std::uint64_t here = memory_.contiguous(GuestAddress(address));
    const auto piece = static_cast<std::uint32_t>(std::min<std::uint64_t>(here, length));
    std::byte* const data = memory_.translate(GuestAddress(address), piece, hint_);
    if (piece == 0 || data == nullptr) {
      return fail(ErrorCode::kBadAddress, "a descriptor points outside shared memory");
    }
    if (arena_.count - first_ == kChainSegmentsMax || arena_.count == SegmentArena::kSize) {
      return fail(ErrorCode::kRingCorrupt, "a chain has more than 1024 segments");
    }
    arena_.segments[arena_.count++] = Segment{data, piece};
    if (!writable) ++readable_;
    address += piece;
    length -= piece;
  }
  return {};
}

Status ChainReader::check_table(std::uint64_t address, std::uint32_t bytes) const {
  if (bytes == 0 || bytes % sizeof(virtq_desc) != 0) {
    return fail(ErrorCode::kRingCorrupt, "an indirect table's length is not a multiple of 16",
                bytes);
  }
  if (bytes / sizeof(virtq_desc) > kChainSegmentsMax) {
    return fail(ErrorCode::kRingCorrupt, "an indirect table has more than 1024 entries", bytes);
  }
  if (address + bytes < address) {
    return fail(ErrorCode::kBadAddress, "an indirect table wraps the address space");
  }
  return {};
}

// An entry is copied once and only the copy is used. It may straddle regions like any buffer.
Status ChainReader::read_entry(std::uint64_t address, std::span<std::byte, 16> out) {
  if (std::byte* const whole = memory_.translate(GuestAddress(address), out.size(), hint_)) {
    if (std::bit_cast<std::uintptr_t>(whole) % 8 == 0) {
      const auto words = memory::shared_at<std::array<std::uint64_t, 2>>(whole)->snapshot();
      std::memcpy(out.data(), words.data(), out.size());
      return {};
    }
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = std::byte{memory::shared_at<std::uint8_t>(whole + i)->snapshot()};
    }
    return {};
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::byte* const place = memory_.translate(GuestAddress(address + i), 1, hint_);
    if (place == nullptr) {
      return fail(ErrorCode::kBadAddress, "an indirect table lies outside shared memory");
    }
    out[i] = std::byte{memory::shared_at<std::uint8_t>(place)->snapshot()};
  }
  return {};
}

Status ChainReader::add_split_table(std::uint64_t address, std::uint32_t bytes) {
  TRY(check_table(address, bytes));
  const std::uint32_t entries = bytes / static_cast<std::uint32_t>(sizeof(virtq_desc));
  std::uint32_t index = 0;
  // Its own hop count, independent of the outer chain's (IND-06).
  for (std::uint32_t hops = 0; hops < entries; ++hops) {
    std::array<std::byte, 16> raw;
    TRY(read_entry(address + index * sizeof(virtq_desc), raw));
    const auto entry = std::bit_cast<virtq_desc>(raw);
    if ((entry.flags & kDescIndirect) != 0) {
      return fail(ErrorCode::kRingCorrupt, "an indirect table refers to another one");
    }
    TRY(add(entry.addr, entry.len, (entry.flags & kDescWrite) != 0));
    if ((entry.flags & kDescNext) == 0) return {};
    index = entry.next;
    if (index >= entries) {
      return fail(ErrorCode::kRingCorrupt, "an indirect table links outside itself", index);
    }
  }
  return fail(ErrorCode::kRingCorrupt, "an indirect table has a loop");
}

Status ChainReader::add_packed_table(std::uint64_t address, std::uint32_t bytes,
                                     bool readable_only) {
  TRY(check_table(address, bytes));
  for (std::uint32_t offset = 0; offset < bytes; offset += sizeof(pvirtq_desc)) {
    std::array<std::byte, 16> raw;
    TRY(read_entry(address + offset, raw));
    const auto entry = std::bit_cast<pvirtq_desc>(raw);
    TRY(add(entry.addr, entry.len, !readable_only && (entry.flags & kDescWrite) != 0));
  }
  return {};
}

void ChainReader::finish(Chain& chain) const {
  const std::uint32_t count = arena_.count - first_;
  chain.data = count > 0 ? arena_.segments[first_].data : nullptr;
  chain.length = count > 0 ? arena_.segments[first_].length : 0;
  chain.written = 0;
  chain.first_segment = static_cast<std::uint16_t>(first_);
  chain.segment_count = static_cast<std::uint16_t>(count);
  chain.readable_count = static_cast<std::uint16_t>(readable_);
}

}  // namespace sluice::virtio
