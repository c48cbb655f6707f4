// Frontend: what it says to a back-end that behaves, message by message.
#include "vhost/frontend.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

#include "frontend_fixture.h"

namespace sluice::vhost {
namespace {

using net::QueueIndex;
using virtio::FeatureSet;

constexpr std::uint64_t kReplyAck = 1 << 3;
constexpr std::uint64_t kMq = 1 << 0;
constexpr std::uint64_t kConfig = 1 << 9;
constexpr std::uint64_t kBackendReq = 1 << 5;
constexpr std::uint64_t kInflight = 1 << 12;
constexpr std::uint64_t kReset = 1 << 13;
constexpr std::uint64_t kSlots = 1 << 15;
constexpr std::uint64_t kStatus = 1 << 16;

TEST_F(FrontendTest, OffersTheDriverWhatTheBackendHasWithoutTheTransportsOwnBits) {
  serve(kReplyAck | kMq).queue_num = 3;
  meet();
  const auto offer = frontend_->offer();
  ASSERT_TRUE(offer) << offer.error().text;
  EXPECT_EQ(offer->features.low(), kVersion1 | kPackedBit | (1ULL << 22));
  EXPECT_EQ(offer->max_queue_pairs, 3);
  const auto before = ids().size();
  EXPECT_TRUE(frontend_->offer());
  EXPECT_EQ(ids().size(), before) << "the second answer comes from memory";
}

TEST_F(FrontendTest, UsesOnlyProtocolFeaturesThatBothSidesHave) {
  serve(~0ULL);
  meet();
  ASSERT_TRUE(frontend_->offer());
  const std::uint64_t used = number(entries(SET_PROTOCOL_FEATURES).at(0));
  EXPECT_EQ(used, Frontend::kProtocolFeatures);
  EXPECT_EQ(used >> 20, 0U) << "numbers above 19 moved between releases";
  EXPECT_EQ(frontend_->protocol_features(), used);
}

TEST_F(FrontendTest, Q_07_TakesAnAbsurdQueueNumberAsABound) {
  serve(kReplyAck | kMq).queue_num = ~0ULL;
  meet();
  EXPECT_EQ(frontend_->offer()->max_queue_pairs, 127);
}

TEST_F(FrontendTest, Q_03_Q_04_StartsInTheOrderThatEveryBackendAccepts) {
  serve(kReplyAck | kStatus);
  meet();
  ASSERT_TRUE(start());
  const std::vector<std::uint32_t> expected = {SET_OWNER,
                                               GET_FEATURES,
                                               GET_FEATURES,
                                               GET_PROTOCOL_FEATURES,
                                               SET_PROTOCOL_FEATURES,
                                               GET_FEATURES,
                                               SET_STATUS,
                                               SET_STATUS,
                                               SET_STATUS,
                                               SET_VRING_CALL,
                                               SET_VRING_CALL,
                                               SET_FEATURES,
                                               SET_STATUS,
                                               GET_STATUS,
                                               SET_MEM_TABLE,
                                               SET_VRING_NUM,
                                               SET_VRING_BASE,
                                               SET_VRING_ADDR,
                                               SET_VRING_KICK,
                                               SET_VRING_NUM,
                                               SET_VRING_BASE,
                                               SET_VRING_ADDR,
                                               SET_VRING_KICK,
                                               SET_VRING_ENABLE,
                                               SET_VRING_ENABLE,
                                               SET_STATUS};
  EXPECT_EQ(ids(), expected);
  EXPECT_EQ(number(entries(SET_FEATURES).at(0)), kVersion1 | kProtocolBit);
  std::vector<std::uint64_t> status;
  for (const auto& entry : entries(SET_STATUS)) status.push_back(number(entry));
  EXPECT_EQ(status, (std::vector<std::uint64_t>{0, 1, 3, 11, 15})) << "INI-01";
  EXPECT_EQ(*frontend_->status(), 15);
}

TEST_F(FrontendTest, TellsEachRingItsSizeBaseAddressesAndEvents) {
  serve(kReplyAck);
  meet();
  ASSERT_TRUE(start());
  for (std::uint32_t i = 0; i < 2; ++i) {
    const auto num = entries(SET_VRING_NUM).at(i);
    EXPECT_EQ(word(num, 0), i);
    EXPECT_EQ(word(num, 4), 64U);
    const auto address = entries(SET_VRING_ADDR).at(i);
    ASSERT_EQ(address.payload.size(), 40U);
    EXPECT_EQ(word(address, 0), i);
    EXPECT_EQ(word(address, 4), 0U);
    const std::uint64_t user = 0x7000'0001'0000 + i * 0x3000;
    EXPECT_EQ(number(address, 8), user);            // descriptor
    EXPECT_EQ(number(address, 16), user + 0x2000);  // used
    EXPECT_EQ(number(address, 24), user + 0x1000);  // available
    EXPECT_EQ(number(entries(SET_VRING_CALL).at(i)), i);
    EXPECT_EQ(number(entries(SET_VRING_KICK).at(i)), i);
    EXPECT_EQ(entries(SET_VRING_CALL).at(i).fds, 1U);
    EXPECT_EQ(entries(SET_VRING_KICK).at(i).fds, 1U);
    EXPECT_EQ(word(entries(SET_VRING_ENABLE).at(i), 4), 1U);
  }
  const auto table = entries(SET_MEM_TABLE).at(0);
  EXPECT_EQ(table.payload.size(), 40U);
  EXPECT_EQ(word(table, 0), 1U);
  EXPECT_EQ(number(table, 8), 0x10000U);
  EXPECT_EQ(number(table, 16), 0x10000U);
  EXPECT_EQ(number(table, 24), 0x7000'0001'0000U);
  EXPECT_EQ(table.fds, 1U);
}

TEST_F(FrontendTest, ARingWithoutEventsIsSentTheNoDescriptorBit) {
  serve(kReplyAck);
  meet();
  const net::SharedRegion regions[] = {region(0x10000)};
  net::RingSetup setup = ring(1, 0x10000);
  setup.kick = nullptr;
  setup.call = nullptr;
  setup.enabled = false;
  ASSERT_TRUE(frontend_->start({.features = FeatureSet::from_low(kVersion1),
                                .regions = regions,
                                .rings = std::span(&setup, 1)}));
  EXPECT_EQ(number(entries(SET_VRING_CALL).at(0)), 0x101U);
  EXPECT_EQ(number(entries(SET_VRING_KICK).at(0)), 0x101U);
  EXPECT_EQ(entries(SET_VRING_KICK).at(0).fds, 0U);
  EXPECT_EQ(word(entries(SET_VRING_ENABLE).at(0), 4), 0U);
}

TEST_F(FrontendTest, Q_01_APackedBaseCarriesBothPositionsWithTheirWrapCounters) {
  serve(kReplyAck);
  meet();
  net::RingSetup setup = ring(0, 0x10000);
  setup.position = {.avail = 0x8005, .used = 0x0003};
  const net::SharedRegion regions[] = {region(0x10000)};
  ASSERT_TRUE(frontend_->start({.features = FeatureSet::from_low(kVersion1 | kPackedBit),
                                .regions = regions,
                                .rings = std::span(&setup, 1)}));
  EXPECT_EQ(word(entries(SET_VRING_BASE).at(0), 4), 0x0003'8005U);
  const auto position = frontend_->stop_queue(QueueIndex(0));
  ASSERT_TRUE(position);
  EXPECT_EQ(position->avail, 0x8005);
  EXPECT_EQ(position->used, 0x0003);
}

TEST_F(FrontendTest, Q_01_ABackendThatFillsTheLowerHalfOnlyMeansBothPositions) {
  serve(kReplyAck, [](Backend& backend, Request& request) {
    if (request.id != GET_VRING_BASE) return false;
    const std::uint32_t state[] = {request.at<std::uint32_t>(0), 0x8007};
    backend.send(GET_VRING_BASE, 5, std::as_bytes(std::span(state)));
    return true;
  });
  meet();
  ASSERT_TRUE(start(kVersion1 | kPackedBit));
  const auto position = frontend_->stop_queue(QueueIndex(1));
  ASSERT_TRUE(position);
  EXPECT_EQ(position->avail, 0x8007);
  EXPECT_EQ(position->used, 0x8007);
}

TEST_F(FrontendTest, Q_08_OneRingRestartsWithItsEventsSentAgainAndNothingElseTouched) {
  serve(kReplyAck);
  meet();
  ASSERT_TRUE(start());
  const auto before = backend_->log().size();
  ASSERT_TRUE(frontend_->stop_queue(QueueIndex(1)));
  EXPECT_EQ(frontend_->start_queue(ring(0, 0x10000)).error().code, ErrorCode::kWrongState);
  net::RingSetup setup = ring(1, 0x10000);
  setup.position = {.avail = 77, .used = 77};
  ASSERT_TRUE(frontend_->start_queue(setup));
  auto after = ids();
  after.erase(after.begin(), after.begin() + static_cast<std::ptrdiff_t>(before));
  const std::vector<std::uint32_t> expected = {GET_VRING_BASE,  SET_VRING_CALL, SET_VRING_NUM,
                                               SET_VRING_BASE,  SET_VRING_ADDR, SET_VRING_KICK,
                                               SET_VRING_ENABLE};
  EXPECT_EQ(after, expected);
  EXPECT_EQ(word(entries(SET_VRING_BASE).back(), 0), 1U);
  EXPECT_EQ(word(entries(SET_VRING_BASE).back(), 4), 77U);
}

TEST_F(FrontendTest, RefusesToStartTwiceOrWithFeaturesThatWereNotOffered) {
  serve(kReplyAck);
  meet();
  const Status wrong = start(kVersion1 | (1ULL << 35));
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().code, ErrorCode::kNotNegotiated);
  EXPECT_TRUE(entries(SET_FEATURES).empty());
  ASSERT_TRUE(start());
  EXPECT_EQ(start().error().code, ErrorCode::kWrongState);
}

TEST_F(FrontendTest, INI_02_AClearedFeaturesOkEndsTheStartWithFailed) {
  serve(kReplyAck | kStatus).status_mask = 0xff & ~8;
  meet();
  const Status outcome = start();
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code, ErrorCode::kNotNegotiated);
  EXPECT_EQ(number(entries(SET_STATUS).back()) & 128, 128U);
  EXPECT_TRUE(entries(SET_VRING_KICK).empty());
  EXPECT_TRUE(frontend_->connected());
}

TEST_F(FrontendTest, WithoutProtocolFeaturesRingsAreNeitherEnabledNorDisabled) {
  serve(0).features = kVersion1;
  meet();
  ASSERT_TRUE(start());
  EXPECT_TRUE(entries(SET_VRING_ENABLE).empty());
  EXPECT_TRUE(entries(GET_PROTOCOL_FEATURES).empty());
  EXPECT_EQ(number(entries(SET_FEATURES).at(0)), kVersion1);
  EXPECT_EQ(frontend_->enable_queue(QueueIndex(0), false).error().code, ErrorCode::kNotNegotiated);
  ASSERT_TRUE(frontend_->reset());
  net::RingSetup setup = ring(0, 0x10000);
  setup.enabled = false;
  const Status outcome = frontend_->start(
      {.features = FeatureSet::from_low(kVersion1), .regions = {}, .rings = std::span(&setup, 1)});
  EXPECT_EQ(outcome.error().code, ErrorCode::kNotNegotiated);
}

TEST_F(FrontendTest, ResetStopsEveryRingRemovesTheMemoryAndResetsTheDevice) {
  serve(kReplyAck | kSlots | kReset | kStatus);
  meet();
  ASSERT_TRUE(start());
  const auto before = static_cast<std::ptrdiff_t>(backend_->log().size());
  ASSERT_TRUE(frontend_->reset());
  auto after = ids();
  after.erase(after.begin(), after.begin() + before);
  EXPECT_EQ(after, (std::vector<std::uint32_t>{GET_VRING_BASE, GET_VRING_BASE, REM_MEM_REG,
                                               RESET_DEVICE, SET_STATUS}));
  EXPECT_EQ(number(entries(SET_STATUS).back()), 0U);
  EXPECT_TRUE(start());
}

TEST_F(FrontendTest, SlotsChangeOnlyWhatChanged) {
  serve(kReplyAck | kSlots);
  meet();
  const net::SharedRegion a = region(0x10000);
  const net::SharedRegion b = region(0x80000);
  const net::SharedRegion same_place = region(0x80000);
  const net::SharedRegion first[] = {a, b};
  ASSERT_TRUE(frontend_->set_memory(first));
  EXPECT_EQ(entries(ADD_MEM_REG).size(), 2U);
  EXPECT_EQ(entries(ADD_MEM_REG).at(0).fds, 1U);
  ASSERT_TRUE(frontend_->set_memory(first));
  EXPECT_EQ(entries(ADD_MEM_REG).size(), 2U);
  // Another file at the same place is another region, though its record is equal.
  const net::SharedRegion second[] = {a, same_place};
  ASSERT_TRUE(frontend_->set_memory(second));
  EXPECT_EQ(entries(ADD_MEM_REG).size(), 3U);
  ASSERT_EQ(entries(REM_MEM_REG).size(), 1U);
  EXPECT_EQ(entries(REM_MEM_REG).at(0).fds, 0U) << "Q-12";
  EXPECT_EQ(number(entries(REM_MEM_REG).at(0), 8), 0x80000U);
  EXPECT_TRUE(entries(SET_MEM_TABLE).empty());
}

TEST_F(FrontendTest, Q_15_ABackendWithFewSlotsIsNotOverfilled) {
  serve(kReplyAck | kSlots).slots = 1;
  meet();
  const net::SharedRegion two[] = {region(0x10000), region(0x80000)};
  const Status outcome = frontend_->set_memory(two);
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code, ErrorCode::kOutOfRange);
  EXPECT_EQ(outcome.error().detail, 1);
  EXPECT_TRUE(entries(ADD_MEM_REG).empty());
}

