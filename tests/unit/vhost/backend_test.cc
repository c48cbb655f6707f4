// The back-end as a state machine: negotiation, status, reset, configuration, and what it refuses.
#include "vhost/backend.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>

#include "support/raw_driver.h"
#include "support/vhost_bench.h"
#include "unit/memory/leaks.h"

namespace sluice::test {
namespace {

using vhost::Message;
using vhost::ProtocolFeature;
using vhost::Request;
using virtio::Feature;

TEST(Backend, OffersTheDevicesFeaturesAndThoseOfTheTransport) {
  VhostBench bench;
  const std::uint64_t offered = *bench.query(Request::kGetFeatures);
  EXPECT_EQ(offered, bench.device.offered.low() | kProtocolBit | kLogAllBit);
}

TEST(Backend, OffersOnlyTheProtocolFeaturesItImplements) {
  VhostBench bench;
  // MQ, LOG_SHMFD, RARP, REPLY_ACK, MTU, BACKEND_REQ, CONFIG, INFLIGHT_SHMFD, RESET_DEVICE,
  // INBAND_NOTIFICATIONS, CONFIGURE_MEM_SLOTS, STATUS.
  EXPECT_EQ(*bench.query(Request::kGetProtocolFeatures), 0x1f23fU);
}

TEST(Backend, INI_03_INI_16_AFeatureThatWasNotOfferedIsRefusedOneByOne) {
  VhostBench bench;
  ASSERT_TRUE(bench.greet());
  const std::uint64_t offered = *bench.query(Request::kGetFeatures);
  for (unsigned number = 0; number < 64; ++number) {
    const std::uint64_t bit = 1ULL << number;
    const bool fine = bench.accepted(VhostBench::number(Request::kSetFeatures, bit));
    EXPECT_EQ(fine, (offered & bit) != 0) << number;
  }
}

TEST(Backend, TheDeviceIsToldNoFeatureOfTheTransport) {
  VhostBench bench;
  ASSERT_TRUE(bench.greet());
  ASSERT_TRUE(bench.accepted(
      VhostBench::number(Request::kSetFeatures, kVersion1Bit | kProtocolBit | kLogAllBit)));
  EXPECT_EQ(bench.device.features, virtio::FeatureSet{Feature::kVersion1});
  EXPECT_EQ(bench.backend->view().features.low(), kVersion1Bit | kProtocolBit | kLogAllBit);
}

TEST(Backend, INI_03_AFeatureWithoutItsRequirementIsKeptFromTheDevice) {
  VhostBench bench;
  bench.device.offered.add(Feature::kGuestCsum);
  bench.device.offered.add(Feature::kGuestTso4);
  bench.reconnect();
  ASSERT_TRUE(bench.greet());
  virtio::FeatureSet set{Feature::kVersion1, Feature::kGuestTso4};
  ASSERT_TRUE(bench.accepted(VhostBench::number(Request::kSetFeatures, set.low())));
  EXPECT_FALSE(bench.device.features.has(Feature::kGuestTso4));
}

// A front-end that serves the control queue itself strips CTRL_VQ but not MQ.
TEST(Backend, MqSurvivesWithoutControlQueue) {
  VhostBench bench(2);
  ASSERT_TRUE(bench.greet());
  const virtio::FeatureSet set{Feature::kVersion1, Feature::kMq};
  ASSERT_TRUE(bench.accepted(VhostBench::number(Request::kSetFeatures, set.low())));
  EXPECT_TRUE(bench.device.features.has(Feature::kMq));
  EXPECT_FALSE(bench.device.features.has(Feature::kCtrlVq));
}

TEST(Backend, FeaturesThatTheDeviceRefusesLeaveTheOldOnes) {
  VhostBench bench;
  ASSERT_TRUE(bench.greet());
  ASSERT_TRUE(bench.accepted(VhostBench::number(Request::kSetFeatures, kVersion1Bit)));
  bench.device.features_status = fail(ErrorCode::kUnsupported, "no");
  EXPECT_FALSE(bench.accepted(VhostBench::number(Request::kSetFeatures, kPackedFeatures)));
  EXPECT_EQ(bench.backend->view().features.low(), kVersion1Bit);
}

TEST(Backend, UnknownProtocolFeaturesAreRefused) {
  VhostBench bench;
  ASSERT_TRUE(bench.greet());
  for (unsigned number = 0; number < 64; ++number) {
    const std::uint64_t bit = 1ULL << number;
    if ((vhost::offered_protocol_features() & bit) != 0) continue;
    const std::uint64_t bits = vhost::offered_protocol_features() | bit;
    EXPECT_FALSE(bench.accepted(VhostBench::number(Request::kSetProtocolFeatures, bits)));
  }
}

TEST(Backend, InbandNotificationsWithoutWhatTheyNeedEndTheSession) {
  for (const auto missing : {ProtocolFeature::kBackendReq, ProtocolFeature::kReplyAck}) {
    VhostBench bench;
    const std::uint64_t bits = vhost::offered_protocol_features() & ~vhost::bit(missing);
    const auto answer =
        bench.backend->handle(VhostBench::number(Request::kSetProtocolFeatures, bits));
    ASSERT_FALSE(answer.has_value());
    EXPECT_EQ(answer.error().code, ErrorCode::kProtocol);
  }
}

TEST(Backend, AnswersTheNumberOfQueuePairs) {
  VhostBench bench(5);
  ASSERT_TRUE(bench.greet());
  EXPECT_EQ(bench.query(Request::kGetQueueNum), 5U);
  EXPECT_EQ(bench.query(Request::kGetMaxMemSlots), 509U);
}

TEST(Backend, SEC_15_TheLargestDeviceHasAllItsRings) {
  VhostBench bench(127);
  ASSERT_TRUE(bench.greet());
  EXPECT_EQ(bench.backend->rings().count(), 255U);  // 127 pairs and the control queue.
  EXPECT_TRUE(bench.accepted(VhostBench::state(Request::kSetVringNum, 254, 64)));
  EXPECT_FALSE(bench.accepted(VhostBench::state(Request::kSetVringNum, 255, 64)));
  const TestEvent event;
  EXPECT_TRUE(bench.accepted(VhostBench::ring_fd(Request::kSetVringCall, 254, event.copy())));
  EXPECT_FALSE(bench.accepted(VhostBench::ring_fd(Request::kSetVringCall, 255, event.copy())));
}

TEST(Backend, SEC_04_SEC_36_SEC_54_ARingNumberBeyondTheLastIsRefusedAndTouchesNoRing) {
  VhostBench bench;
  ASSERT_TRUE(bench.greet());
  const LeakCheck leaks;
  const TestEvent event;
  for (const std::uint32_t index :
       {3U, 255U, 256U, 0xffffU, 0x10000U, 0x1ffffU, 0x80000000U, 0xffffffffU}) {
    for (const Request request : {Request::kSetVringNum, Request::kSetVringBase,
                                  Request::kSetVringEnable, Request::kVringKick}) {
      EXPECT_FALSE(bench.accepted(VhostBench::state(request, index, 1))) << index;
    }
    EXPECT_FALSE(bench.stop_ring(index).has_value()) << index;
    Message addresses(Request::kSetVringAddr);
    addresses.add(vhost::VringAddress{index, 0, 0, 0, 0, 0});
    EXPECT_FALSE(bench.accepted(std::move(addresses))) << index;
  }
  for (const std::uint64_t value :
       {3ULL, 255ULL, 0x200ULL, 0x10000ULL, 0x1ffffULL, 1ULL << 32, 1ULL << 63}) {
    for (const Request request :
         {Request::kSetVringKick, Request::kSetVringCall, Request::kSetVringErr}) {
      EXPECT_FALSE(
          bench.accepted(VhostBench::with_fd(VhostBench::number(request, value), event.copy())));
      EXPECT_FALSE(bench.accepted(VhostBench::number(request, value | vhost::kVringNoFd)));
    }
  }
  EXPECT_TRUE(bench.device.log.empty());
}

TEST(Backend, SEC_53_SEC_63_ImpossibleRingSizesAreRefused) {
  VhostBench bench;
  ASSERT_TRUE(bench.negotiate(kSplitFeatures));
  for (const std::uint32_t size : {0U, 3U, 255U, 32769U, 65536U, 0x80000000U, 0xffffffffU}) {
    EXPECT_FALSE(bench.accepted(VhostBench::state(Request::kSetVringNum, 0, size))) << size;
  }
  for (const std::uint32_t size : {1U, 2U, 256U, 32768U}) {
    EXPECT_TRUE(bench.accepted(VhostBench::state(Request::kSetVringNum, 0, size))) << size;
  }
  bench.reconnect();
  ASSERT_TRUE(bench.negotiate(kPackedFeatures));
  for (const std::uint32_t size : {0U, 32769U}) {
    EXPECT_FALSE(bench.accepted(VhostBench::state(Request::kSetVringNum, 0, size))) << size;
  }
  for (const std::uint32_t size : {1U, 3U, 255U, 32767U, 32768U}) {
    EXPECT_TRUE(bench.accepted(VhostBench::state(Request::kSetVringNum, 0, size))) << size;
  }
}

TEST(Backend, SEC_61_ADescriptorThatIsNoEventfdIsRefusedAsKickAndCall) {
  VhostBench bench;
  ASSERT_TRUE(bench.greet());
  const LeakCheck leaks;
  std::array<int, 2> pipe_ends{};
  ASSERT_EQ(::pipe(pipe_ends.data()), 0);
  const UniqueFd reader(pipe_ends[0]);
  const UniqueFd writer(pipe_ends[1]);
  for (const Request request :
       {Request::kSetVringKick, Request::kSetVringCall, Request::kSetVringErr}) {
    for (const int fd : {reader.get(), writer.get(), bench.guest.fd()}) {
      EXPECT_FALSE(bench.accepted(VhostBench::ring_fd(request, 0, copy_of(fd))));
    }
  }
  EXPECT_TRUE(bench.device.log.empty());
}

TEST(Backend, StatusIsKeptAndToldToTheDevice) {
  VhostBench bench;
  ASSERT_TRUE(bench.greet());
  EXPECT_EQ(bench.query(Request::kGetStatus), 0U);
  EXPECT_TRUE(bench.accepted(VhostBench::number(Request::kSetStatus, 3)));
  EXPECT_EQ(bench.query(Request::kGetStatus), 3U);
  EXPECT_EQ(bench.device.status, 3);
  EXPECT_FALSE(bench.accepted(VhostBench::number(Request::kSetStatus, 0x100)));
  EXPECT_EQ(bench.query(Request::kGetStatus), 3U);
}

TEST(Backend, INI_02_FeaturesOkIsNotKeptWithoutFeatures) {
  VhostBench bench;
  ASSERT_TRUE(bench.greet());
  EXPECT_TRUE(bench.accepted(VhostBench::number(Request::kSetStatus, 11)));
  EXPECT_EQ(bench.query(Request::kGetStatus), 3U);
  ASSERT_TRUE(bench.accepted(VhostBench::number(Request::kSetFeatures, kSplitFeatures)));
  EXPECT_TRUE(bench.accepted(VhostBench::number(Request::kSetStatus, 11)));
  EXPECT_EQ(bench.query(Request::kGetStatus), 11U);
}

TEST(Backend, INI_07_TheSameSetIsNegotiatedAgainAfterEachReset) {
  VhostBench bench;
  ASSERT_TRUE(bench.greet());
  for (int i = 0; i < 10'000; ++i) {
    ASSERT_TRUE(bench.accepted(VhostBench::number(Request::kSetFeatures, kPackedFeatures)));
    ASSERT_TRUE(bench.accepted(VhostBench::number(Request::kSetStatus, 15)));
    ASSERT_TRUE(bench.accepted(i % 2 == 0 ? Message(Request::kResetDevice)
                                          : VhostBench::number(Request::kSetStatus, 0)));
  }
  EXPECT_EQ(bench.query(Request::kGetStatus), 0U);
  EXPECT_EQ(bench.device.resets, 10'001U);
}

TEST(Backend, INI_12_ServesTheConfigurationSpaceBeforeAnyFeature) {
  VhostBench bench;
  for (std::size_t i = 0; i < bench.device.config_space.size(); ++i) {
    bench.device.config_space[i] = static_cast<std::byte>(i + 1);
  }
  ASSERT_TRUE(bench.greet());
  Message wanted(Request::kGetConfig);
  wanted.add(vhost::ConfigDescription{4, 8, 0});
  wanted.payload.resize(12 + 8);
  const auto answer = bench.send(std::move(wanted));
  ASSERT_TRUE(answer.has_value());
  ASSERT_EQ(answer->payload.size(), 20U);
  EXPECT_EQ(answer->get<std::uint32_t>(0), 4U);
  EXPECT_EQ(answer->get<std::uint32_t>(4), 8U);
  EXPECT_EQ(answer->payload[12], std::byte{5});
  EXPECT_EQ(answer->payload[19], std::byte{12});
}

TEST(Backend, ConfigurationBeyondTheEndIsAnsweredWithNothing) {
  VhostBench bench;
  ASSERT_TRUE(bench.greet());
  const std::array<std::array<std::uint32_t, 2>, 7> cases = {
      {{0, 25}, {24, 1}, {25, 0}, {0, 0}, {0xffffffff, 1}, {1, 0xffffffff}, {0, 257}}};
  for (const auto& [offset, size] : cases) {
    Message wanted(Request::kGetConfig);
    wanted.add(vhost::ConfigDescription{offset, size, 0});
    const auto answer = bench.send(std::move(wanted));
    ASSERT_TRUE(answer.has_value());
    EXPECT_TRUE(answer->payload.empty()) << offset << " " << size;
  }
}

TEST(Backend, INI_13_WritesConfigurationOnlyWhereTheDeviceLets) {
  VhostBench bench;
  ASSERT_TRUE(bench.greet());
  const auto write = [&](std::uint32_t offset, std::uint32_t size, std::size_t bytes,
                         std::uint32_t flags) {
    Message message(Request::kSetConfig);
    message.add(vhost::ConfigDescription{offset, size, flags});
    message.payload.resize(12 + bytes, std::byte{0x77});
    return bench.accepted(std::move(message));
  };
  EXPECT_TRUE(write(23, 1, 1, 0));
  EXPECT_TRUE(write(23, 1, 1, 1));
  EXPECT_EQ(bench.device.config_space[23], std::byte{0x77});
  EXPECT_FALSE(write(0, 6, 6, 0));   // Read-only.
  EXPECT_FALSE(write(23, 1, 2, 0));  // Says one byte, carries two.
  EXPECT_FALSE(write(23, 2, 1, 0));  // The other way round.
  EXPECT_FALSE(write(24, 1, 1, 0));  // Beyond the end.
  EXPECT_FALSE(write(0xffffffff, 1, 1, 0));
  EXPECT_FALSE(write(23, 0, 0, 0));
  EXPECT_FALSE(write(23, 1, 1, 2));  // Unknown flag.
}

TEST(Backend, MTU_01_TheMtuGoesToTheDeviceWhichMayRefuseIt) {
  VhostBench bench;
  ASSERT_TRUE(bench.greet());
  EXPECT_TRUE(bench.accepted(VhostBench::number(Request::kNetSetMtu, 9000)));
  EXPECT_EQ(bench.device.mtu, 9000);
  EXPECT_FALSE(bench.accepted(VhostBench::number(Request::kNetSetMtu, 0x10000 + 1500)));
  bench.device.mtu_status = fail(ErrorCode::kOutOfRange, "no");
  EXPECT_FALSE(bench.accepted(VhostBench::number(Request::kNetSetMtu, 1500)));
  EXPECT_EQ(bench.device.mtu, 9000);
}

TEST(Backend, SendRarpCarriesTheMacInItsFirstSixBytes) {
  VhostBench bench;
  ASSERT_TRUE(bench.greet());
  EXPECT_TRUE(bench.accepted(VhostBench::number(Request::kSendRarp, 0x0000'5634'1200'5452)));
  ASSERT_EQ(bench.device.rarp.size(), 6U);
  EXPECT_EQ(bench.device.rarp[0], std::byte{0x52});
  EXPECT_EQ(bench.device.rarp[5], std::byte{0x56});
}

TEST(Backend, TheDeviceIsResetAtBothEndsOfASession) {
  VhostBench bench;
  EXPECT_EQ(bench.device.resets, 1U);
  bench.hang_up();
  EXPECT_EQ(bench.device.resets, 2U);
}

TEST(Backend, ViewTellsMemoryAndTheLastRefusal) {
  VhostBench bench;
  ASSERT_TRUE(bench.negotiate(kSplitFeatures));
  EXPECT_FALSE(bench.accepted(VhostBench::state(Request::kSetVringEnable, 0, 2)));
  const vhost::SessionView view = bench.backend->view();
  EXPECT_EQ(view.memory_bytes, FakeGuest::kDefaultSize);
  EXPECT_EQ(view.memory_regions, 1U);
  EXPECT_EQ(view.last_error_request, "SET_VRING_ENABLE");
  EXPECT_EQ(view.refused, 1U);
  EXPECT_TRUE(std::ranges::count(view.protocol_features, "INFLIGHT_SHMFD") == 1);
}

}  // namespace
}  // namespace sluice::test
