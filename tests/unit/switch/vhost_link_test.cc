// VhostLink: how soon the next session begins, and what is said about the last one.
#include "switch/vhost_link.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "support/fabric_runner.h"
#include "support/temporary_directory.h"
#include "vhost/socket_path.h"

namespace sluice::fabric {
namespace {

using namespace std::chrono_literals;
using test::connect_driver;
using test::FabricRunner;
using Clock = std::chrono::steady_clock;

class VhostLinkTest : public ::testing::Test {
 protected:
  [[nodiscard]] SwitchOptions one_port() const {
    SwitchOptions options;
    options.vhost_user.push_back({.path = path_, .name = "a"});
    return options;
  }
  // Waits until the session is over.
  static bool idle(FabricRunner& fabric) {
    return test::wait_for([&] { return fabric.port(0).state == "listening"; });
  }

  test::TemporaryDirectory directory_;
  std::string path_ = directory_ / "a.sock";
};

TEST_F(VhostLinkTest, AFrontEndThatOnlyComesAndGoesIsAcceptedMoreAndMoreSeldom) {
  FabricRunner fabric(one_port());
  const auto end = Clock::now() + 1s;
  while (Clock::now() < end) {
    [[maybe_unused]] const auto socket = vhost::connect_to(path_);
    std::this_thread::sleep_for(1ms);
  }
  // Pauses of 10, 20, 40, ... ms: after a second there were seven sessions.
  const PortView port = fabric.port(0);
  EXPECT_GE(port.sessions, 1U);
  EXPECT_LE(port.sessions, 9U);
  EXPECT_EQ(port.state, "listening");
  EXPECT_EQ(port.last_error, "") << "it said nothing, so nothing is known";
}

TEST_F(VhostLinkTest, WhoLeavesDuringNegotiationMayHaveWantedMoreQueues) {
  FabricRunner fabric(one_port());
  ASSERT_NE(connect_driver(path_), nullptr);
  ASSERT_TRUE(idle(fabric));
  EXPECT_EQ(fabric.port(0).last_error,
            "closed during negotiation; it may ask for more than 1 queue pair");
}

TEST_F(VhostLinkTest, AfterASessionThatRanTheNextBeginsAtOnce) {
  FabricRunner fabric(one_port());
  const auto begin = Clock::now();
  for (int i = 0; i < 20; ++i) {
    const auto driver = connect_driver(path_);
    ASSERT_NE(driver, nullptr);
    ASSERT_TRUE(driver->start().has_value());
    ASSERT_TRUE(test::wait_for([&] { return fabric.port(0).state == "running"; }));
  }
  // With growing pauses it would be fourteen seconds.
  EXPECT_LT(Clock::now() - begin, 10s);
  ASSERT_TRUE(idle(fabric));
  EXPECT_EQ(fabric.port(0).sessions, 20U);
  EXPECT_EQ(fabric.port(0).last_error, "");
}

}  // namespace
}  // namespace sluice::fabric
