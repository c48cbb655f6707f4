// Sessions over a real socket: messages, replies that wait, the back-end channel, in-band calls.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <thread>

#include "memory/shared.h"
#include "support/raw_driver.h"
#include "support/vhost_bench.h"
#include "unit/memory/leaks.h"
#include "vhost/backend_channel.h"
#include "vhost/server.h"

namespace sluice::test {
namespace {

using vhost::BackendRequest;
using vhost::Connection;
using vhost::Message;
using vhost::Request;
using vhost::Session;

bool readable(int fd, int timeout = 0) {
  pollfd item{.fd = fd, .events = POLLIN, .revents = 0};
  return ::poll(&item, 1, timeout) == 1;
}

std::array<UniqueFd, 2> socket_pair() {
  std::array<int, 2> ends{};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

// The front-end is a Connection in the test's hands; bench_ only makes messages and memory.
class SessionTest : public testing::Test {
 protected:
  SessionTest() {
    bench_.hang_up();
    auto ends = socket_pair();
    front_.emplace(*Connection::adopt(std::move(ends[0])));
    session_ = *Session::create(std::move(ends[1]), bench_.device, {});
  }

  // Lets the session work as long as it says that it has work.
  Status serve() {
    for (int i = 0; i < 1000 && readable(session_->fd()); ++i) {
      if (const Status status = session_->on_ready(); !status) return status;
    }
    EXPECT_FALSE(readable(session_->fd())) << "the session spins";
    return {};
  }
  std::optional<Message> ask(Message message) {
    EXPECT_TRUE(front_->send(std::move(message)).has_value());
    EXPECT_TRUE(serve().has_value());
    return *front_->receive();
  }
  bool accepted(Message message) {
    message.flags |= vhost::kFlagNeedReply;
    const auto answer = ask(std::move(message));
    return answer && answer->payload.size() == 8 && answer->get<std::uint64_t>() == 0;
  }
  bool negotiate() {
    ask(VhostBench::number(Request::kSetProtocolFeatures, vhost::offered_protocol_features()));
    return accepted(VhostBench::number(Request::kSetFeatures, kSplitFeatures)) &&
           accepted(bench_.mem_table());
  }
  // Gives the session a back-end channel; returns our end.
  UniqueFd open_channel() {
    auto ends = socket_pair();
    EXPECT_TRUE(
        accepted(VhostBench::with_fd(Message(Request::kSetBackendReqFd), std::move(ends[1]))));
    return std::move(ends[0]);
  }
  bool start_ring(std::uint32_t index, const RawDriver& driver, UniqueFd call) {
    const auto ring = driver.config();
    if (call) {
      EXPECT_TRUE(accepted(VhostBench::ring_fd(Request::kSetVringCall, index, std::move(call))));
    }
    return accepted(VhostBench::state(Request::kSetVringNum, index, ring.size)) &&
           accepted(VhostBench::addresses(index, ring, bench_.guest)) &&
           accepted(VhostBench::ring_fd(Request::kSetVringKick, index, bench_.kick.copy())) &&
           accepted(VhostBench::state(Request::kSetVringEnable, index, 1));
  }

  VhostBench bench_;
  std::optional<Connection> front_;
  std::unique_ptr<Session> session_;
};

TEST_F(SessionTest, AnswersOverItsSocket) {
  const auto answer = ask(Message(Request::kGetFeatures));
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->get<std::uint64_t>(), bench_.device.offered.low() | kProtocolBit | kLogAllBit);
}

TEST_F(SessionTest, ServesARing) {
  RawSplitDriver driver(bench_.guest, DriverOptions{.size = 16});
  ASSERT_TRUE(negotiate());
  ASSERT_TRUE(start_ring(1, driver, bench_.call.copy()));
  ASSERT_TRUE(driver.post(Piece{bench_.guest.allocate(64), 64}).has_value());
  EXPECT_EQ(bench_.device.serve(1), 1U);
  EXPECT_EQ(bench_.call.take(), 1U);
  const vhost::SessionView view = session_->view();
  EXPECT_EQ(view.memory_bytes, FakeGuest::kDefaultSize);
  EXPECT_EQ(view.features.low(), kSplitFeatures);
}

TEST_F(SessionTest, TheFrontEndLeavesAndEverythingStops) {
  RawSplitDriver driver(bench_.guest, DriverOptions{.size = 16});
  ASSERT_TRUE(negotiate());
  ASSERT_TRUE(start_ring(1, driver, bench_.call.copy()));
  front_.reset();
  const Status status = serve();
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, ErrorCode::kClosed);
  session_.reset();
  EXPECT_FALSE(bench_.device.any_running());
  EXPECT_EQ(bench_.device.complaint(), "");
}

TEST_F(SessionTest, LeavesNothingOpen) {
  session_.reset();
  front_.reset();
  for (int i = 0; i < 100; ++i) {
    const LeakCheck leaks;
    auto ends = socket_pair();
    front_.emplace(*Connection::adopt(std::move(ends[0])));
    session_ = *Session::create(std::move(ends[1]), bench_.device, {});
    RawSplitDriver driver(bench_.guest, DriverOptions{.size = 16});
    ASSERT_TRUE(negotiate());
    UniqueFd channel = open_channel();
    ASSERT_TRUE(start_ring(1, driver, i % 2 == 0 ? bench_.call.copy() : UniqueFd()));
    session_.reset();
    front_.reset();
  }
}

TEST_F(SessionTest, SEC_58_HalfAMessageCostsNothing) {
  const std::array<std::uint32_t, 3> header = {1, 1, 0};
  const auto bytes = std::as_bytes(std::span(header));
  for (const std::byte& byte : bytes.first(11)) {
    ASSERT_EQ(::write(front_->fd(), &byte, 1), 1);
    EXPECT_TRUE(serve().has_value());
    EXPECT_FALSE(readable(session_->fd()));
  }
  ASSERT_EQ(::write(front_->fd(), &bytes[11], 1), 1);
  EXPECT_TRUE(serve().has_value());
  EXPECT_TRUE((*front_->receive()).has_value());
}

TEST_F(SessionTest, AChattyFrontEndIsServedInTurns) {
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(front_->send(Message(Request::kSetOwner)).has_value());
  ASSERT_FALSE(front_->unsent());
  ASSERT_TRUE(session_->on_ready().has_value());
  EXPECT_LT(session_->view().messages, 100U);
  EXPECT_TRUE(readable(session_->fd()));  // And it says that there is more.
  EXPECT_TRUE(serve().has_value());
  EXPECT_EQ(session_->view().messages, 200U);
}

TEST_F(SessionTest, SEC_59_AFrontEndThatDoesNotReadItsAnswersIsNotReadEither) {
  ask(VhostBench::number(Request::kSetProtocolFeatures, vhost::offered_protocol_features()));
  Message question(Request::kGetConfig);
  question.add(vhost::ConfigDescription{0, 24, 0});
  std::uint64_t asked = 0;
  while (!front_->unsent() && asked < 100'000) {
    Message copy(Request::kGetConfig);
    copy.payload = question.payload;
    ASSERT_TRUE(front_->send(std::move(copy)).has_value());
    ASSERT_TRUE(serve().has_value());
    ++asked;
  }
  EXPECT_TRUE(front_->unsent());
  EXPECT_FALSE(readable(session_->fd()));
  // Once it reads, each question has its answer.
  std::uint64_t answers = 0;
  for (int idle = 0; idle < 3; ++idle) {
    while ((*front_->receive()).has_value()) {
      ++answers;
      idle = 0;
    }
    ASSERT_TRUE(front_->flush().has_value());
    ASSERT_TRUE(serve().has_value());
  }
  EXPECT_EQ(answers, asked);
}

TEST_F(SessionTest, AMalformedFrameEndsTheSession) {
  const std::array<std::uint32_t, 3> header = {1, 2, 0};  // Version 2.
  ASSERT_EQ(::write(front_->fd(), header.data(), sizeof header), 12);
  const Status status = serve();
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, ErrorCode::kProtocol);
}

