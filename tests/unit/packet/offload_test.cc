// Offload marks: which are possible at all, and checksums completed (NET-11, NET-12, H15, SEC-12).
#include "packet/offload.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <vector>

#include "packet/checksum.h"
#include "support/frame_builder.h"

namespace sluice::packet {
namespace {

using test::Bytes;
using test::FramePlan;

constexpr std::uint8_t kNeeds = kOffloadNeedsChecksum;

Offload checksum_at(std::uint16_t start, std::uint16_t offset) {
  return {.flags = kNeeds, .csum_start = start, .csum_offset = offset};
}

Offload gso(std::uint8_t type, std::uint16_t size) {
  Offload offload = checksum_at(34, 16);
  offload.gso_type = type;
  offload.gso_size = size;
  return offload;
}

TEST(Offload, NothingToDoIsConsistentWithAnyFrame) {
  for (const std::uint32_t length : {0U, 1U, 13U, 14U, 60U, 65'593U}) {
    EXPECT_TRUE(offload_is_consistent({}, length));
  }
}

TEST(Offload, NET_11_ChecksumPlacesOfAFrameOf60Bytes) {
  // H15's own list: which of these places lie inside a frame of 60 bytes, behind its addresses?
  for (const std::uint16_t start :
       std::initializer_list<std::uint16_t>{0, 6, 13, 14, 34, 42, 58, 59, 60, 65535}) {
    for (const std::uint16_t offset :
         std::initializer_list<std::uint16_t>{0, 1, 6, 16, 44, 45, 65534, 65535}) {
      const bool fits = start >= 14 && std::uint32_t{start} + offset + 2 <= 60;
      EXPECT_EQ(offload_is_consistent(checksum_at(start, offset), 60), fits)
          << start << " " << offset;
    }
  }
}

TEST(Offload, NET_11_SumsAreNotCutTo16Bits) {
  // 40000 + 25535 + 2 is 1 modulo 65536.
  EXPECT_FALSE(offload_is_consistent(checksum_at(40000, 25535), 1514));
  EXPECT_FALSE(offload_is_consistent(checksum_at(65535, 65535), 65'593));
  EXPECT_TRUE(offload_is_consistent(checksum_at(65535, 56), 65'593));
  EXPECT_FALSE(offload_is_consistent(checksum_at(65535, 57), 65'593));
}

TEST(Offload, SEC_12_EveryStartAtTheBoundaryIsConsistentOrNot) {
  for (std::uint32_t length = 0; length < 128; ++length) {
    for (std::uint16_t start = 0; start < 130; ++start) {
      for (const std::uint16_t offset : std::initializer_list<std::uint16_t>{0, 6, 16}) {
        const bool fits = start >= 14 && start + std::uint32_t{offset} + 2 <= length;
        ASSERT_EQ(offload_is_consistent(checksum_at(start, offset), length), fits);
      }
    }
  }
}

TEST(Offload, NET_11_PlacesWithoutTheFlagDoNotMatter) {
  Offload offload = checksum_at(65535, 65535);
  offload.flags = 0;
  EXPECT_TRUE(offload_is_consistent(offload, 60));
}

TEST(Offload, NET_12_EveryGsoTypeIsKnownOrRefused) {
  const std::set<int> known = {0, 1, 3, 4, 5, 0x81, 0x84};
  for (int type = 0; type < 256; ++type) {
    EXPECT_EQ(offload_is_consistent(gso(static_cast<std::uint8_t>(type), 1000), 4000),
              known.contains(type))
        << type;
  }
}

TEST(Offload, NET_12_GsoNeedsASizeAndAChecksum) {
  EXPECT_FALSE(offload_is_consistent(gso(kGsoTypeTcpIpv4, 0), 4000));
  EXPECT_TRUE(offload_is_consistent(gso(kGsoTypeTcpIpv4, 1), 4000));
  Offload offload = gso(kGsoTypeTcpIpv4, 1000);
  offload.flags = 0;
  EXPECT_FALSE(offload_is_consistent(offload, 4000));
  offload.flags = 2;
  EXPECT_FALSE(offload_is_consistent(offload, 4000));
}

TEST(Offload, NET_13_HdrLenDoesNotMatter) {
  for (int hdr_len = 0; hdr_len < 65536; hdr_len += 257) {
    Offload offload = gso(kGsoTypeTcpIpv4, 1000);
    offload.hdr_len = static_cast<std::uint16_t>(hdr_len);
    EXPECT_TRUE(offload_is_consistent(offload, 4000));
  }
}

TEST(Offload, NET_14_OtherFlagsDoNotMatter) {
  for (int flags = 0; flags < 256; ++flags) {
    Offload offload = checksum_at(60, 0);
    offload.flags = static_cast<std::uint8_t>(flags);
    EXPECT_EQ(offload_is_consistent(offload, 60), (flags & 1) == 0) << flags;
  }
}

TEST(CompleteChecksum, NET_17_GivesTheChecksumOfACompleteFrame) {
  for (const std::size_t tags : {0UL, 1UL, 2UL}) {
    for (const bool ipv6 : {false, true}) {
      for (const bool udp : {false, true}) {
        for (const std::size_t payload : {0UL, 1UL, 2UL, 99UL, 100UL, 1460UL}) {
          const FramePlan plan{.vlan_tags = tags, .ipv6 = ipv6, .udp = udp, .payload = payload};
          auto [bytes, offload] = test::build_offloaded(plan);
          ASSERT_TRUE(offload_is_consistent(offload, static_cast<std::uint32_t>(bytes.size())));
          complete_checksum(bytes, offload);
          EXPECT_EQ(bytes, test::build_frame(plan));
          EXPECT_TRUE(test::checksums_are_right(plan, bytes));
        }
      }
    }
  }
}

TEST(CompleteChecksum, AUdpChecksumOfZeroIsWrittenAsOnes) {
  // The one value of the last payload bytes that makes the sum 0xFFFF, found by the reference.
  const FramePlan plan{.udp = true, .payload = 2};
  auto [bytes, offload] = test::build_offloaded(plan);
  bytes[bytes.size() - 1] = bytes[bytes.size() - 2] = std::byte{0};
  const std::uint16_t rest = test::slow_sum(std::span(bytes).subspan(offload.csum_start));
  const auto last = static_cast<std::uint16_t>(~rest);
  bytes[bytes.size() - 2] = static_cast<std::byte>(last >> 8);
  bytes[bytes.size() - 1] = static_cast<std::byte>(last & 0xFF);
  complete_checksum(bytes, offload);
  EXPECT_EQ(bytes[offload.csum_start + 6], std::byte{0xFF});
  EXPECT_EQ(bytes[offload.csum_start + 7], std::byte{0xFF});
}

TEST(CompleteChecksum, H15_EveryConsistentPlaceIsWrittenAndNothingElse) {
  Bytes original(64);
  for (std::size_t i = 0; i < original.size(); ++i) original[i] = static_cast<std::byte>(i * 37);
  for (std::uint16_t start = 0; start < 70; ++start) {
    for (std::uint16_t offset = 0; offset < 70; ++offset) {
      const Offload offload = checksum_at(start, offset);
      if (!offload_is_consistent(offload, 64)) continue;
      Bytes frame = original;
      complete_checksum(frame, offload);
      const std::size_t field = std::size_t{start} + offset;
      for (std::size_t i = 0; i < frame.size(); ++i) {
        if (i != field && i != field + 1) {
          ASSERT_EQ(frame[i], original[i]);
        }
      }
    }
  }
}

}  // namespace
}  // namespace sluice::packet
