// Counters as tables, rates, and the account of all packets.
#include "app/stats_view.h"

#include <gtest/gtest.h>

#include "control/requests.h"
#include "unit/control/fake_views.h"

namespace sluice::app {
namespace {

using control::Json;

Json reply_of(const control::Views& views) {
  return Json::parse(control::answer_request(control::request_line("stats", ""), views));
}

TEST(TotalsText, HidesCausesThatAreZero) {
  control::FakeViews views = control::two_ports();
  EXPECT_EQ(totals_text(reply_of(views)).find("CAUSE"), std::string::npos);
  views.port_stats[1].to_driver.packets = 5;
  views.port_stats[1].to_driver.drops[static_cast<std::size_t>(net::DropCause::kMtu)] = 2;
  EXPECT_EQ(totals_text(reply_of(views)),
            "PORT  DIRECTION    PACKETS  BYTES  BURSTS  NOTIFICATIONS  DROPPED\n"
            "vm0   from driver        0      0       0              0        0\n"
            "vm0   to driver          0      0       0              0        0\n"
            "vm1   from driver        0      0       0              0        0\n"
            "vm1   to driver          5      0       0              0        2\n"
            "\n"
            "PORT  DIRECTION  DROPPED  CAUSE  MEANING\n"
            "vm1   to driver        2  mtu    larger than the receiving port's MTU\n");
}

control::FakeViews balanced() {
  control::FakeViews views = control::two_ports();
  views.port_stats[0].from_driver.packets = 10;
  views.port_stats[0].from_driver.drops[0] = 1;
  views.port_stats[1].to_driver.packets = 8;
  views.port_stats[1].to_driver.drops[8] = 1;
  views.forward_totals = {.forwarded = 9, .offers = 9, .flooded = 0};
  return views;
}

TEST(BalanceText, AccountsForEveryPacket) {
  EXPECT_EQ(balance_text(reply_of(balanced())),
            "10 taken = 9 forwarded + 1 dropped\n9 offered = 8 delivered + 1 dropped\n");
}

TEST(BalanceText, SaysWhatIsMissing) {
  control::FakeViews views = balanced();
  views.forward_totals.forwarded = 7;
  views.forward_totals.offers = 12;
  EXPECT_EQ(balance_text(reply_of(views)),
            "10 taken = 7 forwarded + 1 dropped + 2 not accounted for\n"
            "12 offered = 8 delivered + 1 dropped + 3 not accounted for\n");
}

TEST(BalanceText, SaysWhatTheSwitchMadeItself) {
  control::FakeViews views = balanced();
  views.forward_totals.forwarded = 10;
  views.forward_totals.offers = 9;
  EXPECT_EQ(balance_text(reply_of(views)),
            "10 taken = 10 forwarded + 1 dropped - 1 made here\n"
            "9 offered = 8 delivered + 1 dropped\n");
}

Json stats_at(std::uint64_t time_ns, std::uint64_t packets, std::uint64_t bytes) {
  return {{"time_ns", time_ns},
          {"stats", Json::array({{{"name", "vm0"},
                                  {"from_driver", {{"packets", packets}, {"bytes", bytes}}},
                                  {"to_driver", {{"packets", 0}, {"dropped", packets}}}}})}};
}

TEST(RatesText, DividesGrowthByTime) {
  EXPECT_EQ(
      rates_text(stats_at(0, 100, 0), stats_at(2'000'000'000, 2100, 128000)),
      "PORT  FROM DRIVER pps  FROM bit/s  FROM drops/s  TO DRIVER pps  TO bit/s  TO drops/s\n"
      "vm0            1.00 k       512 k             0              0         0      1.00 k\n");
}

TEST(RatesText, CountersThatWentBackAreZero) {
  EXPECT_NE(rates_text(stats_at(0, 100, 100), stats_at(1, 5, 5)).find("vm0                 0"),
            std::string::npos);
}

TEST(StatsText, AnyDocumentIsReadWithoutFailing) {
  for (const char* text : {"{}", R"({"stats":3})", R"({"stats":[1,"x",null,{}]})",
                           R"({"stats":[{"name":{},"from_driver":[],"to_driver":{"drops":7}}]})",
                           R"({"stats":[{"from_driver":{"packets":-3,"drops":{"mtu":"x"}}}]})"}) {
    const Json reply = Json::parse(text);
    EXPECT_FALSE(totals_text(reply).empty());
    EXPECT_FALSE(balance_text(reply).empty());
    EXPECT_FALSE(rates_text(reply, reply).empty());
  }
}

}  // namespace
}  // namespace sluice::app
