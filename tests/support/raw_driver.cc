// RawDriver, the part that both formats share, and the split driver.
#include "support/raw_driver.h"

#include <algorithm>

namespace sluice::test {

std::uint64_t RawDriver::table_of(std::uint16_t id) {
  const auto found = tables_.find(id);
  if (found != tables_.end()) return found->second;
  return tables_[id] = guest().allocate(16 * std::uint64_t{options_.table_entries}, 16);
}

RawSplitDriver::RawSplitDriver(FakeGuest& guest, const DriverOptions& options)
    : RawDriver(options), ring_(guest, options.size, options.event_idx), free_count_(options.size) {
  for (std::uint32_t i = 0; i < options.size; ++i) free_.push_back(static_cast<std::uint16_t>(i));
}

void RawSplitDriver::start_at(std::uint16_t index) {
  avail_index_ = published_ = kicked_ = last_used_ = index;
  ring_.set_avail_index(index);
  ring_.set_used_index(index);
}

// Any order: descriptors from all over the table. In order: strictly the next ones (ORD-01).
std::vector<std::uint16_t> RawSplitDriver::take_indices(std::size_t count) {
  std::vector<std::uint16_t> taken;
  for (std::size_t i = 0; i < count; ++i) {
    if (options_.in_order) {
      taken.push_back(static_cast<std::uint16_t>(next_descriptor_));
      next_descriptor_ = (next_descriptor_ + 1) % options_.size;
    } else {
      std::swap(free_[random_() % free_.size()], free_.back());
      taken.push_back(free_.back());
      free_.pop_back();
    }
  }
  free_count_ -= static_cast<std::uint32_t>(count);
  return taken;
}

void RawSplitDriver::write_chain(std::span<const std::uint16_t> indices,
                                 std::span<const Piece> pieces) {
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const bool last = i + 1 == pieces.size();
    const auto flags =
        static_cast<std::uint16_t>((last ? 0 : kNext) | (pieces[i].writable ? kWrite : 0));
    const auto stray = static_cast<std::uint16_t>(random_());  // Meaningless without NEXT.
    const std::uint16_t next = last ? stray : indices[i + 1];
    ring_.set_descriptor(indices[i], {pieces[i].address, pieces[i].length, flags, next});
  }
}

void RawSplitDriver::write_table(std::uint64_t table, std::span<const Piece> pieces) {
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const bool last = i + 1 == pieces.size();
    const auto flags =
        static_cast<std::uint16_t>((last ? 0 : kNext) | (pieces[i].writable ? kWrite : 0));
    ring_.put_descriptor(table + 16 * i, {pieces[i].address, pieces[i].length, flags,
                                          static_cast<std::uint16_t>(last ? 0 : i + 1)});
  }
}

std::optional<std::uint16_t> RawSplitDriver::stage(std::span<const Piece> pieces, Shape shape) {
  const std::size_t needed = shape == Shape::kTable ? 1 : pieces.size();
  if (needed > free_count_) return std::nullopt;
  const std::vector<std::uint16_t> indices = take_indices(needed);
  const std::uint16_t head = indices.front();
  if (shape == Shape::kTable) {
    const std::uint64_t table = table_of(head);
    write_table(table, pieces);
    const auto bytes = static_cast<std::uint32_t>(16 * pieces.size());
    // WRITE on the outer descriptor means nothing (IND-03).
    const auto flags = static_cast<std::uint16_t>(kIndirect | (random_() % 2 == 0 ? kWrite : 0));
    ring_.set_descriptor(head, {table, bytes, flags, 0});
  } else {
    write_chain(indices, pieces);
  }
  ring_.set_avail_entry(avail_index_ % options_.size, head);
  ++avail_index_;
  outstanding_.push_back({head, static_cast<std::uint32_t>(needed), indices});
  return head;
}

void RawSplitDriver::publish() {
  ring_.set_avail_index(avail_index_);
  published_ = avail_index_;
}

// Takes every buffer up to `id` off the list: one, unless the entry stands for a batch.
void RawSplitDriver::retire_until(std::uint32_t id, std::uint32_t length,
                                  std::vector<Returned>& out) {
  const auto matches = [&](const Outstanding& buffer) { return buffer.id == id; };
  auto found = std::ranges::find_if(outstanding_, matches);
  if (found == outstanding_.end()) {
    complain("a used entry names a buffer that is not outstanding");
    ++last_used_;
    return;
  }
  const auto retire = [&](std::deque<Outstanding>::iterator buffer, bool skipped) {
    for (const std::uint16_t index : buffer->indices) free_.push_back(index);
    free_count_ += buffer->slots;
    ++last_used_;
    out.push_back({buffer->id, skipped ? 0 : length, skipped});
  };
  if (!options_.in_order) {
    retire(found, false);
    outstanding_.erase(found);
    return;
  }
  for (auto buffer = outstanding_.begin(); buffer != found; ++buffer) retire(buffer, true);
  retire(found, false);
  outstanding_.erase(outstanding_.begin(), found + 1);
}

std::vector<Returned> RawSplitDriver::reap() {
  std::vector<Returned> out;
  const std::uint16_t index = ring_.used_index();
  const auto left = [&] { return static_cast<std::int16_t>(index - last_used_); };
  while (left() > 0) {
    const auto [id, length] = ring_.used_entry(last_used_ % options_.size);
    retire_until(id, length, out);
  }
  if (left() < 0) complain("a batch reaches beyond used.idx");
  if (options_.in_order) free_.clear();
  return out;
}

void RawSplitDriver::want_interrupts(bool wanted) {
  if (!options_.event_idx) {
    ring_.set_avail_flags(wanted ? 0 : 1);
  } else {
    // Not wanted: an index that was passed long ago.
    ring_.set_used_event(static_cast<std::uint16_t>(wanted ? last_used_ : last_used_ - 0x4000));
  }
}

void RawSplitDriver::want_interrupt_after(std::uint32_t after) {
  ring_.set_used_event(static_cast<std::uint16_t>(last_used_ + after));
}

bool RawSplitDriver::kick_due() {
  const std::uint16_t from = kicked_;
  kicked_ = published_;
  if (from == published_) return false;
  if (!options_.event_idx) return (ring_.used_flags() & 1) == 0;
  // Literally: was the entry number avail_event among those just made available?
  const std::uint16_t event = ring_.avail_event();
  for (std::uint16_t entry = from; entry != published_; ++entry) {
    if (entry == event) return true;
  }
  return false;
}

virtio::RingConfig RawSplitDriver::config() const {
  virtio::RingConfig config = ring_.config();
  config.position = {last_used_, last_used_};
  config.indirect = true;
  return config;
}

}  // namespace sluice::test
