// Framing: messages in pieces, with descriptors, too large, of another version; replies that wait.
#include "vhost/connection.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "support/vhost_bench.h"
#include "unit/memory/leaks.h"

namespace sluice::test {
namespace {

using vhost::Connection;
using vhost::Message;
using vhost::MessageHeader;
using vhost::Request;

// One end is a Connection, the other raw bytes.
class ConnectionTest : public testing::Test {
 protected:
  ConnectionTest() { begin_again(); }

  void begin_again() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    peer_ = UniqueFd(ends[0]);
    connection_.emplace(*Connection::adopt(UniqueFd(ends[1])));
  }

  void write(std::span<const std::byte> bytes, std::size_t fds = 0) {
    std::array<char, CMSG_SPACE(sizeof(int) * 250)> control{};
    iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    if (fds > 0) {
      header.msg_control = control.data();
      header.msg_controllen = CMSG_SPACE(sizeof(int) * fds);
      cmsghdr* item = CMSG_FIRSTHDR(&header);
      item->cmsg_level = SOL_SOCKET;
      item->cmsg_type = SCM_RIGHTS;
      item->cmsg_len = CMSG_LEN(sizeof(int) * fds);
      const int fd = event_.fd();
      for (std::size_t i = 0; i < fds; ++i) {
        std::memcpy(CMSG_DATA(item) + i * sizeof fd, &fd, sizeof fd);
      }
    }
    ASSERT_EQ(::sendmsg(peer_.get(), &header, 0), static_cast<ssize_t>(bytes.size()));
  }
  static std::vector<std::byte> frame(std::uint32_t request, std::uint32_t flags,
                                      std::uint32_t size, std::size_t sent) {
    const MessageHeader header{request, flags, size};
    const auto head = std::as_bytes(std::span(&header, 1));
    std::vector<std::byte> bytes(head.begin(), head.end());
    bytes.resize(sizeof header + sent, std::byte{0x5a});
    return bytes;
  }
  ErrorCode failure() {
    const auto received = connection_->receive();
    EXPECT_FALSE(received.has_value());
    return received ? ErrorCode::kSystem : received.error().code;
  }

  UniqueFd peer_;
  std::optional<Connection> connection_;
  EventFd event_ = *EventFd::create();
};

TEST_F(ConnectionTest, NothingHasComeYet) {
  const auto received = connection_->receive();
  ASSERT_TRUE(received.has_value());
  EXPECT_FALSE(received->has_value());
}

TEST_F(ConnectionTest, SEC_58_AMessageMayComeByteByByte) {
  const auto bytes = frame(2, 1, 8, 8);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const auto received = connection_->receive();
    ASSERT_TRUE(received.has_value());
    EXPECT_FALSE(received->has_value()) << i;
    write(std::span(bytes).subspan(i, 1));
  }
  const auto message = *connection_->receive();
  ASSERT_TRUE(message.has_value());
  EXPECT_TRUE(message->is(Request::kSetFeatures));
  EXPECT_EQ(message->get<std::uint64_t>(), 0x5a5a5a5a5a5a5a5aU);
}

TEST_F(ConnectionTest, SeveralMessagesInOnePieceComeOneByOne) {
  auto bytes = frame(1, 1, 0, 0);
  const auto second = frame(8, 9, 8, 8);
  bytes.insert(bytes.end(), second.begin(), second.end());
  write(bytes);
  EXPECT_TRUE((*connection_->receive())->is(Request::kGetFeatures));
  const auto message = *connection_->receive();
  EXPECT_TRUE(message->is(Request::kSetVringNum));
  EXPECT_EQ(message->flags, 9U);
  EXPECT_FALSE((*connection_->receive()).has_value());
}

TEST_F(ConnectionTest, DescriptorsStayWithTheirMessage) {
  const LeakCheck leaks;
  write(frame(12, 1, 8, 8), 1);
  write(frame(13, 1, 8, 8), 3);
  write(frame(1, 1, 0, 0));
  EXPECT_EQ((*connection_->receive())->fds.size(), 1U);
  EXPECT_EQ((*connection_->receive())->fds.size(), 3U);
  EXPECT_EQ((*connection_->receive())->fds.size(), 0U);
}

