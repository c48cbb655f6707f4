// The flag form of the configuration: what is read, and every refusal with its cure.
#include "control/port_flag.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sluice::control {
namespace {

const Key<Config>& key_of_flag(std::string_view flag) {
  for (const auto& key : config_keys()) {
    if (key.setting.flag == flag) return key;
  }
  ADD_FAILURE() << "no flag " << flag;
  return config_keys().front();
}

TEST(VhostUserFlag, APathAloneIsAPortWithDefaults) {
  const auto port = parse_vhost_user_flag("/run/vm0.sock");
  ASSERT_TRUE(port.has_value());
  EXPECT_EQ(port->path, "/run/vm0.sock");
  EXPECT_EQ(port->queues, 1);
  EXPECT_FALSE(port->client);
  EXPECT_TRUE(port->offloads);
}

TEST(VhostUserFlag, ReadsEveryKey) {
  const auto port = parse_vhost_user_flag(
      "/a,name=left,queues=4,client,mac=52:54:00:aB:cd:01,offloads=off,mtu=1500,packed=off,"
      "in_order=off,mrg_rxbuf=off,event_idx=off,indirect=off,ring_reset=on,one_used_entry=on");
  ASSERT_TRUE(port.has_value()) << port.error().cause;
  EXPECT_EQ(port->name, "left");
  EXPECT_EQ(port->queues, 4);
  EXPECT_TRUE(port->client);
  ASSERT_TRUE(port->mac.has_value());
  EXPECT_EQ(to_string(*port->mac), "52:54:00:ab:cd:01");
  EXPECT_EQ(port->mtu, 1500);
  EXPECT_FALSE(port->offloads || port->packed || port->in_order || port->mrg_rxbuf ||
               port->event_idx || port->indirect);
  EXPECT_TRUE(port->ring_reset && port->one_used_entry);
}

TEST(VhostUserFlag, ThePathMayBeNamedAndMayContainAnEqualSign) {
  EXPECT_EQ(parse_vhost_user_flag("path=/run/a")->path, "/run/a");
  EXPECT_EQ(parse_vhost_user_flag("/run/a=b")->path, "/run/a=b");
}

struct FlagRefusal {
  const char* text;
  const char* cause;
  const char* cure;
};

class RefusedFlag : public ::testing::TestWithParam<FlagRefusal> {};

TEST_P(RefusedFlag, NamesCauseAndCure) {
  const auto port = parse_vhost_user_flag(GetParam().text);
  ASSERT_FALSE(port.has_value());
  EXPECT_EQ(port.error().where, std::string("--vhost-user ") + GetParam().text);
  EXPECT_EQ(port.error().cause, GetParam().cause);
  EXPECT_EQ(port.error().cure, GetParam().cure);
}

INSTANTIATE_TEST_SUITE_P(
    VhostUserFlag, RefusedFlag,
    ::testing::Values(
        FlagRefusal{"", "'path' cannot be ''", "give a path of 1 to 107 bytes"},
        FlagRefusal{"/a,queues=0", "'queues' cannot be '0'", "give a whole number from 1 to 127"},
        FlagRefusal{"/a,queues=128", "'queues' cannot be '128'",
                    "give a whole number from 1 to 127"},
        FlagRefusal{"/a,queues=-1", "'queues' cannot be '-1'", "give a whole number from 1 to 127"},
        FlagRefusal{"/a,queues=2x", "'queues' cannot be '2x'", "give a whole number from 1 to 127"},
        FlagRefusal{"/a,queues=99999999999999999999", "'queues' cannot be '99999999999999999999'",
                    "give a whole number from 1 to 127"},
        FlagRefusal{"/a,queues", "'queues' has no value",
                    "write queues=N: a whole number from 1 to 127"},
        FlagRefusal{"/a,mtu=67", "'mtu' cannot be '67'",
                    "give a whole number from 68 to 65535, in bytes"},
        FlagRefusal{"/a,client=yes", "'client' cannot be 'yes'", "give on or off"},
        FlagRefusal{"/a,client,client=off", "'client' is given twice", "give it once"},
        FlagRefusal{"/a,in-order=on", "there is no key 'in-order'", "did you mean 'in_order'?"},
        FlagRefusal{"/a,mac=1:2:3:4:5:6", "'mac' cannot be '1:2:3:4:5:6'",
                    "give a unicast address such as 52:54:00:12:34:56"},
        FlagRefusal{"/a,mac=52-54-00-12-34-56", "'mac' cannot be '52-54-00-12-34-56'",
                    "give a unicast address such as 52:54:00:12:34:56"},
        FlagRefusal{"/a,mac=53:54:00:12:34:56", "'mac' cannot be '53:54:00:12:34:56'",
                    "give a unicast address such as 52:54:00:12:34:56"},
        FlagRefusal{"/a,mac=00:00:00:00:00:00", "'mac' cannot be '00:00:00:00:00:00'",
                    "give a unicast address such as 52:54:00:12:34:56"},
        FlagRefusal{"/a,name=a b", "'name' cannot be 'a b'",
                    "give 1 to 32 letters, digits, '.', '_' or '-', not beginning with '-'"},
        FlagRefusal{"/a,", "there is nothing after the last comma",
                    "remove the comma, or add a key"},
        FlagRefusal{"/a,,client", "a key is empty",
                    "separate keys by one comma each, as in PATH,queues=2,client"},
        FlagRefusal{"/a,=2", "there is no key before '=2'",
                    "separate keys by one comma each, as in PATH,queues=2,client"}));

TEST(VirtioUserFlag, ReadsAddressAndSpeed) {
  const auto port = parse_virtio_user_flag("/a,mac=52:54:00:00:00:01,speed=25000");
  ASSERT_TRUE(port.has_value()) << port.error().cause;
  EXPECT_EQ(to_string(port->mac.value_or(fabric::MacAddress{})), "52:54:00:00:00:01");
  EXPECT_EQ(port->speed, 25'000U);
  EXPECT_EQ(parse_virtio_user_flag("/a")->speed, 0U);
  EXPECT_FALSE(parse_virtio_user_flag("/a,mac=53:54:00:00:00:01").has_value());
}

TEST(VirtioUserFlag, ASpeedThatNoLinkHasIsAnsweredByTheList) {
  for (const std::uint32_t speed : fabric::kLinkSpeeds) {
    EXPECT_EQ(parse_virtio_user_flag("/a,speed=" + std::to_string(speed))->speed, speed);
  }
  for (const char* speed : {"1", "11", "400001", "-10", "10G", ""}) {
    const auto port = parse_virtio_user_flag(std::string("/a,speed=") + speed);
    ASSERT_FALSE(port.has_value()) << speed;
    EXPECT_EQ(port.error().cure,
              "give one of 0, 10, 100, 1000, 2500, 5000, 10000, 20000, 25000, 40000, 50000, 56000, "
              "100000, 200000, 400000, in Mbit/s");
  }
}

TEST(VhostUserFlag, AnUnlikeKeyIsAnsweredByTheListOfKeys) {
  const auto port = parse_vhost_user_flag("/a,bandwidth=9");
  ASSERT_FALSE(port.has_value());
  EXPECT_EQ(port.error().cure.substr(0, 18), "the keys are path,");
  for (const auto& key : vhost_user_keys()) {
    EXPECT_NE(port.error().cure.find(key.setting.name), std::string::npos) << key.setting.name;
  }
}

TEST(VhostUserFlag, APathMustFitASocketAddress) {
  EXPECT_TRUE(parse_vhost_user_flag(std::string(107, 'a')).has_value());
  const auto port = parse_vhost_user_flag(std::string(108, 'a'));
  ASSERT_FALSE(port.has_value());
  EXPECT_LT(port.error().cause.size(), 100U) << "a message does not repeat all of a long text";
}

TEST(OtherPortFlags, GeneratorAndSinkReadTheirKeys) {
  const auto generator = parse_generator_flag("name=g,queues=2,size=1500");
  ASSERT_TRUE(generator.has_value());
  EXPECT_EQ(generator->name, "g");
  EXPECT_EQ(generator->size, 1500U);
  const auto sink = parse_sink_flag("name=s,touch");
  ASSERT_TRUE(sink.has_value());
  EXPECT_TRUE(sink->touch);
  EXPECT_FALSE(parse_generator_flag("size=13").has_value());
  EXPECT_FALSE(parse_sink_flag("size=64").has_value());
}

TEST(OtherPortFlags, APatchNamesTwoPorts) {
  const auto pair = parse_patch_flag("vm0,vm1");
  ASSERT_TRUE(pair.has_value());
  EXPECT_EQ(*pair, std::pair(std::string("vm0"), std::string("vm1")));
  for (const char* text : {"", "vm0", "vm0,", ",vm1", "a,b,c"}) {
    const auto refused = parse_patch_flag(text);
    ASSERT_FALSE(refused.has_value()) << text;
    EXPECT_EQ(refused.error().cause, "it does not name two ports");
  }
}

TEST(SimpleFlags, CoresAreAListWithRanges) {
  Config config;
  EXPECT_FALSE(apply_flag(config, key_of_flag("cores"), "7,2-4").has_value());
  EXPECT_EQ(config.fabric.workers.cores, (std::vector<std::uint16_t>{7, 2, 3, 4}));
}

TEST(SimpleFlags, AListThatIsNoneIsRefused) {
  for (const char* text : {"", "a", "1,", "4-2", "1-", "-3", "1024", "0-99999999999", "1--2"}) {
    Config config;
    const auto problem = apply_flag(config, key_of_flag("cores"), text);
    ASSERT_TRUE(problem.has_value()) << text;
    EXPECT_EQ(problem->where, "--cores");
    EXPECT_EQ(problem->cure, "give core numbers from 0 to 1023, such as 2,3 or 2-5");
    EXPECT_TRUE(config.fabric.workers.cores.empty()) << "a refused value changes nothing";
  }
}

TEST(SimpleFlags, AWordIsOneOfAFew) {
  Config config;
  EXPECT_FALSE(apply_flag(config, key_of_flag("poll"), "interrupt").has_value());
  EXPECT_EQ(config.fabric.workers.poll, fabric::PollMode::kInterrupt);
  const auto problem = apply_flag(config, key_of_flag("poll"), "lazy");
  ASSERT_TRUE(problem.has_value());
  EXPECT_EQ(problem->cause, "it cannot be 'lazy'");
  EXPECT_EQ(problem->cure, "give busy, adaptive or interrupt");
}

TEST(SimpleFlags, EveryFlagTakesItsLimitsAndNothingBeyond) {
  for (const auto& key : config_keys()) {
    Config config;
    const Slot slot = key.slot(config);
    const bool text = std::holds_alternative<std::string*>(slot);
    if (text || key.setting.max == 0) continue;
    EXPECT_FALSE(apply_flag(config, key, std::to_string(key.setting.min))) << key.setting.flag;
    EXPECT_FALSE(apply_flag(config, key, std::to_string(key.setting.max))) << key.setting.flag;
    EXPECT_TRUE(apply_flag(config, key, std::to_string(key.setting.min - 1))) << key.setting.flag;
    EXPECT_TRUE(apply_flag(config, key, std::to_string(key.setting.max + 1))) << key.setting.flag;
  }
}

}  // namespace
}  // namespace sluice::control