TEST_F(FrontendTest, ATableHasEightRegionsAtMost) {
  serve(kReplyAck);
  meet();
  std::vector<net::SharedRegion> regions;
  for (std::uint64_t i = 0; i < 8; ++i) regions.push_back(region((i + 1) << 20));
  ASSERT_TRUE(frontend_->set_memory(regions));
  EXPECT_EQ(entries(SET_MEM_TABLE).at(0).fds, 8U);
  EXPECT_EQ(entries(SET_MEM_TABLE).at(0).payload.size(), 8U + 8 * 32);
  regions.push_back(region(9 << 20));
  EXPECT_EQ(frontend_->set_memory(regions).error().code, ErrorCode::kOutOfRange);
}

TEST_F(FrontendTest, ReadsAndWritesConfigurationSpace) {
  Backend& backend = serve(kReplyAck | kConfig);
  for (int i = 0; i < 60; ++i) backend.config.push_back(std::byte(i));
  meet();
  std::vector<std::byte> out(6);
  const auto got = frontend_->read_config(10, out);
  ASSERT_TRUE(got);
  EXPECT_EQ(*got, 6U);
  EXPECT_EQ(out[5], std::byte(15));
  EXPECT_EQ(*frontend_->read_config(256, out), 0U);
  EXPECT_EQ(*frontend_->read_config(253, out), 3U);
  ASSERT_TRUE(frontend_->write_config(2, std::span(out).first(2)));
  EXPECT_EQ(entries(SET_CONFIG).at(0).payload.size(), 14U);
  EXPECT_EQ(frontend_->write_config(255, std::span(out).first(2)).error().code,
            ErrorCode::kOutOfRange);
}

