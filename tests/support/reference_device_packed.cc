// ReferenceDevice for packed rings (virtio 1.3, 2.8).
#include <cstring>

#include "support/reference_device.h"

namespace sluice::test {

bool ReferencePackedDevice::read_table(ReferenceChain& chain, const PackedDescriptor& outer) {
  ++indirect_seen_;
  if (!table_valid(outer.addr, outer.len)) return fail();
  for (std::uint32_t i = 0; i < outer.len / 16; ++i) {
    const std::uint64_t address = outer.addr + 16 * std::uint64_t{i};
    if (!guest_->contains(address, 16)) return fail();
    const std::vector<std::byte> raw = guest_->get(address, 16);
    Piece piece{};
    std::uint16_t flags = 0;
    std::memcpy(&piece.address, raw.data(), 8);
    std::memcpy(&piece.length, raw.data() + 8, 4);
    std::memcpy(&flags, raw.data() + 14, 2);
    piece.writable = (flags & kWrite) != 0;
    if (!add_piece(chain, piece)) return false;
  }
  return true;
}

bool ReferencePackedDevice::read_chain(ReferenceChain& chain) {
  PackedPlace at = avail_;
  const std::uint16_t head = ring_.flags(at.slot);
  if ((head & (kAvailBit | kUsedBit)) != available(at.wrap)) return false;
  chain.slots = 0;
  while (true) {
    if (held_slots_ + chain.slots == size_) return fail();
    const PackedDescriptor descriptor = ring_.descriptor(at.slot);
    ++chain.slots;
    chain.id = descriptor.id;
    at.advance(1, size_);
    if ((descriptor.flags & kIndirect) != 0) {
      if (chain.slots > 1 || (descriptor.flags & kNext) != 0) return fail();
      if (!read_table(chain, descriptor)) return false;
      break;
    }
    const bool writable = (descriptor.flags & kWrite) != 0;
    if (!add_piece(chain, {descriptor.addr, descriptor.len, writable})) return false;
    if ((descriptor.flags & kNext) == 0) break;
  }
  avail_ = at;
  held_slots_ += chain.slots;
  return true;
}

void ReferencePackedDevice::untake(const ReferenceChain& chain) {
  // Back by n slots is a lap on by size - n, with the lap undone.
  avail_.advance(size_ - chain.slots, size_);
  avail_.wrap = !avail_.wrap;
  held_slots_ -= chain.slots;
}

void ReferencePackedDevice::write_used(const ReferenceChain& chain, std::uint32_t written) {
  const std::uint64_t place = ring_.ring() + 16 * std::uint64_t{used_.slot};
  const bool meaningful = chain.writable_bytes() > 0;
  guest_->write<std::uint32_t>(place + 8, written);
  guest_->write<std::uint16_t>(place + 12, chain.id);
  guest_->write<std::uint16_t>(
      place + 14, static_cast<std::uint16_t>(used_on(used_.wrap) | (meaningful ? kWrite : 0)));
}

void ReferencePackedDevice::give_back(const ReferenceChain& chain, std::uint32_t written) {
  write_used(chain, written);
  used_.advance(chain.slots, size_);
  held_slots_ -= chain.slots;
  since_signal_ += chain.slots;
}

void ReferencePackedDevice::give_back_batch(std::span<const ReferenceChain> chains,
                                            std::uint32_t written) {
  write_used(chains.back(), written);
  for (const ReferenceChain& chain : chains) {
    used_.advance(chain.slots, size_);
    held_slots_ -= chain.slots;
    since_signal_ += chain.slots;
  }
}

bool ReferencePackedDevice::interrupt_due() {
  PackedPlace place = signalled_;
  const std::uint32_t passed = since_signal_;
  signalled_ = used_;
  since_signal_ = 0;
  if (passed == 0) return false;
  const auto [desc, flags] = ring_.driver_event();
  if (flags == 1) return false;
  if (flags != 2 || !event_idx_) return true;
  // Literally: was the slot named there among those just passed (2.8.14)?
  for (std::uint32_t i = 0; i < passed; ++i) {
    if (place.encoded() == desc) return true;
    place.advance(1, size_);
  }
  return false;
}

void ReferencePackedDevice::want_kicks(bool wanted) {
  const auto on = static_cast<std::uint16_t>(event_idx_ ? 2 : 0);
  ring_.set_device_event({avail_.encoded(), wanted ? on : std::uint16_t{1}});
}

}  // namespace sluice::test
