// The stations that tests of the switch let talk to each other.
#pragma once

#include "net/receive_filter.h"

namespace sluice::test {

inline constexpr net::PackedMac kA = 0x0a'00'00'00'00'02;
inline constexpr net::PackedMac kB = 0x0b'00'00'00'00'02;
inline constexpr net::PackedMac kC = 0x0c'00'00'00'00'02;

}  // namespace sluice::test