TEST_F(FrontendTest, AnswersTheBackendsChannelWhileItWaitsItself) {
  serve(kReplyAck | kConfig | kBackendReq, [](Backend& backend, Request& request) {
    if (request.id != SET_VRING_NUM) return false;
    // The configuration changed, and an answer to that comes first.
    const std::uint32_t change[] = {2, 9, 0};
    EXPECT_EQ(::write(backend.channel(), change, sizeof change), 12);
    std::uint32_t answer[5] = {};
    EXPECT_EQ(::recv(backend.channel(), answer, sizeof answer, MSG_WAITALL), 20);
    EXPECT_EQ(answer[0], 2U);
    EXPECT_EQ(answer[1] & 7, 5U);
    EXPECT_EQ(answer[3], 0U);
    return false;
  });
  meet();
  ASSERT_TRUE(start());
  EXPECT_EQ(frontend_->config_changes(), 2U);
}

TEST_F(FrontendTest, WhatWasNotNegotiatedIsNotSent) {
  serve(kReplyAck);
  meet();
  std::vector<std::byte> bytes(4);
  const auto code = [](const auto& outcome) { return outcome.error().code; };
  EXPECT_EQ(code(frontend_->read_config(0, bytes)), ErrorCode::kNotNegotiated);
  EXPECT_EQ(code(frontend_->write_config(0, bytes)), ErrorCode::kNotNegotiated);
  EXPECT_EQ(code(frontend_->set_mtu(1500)), ErrorCode::kNotNegotiated);
  EXPECT_EQ(code(frontend_->send_rarp(std::array<std::byte, 6>{})), ErrorCode::kNotNegotiated);
  EXPECT_EQ(code(frontend_->set_log(0, 0, 4096)), ErrorCode::kNotNegotiated);
  EXPECT_EQ(code(frontend_->get_inflight(2, 64)), ErrorCode::kNotNegotiated);
  EXPECT_EQ(code(frontend_->set_inflight({})), ErrorCode::kNotNegotiated);
  EXPECT_EQ(code(frontend_->status()), ErrorCode::kNotNegotiated);
  EXPECT_EQ(ids().back(), GET_FEATURES);
}

