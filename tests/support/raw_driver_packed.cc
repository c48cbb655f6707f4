// RawDriver for packed rings (virtio 1.3, 2.8).
#include <algorithm>
#include <numeric>

#include "support/raw_driver.h"

namespace sluice::test {

RawPackedDriver::RawPackedDriver(FakeGuest& guest, const DriverOptions& options)
    : RawDriver(options),
      ring_(guest, options.size, options.event_idx),
      free_count_(options.size),
      free_ids_(options.size) {
  std::iota(free_ids_.begin(), free_ids_.end(), std::uint16_t{0});
}

// Ids mean nothing to the device, so any free one will do (PKD-19).
std::uint16_t RawPackedDriver::draw_id() {
  std::swap(free_ids_[random_() % free_ids_.size()], free_ids_.back());
  const std::uint16_t id = free_ids_.back();
  free_ids_.pop_back();
  return id;
}

std::optional<std::uint16_t> RawPackedDriver::stage(std::span<const Piece> pieces, Shape shape) {
  const auto needed = static_cast<std::uint32_t>(shape == Shape::kTable ? 1 : pieces.size());
  if (needed > free_count_) return std::nullopt;
  free_count_ -= needed;
  const std::uint16_t id = draw_id();
  const PackedPlace head = next_;
  std::uint16_t head_flags = 0;
  for (std::uint32_t i = 0; i < needed; ++i) {
    const bool last = i + 1 == needed;
    PackedDescriptor descriptor{pieces[i].address, pieces[i].length, id, 0};
    descriptor.flags = static_cast<std::uint16_t>(available(next_.wrap) | (last ? 0 : kNext) |
                                                  (pieces[i].writable ? kWrite : 0));
    // Only the last descriptor's id counts (PKD-07); the others carry rubbish.
    if (!last) descriptor.id = static_cast<std::uint16_t>(random_());
    if (shape == Shape::kTable) {
      descriptor.addr = table_of(id);
      descriptor.len = static_cast<std::uint32_t>(16 * pieces.size());
      descriptor.flags = static_cast<std::uint16_t>(available(next_.wrap) | kIndirect |
                                                    (random_() % 2 == 0 ? kWrite : 0));
      for (std::size_t k = 0; k < pieces.size(); ++k) {
        // Ids and flags other than WRITE are reserved in a table (PKD-11).
        const auto stray = static_cast<std::uint16_t>(random_());
        const auto flags = static_cast<std::uint16_t>(pieces[k].writable ? kWrite : 0);
        ring_.put_descriptor(descriptor.addr + 16 * k,
                             {pieces[k].address, pieces[k].length, stray, flags});
      }
    }
    if (i == 0) {
      // The head's flags are what publishes the list: they stay as they are until publish().
      head_flags = descriptor.flags;
      descriptor.flags = ring_.flags(next_.slot);
    }
    ring_.set_descriptor(next_.slot, descriptor);
    next_.advance(1, options_.size);
  }
  staged_.push_back({head.slot, head_flags});
  outstanding_.push_back({id, needed, {}});
  passed_since_kick_ += needed;
  return id;
}

// Last list first, so that the device never sees a later list without an earlier one (PKD-06).
void RawPackedDriver::publish() {
  while (!staged_.empty()) {
    ring_.set_flags(staged_.back().slot, staged_.back().flags);
    staged_.pop_back();
  }
}

bool RawPackedDriver::retire(std::uint16_t id, std::uint32_t length, std::vector<Returned>& out) {
  const auto matches = [&](const Outstanding& buffer) { return buffer.id == id; };
  const auto found = std::ranges::find_if(outstanding_, matches);
  if (found == outstanding_.end()) {
    complain("a used descriptor names a buffer that is not outstanding");
    return false;
  }
  const auto first = options_.in_order ? outstanding_.begin() : found;
  for (auto buffer = first; buffer != found + 1; ++buffer) {
    const bool skipped = buffer != found;
    out.push_back({buffer->id, skipped ? 0 : length, skipped});
    free_ids_.push_back(buffer->id);
    free_count_ += buffer->slots;
    used_.advance(buffer->slots, options_.size);
  }
  outstanding_.erase(first, found + 1);
  return true;
}

std::vector<Returned> RawPackedDriver::reap() {
  std::vector<Returned> out;
  while (!outstanding_.empty()) {
    const PackedDescriptor found = ring_.descriptor(used_.slot);
    if ((found.flags & (kAvailBit | kUsedBit)) != used_on(used_.wrap)) break;
    if ((found.flags & kNext) != 0) complain("a used descriptor has NEXT set (PKD-10)");
    const bool written = (found.flags & kWrite) != 0;
    if (!retire(found.id, written ? found.len : 0, out)) break;
  }
  return out;
}

void RawPackedDriver::want_interrupts(bool wanted) {
  ring_.set_driver_event({0, static_cast<std::uint16_t>(wanted ? 0 : 1)});
}

void RawPackedDriver::want_interrupt_after(std::uint32_t after) {
  PackedPlace place = used_;
  place.advance(after, options_.size);
  ring_.set_driver_event({place.encoded(), 2});
}

bool RawPackedDriver::kick_due() {
  PackedPlace place = kicked_;
  const std::uint32_t passed = passed_since_kick_;
  kicked_ = next_;
  passed_since_kick_ = 0;
  if (passed == 0) return false;
  const auto [desc, flags] = ring_.device_event();
  if (flags == 0) return true;
  if (flags != 2) return false;
  // Literally: was the slot named there among those just made available?
  for (std::uint32_t i = 0; i < passed; ++i) {
    if (place.encoded() == desc) return true;
    place.advance(1, options_.size);
  }
  return false;
}

virtio::RingConfig RawPackedDriver::config() const {
  virtio::RingConfig config = ring_.config();
  config.indirect = true;
  return config;
}

}  // namespace sluice::test
