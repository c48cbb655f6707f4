// The version of the program, as CMakeLists.txt states it (a test compares them).
#pragma once

#include <string_view>

namespace sluice::control {

inline constexpr std::string_view kVersion = "0.1.0";
/// Of the requests and replies at the control socket. Grows when a reply loses or changes a field;
/// new fields and new requests leave it as it is.
inline constexpr int kControlProtocol = 1;

}  // namespace sluice::control
