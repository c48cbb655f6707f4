// Frontend against back-ends that lie, fall silent, or go away: an error in time, never a crash,
// never a leak.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

#include "frontend_fixture.h"

namespace sluice::vhost {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kAll = Frontend::kProtocolFeatures;

class HostileBackend : public FrontendTest {
 protected:
  /// Plays a whole life of a session; the first error ends it.
  Status live() {
    TRY(start());
    std::vector<std::byte> config(6);
    const std::size_t config_bytes = TRY(frontend_->read_config(0, config));
    EXPECT_LE(config_bytes, config.size());
    TRY(frontend_->stop_queue(net::QueueIndex(0)));
    const auto inflight = frontend_->get_inflight(2, 64);
    if (!inflight && inflight.error().code != ErrorCode::kPermission) {
      return std::unexpected(inflight.error());
    }
    return frontend_->reset();
  }
  /// The error that live() ends with; the session must be over then, and stay so.
  Error fatal() {
    const Status outcome = live();
    EXPECT_FALSE(outcome);
    if (outcome) return Error{ErrorCode::kInvalidArgument, "no error"};
    EXPECT_FALSE(frontend_->connected());
    const auto again = frontend_->stop_queue(net::QueueIndex(0));
    EXPECT_TRUE(!again && again.error().code == ErrorCode::kClosed);
    return outcome.error();
  }
  /// A back-end that answers request `id` with `bytes` after a header of `claimed` bytes.
  void answer_with(std::uint32_t id, std::uint32_t answered, std::uint32_t flags,
                   std::vector<std::byte> payload) {
    serve(kAll, [=](Backend& backend, Request& request) {
      if (request.id != id) return false;
      backend.send(answered, flags, payload);
      return true;
    });
  }
};

// Requests whose outcome is a number: the usual question and a command's acknowledgement.
constexpr std::uint32_t kNumbers[] = {GET_FEATURES,  GET_PROTOCOL_FEATURES, GET_QUEUE_NUM,
                                      GET_STATUS,    GET_MAX_MEM_SLOTS,     SET_FEATURES,
                                      SET_VRING_NUM, SET_VRING_KICK,        ADD_MEM_REG};

TEST_F(HostileBackend, AnAnswerToAnotherRequestEndsTheSession) {
  for (const std::uint32_t id : kNumbers) {
    answer_with(id, 99, 5, std::vector<std::byte>(8));
    meet();
    EXPECT_EQ(fatal().code, ErrorCode::kProtocol) << id;
  }
}

TEST_F(HostileBackend, AnAnswerWithoutReplyFlagEndsTheSession) {
  for (const std::uint32_t id : kNumbers) {
    answer_with(id, id, 1, std::vector<std::byte>(8));
    meet();
    EXPECT_EQ(fatal().code, ErrorCode::kProtocol) << id;
  }
}

TEST_F(HostileBackend, AnAnswerOfAnotherVersionEndsTheSession) {
  for (const std::uint32_t id : kNumbers) {
    answer_with(id, id, 6, std::vector<std::byte>(8));
    meet();
    EXPECT_EQ(fatal().code, ErrorCode::kProtocol) << id;
  }
}

TEST_F(HostileBackend, AnAnswerOfAnySizeButTheRightOneEndsTheSession) {
  for (const std::uint32_t id : kNumbers) {
    for (const std::size_t size : {0U, 1U, 4U, 7U, 9U, 12U, 4096U}) {
      answer_with(id, id, 5, std::vector<std::byte>(size));
      meet();
      EXPECT_EQ(fatal().code, ErrorCode::kProtocol) << id << " of " << size;
    }
  }
}

TEST_F(HostileBackend, AnAnswerThatClaimsGigabytesEndsTheSession) {
  serve(kAll, [](Backend& backend, Request&) {
    const std::uint32_t header[] = {SET_OWNER, 5, 0xffff'fff0};
    backend.send_raw(std::as_bytes(std::span(header)));
    return true;
  });
  meet();
  EXPECT_EQ(fatal().code, ErrorCode::kProtocol);
}

TEST_F(HostileBackend, DescriptorsThatNobodyAskedForEndTheSessionAndAreClosed) {
  const std::size_t before = open_descriptors();
  for (const std::size_t count : {1U, 8U, 9U, 30U}) {
    serve(kAll, [count](Backend& backend, Request& request) {
      if (request.id != GET_PROTOCOL_FEATURES) return false;
      const std::vector<int> fds(count, 0);
      backend.send(GET_PROTOCOL_FEATURES, 5, std::vector<std::byte>(8), fds);
      return true;
    });
    meet();
    EXPECT_EQ(fatal().code, ErrorCode::kProtocol);
    frontend_.reset();
    backend_.reset();
    files_.clear();
    EXPECT_TRUE(descriptors_settle_at(before));
  }
}

TEST_F(HostileBackend, AnAnswerBeforeTheQuestionEndsTheSession) {
  serve(kAll, [](Backend& backend, Request& request) {
    if (request.id != SET_VRING_NUM) return false;
    backend.send_u64(SET_VRING_NUM, 0);
    backend.send_u64(SET_VRING_BASE, 0);  // To what will be asked next.
    return true;
  });
  meet();
  const Error error = fatal();
  EXPECT_EQ(error.code, ErrorCode::kProtocol);
  EXPECT_EQ(error.detail, SET_VRING_BASE);
}

TEST_F(HostileBackend, Q_10_AHangUpAtAnyRequestIsItsRefusal) {
  for (const std::uint32_t id : {1U,  2U,  3U,  8U,  9U,  10U, 11U, 12U, 13U, 15U,
                                 16U, 17U, 18U, 21U, 24U, 31U, 36U, 37U, 39U, 40U}) {
    serve(kAll, [id](Backend& backend, Request& request) {
      if (request.id == id) backend.hang_up();
      return request.id == id;
    });
    meet();
    const Error error = fatal();
    EXPECT_EQ(error.code, ErrorCode::kClosed) << id;
    // SET_OWNER is followed by a question instead of an acknowledgement.
    EXPECT_EQ(error.detail, id == GET_FEATURES ? SET_OWNER : id);
  }
}

TEST_F(HostileBackend, Q_10_WithoutReplyAckTheHangUpStillNamesTheRequest) {
  for (const std::uint32_t id : {2U, 5U, 8U, 9U, 10U, 12U, 13U, 18U}) {
    serve(0, [id](Backend& backend, Request& request) {
      if (request.id == id) backend.hang_up();
      return request.id == id;
    });
    meet();
    const Status outcome = start();
    ASSERT_FALSE(outcome);
    EXPECT_EQ(outcome.error().code, ErrorCode::kClosed);
    EXPECT_EQ(outcome.error().detail, id);
  }
}

TEST_F(HostileBackend, ARefusalNamesTheRequestAndLeavesTheSessionAlive) {
  for (const std::uint32_t id : {2U, 8U, 9U, 10U, 12U, 13U, 18U, 37U, 39U}) {
    serve(kAll, [id](Backend& backend, Request& request) {
      if (request.id == id) backend.send_u64(id, 1);
      return request.id == id;
    });
    meet();
    const Status outcome = start();
    ASSERT_FALSE(outcome);
    EXPECT_EQ(outcome.error().code, ErrorCode::kPermission);
    EXPECT_EQ(outcome.error().detail, id);
    EXPECT_TRUE(frontend_->connected());
    EXPECT_TRUE(frontend_->offer());
  }
}

TEST_F(HostileBackend, SilenceEndsAtTheDeadline) {
  for (const std::uint32_t id : {1U, 8U, 11U, 12U, 24U, 31U, 37U}) {
    serve(kAll, [id](Backend&, Request& request) { return request.id == id; });
    meet(50ms);
    const auto began = std::chrono::steady_clock::now();
    EXPECT_EQ(fatal().code, ErrorCode::kTimeout);
    EXPECT_LT(std::chrono::steady_clock::now() - began, 10s);
  }
}

TEST_F(HostileBackend, SEC_58_HalfAnAnswerEndsAtTheDeadline) {
  for (const std::size_t bytes : {1U, 11U, 12U, 19U}) {
    serve(kAll, [bytes](Backend& backend, Request& request) {
      if (request.id != GET_VRING_BASE) return false;
      std::array<std::byte, 20> answer{};
      answer[0] = std::byte{GET_VRING_BASE};
      answer[4] = std::byte{5};
      answer[8] = std::byte{8};
      backend.send_raw(std::span(answer).first(bytes));
      return true;
    });
    meet(50ms);
    EXPECT_EQ(fatal().code, ErrorCode::kTimeout);
  }
}

TEST_F(HostileBackend, ABackendThatNeverReadsStopsUsUntilTheDeadlineOnly) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  const UniqueFd theirs(ends[0]);
  UniqueFd ours(ends[1]);
  // The way to the back-end is full before we say a word.
  std::array<char, 4096> junk{};
  while (::send(ours.get(), junk.data(), junk.size(), MSG_DONTWAIT) > 0) {
  }
  auto made = Frontend::adopt(std::move(ours), {.timeout = 50ms});
  ASSERT_TRUE(made);
  EXPECT_EQ((*made)->offer().error().code, ErrorCode::kTimeout);
  EXPECT_FALSE((*made)->connected());
}

TEST_F(HostileBackend, AStopOfAnotherRingOrWithAnAbsurdIndexEndsTheSession) {
  for (const auto& [index, number] : {std::pair{1U, 0U}, std::pair{0U, 0x10000U}}) {
    const std::uint32_t state[] = {index, number};
    const auto bytes = std::as_bytes(std::span(state));
    answer_with(GET_VRING_BASE, GET_VRING_BASE, 5, {bytes.begin(), bytes.end()});
    meet();
    EXPECT_EQ(fatal().code, ErrorCode::kProtocol);
  }
}

TEST_F(HostileBackend, NoQueuesAtAllEndTheSession) {
  serve(kAll).queue_num = 0;
  meet();
  EXPECT_EQ(fatal().code, ErrorCode::kProtocol);
}

TEST_F(HostileBackend, ConfigurationOfAnotherPlaceEndsTheSession) {
  const auto config = [&](std::uint32_t offset, std::uint32_t size, std::size_t bytes) {
    std::vector<std::byte> answer(12 + bytes);
    std::memcpy(answer.data(), &offset, 4);
    std::memcpy(answer.data() + 4, &size, 4);
    answer_with(GET_CONFIG, GET_CONFIG, 5, std::move(answer));
    meet();
    return fatal().code;
  };
  EXPECT_EQ(config(1, 6, 6), ErrorCode::kProtocol);
  EXPECT_EQ(config(0, 7, 6), ErrorCode::kProtocol);
  EXPECT_EQ(config(0, 0xffff'ffff, 6), ErrorCode::kProtocol);
  EXPECT_EQ(config(0, 6, 5), ErrorCode::kProtocol);
  EXPECT_EQ(config(0, 6, 7), ErrorCode::kProtocol);
}

TEST_F(HostileBackend, INI_11_ConfigurationThatIsRefusedReadsAsNone) {
  for (const std::size_t size : {0U, 12U}) {
    answer_with(GET_CONFIG, GET_CONFIG, 5, std::vector<std::byte>(size));
    meet();
    ASSERT_TRUE(start());
    std::vector<std::byte> out(6);
    EXPECT_EQ(*frontend_->read_config(0, out), 0U);
    EXPECT_TRUE(frontend_->connected());
  }
}

TEST_F(HostileBackend, AnInflightRegionWithoutDescriptorEndsTheSession) {
  answer_with(GET_INFLIGHT_FD, GET_INFLIGHT_FD, 5, std::vector<std::byte>(24, std::byte{1}));
  meet();
  EXPECT_EQ(fatal().code, ErrorCode::kProtocol);
}

TEST_F(HostileBackend, AFloodOnItsOwnChannelHoldsUpNothing) {
  serve(kAll, [](Backend& backend, Request& request) {
    if (request.id != SET_VRING_NUM) return false;
    std::vector<std::uint32_t> flood;
    for (int i = 0; i < 1000; ++i) {
      const std::uint32_t message[] = {static_cast<std::uint32_t>(i % 12), 9, 0};
      flood.insert(flood.end(), std::begin(message), std::end(message));
    }
    // The answers are not read, and what does not fit is not waited for.
    for (int i = 0; i < 100; ++i) {
      ::send(backend.channel(), flood.data(), flood.size() * 4, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    return false;
  });
  meet();
  EXPECT_TRUE(start());
  EXPECT_TRUE(frontend_->connected());
}

TEST_F(HostileBackend, NonsenseOnItsOwnChannelCostsItTheChannelOnly) {
  serve(kAll, [](Backend& backend, Request& request) {
    if (request.id != SET_VRING_NUM) return false;
    const std::array<std::byte, 64> nonsense = {std::byte{0xff}};
    // At the second ring the channel is gone already.
    ::send(backend.channel(), nonsense.data(), nonsense.size(), MSG_NOSIGNAL);
    return false;
  });
  meet();
  EXPECT_TRUE(start());
  EXPECT_TRUE(frontend_->connected());
}

TEST_F(HostileBackend, AThousandSessionsLeakNoDescriptor) {
  const std::size_t before = open_descriptors();
  for (int i = 0; i < 1000; ++i) {
    const auto id = static_cast<std::uint32_t>(i % 41);
    serve(kAll, [id](Backend& backend, Request& request) {
      if (request.id != id) return false;
      const std::array<int, 3> fds = {0, 1, 2};
      backend.send(id, 5, std::vector<std::byte>(8, std::byte{0xff}), fds);
      return true;
    });
    meet();
    [[maybe_unused]] const Status outcome = live();
    frontend_.reset();
    backend_.reset();
    files_.clear();
  }
  EXPECT_TRUE(descriptors_settle_at(before));
}

}  // namespace
}  // namespace sluice::vhost
