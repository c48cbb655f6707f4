// Endpoints: taking a socket path without stealing it, one session at a time, connecting for ever.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>

#include "support/temporary_directory.h"
#include "unit/memory/leaks.h"
#include "vhost/server.h"
#include "vhost/socket_path.h"

namespace sluice::test {
namespace {

using std::chrono::milliseconds;
using vhost::connect_to;
using vhost::Endpoint;
using vhost::EndpointOptions;

bool readable(int fd, int timeout = 0) {
  pollfd item{.fd = fd, .events = POLLIN, .revents = 0};
  return ::poll(&item, 1, timeout) == 1;
}

class EndpointTest : public testing::Test {
 protected:
  std::unique_ptr<Endpoint> make(bool client = false) {
    auto endpoint = Endpoint::create(options(client));
    EXPECT_TRUE(endpoint.has_value()) << endpoint.error().text;
    return endpoint ? std::move(*endpoint) : nullptr;
  }
  EndpointOptions options(bool client) const {
    return {.path = path_,
            .client = client,
            .retry_first = milliseconds(2),
            .retry_most = milliseconds(20)};
  }
  ErrorCode failure(bool client = false) {
    const auto endpoint = Endpoint::create(options(client));
    EXPECT_FALSE(endpoint.has_value());
    return endpoint ? ErrorCode::kParse : endpoint.error().code;
  }
  // Serves the endpoint until it has a socket.
  static std::optional<UniqueFd> wait(Endpoint& endpoint, int timeout = 2000) {
    const auto deadline = std::chrono::steady_clock::now() + milliseconds(timeout);
    while (std::chrono::steady_clock::now() < deadline) {
      if (!readable(endpoint.fd(), 50)) continue;
      if (auto socket = endpoint.on_ready()) return socket;
    }
    return std::nullopt;
  }
  static bool closed(const UniqueFd& socket) {
    char byte = 0;
    return readable(socket.get(), 1000) && ::recv(socket.get(), &byte, 1, MSG_DONTWAIT) == 0;
  }

