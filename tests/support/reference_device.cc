// ReferenceDevice: bounds that both formats share, and the split format (virtio 1.3, 2.7).
#include "support/reference_device.h"

#include <algorithm>

namespace sluice::test {

namespace {

constexpr std::uint32_t kSegmentsMax = 1024;  // Decided by the project, see virtio/ring.h.

}  // namespace

std::optional<ReferenceChain> ReferenceDevice::take() {
  if (broken_) return std::nullopt;
  total_ = 0;
  segments_ = 0;
  ReferenceChain chain;
  if (!read_chain(chain)) return std::nullopt;
  return chain;
}

bool ReferenceDevice::add_piece(ReferenceChain& chain, const Piece& piece) {
  const bool after_writable = !chain.pieces.empty() && chain.pieces.back().writable;
  if (after_writable && !piece.writable) return fail();
  if (!guest_->contains(piece.address, piece.length)) return fail();
  total_ += piece.length;
  if (total_ > 0xffff'ffff) return fail();
  if (piece.length == 0 && !piece.writable) return true;
  // An empty writable piece still says that the writable part has begun.
  ReferenceChain one;
  one.pieces.push_back(piece);
  segments_ += static_cast<std::uint32_t>(expected_segments(*guest_, one).size());
  if (segments_ > kSegmentsMax) return fail();
  chain.pieces.push_back(piece);
  return true;
}

bool ReferenceDevice::table_valid(std::uint64_t address, std::uint32_t bytes) const {
  return bytes != 0 && bytes % 16 == 0 && bytes / 16 <= kSegmentsMax && address + bytes >= address;
}

SplitDescriptor ReferenceSplitDevice::read_descriptor(std::uint64_t address) const {
  const std::vector<std::byte> raw = guest_->get(address, 16);
  SplitDescriptor found{};
  std::memcpy(&found.addr, raw.data(), 8);
  std::memcpy(&found.len, raw.data() + 8, 4);
  std::memcpy(&found.flags, raw.data() + 12, 2);
  std::memcpy(&found.next, raw.data() + 14, 2);
  return found;
}

bool ReferenceSplitDevice::read_table(ReferenceChain& chain, const SplitDescriptor& outer) {
  ++indirect_seen_;
  if (!table_valid(outer.addr, outer.len)) return fail();
  const std::uint32_t entries = outer.len / 16;
  std::vector<bool> seen(entries, false);
  std::uint32_t index = 0;
  while (true) {
    if (index >= entries || seen[index]) return fail();
    seen[index] = true;
    const std::uint64_t address = outer.addr + 16 * std::uint64_t{index};
    if (!guest_->contains(address, 16)) return fail();
    const SplitDescriptor entry = read_descriptor(address);
    if ((entry.flags & kIndirect) != 0) return fail();
    if (!add_piece(chain, {entry.addr, entry.len, (entry.flags & kWrite) != 0})) return false;
    if ((entry.flags & kNext) == 0) return true;
    index = entry.next;
  }
}

bool ReferenceSplitDevice::read_chain(ReferenceChain& chain) {
  const std::uint16_t index = ring_.avail_index();
  const auto outstanding = static_cast<std::uint16_t>(index - used_);
  const auto fresh = static_cast<std::uint16_t>(index - avail_);
  if (outstanding > size_ || fresh > outstanding) return fail();
  if (fresh == 0) return false;
  chain.id = ring_.avail_entry(avail_ % size_);
  std::vector<bool> seen(size_, false);
  std::uint32_t at = chain.id;
  while (true) {
    if (at >= size_ || seen[at]) return fail();
    seen[at] = true;
    const SplitDescriptor descriptor = ring_.descriptor(at);
    if ((descriptor.flags & kIndirect) != 0) {
      if ((descriptor.flags & kNext) != 0) return fail();
      if (!read_table(chain, descriptor)) return false;
      break;
    }
    const bool writable = (descriptor.flags & kWrite) != 0;
    if (!add_piece(chain, {descriptor.addr, descriptor.len, writable})) return false;
    if ((descriptor.flags & kNext) == 0) break;
    at = descriptor.next;
  }
  ++avail_;
  return true;
}

void ReferenceSplitDevice::untake(const ReferenceChain& /*chain*/) {
  --avail_;
}

void ReferenceSplitDevice::give_back(const ReferenceChain& chain, std::uint32_t written) {
  ring_.set_used_entry(used_ % size_, {chain.id, written});
  ring_.set_used_index(++used_);
}

void ReferenceSplitDevice::give_back_batch(std::span<const ReferenceChain> chains,
                                           std::uint32_t written) {
  ring_.set_used_entry(used_ % size_, {chains.back().id, written});
  used_ = static_cast<std::uint16_t>(used_ + chains.size());
  ring_.set_used_index(used_);
}

bool ReferenceSplitDevice::interrupt_due() {
  const std::uint16_t from = signalled_;
  signalled_ = used_;
  if (from == used_) return false;
  if (!event_idx_) return (ring_.avail_flags() & 1) == 0;
  // Literally: was the entry number used_event among those just used (2.7.7.2)?
  const std::uint16_t event = ring_.used_event();
  for (std::uint16_t entry = from; entry != used_; ++entry) {
    if (entry == event) return true;
  }
  return false;
}

void ReferenceSplitDevice::want_kicks(bool wanted) {
  if (!event_idx_) {
    ring_.set_used_flags(wanted ? 0 : 1);
  } else if (wanted) {
    ring_.set_avail_event(avail_);
  }
}

std::vector<virtio::Segment> expected_segments(const FakeGuest& guest,
                                               const ReferenceChain& chain) {
  std::vector<virtio::Segment> segments;
  for (const Piece& piece : chain.pieces) {
    std::uint64_t address = piece.address;
    std::uint32_t left = piece.length;
    while (left > 0) {
      const auto here = static_cast<std::uint32_t>(
          std::min<std::uint64_t>(left, guest.memory().contiguous(memory::GuestAddress(address))));
      segments.push_back({guest.device_view(address, here), here});
      address += here;
      left -= here;
    }
  }
  return segments;
}

}  // namespace sluice::test
