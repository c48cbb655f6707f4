// FuzzInput: takes numbers and bytes from a fuzzer's input; an empty one yields zeros.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

namespace sluice::test {

class FuzzInput {
 public:
  FuzzInput(const std::uint8_t* data, std::size_t size) : rest_(data, size) {}
  [[nodiscard]] bool empty() const { return rest_.empty(); }

  template <class T>
    requires std::is_trivially_copyable_v<T>
  T take() {
    T value{};
    const auto part = bytes(sizeof value);
    if (!part.empty()) std::memcpy(&value, part.data(), part.size());
    return value;
  }
  /// At most `most` bytes; fewer if there are no more.
  std::span<const std::uint8_t> bytes(std::size_t most) {
    const auto part = rest_.first(std::min(most, rest_.size()));
    rest_ = rest_.subspan(part.size());
    return part;
  }
  /// 0 to limit - 1.
  std::uint32_t below(std::uint32_t limit) { return take<std::uint8_t>() % limit; }
  bool chance(std::uint32_t one_in) { return below(one_in) == 0; }

 private:
  std::span<const std::uint8_t> rest_;
};

}  // namespace sluice::test
