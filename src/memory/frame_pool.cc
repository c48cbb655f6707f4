// How a pool is cut out of its mapping.
#include "memory/frame_pool.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/cache_line.h"
#include "base/check.h"

namespace sluice::memory {

Result<FramePool> FramePool::create(std::uint32_t count, std::uint32_t frame_bytes) {
  const std::uint64_t lines = (std::uint64_t{frame_bytes} + kCacheLine - 1) / kCacheLine | 1;
  const std::uint64_t stride = lines * kCacheLine;
  if (count == 0 || frame_bytes == 0 || stride > std::numeric_limits<std::uint32_t>::max()) {
    return fail(ErrorCode::kOutOfRange, "a pool of such frames is impossible", frame_bytes);
  }
  Mapping memory = TRY(Mapping::create_private(count * stride));
  return FramePool(std::move(memory), count, static_cast<std::uint32_t>(stride));
}

FramePool::FramePool(Mapping memory, std::uint32_t count, std::uint32_t stride)
    : memory_(std::move(memory)), free_(count), top_(count), stride_(stride) {
  // The first frames are on top, so that a pool that is never drained touches few pages.
  std::byte* const base = memory_.bytes().data();
  for (std::uint32_t i = 0; i < count; ++i) {
    free_[count - 1 - i] = base + std::uint64_t{i} * stride;
  }
}

std::size_t FramePool::take(std::span<std::byte*> out) {
  const std::size_t n = std::min<std::size_t>(out.size(), top_);
  for (std::size_t i = 0; i < n; ++i) out[i] = free_[--top_];
  return n;
}

void FramePool::give_back(std::byte* frame) {
  CHECK(top_ < free_.size(), "a frame is given back once");
  free_[top_++] = frame;
}

void FramePool::give_back(std::span<std::byte* const> frames) {
  CHECK(frames.size() <= free_.size() - top_, "a frame is given back once");
  for (std::byte* frame : frames) free_[top_++] = frame;
}

}  // namespace sluice::memory