  TemporaryDirectory directory_;
  std::string path_ = directory_ / "port.sock";
};

TEST_F(EndpointTest, AServerTakesOneFrontEndAndLetsTheNextWait) {
  const auto server = make();
  EXPECT_EQ(server->state(), "listening");
  EXPECT_FALSE(server->on_ready().has_value());
  UniqueFd first = *connect_to(path_);
  auto session = wait(*server);
  ASSERT_TRUE(session.has_value());
  EXPECT_EQ(server->state(), "connected");
  const UniqueFd second = *connect_to(path_);
  EXPECT_FALSE(readable(server->fd(), 20));  // It waits, and wakes nobody.
  EXPECT_FALSE(server->on_ready().has_value());
  session.reset();
  EXPECT_TRUE(closed(first));
  server->session_over();
  EXPECT_EQ(server->state(), "listening");
  EXPECT_TRUE(wait(*server).has_value());
}

TEST_F(EndpointTest, AServerLeavesNothingBehind) {
  const LeakCheck leaks;
  {
    const auto server = make();
    EXPECT_TRUE(std::filesystem::exists(path_));
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path()));
}

TEST_F(EndpointTest, ADeadSocketIsReplaced) {
  // Killed, so that it could remove neither socket nor lock file; the lock itself died with it.
  const pid_t child = ::fork();
  if (child == 0) {
    const auto server = Endpoint::create(options(false));
    ::_exit(server.has_value() ? 0 : 1);  // Runs no destructor.
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  ASSERT_TRUE(std::filesystem::exists(path_));
  ASSERT_EQ(connect_to(path_).error().detail, ECONNREFUSED);
  const auto server = make();
  const UniqueFd front_end = *connect_to(path_);
  EXPECT_TRUE(wait(*server).has_value());
}

TEST_F(EndpointTest, ALiveSocketOfAForeignProcessIsNotStolen) {
  auto foreign = make();
  // Another program knows nothing of our lock file.
  ASSERT_TRUE(std::filesystem::remove(path_ + ".lock"));
  EXPECT_EQ(failure(), ErrorCode::kExists);
  EXPECT_TRUE(connect_to(path_).has_value());
  EXPECT_FALSE(std::filesystem::exists(path_ + ".lock"));
}

TEST_F(EndpointTest, TwoOfUsDoNotTakeTheSamePath) {
  const auto server = make();
  EXPECT_EQ(failure(), ErrorCode::kExists);
  EXPECT_TRUE(std::filesystem::exists(path_));
  EXPECT_TRUE(std::filesystem::exists(path_ + ".lock"));
}

TEST_F(EndpointTest, AFileThatIsNoSocketIsNeverRemoved) {
  std::ofstream(path_) << "precious";
  EXPECT_EQ(failure(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(std::filesystem::file_size(path_), 8U);
  std::filesystem::remove(path_);
  std::filesystem::create_directory(path_);
  EXPECT_EQ(failure(), ErrorCode::kInvalidArgument);
  std::filesystem::remove(path_);
  std::filesystem::create_symlink("nowhere", path_);
  EXPECT_EQ(failure(), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(std::filesystem::is_symlink(path_));
}

TEST_F(EndpointTest, ASocketThatSomebodyPutInOurPlaceStays) {
  auto server = make();
  std::filesystem::remove(path_);
  std::filesystem::remove(path_ + ".lock");
  const auto other = make();
  server.reset();
  EXPECT_TRUE(connect_to(path_).has_value());
}

TEST_F(EndpointTest, ImpossiblePathsAreNamedAsSuch) {
  for (const bool client : {false, true}) {
    path_ = "";
    EXPECT_EQ(failure(client), ErrorCode::kInvalidArgument);
    path_ = std::string(108, 'x');
    EXPECT_EQ(failure(client), ErrorCode::kInvalidArgument);
    path_ = std::string("a\0b", 3);
    EXPECT_EQ(failure(client), ErrorCode::kInvalidArgument);
  }
  path_ = directory_ / "missing/port.sock";
  EXPECT_EQ(failure(), ErrorCode::kNotFound);
}

TEST_F(EndpointTest, APathOfHundredAndSevenBytesIsFine) {
  path_ = directory_ / std::string(107 - directory_.path().string().size() - 1, 'x');
  ASSERT_EQ(path_.size(), 107U);
  const auto server = make();
  EXPECT_TRUE(connect_to(path_).has_value());
}

TEST_F(EndpointTest, WithoutPermissionItSaysSo) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become somebody else";
  ASSERT_EQ(::chmod(directory_.path().c_str(), 0755), 0);
  const auto attempt = [&] {
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(2);
    const auto endpoint = Endpoint::create(options(false));
    ::_exit(!endpoint && endpoint.error().code == ErrorCode::kPermission ? 0 : 1);
  };
  EXPECT_EXIT(attempt(), testing::ExitedWithCode(0), "");
}

TEST_F(EndpointTest, WithoutDescriptorsItPausesInsteadOfSpinning) {
  const auto server = make();
  const UniqueFd front_end = *connect_to(path_);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = 0;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const bool accepted = server->on_ready().has_value();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_FALSE(accepted);
  ASSERT_TRUE(server->last_error().has_value());
  EXPECT_EQ(server->last_error()->detail, EMFILE);
  EXPECT_FALSE(readable(server->fd()));
  EXPECT_TRUE(wait(*server).has_value());
}

TEST_F(EndpointTest, AClientKeepsKnockingUntilSomebodyIsThere) {
  const LeakCheck leaks;
  const auto client = make(true);
  EXPECT_EQ(client->state(), "connecting");
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(readable(client->fd(), 2000));
    EXPECT_FALSE(client->on_ready().has_value());
  }
  EXPECT_EQ(client->last_error()->detail, ENOENT);
  const auto server = make();
  const auto socket = wait(*client);
  ASSERT_TRUE(socket.has_value());
  EXPECT_EQ(client->state(), "connected");
  EXPECT_TRUE(wait(*server).has_value());
}

TEST_F(EndpointTest, H10_AClientFindsASocketThatWasMadeAnew) {
  auto server = make();
  const auto client = make(true);
  for (int round = 0; round < 5; ++round) {
    auto socket = wait(*client);
    ASSERT_TRUE(socket.has_value()) << round;
    socket.reset();
    client->session_over();
    server.reset();
    server = make();
  }
}

TEST_F(EndpointTest, APeerThatClosesAtOnceIsCalledUponWithGrowingPauses) {
  const auto server = make();
  const auto client = make(true);
  int sessions = 0;
  const auto deadline = std::chrono::steady_clock::now() + milliseconds(200);
  while (std::chrono::steady_clock::now() < deadline) {
    if (readable(client->fd(), 5) && client->on_ready()) {
      ++sessions;
      client->session_over();
      while (server->on_ready()) server->session_over();
    }
  }
  // At most one each 15 ms (20 less a quarter) once the pause has grown: 2, 4, 8, 16, 20, 20, ...
  EXPECT_GE(sessions, 2);
  EXPECT_LE(sessions, 4 + 200 / 15 + 2);
}

TEST_F(EndpointTest, PausesThatMakeNoSenseAreRefused) {
  EndpointOptions wrong = options(true);
  wrong.retry_first = milliseconds(0);
  EXPECT_FALSE(Endpoint::create(wrong).has_value());
  wrong = options(true);
  wrong.retry_most = milliseconds(1);
  EXPECT_FALSE(Endpoint::create(wrong).has_value());
}

}  // namespace
}  // namespace sluice::test
