// Strong<Tag, Rep>: an integer that does not turn into another one by accident.
#pragma once

#include <compare>

namespace sluice {

/// Explicit to make, explicit to open, comparable with its own kind only. No arithmetic: a type
/// that needs some adds it, so that each rule (wrap, modulo) exists once.
template <class Tag, class Rep>
class Strong {
 public:
  using rep = Rep;
  constexpr Strong() = default;
  explicit constexpr Strong(Rep value) : value_(value) {}
  [[nodiscard]] constexpr Rep raw() const { return value_; }
  friend constexpr auto operator<=>(Strong, Strong) = default;

 private:
  Rep value_{};
};

}  // namespace sluice
