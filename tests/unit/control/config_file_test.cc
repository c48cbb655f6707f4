// The file form of the configuration: round trip, and every refusal with line, column and cure.
#include "control/config_file.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "control/keys.h"

namespace sluice::control {
namespace {

// Every key with a value that is not its default.
Config unusual_config() {
  Config config;
  config.control = "/run/other.sock";
  config.stats_interval = std::chrono::seconds(5);
  auto& fabric = config.fabric;
  fabric.forward = fabric::Forward::kPatch;
  fabric.patches = {{"left", "right"}, {"g", "s"}};
  fabric.state_directory = "/var/lib/sluice with \"quotes\" and \\";
  fabric.bridge = {.table_size = 65536, .ageing = std::chrono::seconds(60)};
  fabric.workers = {.count = 2,
                    .poll = fabric::PollMode::kBusy,
                    .cores = {3, 1},
                    .spin = std::chrono::microseconds(7)};
  fabric::VhostUserOptions left{.path = "/run/left.sock", .name = "left", .queues = 8};
  left.client = true;
  left.mac = *parse_mac("52:54:00:00:00:01");
  left.offloads = left.packed = left.in_order = left.mrg_rxbuf = false;
  left.event_idx = left.indirect = false;
  left.ring_reset = left.one_used_entry = true;
  left.mtu = 9000;
  fabric.vhost_user = {left, {.path = "/run/right.sock", .name = "right"}};
  fabric.generators = {{.name = "g", .queues = 3, .size = 1500}};
  fabric.sinks = {{.name = "s", .touch = true}};
  return config;
}

TEST(ConfigFile, WhatIsWrittenIsReadAsTheSameConfiguration) {
  const std::string text = "\n" + to_toml(unusual_config());
  const auto read = parse_config(text, "sluice.toml");
  ASSERT_TRUE(read.has_value()) << text << read.error().front().cause;
  EXPECT_EQ("\n" + to_toml(*read), text);
  // The text of each key of each table stands in the file, so nothing was left out on both ways.
  for (const auto& key : config_keys()) {
    EXPECT_NE(text.find("\n" + std::string(key.setting.name) + " = "), std::string::npos)
        << key.setting.name;
  }
  for (const auto& key : vhost_user_keys()) {
    EXPECT_NE(text.find("\n" + std::string(key.setting.name) + " = "), std::string::npos)
        << key.setting.name;
  }
  EXPECT_EQ(read->fabric.state_directory, "/var/lib/sluice with \"quotes\" and \\");
  EXPECT_EQ(read->fabric.patches, unusual_config().fabric.patches);
  EXPECT_EQ(read->fabric.vhost_user[0].mac, unusual_config().fabric.vhost_user[0].mac);
  EXPECT_EQ(read->fabric.workers.cores, (std::vector<std::uint16_t>{3, 1}));
}

TEST(ConfigFile, DefaultsAreNotWritten) {
  Config config;
  config.fabric.vhost_user = {{.path = "/run/a.sock", .name = ""}};
  EXPECT_EQ(to_toml(config), "\n[[vhost_user]]\npath = \"/run/a.sock\"\n");
}

TEST(ConfigFile, AnEmptyFileIsTheDefaults) {
  const auto read = parse_config("", "x");
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(to_toml(*read), to_toml(Config()));
}

struct FileRefusal {
  const char* text;
  const char* where;
  const char* cause;
  const char* cure;
};

class RefusedFile : public ::testing::TestWithParam<FileRefusal> {};

TEST_P(RefusedFile, NamesPlaceCauseAndCure) {
  const auto read = parse_config(GetParam().text, "f.toml");
  ASSERT_FALSE(read.has_value());
  ASSERT_EQ(read.error().size(), 1U);
  EXPECT_EQ(read.error()[0].where, GetParam().where);
  EXPECT_EQ(read.error()[0].cause, GetParam().cause);
  EXPECT_EQ(read.error()[0].cure, GetParam().cure);
}

INSTANTIATE_TEST_SUITE_P(
    ConfigFile, RefusedFile,
    ::testing::Values(
        FileRefusal{"forwrd = 'bridge'", "f.toml:1:1", "there is no key 'forwrd'",
                    "did you mean 'forward'?"},
        FileRefusal{"\n  count = 2", "f.toml:2:3", "there is no key 'count'",
                    "write it below a line [workers]"},
        FileRefusal{"[workers]\nforward = 'bridge'", "f.toml:2:1",
                    "there is no key 'forward' in [workers]",
                    "write it at the top, before the first line in brackets"},
        FileRefusal{"[workers]\ncont = 2", "f.toml:2:1", "there is no key 'cont' in [workers]",
                    "did you mean 'count'?"},
        FileRefusal{"[bridge]\ncolour = 2", "f.toml:2:1", "there is no key 'colour' in [bridge]",
                    "the keys are table_size, ageing"},
        FileRefusal{"bridge = 1", "f.toml:1:10", "'bridge' cannot be 1",
                    "begin a table by a line [bridge]"},
        FileRefusal{"[workers]\ncount = 0", "f.toml:2:9", "'count' cannot be 0",
                    "give a whole number from 1 to 256"},
        FileRefusal{"[workers]\ncount = '2'", "f.toml:2:9", "'count' cannot be '2'",
                    "give a whole number from 1 to 256"},
        FileRefusal{"[workers]\nspin = 1.5", "f.toml:2:8",
                    "'spin' cannot be a number with a fraction",
                    "give a whole number from 0 to 1000000, in microseconds"},
        FileRefusal{"[workers]\nspin = 2024-01-01", "f.toml:2:8", "'spin' cannot be a date or time",
                    "give a whole number from 0 to 1000000, in microseconds"},
        FileRefusal{"[workers]\npoll = 'lazy'", "f.toml:2:8", "'poll' cannot be 'lazy'",
                    "give \"busy\", \"adaptive\" or \"interrupt\""},
        FileRefusal{"[workers]\npoll = 3", "f.toml:2:8", "'poll' cannot be 3",
                    "give \"busy\", \"adaptive\" or \"interrupt\""},
        FileRefusal{"[workers]\ncores = [1, 'x']", "f.toml:2:9", "'cores' cannot be this list",
                    "give core numbers from 0 to 1023, such as [2, 3]"},
        FileRefusal{"[workers]\ncores = 3", "f.toml:2:9", "'cores' cannot be 3",
                    "give core numbers from 0 to 1023, such as [2, 3]"},
        FileRefusal{"control = { a = 1 }", "f.toml:1:11", "'control' cannot be a table",
                    "give a path of 1 to 107 bytes, between quotes"},
        FileRefusal{"control = \"a\\u0000b\"", "f.toml:1:11", "'control' cannot be 'a\\u0000b'",
                    "give a path of 1 to 107 bytes, between quotes"},
        FileRefusal{"control = ''", "f.toml:1:11", "'control' cannot be ''",
                    "give a path of 1 to 107 bytes, between quotes"},
        FileRefusal{"[vhost_user]\npath = '/a'", "f.toml:1:1", "'vhost_user' cannot be a table",
                    "begin each port by a line [[vhost_user]] with two brackets"},
        FileRefusal{"vhost_user = [1]", "f.toml:1:14", "'vhost_user' cannot be this list",
                    "begin each port by a line [[vhost_user]] with two brackets"},
        FileRefusal{"[[vhost_user]]\npath = '/a'\nqueus = 2", "f.toml:3:1",
                    "there is no key 'queus' in [[vhost_user]]", "did you mean 'queues'?"},
        FileRefusal{"[[vhost_user]]\npoll = 'busy'", "f.toml:2:1",
                    "there is no key 'poll' in [[vhost_user]]", "write it below a line [workers]"},
        FileRefusal{"[workers]\npath = '/a'", "f.toml:2:1", "there is no key 'path' in [workers]",
                    "write it below a line [[vhost_user]]"},
        FileRefusal{"workers = 3", "f.toml:1:11", "'workers' cannot be 3",
                    "write count = 3 below a line [workers]"},
        FileRefusal{"[[sink]]\nspeed = 2", "f.toml:2:1", "there is no key 'speed' in [[sink]]",
                    "the keys are name, touch"},
        FileRefusal{"[[vhost_user]]\nclient = 'on'", "f.toml:2:10", "'client' cannot be 'on'",
                    "give true or false"},
        FileRefusal{"[[vhost_user]]\nmac = 'ff:ff:ff:ff:ff:ff'", "f.toml:2:7",
                    "'mac' cannot be 'ff:ff:ff:ff:ff:ff'",
                    "give a unicast address such as \"52:54:00:12:34:56\""},
        FileRefusal{"patches = 'a'", "f.toml:1:11", "'patches' cannot be 'a'",
                    "give pairs of port names, such as [[\"vm0\", \"vm1\"]]"},
        FileRefusal{"patches = [['a', 'b'], ['c']]", "f.toml:1:24", "'patches' cannot be this list",
                    "give pairs of port names, such as [[\"vm0\", \"vm1\"]]"},
        FileRefusal{"patches = [['a', 1]]", "f.toml:1:12", "'patches' cannot be this list",
                    "give pairs of port names, such as [[\"vm0\", \"vm1\"]]"}));

TEST(ConfigFile, AFileThatIsNotTomlIsRefusedWithItsPlace) {
  const auto read = parse_config("forward = \n", "f.toml");
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error()[0].where.substr(0, 8), "f.toml:1");
  EXPECT_FALSE(read.error()[0].cause.empty());
}

TEST(ConfigFile, AKeyGivenTwiceIsRefused) {
  EXPECT_FALSE(parse_config("control = 'a'\ncontrol = 'b'", "f").has_value());
}

TEST(ConfigFile, AllMistakesAreToldInTheOrderOfTheFile) {
  const auto read = parse_config("zzz = 1\n[workers]\ncount = 0\n[[vhost_user]]\na = 1\n", "f");
  ASSERT_FALSE(read.has_value());
  ASSERT_EQ(read.error().size(), 3U);
  EXPECT_EQ(read.error()[0].where, "f:1:1");
  EXPECT_EQ(read.error()[1].where, "f:3:9");
  EXPECT_EQ(read.error()[2].where, "f:5:1");
}

TEST(ConfigFile, TheNumberOfMistakesToldIsBounded) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "unknown" + std::to_string(i) + " = 1\n";
  const auto read = parse_config(text, "f");
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().size(), 20U);
  EXPECT_EQ(read.error()[0].where, "f:1:1") << "the first ones of the file are kept";
}

TEST(ConfigFile, DeepNestingIsAnErrorAndNotACrash) {
  const std::string deep = "a = " + std::string(100000, '[');
  EXPECT_FALSE(parse_config(deep, "f").has_value());
}

TEST(ReadConfigText, NamesWhatCannotBeRead) {
  const auto missing = read_config_text("/nonexistent/sluice.toml");
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().where, "/nonexistent/sluice.toml");
  EXPECT_EQ(missing.error().cause, "No such file or directory");
  const auto directory = read_config_text("/");
  ASSERT_FALSE(directory.has_value());
  EXPECT_EQ(directory.error().cause, "Is a directory");
}

TEST(ReadConfigText, AnEndlessFileIsRefused) {
  const auto read = read_config_text("/dev/zero");
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().cause, "it is larger than 1 MiB");
}

}  // namespace
}  // namespace sluice::control