TEST_F(FrontendTest, SendsMtuAndRarp) {
  serve(kReplyAck | (1 << 2) | (1 << 4));
  meet();
  ASSERT_TRUE(frontend_->set_mtu(9000));
  EXPECT_EQ(number(entries(NET_SET_MTU).at(0)), 9000U);
  const std::array<std::byte, 6> mac = {std::byte{2}, std::byte{}, std::byte{},
                                        std::byte{},  std::byte{}, std::byte{7}};
  ASSERT_TRUE(frontend_->send_rarp(mac));
  EXPECT_EQ(number(entries(SEND_RARP).at(0)), 0x0700'0000'0002U);
}

TEST_F(FrontendTest, LoggingIsAnnouncedWithTheGuestAddressOfTheUsedRing) {
  serve(kReplyAck | (1 << 1), [](Backend& backend, Request& request) {
    if (request.id != SET_LOG_BASE) return false;
    backend.send(SET_LOG_BASE, 5, {});
    return true;
  });
  meet();
  ASSERT_TRUE(start());
  EXPECT_EQ(frontend_->set_logging(true).error().code, ErrorCode::kWrongState);
  ASSERT_TRUE(frontend_->set_log(region(0x10000).fd, 0, 4096));
  ASSERT_TRUE(frontend_->set_logging(true));
  EXPECT_EQ(number(entries(SET_FEATURES).back()), kVersion1 | kProtocolBit | (1ULL << 26));
  const auto address = entries(SET_VRING_ADDR).back();
  EXPECT_EQ(word(address, 4), 1U);
  EXPECT_EQ(number(address, 32), 0x10000U + 0x3000 + 0x2000);
  ASSERT_TRUE(frontend_->set_logging(false));
  EXPECT_EQ(word(entries(SET_VRING_ADDR).back(), 4), 0U);
}

