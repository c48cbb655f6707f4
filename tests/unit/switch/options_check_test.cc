// The rules of SwitchOptions: what is refused, by which error, and what is filled in.
#include "switch/options_check.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "switch/forwarder.h"

namespace sluice::fabric {
namespace {

SwitchOptions two_ports() {
  SwitchOptions options;
  options.vhost_user = {{.path = "/run/a.sock"}, {.path = "b"}};
  return options;
}

TEST(SwitchOptions, PortsAreNamedAfterTheirSockets) {
  const auto options = complete(two_ports());
  ASSERT_TRUE(options.has_value());
  EXPECT_EQ(port_names(*options), (std::vector<std::string>{"a", "b"}));
}

TEST(SwitchOptions, APatchWithoutPairsConnectsNeighbours) {
  auto options = two_ports();
  options.forward = Forward::kPatch;
  options.generators = {{}};
  options.sinks = {{}};
  EXPECT_EQ(patch_peers(*complete(options)), (std::vector<std::uint16_t>{1, 0, 3, 2}));
}

TEST(SwitchOptions, PairsGoBothWaysAndAPortMayBeItsOwnPeer) {
  auto options = two_ports();
  options.forward = Forward::kPatch;
  options.generators = {{}};
  options.sinks = {{}};
  options.patches = {{"a", "sink0"}, {"b", "b"}};
  EXPECT_EQ(patch_peers(*complete(options)),
            (std::vector<std::uint16_t>{3, 1, Forwarder::kNoPeer, 0}));
}

struct Refusal {
  const char* name;
  ErrorCode code;
  const char* field;  // How the error's text begins.
  std::function<void(SwitchOptions&)> spoil;
};

class SwitchOptionsRefuse : public ::testing::TestWithParam<Refusal> {};

TEST_P(SwitchOptionsRefuse, WithAnErrorThatNamesTheField) {
  SwitchOptions options = two_ports();
  ASSERT_TRUE(complete(options).has_value());
  GetParam().spoil(options);
  const auto result = complete(options);
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, GetParam().code);
  EXPECT_TRUE(std::string(result.error().text).starts_with(GetParam().field))
      << result.error().text;
}

using O = SwitchOptions;
using C = ErrorCode;
const Refusal kRefusals[] = {
    {"NoPorts", C::kInvalidArgument, "ports:", [](O& o) { o.vhost_user.clear(); }},
    {"TooManyPorts", C::kOutOfRange, "ports:",
     [](O& o) {
       for (int i = 0; i < 256; ++i) o.vhost_user.push_back({.path = "p" + std::to_string(i)});
     }},
    {"EmptyPath", C::kInvalidArgument,
     "path:", [](O& o) { o.vhost_user[1] = {.path = "", .name = "x"}; }},
    {"NoNameToTake", C::kInvalidArgument, "name:", [](O& o) { o.vhost_user[1].path = "/run/"; }},
    {"SameName", C::kExists, "name:", [](O& o) { o.vhost_user[1].name = "a"; }},
    {"SameNameAcrossKinds", C::kExists, "name:", [](O& o) { o.sinks = {{.name = "a"}}; }},
    {"SamePath", C::kExists,
     "path:", [](O& o) { o.vhost_user[1] = {.path = "/run/a.sock", .name = "x"}; }},
    {"SameMac", C::kExists,
     "mac:", [](O& o) { o.vhost_user[0].mac = o.vhost_user[1].mac = MacAddress{std::byte{2}}; }},
    {"SpeedOfNoLink", C::kInvalidArgument, "speed",
     [](O& o) { o.virtio_user = {{.path = "u", .speed = 11}}; }},
    {"MacOfAGroup", C::kInvalidArgument, "mac",
     [](O& o) { o.virtio_user = {{.path = "u", .mac = MacAddress{std::byte{3}}}}; }},
    {"MacOfNobody", C::kInvalidArgument, "mac",
     [](O& o) { o.virtio_user = {{.path = "u", .mac = MacAddress{}}}; }},
    {"NoWorkers", C::kOutOfRange, "workers.count", [](O& o) { o.workers.count = 0; }},
    {"TooManyWorkers", C::kOutOfRange, "workers.count", [](O& o) { o.workers.count = 257; }},
    {"CoresDoNotMatch", C::kInvalidArgument, "workers.cores",
     [](O& o) { o.workers.cores = {0, 1}; }},
    {"NegativeSpin", C::kOutOfRange, "workers.spin",
     [](O& o) { o.workers.spin = std::chrono::microseconds(-1); }},
    {"LongSpin", C::kOutOfRange, "workers.spin",
     [](O& o) { o.workers.spin = std::chrono::microseconds(1'000'001); }},
    {"EmptyTable", C::kOutOfRange, "bridge.table_size", [](O& o) { o.bridge.table_size = 0; }},
    {"HugeTable", C::kOutOfRange, "bridge.table_size",
     [](O& o) { o.bridge.table_size = std::size_t{1} << 40; }},
    {"NoAgeing", C::kOutOfRange, "bridge.ageing",
     [](O& o) { o.bridge.ageing = std::chrono::seconds(0); }},
    {"PatchesInABridge", C::kInvalidArgument, "patches:", [](O& o) { o.patches = {{"a", "b"}}; }},
    {"OddPatch", C::kInvalidArgument, "patches:",
     [](O& o) {
       o.forward = Forward::kPatch;
       o.sinks = {{}};
     }},
    {"UnknownInPatch", C::kNotFound, "patches:",
     [](O& o) {
       o.forward = Forward::kPatch;
       o.patches = {{"a", "c"}};
     }},
    {"TwiceInPatch", C::kInvalidArgument, "patches:",
     [](O& o) {
       o.forward = Forward::kPatch;
       o.patches = {{"a", "b"}, {"b", "b"}};
     }},
};
INSTANTIATE_TEST_SUITE_P(Fields, SwitchOptionsRefuse, ::testing::ValuesIn(kRefusals),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace sluice::fabric
