// The Internet checksum (RFC 1071): 16-bit one's complement sum, and the pseudo headers in front.
//
// Sums are taken over words as they lie in memory. The one's complement sum does not care about
// byte order as long as its result is stored the way its words were loaded, so nothing is swapped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "packet/headers.h"

namespace sluice::packet {

/// A sum not yet folded to 16 bits; add up several with +. At most 2^31 of them fit one word.
using ChecksumSum = std::uint64_t;

/// Adds up `bytes`; an odd last byte counts as if a zero followed. Requires: less than 4 GiB, and
/// where several pieces make one sum, all but the last are of even length.
[[nodiscard]] ChecksumSum checksum_sum(std::span<const std::byte> bytes);

/// Folds a sum to 16 bits. Neither complemented nor swapped: to be stored as it is.
[[nodiscard]] std::uint16_t checksum_fold(ChecksumSum sum);

/// Stores a word the way sums are made of: not swapped.
void checksum_store(std::span<std::byte> bytes, std::size_t at, std::uint16_t value);

/// The sum of the pseudo header (RFC 9293, 3.1; RFC 768; RFC 8200, 8.1) for `length` bytes of
/// transport header and payload. Requires: `headers` was parsed from `frame` and has a network.
[[nodiscard]] ChecksumSum checksum_pseudo(std::span<const std::byte> frame, const Headers& headers,
                                          std::uint32_t length);

/// The checksum for `bytes` and what `sum` holds, for a TCP or UDP header: folded and complemented,
/// 0 given as 0xFFFF, which is the same number but does not say "no checksum" to UDP.
[[nodiscard]] std::uint16_t checksum_transport(std::span<const std::byte> bytes,
                                               ChecksumSum sum = 0);

/// Writes the checksum of a whole IPv4 header. Requires: at least 20 bytes.
void checksum_ipv4_header(std::span<std::byte> header);

}  // namespace sluice::packet
