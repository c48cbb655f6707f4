// Shared<T>: a word or small record in memory that a peer may write at any moment.
//
// It can be copied out once (snapshot), read with acquire, or stored; never used in place. So a
// value that was checked is the value that is used (DESIGN rule 1; SEC-13, SPL-16).
//
// Under ThreadSanitizer, plain accesses stand in for relaxed ones: a missing barrier then shows
// as a race on x86 too, where the hardware would hide it.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace sluice::memory {

namespace detail {

template <class Word>
[[gnu::always_inline]] inline Word load_word(const Word* word) {
#ifdef SLUICE_TSAN
  return *word;
#else
  return __atomic_load_n(word, __ATOMIC_RELAXED);
#endif
}

template <class Word>
[[gnu::always_inline]] inline void store_word(Word* word, Word value) {
#ifdef SLUICE_TSAN
  *word = value;
#else
  __atomic_store_n(word, value, __ATOMIC_RELAXED);
#endif
}

}  // namespace detail

template <class T>
concept SharedWord = std::is_integral_v<T> && sizeof(T) <= 8;

/// A T at a fixed place in shared memory. T is an integer, or a trivially copyable record whose
/// size is a multiple of its alignment's word.
template <class T>
class Shared {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  Shared() = default;
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;

  /// One copy of the value. The compiler can neither repeat nor split the read of a word; a record
  /// of several words may be torn between words, but never read twice.
  [[nodiscard, gnu::always_inline]] T snapshot() const {
    if constexpr (SharedWord<T>) {
      return detail::load_word(&value_);
    } else {
      return snapshot_record();
    }
  }

  [[nodiscard, gnu::always_inline]] T load_acquire() const
    requires SharedWord<T>
  {
    return __atomic_load_n(&value_, __ATOMIC_ACQUIRE);
  }

  /// A relaxed read that is meant to race (an index or a flag that is only a hint until acquired).
  [[nodiscard, gnu::always_inline]] T load_relaxed() const
    requires SharedWord<T>
  {
    return __atomic_load_n(&value_, __ATOMIC_RELAXED);
  }

  [[gnu::always_inline]] void store_release(T value)
    requires SharedWord<T>
  {
    __atomic_store_n(&value_, value, __ATOMIC_RELEASE);
  }

  [[gnu::always_inline]] void store_relaxed(T value)
    requires SharedWord<T>
  {
    __atomic_store_n(&value_, value, __ATOMIC_RELAXED);
  }

  /// Writes the value with no order of its own; a later store_release publishes it.
  [[gnu::always_inline]] void store(const T& value) {
    if constexpr (SharedWord<T>) {
      detail::store_word(&value_, value);
    } else {
      store_record(value);
    }
  }

 private:
  using Word = std::conditional_t<
      alignof(T) % 8 == 0 && sizeof(T) % 8 == 0, std::uint64_t,
      std::conditional_t<alignof(T) % 4 == 0 && sizeof(T) % 4 == 0, std::uint32_t,
                         std::conditional_t<alignof(T) % 2 == 0, std::uint16_t, std::uint8_t>>>;
  using Words = std::array<Word, sizeof(T) / sizeof(Word)>;

  [[gnu::always_inline]] T snapshot_record() const {
    Words copy;
    const auto* words = word_pointer();
    for (std::size_t i = 0; i < copy.size(); ++i) copy[i] = detail::load_word(words + i);
    return std::bit_cast<T>(copy);
  }
  [[gnu::always_inline]] void store_record(const T& value) {
    const auto copy = std::bit_cast<Words>(value);
    auto* words = const_cast<Word*>(word_pointer());
    for (std::size_t i = 0; i < copy.size(); ++i) detail::store_word(words + i, copy[i]);
  }
  // may_alias: the record is read by words, whatever its fields are.
  using AliasWord [[gnu::may_alias]] = Word;
  [[gnu::always_inline]] const Word* word_pointer() const {
    return reinterpret_cast<const AliasWord*>(&value_);
  }

  T value_;
};

static_assert(sizeof(Shared<std::uint16_t>) == 2);

/// The record or the first element of an array at `place`, which was translated, checked for its
/// whole length and is aligned for T.
template <class T>
[[nodiscard, gnu::always_inline]] inline Shared<T>* shared_at(std::byte* place) {
  return reinterpret_cast<Shared<T>*>(place);
}

/// Full barrier: what was stored before is visible before anything is read after (EVI-04).
[[gnu::always_inline]] inline void full_barrier() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

}  // namespace sluice::memory
