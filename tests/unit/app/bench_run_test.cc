// `sluice bench`, run for the shortest windows: each command measures something and says what.
#include <gtest/gtest.h>

#include "app/bench_probe.h"
#include "app/json.h"
#include "run_program.h"

namespace sluice::app {
namespace {

// The rows that a command prints with --json.
control::Json rows_of(const std::string& line) {
  const Outcome outcome = run_program(words_of(line + " --seconds 0.05 --json"));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const auto document = control::Json::parse(outcome.out, nullptr, false);
  EXPECT_TRUE(document.is_object()) << outcome.out;
  return document.is_object() ? document["rows"] : control::Json::array();
}

class BenchRun : public ::testing::Test {
 protected:
  void SetUp() override {
    if (permitted_cores().size() < 2) GTEST_SKIP() << "it takes two cores";
  }
};

TEST_F(BenchRun, PairMeasuresEveryFormOfTheRing) {
  const auto rows = rows_of("bench pair --direction loopback");
  ASSERT_EQ(rows.size(), 4U);
  for (const auto& row : rows) {
    EXPECT_GT(row["mpps"], 0.0) << row;
    EXPECT_EQ(row["case"], "loopback");
  }
}

TEST_F(BenchRun, ForwardMovesPacketsFromOneDriverToAnother) {
  const auto rows = rows_of("bench forward --order in-order --size 1518");
  ASSERT_EQ(rows.size(), 2U);
  for (const auto& row : rows) {
    EXPECT_GT(row["mpps"], 0.0) << row;
    EXPECT_EQ(row["case"], "forward");
  }
}

TEST_F(BenchRun, LatencyIsMeasuredAtEachLoadAndFromIdle) {
  const auto rows = rows_of("bench latency --ring split --order any --load 10,50");
  ASSERT_EQ(rows.size(), 3U);
  for (const auto& row : rows) {
    EXPECT_GT(row["frames"], 0) << row;
    EXPECT_GT(row["p50_ns"], 0) << row;
    EXPECT_LE(row["p50_ns"], row["p99_ns"]) << row;
    EXPECT_LE(row["p999_ns"], row["max_ns"]) << row;
  }
  EXPECT_EQ(rows[0]["load"], "10 %");
  EXPECT_EQ(rows[2]["load"], "from idle");
  EXPECT_EQ(rows[2]["frames"], 200);
}

TEST_F(BenchRun, MatrixHasACellForEachDirectionNumberOfQueuesAndOrder) {
  const TemporaryDirectory directory;
  const std::string picture = directory / "matrix.svg";
  const auto rows = rows_of("bench matrix --ring packed --queues 1,2 --runs 1 --svg " + picture);
  ASSERT_GE(rows.size(), 12U);
  for (const auto& row : rows) EXPECT_GT(row["mpps"], 0.0) << row;
  EXPECT_GT(std::filesystem::file_size(picture), 500U);
}

}  // namespace
}  // namespace sluice::app
