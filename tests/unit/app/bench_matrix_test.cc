// The matrix: how windows become cells, the table and the picture.
#include "app/bench_matrix.h"

#include <gtest/gtest.h>

#include "app/bar_chart.h"
#include "app/bench_testpmd.h"

namespace sluice::app {
namespace {

BenchRow row(Direction direction, std::uint16_t queues, bool in_order, double mpps,
             double rtt_ns = 100) {
  BenchRow made;
  made.what.direction = direction;
  made.what.queues = queues;
  made.what.in_order = in_order;
  made.mpps = mpps;
  made.round_trip = {rtt_ns, rtt_ns};
  return made;
}

TEST(BenchMatrix, WindowsOfACaseAndStateAreOneCell) {
  const auto cells = cells_of(
      {row(Direction::kToDriver, 1, false, 40), row(Direction::kToDriver, 1, true, 50),
       row(Direction::kToDriver, 1, false, 44, 120), row(Direction::kToDriver, 1, false, 9, 400),
       row(Direction::kToDriver, 1, false, 41)});
  ASSERT_EQ(cells.size(), 3U);
  EXPECT_EQ(cells[0].mpps.size(), 3U);
  EXPECT_DOUBLE_EQ(cells[0].median(), 41);
  EXPECT_NEAR(cells[0].rtt_ns, 106.7, 0.1);
  EXPECT_TRUE(cells[1].what.in_order);
  EXPECT_EQ(cells[2].state, "far");
  EXPECT_DOUBLE_EQ(cells[2].median(), 9);
}

TEST(BenchMatrix, TheMedianOfAnEvenNumberIsTheMiddleOfTwo) {
  EXPECT_DOUBLE_EQ((MatrixCell{.what = {}, .state = "near", .mpps = {4, 1, 3, 2}}.median()), 2.5);
  EXPECT_DOUBLE_EQ(MatrixCell{}.median(), 0);
}

TEST(BenchMatrix, TheStateOfMostWindowsIsShown) {
  EXPECT_EQ(usual_state({}), "");
  EXPECT_EQ(usual_state({row(Direction::kLoopback, 1, false, 1),
                         row(Direction::kLoopback, 1, false, 1, 300),
                         row(Direction::kLoopback, 1, false, 1, 300)}),
            "far");
}

TEST(BenchMatrix, TheTableHasTheShapeOfTheSeries) {
  const auto cells = cells_of(
      {row(Direction::kToDriver, 1, false, 41.5), row(Direction::kToDriver, 1, true, 101.25),
       row(Direction::kFromDriver, 2, true, 7), row(Direction::kLoopback, 2, false, 5, 400)});
  const MatrixView view{.title = "split", .packed = false, .state = "near", .queues = {1, 2}};
  EXPECT_EQ(matrix_table(cells, view),
            "split                      1 queue            2 queues\n"
            "                  normal  in-order    normal  in-order\n"
            "Vhost->Virtio      41.50    101.25         -         -\n"
            "Virtio->Vhost          -         -         -      7.00\n"
            "Loopback               -         -         -         -\n");
}

TEST(BenchMatrix, RatiosAreTakenWithinOneStateOnly) {
  const auto ours = cells_of({row(Direction::kToDriver, 1, false, 40),
                              row(Direction::kToDriver, 1, true, 50, 400),
                              row(Direction::kLoopback, 1, true, 30)});
  const auto theirs =
      cells_of({row(Direction::kToDriver, 1, false, 10), row(Direction::kToDriver, 1, true, 10),
                row(Direction::kLoopback, 1, true, 0)});
  const auto ratios = ratios_of(ours, theirs);
  ASSERT_EQ(ratios.size(), 1U);
  EXPECT_EQ(ratios[0].what.direction, Direction::kToDriver);
  EXPECT_DOUBLE_EQ(ratios[0].median(), 4);
}

TEST(BenchTestpmd, TheReceivedRateIsTheSumOverAllPorts) {
  EXPECT_EQ(received_rate("  Rx-pps:      1234          Rx-bps:       99\n  Rx-pps:   6\n"), 1240U);
  EXPECT_EQ(received_rate(""), 0U);
  EXPECT_EQ(received_rate("Rx-pps:"), 0U);
}

TEST(BenchMatrix, ThePictureHasABarForEachCellOfTheState) {
  const std::string svg = matrix_svg(
      cells_of({row(Direction::kToDriver, 1, false, 40), row(Direction::kToDriver, 1, true, 80),
                row(Direction::kLoopback, 4, true, 9, 400)}),
      "near");
  EXPECT_EQ(svg.find("<svg "), 0U);
  EXPECT_NE(svg.find("Vhost-&gt;Virtio"), std::string::npos) << "escaped";
  EXPECT_EQ(svg.find("Loopback"), std::string::npos) << "another state";
  EXPECT_NE(svg.find("fill=\"#9ecae1\""), std::string::npos);
  EXPECT_NE(svg.find("fill=\"#3182bd\""), std::string::npos);
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
}

TEST(BarChart, BarsAreDrawnToOneScale) {
  BarChart chart;
  chart.title = "a < b";
  chart.series = {"one", "two"};
  chart.set("x", 0, 50);
  chart.set("y", 1, 100);
  const std::string svg = chart.svg();
  EXPECT_NE(svg.find("height=\"260.0\""), std::string::npos) << svg;
  EXPECT_NE(svg.find("height=\"130.0\""), std::string::npos);
  EXPECT_NE(svg.find("a &lt; b"), std::string::npos);
  EXPECT_NE(BarChart().svg().find("</svg>"), std::string::npos) << "an empty one is one, too";
}

}  // namespace
}  // namespace sluice::app