TEST_F(SessionTest, SEC_57_MemoryThatShrinksEndsTheSession) {
  RawSplitDriver driver(bench_.guest, DriverOptions{.size = 16});
  ASSERT_TRUE(negotiate());
  const UniqueFd file(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(file.get(), 1 << 20), 0);
  Message add(Request::kAddMemReg);
  add.add(vhost::SingleRegion{0, {0, 1U << 20, 1ULL << 40, 0}});
  ASSERT_TRUE(accepted(VhostBench::with_fd(std::move(add), copy_of(file.get()))));
  ASSERT_TRUE(start_ring(1, driver, bench_.call.copy()));
  EXPECT_TRUE(session_->check_memory().has_value());
  ASSERT_EQ(::ftruncate(file.get(), 0), 0);
  const auto memory = bench_.device.queue(1).start.memory;
  std::byte* const place = memory->translate(memory::GuestAddress(4096), 1);
  EXPECT_EQ(memory::shared_at<std::uint8_t>(place)->snapshot(), 0);  // As a worker would.
  ASSERT_FALSE(session_->check_memory().has_value());
  EXPECT_EQ(session_->check_memory().error().code, ErrorCode::kMemoryShrunk);
  const Status status = session_->on_ready();
  ASSERT_FALSE(status.has_value());
}