TEST_F(FrontendTest, ABackendMayHaveNoInflightRegionToGive) {
  serve(kReplyAck | kInflight);
  meet();
  EXPECT_EQ(frontend_->get_inflight(2, 64).error().code, ErrorCode::kPermission);
  EXPECT_TRUE(frontend_->connected());
}

TEST_F(FrontendTest, HandsTheInflightRegionToTheNextBackend) {
  const net::SharedRegion memory = region(0x10000);
  serve(kReplyAck | kInflight, [&](Backend& backend, Request& request) {
    if (request.id != GET_INFLIGHT_FD) return false;
    std::vector<std::byte> reply = request.payload;
    reply[1] = std::byte{0x40};  // 0x4000 bytes
    backend.send(GET_INFLIGHT_FD, 5, reply, std::span(&memory.fd, 1));
    return true;
  });
  meet();
  const auto inflight = frontend_->get_inflight(2, 64);
  ASSERT_TRUE(inflight) << inflight.error().text;
  EXPECT_EQ(inflight->size, 0x4000U);
  ASSERT_TRUE(frontend_->set_inflight(*inflight));
  EXPECT_EQ(entries(SET_INFLIGHT_FD).at(0).fds, 1U);
  EXPECT_EQ(number(entries(SET_INFLIGHT_FD).at(0)), 0x4000U);
}

}  // namespace
}  // namespace sluice::vhost
