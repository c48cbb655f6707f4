// Checks of a whole configuration: keys that contradict each other.
#include <gtest/gtest.h>

#include <string>

#include "control/config.h"
#include "control/config_file.h"
#include "control/setting.h"

namespace sluice::control {
namespace {

Config with_ports(std::initializer_list<const char*> paths) {
  Config config;
  for (const char* path : paths) config.fabric.vhost_user.push_back({.path = path, .name = ""});
  return config;
}

// The one problem of a configuration, or a failure.
Problem only_problem(const Config& config) {
  const Problems problems = check(config);
  EXPECT_EQ(problems.size(), 1U);
  return problems.empty() ? Problem{} : problems.front();
}

TEST(EffectiveName, IsTheFileNameOfTheSocketUnlessANameIsGiven) {
  EXPECT_EQ(effective_name(fabric::VhostUserOptions{.path = "/run/sluice/vm0.sock", .name = ""}),
            "vm0");
  EXPECT_EQ(effective_name(fabric::VhostUserOptions{.path = "vm1", .name = ""}), "vm1");
  EXPECT_EQ(effective_name(fabric::VhostUserOptions{.path = "/run/.sock", .name = ""}), ".sock");
  EXPECT_EQ(effective_name(fabric::VhostUserOptions{.path = "/run/vm0.sock", .name = "left"}),
            "left");
}

TEST(CheckConfig, TwoPortsAreEnoughAndOneIsAllowed) {
  EXPECT_TRUE(check(with_ports({"/a", "/b"})).empty());
  EXPECT_TRUE(check(with_ports({"/a"})).empty());
}

TEST(CheckConfig, ASwitchWithoutPortsIsRefused) {
  EXPECT_EQ(only_problem(Config()).cause, "there are no ports");
}

TEST(CheckConfig, TooManyPortsAreRefused) {
  Config config;
  for (int i = 0; i <= 256; ++i) {
    config.fabric.vhost_user.push_back({.path = "/run/" + std::to_string(i), .name = ""});
  }
  EXPECT_EQ(only_problem(config).cause, "there are 257 ports");
}

TEST(CheckConfig, NamesAreUniqueEvenIfTheyComeFromPaths) {
  const Problem problem = only_problem(with_ports({"/x/vm0.sock", "/y/vm0.sock"}));
  EXPECT_EQ(problem.where, "vhost_user[1].name");
  EXPECT_EQ(problem.cause, "two ports are called 'vm0'");
  Config config = with_ports({"/a"});
  config.fabric.sinks = {{.name = "a"}};
  EXPECT_EQ(only_problem(config).where, "sink[0].name");
}

TEST(CheckConfig, ANameThatThePathDoesNotGiveIsAskedFor) {
  EXPECT_EQ(only_problem(with_ports({"/run/my vm.sock"})).cause,
            "the port's name would be 'my vm'");
}

TEST(CheckConfig, SocketsAreUnique) {
  Config config = with_ports({"/a", "/a"});
  config.fabric.vhost_user[1].name = "b";
  EXPECT_EQ(only_problem(config).cause, "two ports use the socket /a");
  config = with_ports({"/a"});
  config.control = "/a";
  EXPECT_EQ(only_problem(config).cause, "/a is the control socket as well");
}

TEST(CheckConfig, APortNeedsAPath) {
  const Problem problem = only_problem(with_ports({""}));
  EXPECT_EQ(problem.where, "vhost_user[0].path");
  EXPECT_EQ(problem.cause, "a vhost-user port has no 'path'");
}

TEST(CheckConfig, AddressesAreUnique) {
  Config config = with_ports({"/a", "/b"});
  for (auto& port : config.fabric.vhost_user) port.mac = *parse_mac("52:54:00:00:00:01");
  EXPECT_EQ(only_problem(config).cause, "two ports have the address 52:54:00:00:00:01");
}

TEST(CheckConfig, OneUsedEntryNeedsInOrder) {
  Config config = with_ports({"/a"});
  config.fabric.vhost_user[0].one_used_entry = true;
  EXPECT_TRUE(check(config).empty());
  config.fabric.vhost_user[0].in_order = false;
  EXPECT_EQ(only_problem(config).where, "vhost_user[0].one_used_entry");
}

TEST(CheckConfig, PairsNeedTheForwarderPatch) {
  Config config = with_ports({"/a", "/b"});
  config.fabric.patches = {{"a", "b"}};
  EXPECT_EQ(only_problem(config).cause, "pairs of ports are given, but the forwarder is 'bridge'");
  config.fabric.forward = fabric::Forward::kPatch;
  EXPECT_TRUE(check(config).empty());
}

TEST(CheckConfig, PairsNameEveryPortOnce) {
  Config config = with_ports({"/a", "/b"});
  config.fabric.forward = fabric::Forward::kPatch;
  config.fabric.patches = {{"a", "nobody"}, {"b", "b"}};
  EXPECT_EQ(only_problem(config).cause, "no port is called 'nobody'");
  config.fabric.patches = {{"a", "b"}, {"b", "b"}};
  EXPECT_EQ(only_problem(config).cause, "'b' is in two pairs");
  config.fabric.patches = {{"a", "a"}};
  EXPECT_EQ(only_problem(config).cause, "'b' is in no pair");
  config.fabric.patches = {{"a", "a"}, {"b", "b"}};
  EXPECT_TRUE(check(config).empty()) << "a port joined with itself echoes";
}

TEST(CheckConfig, WithoutPairsTheNumberOfPortsIsEven) {
  Config config = with_ports({"/a", "/b", "/c"});
  config.fabric.forward = fabric::Forward::kPatch;
  EXPECT_EQ(only_problem(config).cause, "3 ports cannot all be joined in pairs");
}

TEST(CheckConfig, ThereIsOneCoreForEachWorker) {
  Config config = with_ports({"/a"});
  config.fabric.workers.count = 2;
  config.fabric.workers.cores = {1};
  EXPECT_EQ(only_problem(config).cause, "1 core is named for 2 workers");
}

TEST(CheckConfig, TwoBusyWorkersDoNotShareACore) {
  Config config = with_ports({"/a"});
  config.fabric.workers.count = 2;
  config.fabric.workers.cores = {0, 0};
  EXPECT_TRUE(check(config).empty()) << "they may wait in turns";
  config.fabric.workers.poll = fabric::PollMode::kBusy;
  EXPECT_EQ(only_problem(config).cause,
            "two workers would be busy on core 0 and get half of it each");
}

TEST(FindPlaces, PointsAtTheKeyOrAtItsTable) {
  const std::string text = "[[vhost_user]]\npath = '/a'\n\n[[vhost_user]]\nname = 'x'\n";
  Problems problems = {{"vhost_user[0].path", "", ""},
                       {"vhost_user[1].path", "", ""},
                       {"vhost_user[2].path", "", ""},
                       {"forward", "", ""},
                       {"", "", ""}};
  find_places(problems, text, "f");
  EXPECT_EQ(problems[0].where, "f:2:8");
  EXPECT_EQ(problems[1].where, "f:4:1") << "the key is not there, but its table is";
  EXPECT_EQ(problems[2].where, "") << "a flag gave this port";
  EXPECT_EQ(problems[3].where, "");
  EXPECT_EQ(problems[4].where, "");
}

}  // namespace
}  // namespace sluice::control