TEST_F(SessionTest, InBandCallsAndKicksNeedNoEventfd) {
  RawSplitDriver driver(bench_.guest, DriverOptions{.size = 16});
  ASSERT_TRUE(negotiate());
  Connection channel = *Connection::adopt(open_channel());
  const auto ring = driver.config();
  ASSERT_TRUE(accepted(VhostBench::state(Request::kSetVringNum, 1, ring.size)));
  ASSERT_TRUE(accepted(VhostBench::addresses(1, ring, bench_.guest)));
  ASSERT_TRUE(accepted(VhostBench::state(Request::kSetVringEnable, 1, 1)));
  ASSERT_TRUE(driver.post(Piece{bench_.guest.allocate(64), 64}).has_value());
  ASSERT_TRUE(accepted(VhostBench::state(Request::kVringKick, 1, 0)));
  EXPECT_EQ(bench_.device.queue(1).kicks, 1U);
  EXPECT_EQ(bench_.device.serve(1), 1U);
  const auto call = *channel.receive();
  ASSERT_TRUE(call.has_value());
  EXPECT_TRUE(call->is(BackendRequest::kVringCall));
  EXPECT_EQ(call->flags, vhost::kVersion);  // It wants no reply: nobody would wait for it.
  EXPECT_EQ(call->get<vhost::VringState>().index, 1U);
  EXPECT_FALSE((*channel.receive()).has_value());
}

TEST_F(SessionTest, AnEventfdGoesBeforeTheChannel) {
  RawSplitDriver driver(bench_.guest, DriverOptions{.size = 16});
  ASSERT_TRUE(negotiate());
  ASSERT_TRUE(start_ring(1, driver, bench_.call.copy()));
  Connection channel = *Connection::adopt(open_channel());
  ASSERT_TRUE(driver.post(Piece{bench_.guest.allocate(64), 64}).has_value());
  EXPECT_EQ(bench_.device.serve(1), 1U);
  EXPECT_EQ(bench_.call.take(), 1U);
  EXPECT_FALSE((*channel.receive()).has_value());
}

