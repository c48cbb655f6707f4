// Checksums against published values, and against the definition for every length and place.
#include "packet/checksum.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <random>
#include <vector>

#include "support/frame_builder.h"

namespace sluice::packet {
namespace {

std::vector<std::byte> bytes_of(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

// Sums are in memory order; the documents write them big-endian.
std::uint16_t as_written(std::uint16_t sum) {
  return std::byteswap(sum);
}

TEST(Checksum, TheExampleOfRfc1071) {
  const auto bytes = bytes_of({0x00, 0x01, 0xF2, 0x03, 0xF4, 0xF5, 0xF6, 0xF7});
  EXPECT_EQ(as_written(checksum_fold(checksum_sum(bytes))), 0xDDF2);
}

TEST(Checksum, AnIpv4HeaderKnownFromTheLiterature) {
  // The textbook header 45 00 00 73 ... with checksum b8 61.
  auto header = bytes_of({0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11,
                          0x12, 0x34, 0xC0, 0xA8, 0x00, 0x01, 0xC0, 0xA8, 0x00, 0xC7});
  checksum_ipv4_header(header);
  EXPECT_EQ(header[10], std::byte{0xB8});
  EXPECT_EQ(header[11], std::byte{0x61});
}

TEST(Checksum, AnIpv4HeaderWhoseSumIsAllOnesHasChecksumZero) {
  std::vector<std::byte> header(20, std::byte{0});
  header[0] = header[1] = std::byte{0xFF};
  header[10] = std::byte{0x77};
  checksum_ipv4_header(header);
  EXPECT_EQ(header[10], std::byte{0});
  EXPECT_EQ(header[11], std::byte{0});
}

TEST(Checksum, ATransportChecksumIsNeverZero) {
  EXPECT_EQ(checksum_transport(bytes_of({0xFF, 0xFF})), 0xFFFF);
  EXPECT_EQ(checksum_transport(bytes_of({0x00, 0x00})), 0xFFFF);
  EXPECT_EQ(as_written(checksum_transport(bytes_of({0xFF, 0xFE}))), 0x0001);
}

TEST(Checksum, EqualsTheDefinitionForEveryLengthAndPlace) {
  std::mt19937_64 random(1);
  std::vector<std::byte> bytes(400);
  for (const bool ones : {false, true}) {
    for (auto& byte : bytes) byte = ones ? std::byte{0xFF} : static_cast<std::byte>(random());
    for (std::size_t at = 0; at < 17; ++at) {
      for (std::size_t length = 0; length + at <= bytes.size(); ++length) {
        const auto part = std::span<const std::byte>(bytes).subspan(at, length);
        ASSERT_EQ(as_written(checksum_fold(checksum_sum(part))), test::slow_sum(part))
            << at << " " << length;
      }
    }
  }
}

TEST(Checksum, EqualsTheDefinitionForTheLongestFrames) {
  std::vector<std::byte> bytes(kFrameMax + 7, std::byte{0xFF});
  EXPECT_EQ(as_written(checksum_fold(checksum_sum(bytes))), test::slow_sum(bytes));
  std::mt19937_64 random(2);
  for (auto& byte : bytes) byte = static_cast<std::byte>(random());
  EXPECT_EQ(as_written(checksum_fold(checksum_sum(bytes))), test::slow_sum(bytes));
}

TEST(Checksum, FoldsEverySum) {
  EXPECT_EQ(checksum_fold(0), 0);
  EXPECT_EQ(checksum_fold(0xFFFF), 0xFFFF);
  EXPECT_EQ(checksum_fold(0x10000), 1);
  EXPECT_EQ(checksum_fold(~std::uint64_t{0}), 0xFFFF);
  EXPECT_EQ(checksum_fold(0x1'0000'0000'0000), 1);
  EXPECT_EQ(checksum_fold(0xFFFF'FFFF'FFFF'FFFE), 0xFFFE);
}

TEST(Checksum, PiecesOfEvenLengthAddUp) {
  std::mt19937_64 random(3);
  std::vector<std::byte> bytes(101);
  for (auto& byte : bytes) byte = static_cast<std::byte>(random());
  const auto all = std::span<const std::byte>(bytes);
  for (std::size_t cut = 0; cut <= 100; cut += 2) {
    EXPECT_EQ(checksum_fold(checksum_sum(all.first(cut)) + checksum_sum(all.subspan(cut))),
              checksum_fold(checksum_sum(all)));
  }
}

TEST(Checksum, PseudoHeadersOfBothVersions) {
  for (const bool ipv6 : {false, true}) {
    for (const bool udp : {false, true}) {
      const test::FramePlan plan{.ipv6 = ipv6, .udp = udp};
      const auto frame = test::build_offloaded(plan);
      const auto headers = parse_headers(frame.bytes);
      const auto length = static_cast<std::uint32_t>(frame.bytes.size() - headers.transport_at);
      std::uint16_t stored = 0;
      std::memcpy(&stored,
                  frame.bytes.data() + frame.offload.csum_start + frame.offload.csum_offset,
                  sizeof stored);
      EXPECT_EQ(checksum_fold(checksum_pseudo(frame.bytes, headers, length)), stored);
    }
  }
}

}  // namespace
}  // namespace sluice::packet
