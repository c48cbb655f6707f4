// Names of error codes, and errors made from errno.
#include "base/error.h"

#include <cerrno>

namespace sluice {

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument: return "invalid argument";
    case ErrorCode::kOutOfRange: return "out of range";
    case ErrorCode::kNotFound: return "not found";
    case ErrorCode::kExists: return "exists already";
    case ErrorCode::kNoMemory: return "no memory";
    case ErrorCode::kSystem: return "system error";
    case ErrorCode::kPermission: return "not permitted";
    case ErrorCode::kProtocol: return "protocol error";
    case ErrorCode::kNotNegotiated: return "not negotiated";
    case ErrorCode::kUnsupported: return "not supported";
    case ErrorCode::kWrongState: return "wrong state";
    case ErrorCode::kClosed: return "closed by peer";
    case ErrorCode::kTimeout: return "timeout";
    case ErrorCode::kRingCorrupt: return "ring corrupt";
    case ErrorCode::kBadAddress: return "bad address";
    case ErrorCode::kMemoryShrunk: return "shared memory shrunk";
    case ErrorCode::kParse: return "parse error";
  }
  return "unknown error";
}

std::unexpected<Error> fail_errno(const char* text) {
  const int number = errno;
  const bool denied = number == EACCES || number == EPERM;
  const ErrorCode code = number == ENOMEM ? ErrorCode::kNoMemory
                         : denied         ? ErrorCode::kPermission
                                          : ErrorCode::kSystem;
  return fail(code, text, number);
}

}  // namespace sluice