TEST_F(SessionTest, SEC_59_InBandCallsToAFrontEndThatSleepsAreRememberedOnceARing) {
  RawSplitDriver driver(bench_.guest, DriverOptions{.size = 16});
  ASSERT_TRUE(negotiate());
  UniqueFd ours = open_channel();
  ASSERT_TRUE(start_ring(1, driver, UniqueFd()));
  const auto call = bench_.device.queue(1).call;
  ASSERT_NE(call, nullptr);
  std::thread worker([&] {
    for (int i = 0; i < 100'000; ++i) call->notify();  // Never blocks.
  });
  worker.join();
  EXPECT_TRUE(serve().has_value());
  Connection channel = *Connection::adopt(std::move(ours));
  std::size_t calls = 0;
  for (int idle = 0; idle < 3; ++idle) {
    while (const auto message = *channel.receive()) {
      ASSERT_TRUE(message->is(BackendRequest::kVringCall));
      ASSERT_EQ(message->payload.size(), 8U);
      ++calls;
      idle = 0;
    }
    ASSERT_TRUE(serve().has_value());
  }
  EXPECT_GT(calls, 0U);
  EXPECT_LT(calls, 100'000U);
  // The last one was not lost.
  call->notify();
  EXPECT_TRUE((*channel.receive()).has_value());
}

TEST_F(SessionTest, SEC_25_AFrontEndThatClosesItsChannelDoesNotMakeTheSessionSpin) {
  RawSplitDriver driver(bench_.guest, DriverOptions{.size = 16});
  ASSERT_TRUE(negotiate());
  UniqueFd channel = open_channel();
  ASSERT_TRUE(start_ring(1, driver, UniqueFd()));
  channel.reset();
  EXPECT_TRUE(serve().has_value());
  bench_.device.queue(1).call->notify();
  EXPECT_TRUE(serve().has_value());
  // A second channel takes over.
  Connection next = *Connection::adopt(open_channel());
  while ((*next.receive()).has_value()) {
  }
  bench_.device.queue(1).call->notify();
  EXPECT_TRUE((*next.receive()).has_value());
}

TEST_F(SessionTest, STA_02_AConfigurationChangeIsToldWhileRingsRun) {
  RawSplitDriver driver(bench_.guest, DriverOptions{.size = 16});
  ASSERT_TRUE(negotiate());
  Connection channel = *Connection::adopt(open_channel());
  session_->config_changed();
  EXPECT_FALSE((*channel.receive()).has_value());  // Suspended: not a word.
  ASSERT_TRUE(start_ring(1, driver, bench_.call.copy()));
  const auto message = *channel.receive();
  ASSERT_TRUE(message.has_value());
  EXPECT_TRUE(message->is(BackendRequest::kConfigChangeMsg));
  EXPECT_TRUE(message->payload.empty());
  session_->config_changed();
  EXPECT_TRUE((*channel.receive())->is(BackendRequest::kConfigChangeMsg));
}

TEST_F(SessionTest, ASuspendedDeviceSendsNothingOfItsOwn) {
  RawSplitDriver driver(bench_.guest, DriverOptions{.size = 16});
  ASSERT_TRUE(negotiate());
  Connection channel = *Connection::adopt(open_channel());
  ASSERT_TRUE(start_ring(1, driver, UniqueFd()));
  while ((*channel.receive()).has_value()) {
  }
  EXPECT_TRUE(ask(VhostBench::state(Request::kGetVringBase, 1, 0)).has_value());
  session_->config_changed();
  EXPECT_FALSE((*channel.receive()).has_value());
  EXPECT_EQ(ask(Message(Request::kGetQueueNum))->get<std::uint64_t>(), 1U);
}

TEST_F(SessionTest, ADescriptorThatIsNoStreamSocketIsRefusedAsChannel) {
  ASSERT_TRUE(negotiate());
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  const UniqueFd other(ends[1]);
  EXPECT_FALSE(
      accepted(VhostBench::with_fd(Message(Request::kSetBackendReqFd), UniqueFd(ends[0]))));
  EXPECT_FALSE(
      accepted(VhostBench::with_fd(Message(Request::kSetBackendReqFd), bench_.call.copy())));
}

}  // namespace
}  // namespace sluice::test