TEST_F(ConnectionTest, ReceivedDescriptorsAreCloseOnExec) {
  write(frame(12, 1, 8, 8), 1);
  const auto message = *connection_->receive();
  EXPECT_EQ(::fcntl(message->fds[0].get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

// A file that someone serves could make us wait at a touch, even at its close: see foreign_fd.h.
TEST_F(ConnectionTest, AFileWithAPathArrivesAsNoDescriptor) {
  const UniqueFd file(::open("/dev/null", O_RDWR | O_CLOEXEC));
  const std::size_t before = test::open_descriptors();
  Message message = Message(Request::kSetVringCall).add(std::uint64_t{0});
  message.fds.push_back(*file.duplicate());
  Connection peer = *Connection::adopt(std::move(peer_));
  ASSERT_TRUE(peer.send(std::move(message)).has_value());
  const auto received = *connection_->receive();
  ASSERT_EQ(received->fds.size(), 1U);
  EXPECT_EQ(received->fds[0].get(), -1);
  // It is closed by a thread of its own.
  EXPECT_TRUE(test::descriptors_settle_at(before));
}

TEST_F(ConnectionTest, H05_SEC_19_MoreDescriptorsThanAnyMessageMayHaveEndTheConnection) {
  for (const std::size_t fds : {9U, 10U, 64U, 250U}) {
    const LeakCheck leaks;
    begin_again();
    write(frame(5, 1, 8, 8), fds);
    EXPECT_EQ(failure(), ErrorCode::kProtocol) << fds;
    begin_again();
  }
}

TEST_F(ConnectionTest, SEC_19_DescriptorsOfHeaderAndPayloadAreCountedTogether) {
  const auto bytes = frame(5, 1, 8, 8);
  write(std::span(bytes).first(12), 5);
  write(std::span(bytes).subspan(12), 5);
  EXPECT_EQ(failure(), ErrorCode::kProtocol);
}

TEST_F(ConnectionTest, EightDescriptorsAreAllowed) {
  write(frame(5, 1, 8, 8), 8);
  EXPECT_EQ((*connection_->receive())->fds.size(), 8U);
}

TEST_F(ConnectionTest, AnotherVersionEndsTheConnection) {
  for (const std::uint32_t flags : {0U, 2U, 3U}) {
    begin_again();
    write(frame(1, flags, 0, 0));
    EXPECT_EQ(failure(), ErrorCode::kProtocol) << flags;
  }
}

TEST_F(ConnectionTest, APayloadBeyondAllReasonEndsTheConnectionBeforeItIsRead) {
  for (const std::uint32_t size : {4097U, 65536U, 0x7fffffffU, 0xffffffffU}) {
    begin_again();
    write(frame(1, 1, size, 0));
    EXPECT_EQ(failure(), ErrorCode::kProtocol) << size;
  }
}

TEST_F(ConnectionTest, ThePeerLeavesBetweenMessages) {
  peer_.reset();
  EXPECT_EQ(failure(), ErrorCode::kClosed);
}

TEST_F(ConnectionTest, ThePeerLeavesWithinAMessageAndItsDescriptorsAreClosed) {
  const LeakCheck leaks;
  const auto bytes = frame(12, 1, 8, 8);
  write(std::span(bytes).first(15), 1);
  peer_.reset();
  EXPECT_EQ(failure(), ErrorCode::kClosed);
  begin_again();
}

TEST_F(ConnectionTest, AMessageArrivesAsItWasSent) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  Connection a = *Connection::adopt(UniqueFd(ends[0]));
  Connection b = *Connection::adopt(UniqueFd(ends[1]));
  const LeakCheck leaks;
  Message message(Request::kSetVringKick, vhost::kFlagNeedReply);
  message.add(std::uint64_t{7});
  message.fds.push_back(copy_of(event_.fd()));
  ASSERT_TRUE(a.send(std::move(message)).has_value());
  EXPECT_FALSE(a.unsent());
  const auto received = *b.receive();
  EXPECT_TRUE(received->is(Request::kSetVringKick));
  EXPECT_EQ(received->flags, 9U);
  EXPECT_EQ(received->get<std::uint64_t>(), 7U);
  EXPECT_EQ(received->fds.size(), 1U);
}

TEST_F(ConnectionTest, SEC_59_APeerThatDoesNotReadFillsABoundedQueue) {
  Status sent;
  std::size_t count = 0;
  while (sent && count < 100'000) {
    Message message(Request::kGetConfig);
    message.payload.resize(4096);
    sent = connection_->send(std::move(message));
    ++count;
  }
  ASSERT_FALSE(sent.has_value());
  EXPECT_EQ(sent.error().code, ErrorCode::kOutOfRange);
  EXPECT_TRUE(connection_->unsent());
  // Once it reads, everything arrives in order and whole.
  std::vector<std::byte> all;
  std::array<std::byte, 65536> buffer{};
  while (connection_->unsent()) {
    const ssize_t got = ::read(peer_.get(), buffer.data(), buffer.size());
    ASSERT_GT(got, 0);
    all.insert(all.end(), buffer.begin(), buffer.begin() + got);
    ASSERT_TRUE(connection_->flush().has_value());
  }
  connection_.reset();
  for (ssize_t got = 1; got > 0;) {
    got = ::read(peer_.get(), buffer.data(), buffer.size());
    if (got > 0) all.insert(all.end(), buffer.begin(), buffer.begin() + got);
  }
  EXPECT_EQ(all.size(), (count - 1) * (sizeof(MessageHeader) + 4096));
}

TEST_F(ConnectionTest, SendingToAPeerThatLeftSaysClosedAndRaisesNoSignal) {
  peer_.reset();
  const Status sent = connection_->send(Message(Request::kGetFeatures));
  ASSERT_FALSE(sent.has_value());
  EXPECT_EQ(sent.error().code, ErrorCode::kClosed);
}

}  // namespace
}  // namespace sluice::test
