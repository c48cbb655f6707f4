// What `sluice run` says when a port or a socket cannot be opened, and what it leaves behind.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "run_program.h"

namespace sluice::app {
namespace {

class StartErrors : public ::testing::Test {
 protected:
  // `port` after a port that can be opened.
  [[nodiscard]] Outcome run(const std::string& port, std::vector<std::string> more = {}) const {
    std::vector<std::string> words = {
        "run", "--control", directory_ / "ctl", "--vhost-user", good_, "--vhost-user", port};
    words.insert(words.end(), more.begin(), more.end());
    return run_program(words);
  }
  static std::string message(const std::string& port, const std::string& path,
                             const std::string& rest) {
    return "sluice: cannot open port " + port + " (" + path + "): " + rest;
  }
  void expect_nothing_left() const {
    for (const char* name : {"good.sock", "good.sock.lock", "good.sock.rings", "ctl"}) {
      EXPECT_FALSE(std::filesystem::exists(directory_ / name)) << name;
    }
  }

  TemporaryDirectory directory_;
  std::string good_ = directory_ / "good.sock";
};

TEST_F(StartErrors, AMissingDirectoryIsToBeMade) {
  const std::string path = directory_ / "no/such/vm0.sock";
  const Outcome outcome = run(path);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.err, message("vm0", path,
                                 "the directory of the socket does not exist\n  try: mkdir -p " +
                                     (directory_ / "no/such") + ", or choose another path\n"));
  expect_nothing_left();
}

TEST_F(StartErrors, AFileInThePlaceOfTheSocketStays) {
  const std::string path = directory_ / "vm0.sock";
  std::ofstream(path) << "precious";
  const Outcome outcome = run(path + ",name=left");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.err, message("left", path,
                                 "the path exists and is not a socket\n"
                                 "  try: remove that file, or choose another path\n"));
  EXPECT_EQ(std::filesystem::file_size(path), 8U);
  expect_nothing_left();
}

TEST_F(StartErrors, AServedSocketIsNamed) {
  const std::string path = directory_ / "vm0.sock";
  Program first({"run", "--control", directory_ / "other", "--vhost-user", path});
  ASSERT_TRUE(first.wait_for_stderr("control socket"));
  const Outcome outcome = run(path);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.err, message("vm0", path,
                                 "another process serves this socket path\n"
                                 "  try: stop the other process, or choose another path\n"));
}

TEST_F(StartErrors, AFileOfRecordsThatCannotBeHasACureOfItsOwn) {
  const std::string path = directory_ / "vm0.sock";
  std::filesystem::create_directory(path + ".rings");
  const Outcome outcome = run(path);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.err, message("vm0", path + ".rings",
                                 "the ring record file is not a plain file\n  try: remove that "
                                 "file, or keep the records elsewhere by --state-dir DIR\n"));
  expect_nothing_left();
  const std::string state = directory_ / "state";
  const Outcome missing = run(path, {"--state-dir", state});
  EXPECT_EQ(missing.code, 1);
  EXPECT_EQ(missing.err,
            message("good", state + "/good.rings",
                    "the directory of the ring record file does not exist\n  try: mkdir -p " +
                        state + ", or keep the records elsewhere by --state-dir DIR\n"));
}

TEST_F(StartErrors, TheControlSocketToo) {
  std::ofstream(directory_ / "file") << "precious";
  const Outcome file = run_program({"run", "--control", directory_ / "file", "--sink", "name=s"});
  EXPECT_EQ(file.code, 1);
  EXPECT_EQ(file.err, "sluice: cannot open the control socket " + (directory_ / "file") +
                          ": the path exists and is not a socket\n"
                          "  try: remove that file, or give another socket by --control PATH\n");
  const Outcome missing =
      run_program({"run", "--control", directory_ / "no/ctl", "--sink", "name=s"});
  EXPECT_EQ(missing.code, 1);
  EXPECT_EQ(missing.err, "sluice: cannot open the control socket " + (directory_ / "no/ctl") +
                             ": the directory of the socket does not exist\n  try: mkdir -p " +
                             (directory_ / "no") + ", or give another socket by --control PATH\n");
}

TEST_F(StartErrors, AnOrderlyStopKeepsOnlyRecordsThatSomebodyUsed) {
  Program program({"run", "--control", directory_ / "ctl", "--vhost-user", good_});
  ASSERT_TRUE(program.wait_for_stderr("control socket"));
  EXPECT_TRUE(std::filesystem::exists(good_ + ".rings"));
  program.signal(SIGTERM);
  EXPECT_EQ(program.wait(), 0);
  expect_nothing_left();
}

}  // namespace
}  // namespace sluice::app
