// The command line of `sluice bench`, and the cores that a command may name.
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "app/bench_probe.h"
#include "run_program.h"

namespace sluice::app {
namespace {

struct Refusal {
  std::string line;
  std::string cause;
  std::string cure;
};

void expect_refused(const Refusal& wanted, const char* what = "understand the command line") {
  const Outcome outcome = run_program(words_of(wanted.line));
  EXPECT_EQ(outcome.code, 2) << wanted.line;
  EXPECT_EQ(outcome.out, "") << "no heading before a mistake is known";
  EXPECT_EQ(outcome.err, "sluice: cannot " + std::string(what) + ": " + wanted.cause +
                             "\n  try: " + wanted.cure + "\n");
}

TEST(BenchOptions, WhatCannotBeMeasuredIsRefusedBeforeAnythingIsPrinted) {
  const std::string cores = core_list(permitted_cores());
  const std::string mine = std::to_string(permitted_cores().front());
  const std::vector<Refusal> refusals = {
      {"bench pair --cores " + mine + " " + mine, "--cores: two different cores are needed",
       "two of the cores " + cores},
      {"bench pair --cores " + mine + ",1022", "--cores: this process cannot use core 1022",
       "the cores are " + cores},
      {"bench pair --queue-size 100", "--queue-size: a split ring cannot have 100 entries",
       "--queue-size 128, or --ring packed"},
      {"bench pair --one-used-entry", "--one-used-entry: it needs buffers used in order",
       "--order in-order"},
      {"bench driver --socket /nonexistent --one-used-entry",
       "--one-used-entry: it needs buffers used in order", "--order in-order"},
      {"bench driver --socket /nonexistent --core 1022",
       "--core: this process cannot use core 1022", "the cores are " + cores},
      {"bench pair --ring foo", "--ring: 'foo' is none of split, packed",
       "sluice bench pair --help"},
      {"bench pair --seconds 100", "--seconds: '100' is no number from 0.05 to 60",
       "sluice bench pair --help"},
      {"bench pair --size 59", "--size: '59' is no number from 60 to 9000",
       "sluice bench pair --help"},
      {"bench driver --socket /nonexistent --mac zz", "--mac: it cannot be 'zz'",
       "give an address such as 02:00:00:00:00:01"},
      {"bench driver", "sluice bench driver needs --socket", "sluice bench driver --help"},
      {"bench device", "sluice bench device needs --socket", "sluice bench device --help"}};
  for (const Refusal& refusal : refusals) expect_refused(refusal);
}

TEST(BenchOptions, ADeviceThatCannotListenNamesItsSocket) {
  const Outcome outcome = run_program({"bench", "device", "--socket", "/nonexistent/d.sock"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.err.substr(0, 56), "sluice: cannot open port bench (/nonexistent/d.sock): th");
}

TEST(BenchOptions, RunNamesTheCoresThereAre) {
  expect_refused({"run --sink name=s --cores 1022", "cores: this process cannot use core 1022",
                  "the cores are " + core_list(permitted_cores())},
                 "use the configuration");
}

TEST(BenchOptions, AnOptionBeforeItsCommandIsShownItsPlace) {
  expect_refused({"--control /x stats", "'--control' stands before the command",
                  "write it behind: sluice stats --control ..."});
  expect_refused({"port show --watch", "sluice port show has no option '--watch'",
                  "sluice port show --help; other commands have --watch"});
}

TEST(BenchProbe, ListsCoresAsPeopleWriteThem) {
  EXPECT_EQ(core_list(std::array<int, 0>{}), "");
  EXPECT_EQ(core_list(std::array{3}), "3");
  EXPECT_EQ(core_list(std::array{0, 1, 2, 4, 6, 7}), "0-2,4,6-7");
}

TEST(BenchProbe, MeasuringOnOneCoreEnds) {
  const int core = permitted_cores().front();
  const auto begin = std::chrono::steady_clock::now();
  [[maybe_unused]] const auto result = round_trip_ns(core, core);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

}  // namespace
}  // namespace sluice::app
