// The control socket against clients that are slow, broken or hostile, and against its own past.
#include "control/control_socket.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "control/unix_address.h"

namespace sluice::control {
namespace {

using Milliseconds = std::chrono::milliseconds;

// A directory of its own, and a server in it that a thread serves until the test ends. The server
// replies "echo:REQUEST"; the request "big" gets a reply of a megabyte, "later" one when it is
// ready.
class ControlSocket : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "sluice_control_XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    directory_ = name;
    path_ = directory_ + "/control.sock";
  }
  void TearDown() override {
    stop();
    std::filesystem::remove_all(directory_);
  }

  void start() {
    auto server = ControlServer::listen(path_, "too long");
    ASSERT_TRUE(server.has_value()) << server.error().text;
    server_ = std::move(*server);
    thread_ = std::thread([this] {
      while (!done_) {
        pollfd ready{server_->poll_fd(), POLLIN, 0};
        ::poll(&ready, 1, 10);
        ++turns_;
        server_->serve([this](std::string_view request) -> Reply {
          if (request == "big") return std::string(1 << 20, 'x');
          if (request == "later") return [this] { return later(); };
          return "echo:" + std::string(request);
        });
        clients_ = server_->clients();
      }
    });
  }
  void stop() {
    done_ = true;
    if (thread_.joinable()) thread_.join();
    server_.reset();
  }

  std::optional<std::string> later() const {
    if (!ready_) return std::nullopt;
    return "at last";
  }

