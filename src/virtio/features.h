// FeatureSet: virtio feature bits, wider than 64 since virtio 1.4, and the rules between them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "virtio/spec.h"

namespace sluice::virtio {

class FeatureSet {
 public:
  constexpr FeatureSet() = default;
  constexpr FeatureSet(std::initializer_list<Feature> features) {
    for (const Feature feature : features) add(feature);
  }
  /// Bits 0 to 63, as vhost-user messages carry them.
  [[nodiscard]] static constexpr FeatureSet from_low(std::uint64_t bits) {
    FeatureSet set;
    set.words_[0] = bits;
    return set;
  }
  [[nodiscard]] constexpr std::uint64_t low() const { return words_[0]; }

  [[nodiscard]] constexpr bool has(Feature feature) const {
    const auto bit = static_cast<std::size_t>(feature);
    return ((words_[bit / 64] >> (bit % 64)) & 1) != 0;
  }
  constexpr void add(Feature feature) {
    const auto bit = static_cast<std::size_t>(feature);
    words_[bit / 64] |= std::uint64_t{1} << (bit % 64);
  }
  constexpr void remove(Feature feature) {
    const auto bit = static_cast<std::size_t>(feature);
    words_[bit / 64] &= ~(std::uint64_t{1} << (bit % 64));
  }
  [[nodiscard]] constexpr bool empty() const { return words_[0] == 0 && words_[1] == 0; }
  [[nodiscard]] constexpr bool contains(const FeatureSet& other) const {
    return (other - *this).empty();
  }

  friend constexpr FeatureSet operator&(FeatureSet a, const FeatureSet& b) {
    for (std::size_t i = 0; i < 2; ++i) a.words_[i] &= b.words_[i];
    return a;
  }
  friend constexpr FeatureSet operator|(FeatureSet a, const FeatureSet& b) {
    for (std::size_t i = 0; i < 2; ++i) a.words_[i] |= b.words_[i];
    return a;
  }
  friend constexpr FeatureSet operator-(FeatureSet a, const FeatureSet& b) {
    for (std::size_t i = 0; i < 2; ++i) a.words_[i] &= ~b.words_[i];
    return a;
  }
  friend constexpr bool operator==(const FeatureSet&, const FeatureSet&) = default;

 private:
  std::array<std::uint64_t, 2> words_{};
};

/// The specification's name without prefix ("MRG_RXBUF"), or "" for a number it does not know.
[[nodiscard]] std::string_view name_of(Feature feature);
/// Names of all bits set, in order of number; unknown ones as "bit N" are left to the caller.
[[nodiscard]] std::vector<std::string_view> names_of(const FeatureSet& set);

/// Drops every feature whose requirement (virtio 1.3, 5.1.3.1) is missing, until none is.
[[nodiscard]] FeatureSet without_broken_dependencies(FeatureSet set);
/// The first feature of `set` that lacks a requirement, if any.
[[nodiscard]] std::optional<Feature> broken_dependency(const FeatureSet& set);

}  // namespace sluice::virtio
