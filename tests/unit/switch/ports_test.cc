// Generator and sink ports, and the frames they make and take.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "support/fake_port.h"
#include "switch/announcement.h"
#include "switch/generator_port.h"
#include "switch/sink_port.h"

namespace sluice::fabric {
namespace {

class GeneratorTest : public ::testing::TestWithParam<std::uint32_t> {};

INSTANTIATE_TEST_SUITE_P(Sizes, GeneratorTest,
                         ::testing::Values(14, 15, 16, 41, 42, 46, 60, 64, 1514, 9014, 65549));

TEST_P(GeneratorTest, GivesFullBurstsOfWholeFrames) {
  auto made = GeneratorPort::create({.name = "gen", .queues = 2, .size = GetParam()});
  ASSERT_TRUE(made.has_value());
  GeneratorPort& port = **made;
  packet::Burst burst;
  for (int round = 0; round < 10; ++round) {
    ASSERT_EQ(port.receive(1, burst), packet::kBurstMax);
    ASSERT_EQ(burst.count, packet::kBurstMax);
    for (const packet::Packet& packet : burst.packets) {
      EXPECT_EQ(packet.length, GetParam());
      EXPECT_EQ(packet.first_length, GetParam());
      EXPECT_EQ(packet.more_count, 0);
      EXPECT_TRUE(packet.offload.none());
      const std::size_t head = std::min<std::size_t>(packet::kHeadSize, packet.length);
      EXPECT_EQ(std::memcmp(packet.head.data(), packet.data, head), 0);
    }
    port.release(1);
  }
  EXPECT_EQ(port.from_driver(1).packets.value(), 640U);
  EXPECT_EQ(port.from_driver(1).bytes.value(), std::uint64_t{640} * GetParam());
  EXPECT_EQ(port.from_driver(0).packets.value(), 0U);
}

TEST(Generator, ItsFramesLieInDifferentPlacesAnOddNumberOfLinesApart) {
  auto made = GeneratorPort::create({.name = "gen", .queues = 1, .size = 128});
  packet::Burst burst;
  (*made)->receive(0, burst);
  for (std::size_t i = 1; i < burst.count; ++i) {
    const auto apart = static_cast<std::size_t>(burst.packets[i].data - burst.packets[i - 1].data);
    EXPECT_EQ(apart % kCacheLine, 0U);
    EXPECT_EQ(apart / kCacheLine % 2, 1U);
  }
}

TEST(Generator, ItsHeadersAreValidIpv4AndUdp) {
  auto made = GeneratorPort::create({.name = "gen", .queues = 1, .size = 64});
  packet::Burst burst;
  (*made)->receive(0, burst);
  const std::byte* const frame = burst.packets[0].data;
  std::uint32_t sum = 0;
  for (std::size_t i = 14; i < 34; i += 2) {
    sum += std::to_integer<std::uint32_t>(frame[i]) << 8 |
           std::to_integer<std::uint32_t>(frame[i + 1]);
  }
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  EXPECT_EQ(sum, 0xffffU);
  EXPECT_EQ(std::to_integer<int>(frame[17]), 50) << "total length";
  EXPECT_EQ(std::to_integer<int>(frame[39]), 30) << "UDP length";
}

TEST(Generator, RefusesSizesAndQueuesThatCannotBe) {
  EXPECT_EQ(GeneratorPort::create({.size = 13}).error().code, ErrorCode::kOutOfRange);
  EXPECT_EQ(GeneratorPort::create({.size = 65550}).error().code, ErrorCode::kOutOfRange);
  EXPECT_EQ(GeneratorPort::create({.queues = 0}).error().code, ErrorCode::kOutOfRange);
  EXPECT_EQ(GeneratorPort::create({.queues = 128}).error().code, ErrorCode::kOutOfRange);
}

TEST(Sink, CountsPacketsAndBytesReadOrNot) {
  for (const bool touch : {false, true}) {
    SinkPort sink({.name = "sink", .touch = touch});
    test::FakePort source("source");
    std::uint64_t bytes = 0;
    for (std::uint32_t i = 0; i < 20; ++i) {
      source.inject(test::make_frame(1, 2, i, 60 + i));
      bytes += 60 + i;
    }
    packet::Burst burst;
    source.receive(0, burst);
    std::vector<packet::PacketIndex> which(burst.count);
    for (std::size_t i = 0; i < which.size(); ++i) which[i] = static_cast<packet::PacketIndex>(i);
    EXPECT_EQ(sink.transmit(5, burst, which), 20U);
    source.release(0);
    EXPECT_EQ(sink.to_driver(1).packets.value(), 20U);
    EXPECT_EQ(sink.to_driver(1).bytes.value(), bytes);
    EXPECT_EQ(sink.receive(0, burst), 0U);
  }
}

TEST(Announcement, IsABroadcastReverseArpRequestOfTheStation) {
  const Announcement frame = make_announcement(0x06'05'04'03'02'02);
  const std::array<unsigned char, 6> mac = {2, 2, 3, 4, 5, 6};
  EXPECT_EQ(std::memcmp(frame.data(), "\xff\xff\xff\xff\xff\xff", 6), 0);
  for (const std::size_t at : {6U, 22U, 32U}) {
    EXPECT_EQ(std::memcmp(frame.data() + at, mac.data(), 6), 0) << at;
  }
  EXPECT_EQ(std::memcmp(frame.data() + 12, "\x80\x35\x00\x01\x08\x00\x06\x04\x00\x03", 10), 0);
}

}  // namespace
}  // namespace sluice::fabric
