// Adding up words, quickly.
#include "packet/checksum.h"

#include <array>
#include <cstring>

#include "packet/bytes.h"

namespace sluice::packet {

namespace {

constexpr std::size_t kIpv4ChecksumAt = 10;

template <class Word>
Word load_word(const std::byte* from) {
  Word word;
  std::memcpy(&word, from, sizeof word);
  return word;
}

}  // namespace

// 32-bit words into 64-bit sums: no carry to look after, and a loop that compilers turn into vector
// additions. Four sums, because one would wait for itself.
ChecksumSum checksum_sum(std::span<const std::byte> bytes) {
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  std::array<std::uint64_t, 4> sums{};
  for (; left >= 16; left -= 16, at += 16) {
    const auto words = load_word<std::array<std::uint32_t, 4>>(at);
    for (std::size_t i = 0; i < 4; ++i) sums[i] += words[i];
  }
  for (; left >= 4; left -= 4, at += 4) sums[0] += load_word<std::uint32_t>(at);
  if (left >= 2) {
    sums[1] += load_word<std::uint16_t>(at);
    at += 2;
    left -= 2;
  }
  if (left != 0) {
    std::array<std::byte, 2> padded{*at, std::byte{0}};
    sums[2] += load_word<std::uint16_t>(padded.data());
  }
  std::uint64_t total = 0;
  for (const std::uint64_t sum : sums) total += (sum & 0xFFFFFFFF) + (sum >> 32);
  return (total & 0xFFFFFFFF) + (total >> 32);
}

std::uint16_t checksum_fold(ChecksumSum sum) {
  while (sum > 0xFFFF) sum = (sum & 0xFFFF) + (sum >> 16);
  return static_cast<std::uint16_t>(sum);
}

void checksum_store(std::span<std::byte> bytes, std::size_t at, std::uint16_t value) {
  std::memcpy(bytes.subspan(at, sizeof value).data(), &value, sizeof value);
}

ChecksumSum checksum_pseudo(std::span<const std::byte> frame, const Headers& headers,
                            std::uint32_t length) {
  std::array<std::byte, 8> tail{};
  store_big<std::uint32_t>(tail, 0, length);
  store_big<std::uint32_t>(tail, 4, headers.ip_protocol);
  return checksum_sum(frame.subspan(headers.addresses_at(), headers.addresses_size())) +
         checksum_sum(tail);
}

std::uint16_t checksum_transport(std::span<const std::byte> bytes, ChecksumSum sum) {
  const std::uint16_t folded = checksum_fold(sum + checksum_sum(bytes));
  return folded == 0xFFFF ? folded : static_cast<std::uint16_t>(~folded);
}

void checksum_ipv4_header(std::span<std::byte> header) {
  checksum_store(header, kIpv4ChecksumAt, 0);
  const std::uint16_t folded = checksum_fold(checksum_sum(header));
  checksum_store(header, kIpv4ChecksumAt, static_cast<std::uint16_t>(~folded));
}

}  // namespace sluice::packet
