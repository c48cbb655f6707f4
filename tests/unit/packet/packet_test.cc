// copy_frame(): any part of a frame out of any segments, its head from the snapshot.
#include "packet/packet.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

namespace sluice::packet {
namespace {

// A frame of 1, 2, 3, ... in segments of the given lengths; its head was copied before the sender
// overwrote it with zeros, as a hostile one may.
class ChangedFrame {
 public:
  explicit ChangedFrame(const std::vector<std::size_t>& lengths)
      : burst_(std::make_unique<Burst>()) {
    burst_->clear();
    packet_ = {};
    for (const std::size_t length : lengths) packet_.length += static_cast<std::uint32_t>(length);
    for (std::size_t i = 0; i < packet_.length; ++i) {
      original_.push_back(static_cast<std::byte>(i % 250 + 1));
    }
    std::copy_n(original_.begin(), std::min(kHeadSize, original_.size()), packet_.head.begin());
    memory_ = original_;
    std::fill_n(memory_.begin(), std::min(kHeadSize, memory_.size()), std::byte{0});
    std::size_t at = 0;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      const auto length = static_cast<std::uint32_t>(lengths[i]);
      if (i == 0) {
        packet_.data = memory_.data();
        packet_.first_length = length;
      } else {
        burst_->more[burst_->more_count++] = {memory_.data() + at, length};
        ++packet_.more_count;
      }
      at += length;
    }
  }

  void expect_every_part() const {
    for (std::size_t from = 0; from <= original_.size(); ++from) {
      for (std::size_t size = 0; from + size <= original_.size(); ++size) {
        std::vector<std::byte> out(size);
        copy_frame(*burst_, packet_, from, out);
        ASSERT_TRUE(std::equal(out.begin(), out.end(),
                               original_.begin() + static_cast<std::ptrdiff_t>(from)))
            << from << " " << size;
      }
    }
  }

 private:
  std::unique_ptr<Burst> burst_;
  Packet packet_;
  std::vector<std::byte> original_;
  std::vector<std::byte> memory_;
};

TEST(CopyFrame, CopiesEveryPartOfAFrameInOnePiece) {
  for (const std::size_t length : {1UL, 14UL, 15UL, 16UL, 17UL, 60UL}) {
    ChangedFrame({length}).expect_every_part();
  }
}

TEST(CopyFrame, CopiesEveryPartOfAFrameInManyPieces) {
  ChangedFrame({1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}).expect_every_part();
  ChangedFrame({16, 44}).expect_every_part();
  ChangedFrame({15, 1, 44}).expect_every_part();
  ChangedFrame({20, 0, 20}).expect_every_part();
  std::mt19937_64 random(3);
  for (int i = 0; i < 100; ++i) {
    std::vector<std::size_t> lengths;
    for (std::size_t pieces = 1 + random() % 6; pieces > 0; --pieces) {
      lengths.push_back(1 + random() % 20);
    }
    ChangedFrame(lengths).expect_every_part();
  }
}

}  // namespace
}  // namespace sluice::packet
