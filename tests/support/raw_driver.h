// RawDriver: a well-behaved driver of either ring format that writes the bytes itself.
//
// It shares no code with the product: what a device side does with it, it does by the
// specification. It checks the device too: an entry that the specification forbids ends in
// `complaint()`.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "support/fake_guest.h"
#include "support/raw_packed.h"
#include "support/raw_split.h"
#include "virtio/ring.h"

namespace sluice::test {

struct DriverOptions {
  std::uint32_t size = 8;
  bool event_idx = false;
  bool in_order = false;  // Descriptors in ring order, and used entries may stand for a batch.
  std::uint32_t seed = 1;
  std::uint32_t table_entries = 64;  // Room of each indirect table.
};

/// One way to post a buffer.
enum class Shape : std::uint8_t { kChained, kTable };

/// A buffer that came back.
struct Returned {
  std::uint16_t id;
  std::uint32_t length;  // As written; 0 in a packed entry without WRITE.
  bool skipped = false;  // In-order batch: no entry of its own (2.7.9, 2.8.18).
};

class RawDriver {
 public:
  explicit RawDriver(const DriverOptions& options) : options_(options), random_(options.seed) {}
  virtual ~RawDriver() = default;

  /// Writes a chain and leaves it unpublished. Returns its id (split: head), or nothing if the
  /// ring has no room. Requires: pieces is not empty.
  virtual std::optional<std::uint16_t> stage(std::span<const Piece> pieces, Shape shape) = 0;
  /// Makes all staged chains available.
  virtual void publish() = 0;
  std::optional<std::uint16_t> post(std::span<const Piece> pieces, Shape shape = Shape::kChained) {
    const auto id = stage(pieces, shape);
    publish();
    return id;
  }
  std::optional<std::uint16_t> post(const Piece& piece) { return post(std::span(&piece, 1)); }

  /// All buffers used since the last call, in the order the device used them.
  virtual std::vector<Returned> reap() = 0;

  /// Interrupts wanted for every buffer, or for none.
  virtual void want_interrupts(bool wanted) = 0;
  /// With event_idx: one interrupt when the buffer used `after` buffers from now has come back (0:
  /// the next). Packed: counted in slots of one-descriptor buffers.
  virtual void want_interrupt_after(std::uint32_t after) = 0;
  /// Must the device be kicked for what was published since the last call?
  virtual bool kick_due() = 0;

  [[nodiscard]] virtual virtio::RingConfig config() const = 0;
  [[nodiscard]] virtual FakeGuest& guest() const = 0;
  [[nodiscard]] virtual bool canaries_intact() const = 0;
  /// What position() of a device must be that has taken and used all there is.
  [[nodiscard]] virtual virtio::RingPosition expected_position() const = 0;
  [[nodiscard]] std::size_t outstanding() const { return outstanding_.size(); }
  [[nodiscard]] const DriverOptions& options() const { return options_; }
  [[nodiscard]] const std::string& complaint() const { return complaint_; }

 protected:
  struct Outstanding {
    std::uint16_t id;
    std::uint32_t slots;                 // Descriptors it occupies.
    std::vector<std::uint16_t> indices;  // Split: which.
  };
  /// Address of this id's indirect table.
  std::uint64_t table_of(std::uint16_t id);

  void complain(std::string text) {
    if (complaint_.empty()) complaint_ = std::move(text);
  }

  DriverOptions options_;
  std::mt19937 random_;
  std::deque<Outstanding> outstanding_;

 private:
  std::map<std::uint16_t, std::uint64_t> tables_;
  std::string complaint_;
};

class RawSplitDriver final : public RawDriver {
 public:
  RawSplitDriver(FakeGuest& guest, const DriverOptions& options);

  std::optional<std::uint16_t> stage(std::span<const Piece> pieces, Shape shape) override;
  void publish() override;
  std::vector<Returned> reap() override;
  void want_interrupts(bool wanted) override;
  void want_interrupt_after(std::uint32_t after) override;
  bool kick_due() override;
  [[nodiscard]] virtio::RingConfig config() const override;
  [[nodiscard]] FakeGuest& guest() const override { return ring_.guest(); }
  [[nodiscard]] bool canaries_intact() const override { return ring_.canaries_intact(); }
  [[nodiscard]] virtio::RingPosition expected_position() const override {
    return {avail_index_, last_used_};
  }
  [[nodiscard]] const RawSplitRing& ring() const { return ring_; }
  /// Both indices start here, as after long work or SET_VRING_BASE. Before the first stage().
  void start_at(std::uint16_t index);

 private:
  std::vector<std::uint16_t> take_indices(std::size_t count);
  void write_chain(std::span<const std::uint16_t> indices, std::span<const Piece> pieces);
  void write_table(std::uint64_t table, std::span<const Piece> pieces);
  void retire_until(std::uint32_t id, std::uint32_t length, std::vector<Returned>& out);

  RawSplitRing ring_;
  std::vector<std::uint16_t> free_;    // Any order: drawn at random.
  std::uint32_t next_descriptor_ = 0;  // In order: strictly the next.
  std::uint32_t free_count_;
  std::uint16_t avail_index_ = 0;  // Staged.
  std::uint16_t published_ = 0;
  std::uint16_t kicked_ = 0;
  std::uint16_t last_used_ = 0;
};

class RawPackedDriver final : public RawDriver {
 public:
  RawPackedDriver(FakeGuest& guest, const DriverOptions& options);

  std::optional<std::uint16_t> stage(std::span<const Piece> pieces, Shape shape) override;
  void publish() override;
  std::vector<Returned> reap() override;
  void want_interrupts(bool wanted) override;
  void want_interrupt_after(std::uint32_t after) override;
  bool kick_due() override;
  [[nodiscard]] virtio::RingConfig config() const override;
  [[nodiscard]] FakeGuest& guest() const override { return ring_.guest(); }
  [[nodiscard]] bool canaries_intact() const override { return ring_.canaries_intact(); }
  [[nodiscard]] virtio::RingPosition expected_position() const override {
    return {next_.encoded(), used_.encoded()};
  }
  [[nodiscard]] const RawPackedRing& ring() const { return ring_; }

 private:
  struct StagedHead {
    std::uint32_t slot;
    std::uint16_t flags;
  };
  std::uint16_t draw_id();
  bool retire(std::uint16_t id, std::uint32_t length, std::vector<Returned>& out);

  RawPackedRing ring_;
  PackedPlace next_;
  PackedPlace used_;
  PackedPlace kicked_;
  std::uint32_t passed_since_kick_ = 0;
  std::uint32_t free_count_;
  std::vector<std::uint16_t> free_ids_;
  std::vector<StagedHead> staged_;
};

}  // namespace sluice::test