  // A raw client: connected, with a limit on how long it waits.
  [[nodiscard]] UniqueFd raw_client() const {
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const timeval patience{.tv_sec = 5, .tv_usec = 0};
    ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    const auto address = unix_address(path_);
    EXPECT_EQ(::connect(fd.get(), address->get(), UnixAddress::size()), 0);
    return fd;
  }
  static void put(const UniqueFd& fd, std::string_view bytes) {
    EXPECT_EQ(::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  // All bytes up to `count` lines or the end of the stream.
  static std::string get(const UniqueFd& fd, int count) {
    std::string text;
    char byte = 0;
    while (count > 0 && ::recv(fd.get(), &byte, 1, 0) == 1) {
      text += byte;
      if (byte == '\n') --count;
    }
    return text;
  }
  static bool closed(const UniqueFd& fd) {
    char byte = 0;
    return ::recv(fd.get(), &byte, 1, 0) <= 0 && errno != EAGAIN;
  }
  void expect_others_are_served() const {
    auto client = ControlClient::connect(path_);
    ASSERT_TRUE(client.has_value());
    EXPECT_EQ(client->ask("ping").value_or("no reply"), "echo:ping");
  }

  std::string directory_;
  std::string path_;
  std::unique_ptr<ControlServer> server_;
  std::thread thread_;
  std::atomic<bool> done_ = false;
  std::atomic<bool> ready_ = false;  // What is asked by "later" has its reply.
  std::atomic<int> turns_ = 0;
  std::atomic<std::size_t> clients_{0};
};

TEST_F(ControlSocket, AClientAsksAgainAndAgain) {
  start();
  auto client = ControlClient::connect(path_);
  ASSERT_TRUE(client.has_value());
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(client->ask(std::to_string(i)).value_or(""), "echo:" + std::to_string(i));
  }
}

TEST_F(ControlSocket, ALargeReplyArrivesWhole) {
  start();
  auto client = ControlClient::connect(path_);
  ASSERT_TRUE(client.has_value());
  EXPECT_EQ(client->ask("big").value_or("").size(), std::size_t{1} << 20);
}

TEST_F(ControlSocket, OnlyTheOwnerMayUseIt) {
  start();
  struct stat info{};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
}

TEST_F(ControlSocket, ARequestInPiecesIsARequest) {
  start();
  const UniqueFd client = raw_client();
  for (const char piece : std::string_view("hello\nwor")) put(client, std::string(1, piece));
  EXPECT_EQ(get(client, 1), "echo:hello\n");
  expect_others_are_served();
  put(client, "ld\n");
  EXPECT_EQ(get(client, 1), "echo:world\n");
}

TEST_F(ControlSocket, ManyRequestsAtOnceAreAllAnswered) {
  start();
  const UniqueFd client = raw_client();
  std::string requests;
  std::string replies;
  for (int i = 0; i < 500; ++i) {
    requests += std::to_string(i) + "\n";
    replies += "echo:" + std::to_string(i) + "\n";
  }
  put(client, requests);
  EXPECT_EQ(get(client, 500), replies);
}

TEST_F(ControlSocket, ARequestWithoutNewlineIsAnsweredWhenTheClientHasSaidAll) {
  start();
  const UniqueFd client = raw_client();
  put(client, "a\nb");
  ::shutdown(client.get(), SHUT_WR);
  EXPECT_EQ(get(client, 2), "echo:a\necho:b\n");
  EXPECT_TRUE(closed(client));
}

TEST_F(ControlSocket, TheLongestRequestIsAnsweredAndOneByteMoreIsNot) {
  start();
  const UniqueFd client = raw_client();
  put(client, std::string(kRequestMax, 'a') + "\n");
  EXPECT_EQ(get(client, 1).size(), kRequestMax + 6);
  put(client, std::string(kRequestMax + 1, 'a') + "\n");
  EXPECT_EQ(get(client, 1), "too long\n");
  EXPECT_TRUE(closed(client));
}

TEST_F(ControlSocket, ALineOfAMegabyteGetsAnErrorAndTheClientIsClosed) {
  start();
  const UniqueFd client = raw_client();
  const std::string line(1 << 20, 'a');
  // The server stops reading after some kilobytes and closes, so not all of it can be sent.
  const ssize_t sent = ::send(client.get(), line.data(), line.size(), MSG_NOSIGNAL);
  EXPECT_LT(sent, static_cast<ssize_t>(line.size()));
  EXPECT_EQ(get(client, 1), "too long\n");
  expect_others_are_served();
}

TEST_F(ControlSocket, BinaryBytesAreARequestLikeAnyOther) {
  start();
  const UniqueFd client = raw_client();
  put(client, std::string("\0\xff\x01\x80\n", 5));
  EXPECT_EQ(get(client, 1), std::string("echo:\0\xff\x01\x80\n", 10));
}

TEST_F(ControlSocket, AReplyThatTakesTimeHoldsUpItsClientOnly) {
  start();
  const UniqueFd client = raw_client();
  put(client, "a\nlater\nb\n");
  EXPECT_EQ(get(client, 1), "echo:a\n");
  for (int i = 0; i < 20; ++i) expect_others_are_served();
  // What is not read meanwhile does not wake the server.
  const int before = turns_;
  std::this_thread::sleep_for(Milliseconds(200));
  EXPECT_LT(turns_ - before, 100);
  ready_ = true;
  EXPECT_EQ(get(client, 2), "at last\necho:b\n") << "in the order of the requests";
}

TEST_F(ControlSocket, AClientThatSaidAllGetsItsReplyLater) {
  start();
  const UniqueFd client = raw_client();
  put(client, "later");
  ::shutdown(client.get(), SHUT_WR);
  std::this_thread::sleep_for(Milliseconds(50));
  ready_ = true;
  EXPECT_EQ(get(client, 1), "at last\n");
  EXPECT_TRUE(closed(client));
}

TEST_F(ControlSocket, AClientThatLeavesBeforeItsReplyIsForgotten) {
  start();
  {
    const UniqueFd client = raw_client();
    put(client, "later\n");
    while (clients_ == 0) std::this_thread::sleep_for(Milliseconds(1));
  }
  for (int i = 0; i < 5000 && clients_ != 0; ++i) std::this_thread::sleep_for(Milliseconds(1));
  EXPECT_EQ(clients_, 0U);
  ready_ = true;
  expect_others_are_served();
}

TEST_F(ControlSocket, AClientThatDoesNotReadStopsOnlyItself) {
  start();
  const UniqueFd silent = raw_client();
  std::string requests;
  for (int i = 0; i < 200; ++i) requests += "big\n";
  put(silent, requests);
  for (int i = 0; i < 20; ++i) expect_others_are_served();
  // The server waits for it without spinning.
  std::this_thread::sleep_for(Milliseconds(50));
  const int before = turns_;
  std::this_thread::sleep_for(Milliseconds(200));
  EXPECT_LT(turns_ - before, 100);
}

TEST_F(ControlSocket, AHundredClientsCannotKeepOthersOut) {
  start();
  std::vector<UniqueFd> crowd;
  for (int i = 0; i < 100; ++i) crowd.push_back(raw_client());
  for (int i = 0; i < 10; ++i) expect_others_are_served();
  stop();
}

TEST_F(ControlSocket, TheMostSilentClientMakesRoom) {
  start();
  const UniqueFd first = raw_client();
  std::vector<UniqueFd> others;
  for (std::size_t i = 1; i < kControlClientsMax; ++i) others.push_back(raw_client());
  put(first, "still here\n");
  EXPECT_EQ(get(first, 1), "echo:still here\n");
  const UniqueFd extra = raw_client();
  put(extra, "x\n");
  EXPECT_EQ(get(extra, 1), "echo:x\n");
  EXPECT_TRUE(closed(others.front())) << "it has been silent longest";
  put(first, "y\n");
  EXPECT_EQ(get(first, 1), "echo:y\n") << "an active client stays";
}

TEST_F(ControlSocket, AClientThatVanishesBeforeItsReplyLeavesNothingBehind) {
  start();
  for (int i = 0; i < 50; ++i) {
    const UniqueFd client = raw_client();
    put(client, "big\nbig\n");
  }
  expect_others_are_served();
  for (int i = 0; i < 100 && clients_ > 1; ++i) {
    std::this_thread::sleep_for(Milliseconds(10));
  }
  stop();
}

TEST_F(ControlSocket, DescriptorsThatAClientSendsAreNotKept) {
  start();
  const UniqueFd client = raw_client();
  const auto count = [] {
    using std::filesystem::directory_iterator;
    return std::distance(directory_iterator("/proc/self/fd"), directory_iterator());
  };
  put(client, "x\n");
  get(client, 1);
  const auto before = count();
  char control[CMSG_SPACE(sizeof(int))] = {};
  char byte = 'y';
  iovec piece{&byte, 1};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  const int zero = 0;
  std::memcpy(CMSG_DATA(header), &zero, sizeof(zero));
  ASSERT_EQ(::sendmsg(client.get(), &message, 0), 1);
  put(client, "\n");
  EXPECT_EQ(get(client, 1), "echo:y\n");
  EXPECT_EQ(count(), before);
}

TEST_F(ControlSocket, TheFileIsRemovedAtTheEnd) {
  start();
  stop();
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(ControlSocket, AnAbandonedSocketIsReplaced) {
  {
    // A socket whose owner was killed: bound, and nobody listens.
    const UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const auto address = unix_address(path_);
    ASSERT_EQ(::bind(fd.get(), address->get(), UnixAddress::size()), 0);
  }
  ASSERT_TRUE(std::filesystem::exists(path_));
  start();
  expect_others_are_served();
}

TEST_F(ControlSocket, ASocketThatIsServedIsLeftAlone) {
  start();
  const auto second = ControlServer::listen(path_, "");
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code, ErrorCode::kExists);
  EXPECT_STREQ(second.error().text, "a running process serves this socket");
  expect_others_are_served();
}

TEST_F(ControlSocket, AFileThatIsNoSocketIsLeftAlone) {
  std::ofstream(path_) << "precious";
  const auto server = ControlServer::listen(path_, "");
  ASSERT_FALSE(server.has_value());
  EXPECT_EQ(server.error().code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(std::filesystem::exists(path_));
}

TEST_F(ControlSocket, ASocketThatTookOurPlaceIsNotRemoved) {
  start();
  ASSERT_TRUE(std::filesystem::remove(path_));
  std::ofstream(path_) << "someone else's";
  stop();
  EXPECT_TRUE(std::filesystem::exists(path_));
}

TEST_F(ControlSocket, APathThatIsTooLongOrHasNoDirectoryIsAnError) {
  const auto long_path = ControlServer::listen(std::string(108, 'a'), "");
  ASSERT_FALSE(long_path.has_value());
  EXPECT_EQ(long_path.error().code, ErrorCode::kOutOfRange);
  const auto nowhere = ControlServer::listen(directory_ + "/no/such/dir.sock", "");
  ASSERT_FALSE(nowhere.has_value());
  EXPECT_EQ(nowhere.error().code, ErrorCode::kNotFound);
}

TEST_F(ControlSocket, WithoutAServerTheClientSaysSo) {
  for (const bool abandoned : {false, true}) {
    if (abandoned) {
      const UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
      const auto address = unix_address(path_);
      ASSERT_EQ(::bind(fd.get(), address->get(), UnixAddress::size()), 0);
    }
    const auto client = ControlClient::connect(path_);
    ASSERT_FALSE(client.has_value());
    EXPECT_EQ(client.error().code, ErrorCode::kNotFound);
  }
}

TEST_F(ControlSocket, AServerThatGoesAwayIsAnErrorForItsClient) {
  start();
  auto client = ControlClient::connect(path_);
  ASSERT_TRUE(client.has_value());
  ASSERT_TRUE(client->ask("x").has_value());
  stop();
  const auto reply = client->ask("y");
  ASSERT_FALSE(reply.has_value());
  EXPECT_EQ(reply.error().code, ErrorCode::kClosed);
}

TEST(DefaultControlPath, IsAbsoluteAndFits) {
  const std::string path = default_control_path();
  EXPECT_EQ(path.front(), '/');
  EXPECT_TRUE(path.ends_with(".sock"));
}

}  // namespace
}  // namespace sluice::control
