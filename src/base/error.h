// Errors as values: a code, a static text and one number; and the macro that passes them on.
//
// An Error owns nothing, so it can be made on any path. Libraries return it; only src/app turns it
// into a sentence with a cause and a cure. One code per cause that a user or a test can tell apart.
#pragma once

#include <cstdint>
#include <expected>
#include <string_view>
#include <utility>

namespace sluice {

enum class ErrorCode : std::uint8_t {
  kInvalidArgument,  // A value that the caller or the configuration gave is not allowed.
  kOutOfRange,       // A number lies outside its table, region or limit.
  kNotFound,         // A thing named by the caller does not exist.
  kExists,           // A thing that must be unique exists already.
  kNoMemory,         // The system has no memory or no address space left.
  kSystem,           // A system call failed; `detail` is errno.
  kPermission,       // The system or the configuration forbids it; `detail` may be errno.
  kProtocol,         // A peer broke the wire protocol (vhost-user, control socket).
  kNotNegotiated,    // A message or option that needs a feature nobody negotiated.
  kUnsupported,      // Valid, but not implemented: refused, never silently accepted.
  kWrongState,       // Valid, but not now.
  kClosed,           // The peer went away.
  kTimeout,          // The peer or a thread did not answer in time.
  kRingCorrupt,      // The peer of a virtqueue wrote something the specification forbids.
  kBadAddress,       // An address range is not wholly inside shared memory.
  kMemoryShrunk,     // The file behind shared memory was truncated while mapped.
  kParse,            // A text (configuration, JSON, MAC address) has the wrong form.
};

/// The code's name in words, for people and for `--json`.
[[nodiscard]] std::string_view to_string(ErrorCode code);

struct Error {
  ErrorCode code;
  const char* text;         // Static storage: a literal that says what is wrong.
  std::int64_t detail = 0;  // errno, index, request number or size: whatever the text speaks of.
};

template <class T>
using Result = std::expected<T, Error>;
using Status = Result<void>;

[[nodiscard]] inline std::unexpected<Error> fail(ErrorCode code, const char* text,
                                                 std::int64_t detail = 0) {
  return std::unexpected<Error>(Error{code, text, detail});
}

/// An error made from the current errno.
[[nodiscard]] std::unexpected<Error> fail_errno(const char* text);

}  // namespace sluice

// TRY(expression) yields the value of a Result, or returns its error from the function around it.
// (libstdc++ 12 has no and_then, so propagation needs one macro. It is a GNU statement expression,
// which both supported compilers have.)
#define TRY(expression)                                               \
  __extension__({                                                     \
    auto&& try_result_ = (expression);                                \
    if (!try_result_.has_value()) [[unlikely]] {                      \
      return ::std::unexpected<::sluice::Error>(try_result_.error()); \
    }                                                                 \
    *::std::move(try_result_);                                        \
  })
