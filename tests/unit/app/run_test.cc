// `sluice run` as a whole: start, questions, stop, restart, and what it refuses.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "control/control_socket.h"
#include "control/requests.h"
#include "control/unix_address.h"
#include "run_program.h"

namespace sluice::app {
namespace {

class Run : public ::testing::Test {
 protected:
  [[nodiscard]] std::vector<std::string> arguments() const {
    return {"run",
            "--vhost-user",
            directory_ / "vm0.sock",
            "--control",
            directory_ / "ctl",
            "--vhost-user",
            directory_ / "vm1.sock"};
  }
  [[nodiscard]] Outcome ask(std::vector<std::string> words) const {
    words.insert(words.end(), {"--control", directory_ / "ctl"});
    return run_program(std::move(words));
  }
  // True once the switch serves its control socket.
  static bool started(Program& program) { return program.wait_for_stderr("control socket"); }

  TemporaryDirectory directory_;
};

TEST_F(Run, SaysWhatItStartedAnswersAndStopsOnSigterm) {
  Program program(arguments());
  ASSERT_TRUE(started(program)) << program.err();
  EXPECT_NE(program.err().find("vm0   vhost-user  server"), std::string::npos) << program.err();
  EXPECT_NE(program.err().find("forwarder bridge; 1 worker, adaptive"), std::string::npos);

  const Outcome ports = ask({"port", "show"});
  EXPECT_EQ(ports.code, 0) << ports.err;
  EXPECT_NE(ports.out.find("vm1   vhost-user  listening"), std::string::npos) << ports.out;
  for (const char* command : {"queue", "fdb", "worker"}) {
    EXPECT_EQ(ask({command, "show"}).code, 0) << command;
    EXPECT_EQ(control::Json::parse(ask({command, "show", "--json"}).out).is_object(), true);
  }
  const control::Json stats = control::Json::parse(ask({"stats", "vm0", "--json"}).out);
  EXPECT_EQ(stats["stats"][0]["name"], "vm0");
  EXPECT_EQ(stats["stats"][0]["to_driver"]["drops"]["no_buffers"], 0);
  const Outcome unknown = ask({"stats", "vm7"});
  EXPECT_EQ(unknown.code, 1);
  EXPECT_EQ(unknown.err,
            "sluice: cannot ask the running switch: no port is called 'vm7'\n"
            "  try: the ports are vm0, vm1\n");

  program.signal(SIGTERM);
  EXPECT_EQ(program.wait(), 0);
  EXPECT_NE(program.err().find("0 taken = 0 forwarded + 0 dropped\n"), std::string::npos)
      << program.err();
  EXPECT_FALSE(std::filesystem::exists(directory_ / "ctl"));
  EXPECT_EQ(ask({"port", "show"}).code, 3);
}

TEST_F(Run, StopsOnSigintToo) {
  Program program(arguments());
  ASSERT_TRUE(started(program));
  program.signal(SIGINT);
  EXPECT_EQ(program.wait(), 0);
}

TEST_F(Run, StartsAgainAfterAKill) {
  {
    Program program(arguments());
    ASSERT_TRUE(started(program));
    program.signal(SIGKILL);
    EXPECT_EQ(program.wait(), 128 + SIGKILL);
  }
  EXPECT_TRUE(std::filesystem::exists(directory_ / "ctl")) << "nobody could tidy up";
  Program program(arguments());
  EXPECT_TRUE(started(program)) << program.err();
  EXPECT_EQ(ask({"port", "show"}).code, 0);
}

TEST_F(Run, ASecondOneOnTheSameControlSocketIsRefused) {
  Program program(arguments());
  ASSERT_TRUE(started(program));
  const Outcome second = ask({"run", "--vhost-user", directory_ / "other.sock"});
  EXPECT_EQ(second.code, 1);
  EXPECT_EQ(second.err, "sluice: cannot open the control socket " + (directory_ / "ctl") +
                            ": a running process serves this socket\n"
                            "  try: stop the other process, or give this one a socket by "
                            "--control PATH\n");
  EXPECT_FALSE(std::filesystem::exists(directory_ / "other.sock"));
  EXPECT_EQ(ask({"port", "show"}).code, 0) << "the first one is not disturbed";
}

TEST_F(Run, ADirectoryThatDoesNotExistIsAFailureThatLeavesNothing) {
  const Outcome outcome = ask({"run", "--vhost-user", directory_ / "no/such/vm0.sock"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.err.substr(0, 29), "sluice: cannot open port vm0 ");
  EXPECT_NE(outcome.err.find("\n  try: "), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(directory_ / "ctl"));
}

TEST_F(Run, ASessionThatComesAndGoesIsTold) {
  Program program(arguments());
  ASSERT_TRUE(started(program));
  {
    const UniqueFd peer(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const auto address = control::unix_address(directory_ / "vm0.sock");
    ASSERT_EQ(::connect(peer.get(), address->get(), control::UnixAddress::size()), 0);
    EXPECT_TRUE(program.wait_for_stderr("vm0: connected, session 1\n")) << program.err();
  }
  EXPECT_TRUE(program.wait_for_stderr("vm0: disconnected: ")) << program.err();
}

TEST_F(Run, BytesThatAreNoVhostUserEndOnlyTheirSession) {
  Program program(arguments());
  ASSERT_TRUE(started(program));
  const UniqueFd peer(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto address = control::unix_address(directory_ / "vm0.sock");
  ASSERT_EQ(::connect(peer.get(), address->get(), control::UnixAddress::size()), 0);
  const std::string noise(4096, '\xff');
  ASSERT_GT(::send(peer.get(), noise.data(), noise.size(), MSG_NOSIGNAL), 0);
  EXPECT_TRUE(program.wait_for_stderr("vm0: disconnected: ")) << program.err();
  EXPECT_EQ(ask({"port", "show"}).code, 0);
  program.signal(SIGTERM);
  EXPECT_EQ(program.wait(), 0);
}

TEST_F(Run, CountersGoOnWhileHostileClientsHoldTheControlSocket) {
  Program program({"run", "--control", directory_ / "ctl", "--generator", "name=g", "--sink",
                   "name=s", "--forward", "patch"});
  ASSERT_TRUE(started(program)) << program.err();
  std::vector<UniqueFd> crowd;
  const auto address = control::unix_address(directory_ / "ctl");
  for (int i = 0; i < 100; ++i) {
    crowd.emplace_back(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::connect(crowd.back().get(), address->get(), control::UnixAddress::size()), 0);
    const std::string line = i % 2 == 0 ? "{\"request\":\"stats\"}\n" : "half a line";
    (void)::send(crowd.back().get(), line.data(), line.size(), MSG_NOSIGNAL);
  }
  const auto delivered = [&] {
    const control::Json reply = control::Json::parse(ask({"stats", "s", "--json"}).out);
    return reply["stats"][0]["to_driver"]["packets"].get<std::uint64_t>();
  };
  const std::uint64_t before = delivered();
  // A busy machine may give the worker no time between two questions.
  std::uint64_t now = before;
  for (int i = 0; i < 50 && now == before; ++i) now = delivered();
  EXPECT_GT(now, before);
  program.signal(SIGTERM);
  EXPECT_EQ(program.wait(), 0);
  EXPECT_EQ(program.err().find("not accounted for"), std::string::npos) << program.err();
}

TEST_F(Run, AQueueIsResetByCommand) {
  Program device({"run", "--control", directory_ / "device", "--forward", "patch", "--generator",
                  "name=g", "--vhost-user", directory_ / "vm0.sock,queues=2,ring_reset=on"});
  ASSERT_TRUE(started(device)) << device.err();
  Program driver({"run", "--control", directory_ / "ctl", "--forward", "patch", "--sink", "name=s",
                  "--virtio-user", directory_ / "vm0.sock,name=up,queues=2"});
  ASSERT_TRUE(driver.wait_for_stderr("up: running")) << driver.err();
  const Outcome first = ask({"queue", "reset", "up", "2"});
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(first.out, "up: queue 2 restarted; 256 buffers came back; queue 2 has 256 now\n");
  const control::Json reply =
      control::Json::parse(ask({"queue", "reset", "up", "2", "--size", "512", "--json"}).out);
  EXPECT_EQ(reply["reset"]["size"], 512);
  EXPECT_EQ(control::Json::parse(ask({"queue", "show", "up", "--json"}).out)["queues"][2]["size"],
            512);
  const Outcome whole = ask({"queue", "reset", "up", "--whole-device"});
  EXPECT_EQ(whole.code, 0) << whole.err;
  EXPECT_EQ(whole.out.substr(0, 26), "up: all queues restarted; ");
  const Outcome refused = ask({"queue", "reset", "s", "0"});
  EXPECT_EQ(refused.code, 1);
  EXPECT_EQ(refused.err,
            "sluice: cannot reset the queue: s has no virtqueues\n"
            "  try: name a virtio-user port; see `sluice port show`\n");
  for (Program* program : {&driver, &device}) {
    program->signal(SIGTERM);
    EXPECT_EQ(program->wait(), 0);
    EXPECT_EQ(program->err().find("not accounted for"), std::string::npos) << program->err();
  }
}

TEST_F(Run, WatchShowsRatesUntilTheSwitchIsGone) {
  Program program({"run", "--control", directory_ / "ctl", "--generator", "name=g", "--sink",
                   "name=s", "--forward", "patch"});
  ASSERT_TRUE(started(program)) << program.err();
  Program watch({"stats", "s", "--watch=0.1", "--control", directory_ / "ctl"});
  std::this_thread::sleep_for(std::chrono::seconds(1));
  program.signal(SIGTERM);
  EXPECT_EQ(program.wait(), 0);
  EXPECT_EQ(watch.wait(), 3) << watch.err();
  EXPECT_EQ(watch.out().substr(0, 21), "PORT  FROM DRIVER pps");
  EXPECT_NE(watch.out().find("\ns "), std::string::npos) << watch.out();
  EXPECT_EQ(watch.out().find("\ng "), std::string::npos) << "only the port that was named";
}

TEST_F(Run, AFileDoesWhatItsFlagsDo) {
  const std::string file = directory_ / "sluice.toml";
  std::ofstream(file) << "control = '" << directory_ / "ctl" << "'\n"
                      << "[workers]\npoll = 'interrupt'\n"
                      << "[[vhost_user]]\npath = '" << directory_ / "vm0.sock" << "'\n";
  Program program({"run", file});
  ASSERT_TRUE(started(program)) << program.err();
  EXPECT_NE(program.err().find("1 worker, interrupt"), std::string::npos);
  EXPECT_EQ(ask({"port", "show", "vm0"}).code, 0);
}

}  // namespace
}  // namespace sluice::app
