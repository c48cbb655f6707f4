// The command line of the built program: help, messages and exit codes.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "control/version.h"
#include "run_program.h"

namespace sluice::app {
namespace {

class Help : public ::testing::TestWithParam<const char*> {};

TEST_P(Help, TeachesByASentenceAndExamplesAndFitsATerminal) {
  std::vector<std::string> words = words_of(GetParam());
  words.push_back("--help");
  const Outcome outcome = run_program(words);
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.err, "");
  EXPECT_NE(outcome.out.find("Usage: sluice"), std::string::npos);
  EXPECT_NE(outcome.out.find("Examples:\n  "), std::string::npos);
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100U) << line;
}

INSTANTIATE_TEST_SUITE_P(EveryLevel, Help,
                         ::testing::Values("", "run", "port", "port show", "queue", "queue show",
                                           "queue reset", "fdb", "fdb show", "worker",
                                           "worker show", "stats", "bench", "bench pair",
                                           "bench forward", "bench latency", "bench matrix",
                                           "bench device", "bench driver", "version"));

struct Mistake {
  const char* line;
  int code;
  const char* err;
};

class WrongCommandLine : public ::testing::TestWithParam<Mistake> {};

TEST_P(WrongCommandLine, IsAnsweredByCauseAndCure) {
  const Outcome outcome = run_program(words_of(GetParam().line));
  EXPECT_EQ(outcome.code, GetParam().code);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err, GetParam().err);
}

INSTANTIATE_TEST_SUITE_P(
    Mistakes, WrongCommandLine,
    ::testing::Values(
        Mistake{"", 2,
                "sluice: cannot understand the command line: sluice needs a command after it\n"
                "  try: sluice --help\n"},
        Mistake{"prt", 2,
                "sluice: cannot understand the command line: sluice has no command 'prt'\n"
                "  try: did you mean port?\n"},
        Mistake{"port", 2,
                "sluice: cannot understand the command line: sluice port needs a command after "
                "it\n  try: sluice port --help\n"},
        Mistake{"port list", 2,
                "sluice: cannot understand the command line: sluice port has no command 'list'\n"
                "  try: sluice port --help\n"},
        Mistake{"port show a b", 2,
                "sluice: cannot understand the command line: sluice port show does not expect "
                "'b'\n  try: sluice port show --help\n"},
        Mistake{"queue reset", 2,
                "sluice: cannot understand the command line: sluice queue reset needs PORT\n"
                "  try: sluice queue reset --help\n"},
        Mistake{"queue reset up", 2,
                "sluice: cannot reset the queue: QUEUE is missing\n"
                "  try: sluice queue show up lists them\n"},
        Mistake{"queue reset up --whole-device --size 64", 2,
                "sluice: cannot reset the queue: QUEUE is missing\n"
                "  try: sluice queue show up lists them\n"},
        Mistake{"queue reset up tx", 2,
                "sluice: cannot reset the queue: QUEUE cannot be 'tx'\n"
                "  try: give its number: receiveq of pair n is 2n, transmitq 2n+1\n"},
        Mistake{"queue reset up 1 --size 1", 2,
                "sluice: cannot reset the queue: --size cannot be '1'\n"
                "  try: give a whole number from 2 to 32768\n"},
        Mistake{"queue reset up 1 --control /nowhere/at/all", 3,
                "sluice: cannot ask the running switch: /nowhere/at/all: there is no such file\n"
                "  try: start one by `sluice run`, or name its socket by --control PATH\n"},
        Mistake{"run --vhost-usr /a", 2,
                "sluice: cannot understand the command line: sluice run has no option "
                "'--vhost-usr'\n  try: did you mean --vhost-user?\n"},
        Mistake{"run --workers", 2,
                "sluice: cannot understand the command line: --workers needs a value\n"
                "  try: sluice run --help\n"},
        Mistake{"run --workers 1 --workers 2", 2,
                "sluice: cannot understand the command line: --workers is given more than once\n"
                "  try: sluice run --help\n"},
        Mistake{"run", 2,
                "sluice: cannot use the configuration: there are no ports\n"
                "  try: add --vhost-user PATH for each port, or [[vhost_user]] to the file\n"},
        Mistake{"run --vhost-user /a,queues=0 --workers 0", 2,
                "sluice: cannot use the configuration: --workers: it cannot be '0'\n"
                "  try: give a whole number from 1 to 256\n"
                "sluice: cannot use the configuration: --vhost-user /a,queues=0: 'queues' cannot "
                "be '0'\n  try: give a whole number from 1 to 127\n"},
        Mistake{"run --vhost-user /a --vhost-user /b/a.sock", 2,
                "sluice: cannot use the configuration: two ports are called 'a'\n"
                "  try: give one of them another name=\n"},
        Mistake{"run /nonexistent.toml", 2,
                "sluice: cannot use the configuration: /nonexistent.toml: No such file or "
                "directory\n"
                "  try: give the path of a file that exists, or flags instead of a file\n"},
        Mistake{"stats --watch vm0", 2,
                "sluice: cannot understand the command line: --watch cannot be 'vm0'\n"
                "  try: --watch=SECONDS from 0.1 to 3600, or PORT before --watch\n"},
        Mistake{"stats --watch=0", 2,
                "sluice: cannot understand the command line: --watch cannot be '0'\n"
                "  try: --watch=SECONDS from 0.1 to 3600, or PORT before --watch\n"},
        Mistake{"stats --control /nonexistent.sock", 3,
                "sluice: cannot ask the running switch: /nonexistent.sock: there is no such "
                "file\n"
                "  try: start one by `sluice run`, or name its socket by --control PATH\n"}));

TEST(CommandLine, VersionIsPrintedByCommandAndByFlag) {
  const std::string expected = "sluice " + std::string(control::kVersion) + "\n";
  EXPECT_EQ(run_program({"version"}).out, expected);
  EXPECT_EQ(run_program({"--version"}).out, expected);
}

TEST(CommandLine, FlagsBecomeAFileThatIsRightAndWinsNothingOverFlags) {
  const TemporaryDirectory directory;
  const Outcome printed =
      run_program({"run", "--print-config", "--vhost-user", "/run/a.sock", "--vhost-user",
                   "/run/b.sock,queues=2,client", "--workers", "2"});
  EXPECT_EQ(printed.code, 0);
  EXPECT_EQ(printed.out,
            "\n[workers]\ncount = 2\n\n[[vhost_user]]\npath = \"/run/a.sock\"\n\n"
            "[[vhost_user]]\npath = \"/run/b.sock\"\nqueues = 2\nclient = true\n");
  const std::string file = directory / "sluice.toml";
  std::ofstream(file) << printed.out;
  const Outcome both =
      run_program({"run", "--print-config", file, "--workers", "3", "--vhost-user", "/run/c.sock"});
  EXPECT_EQ(both.code, 0);
  EXPECT_NE(both.out.find("count = 3\n"), std::string::npos);
  EXPECT_NE(both.out.find("/run/c.sock"), std::string::npos);
  EXPECT_NE(both.out.find("/run/b.sock"), std::string::npos);
}

TEST(CommandLine, CheckStartsNothing) {
  const TemporaryDirectory directory;
  const Outcome outcome =
      run_program({"run", "--check", "--vhost-user", directory / "a.sock", "--vhost-user",
                   directory / "b.sock", "--control", directory / "c.sock"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out.substr(0, 27), "the configuration is right\n");
  for (const char* name : {"a.sock", "b.sock", "c.sock"}) {
    EXPECT_FALSE(std::filesystem::exists(directory / name)) << name;
  }
}

TEST(CommandLine, AMistakeInAFileIsNamedByLineAndColumn) {
  const TemporaryDirectory directory;
  const std::string file = directory / "sluice.toml";
  std::ofstream(file) << "[[vhost_user]]\npath = '/a'\nqueues = 999\n";
  const Outcome outcome = run_program({"run", "--check", file});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.err, "sluice: cannot use the configuration: " + file +
                             ":3:10: 'queues' cannot be 999\n"
                             "  try: give a whole number from 1 to 127\n");
}

TEST(CommandLine, AFileInThePlaceOfTheControlSocketIsCalledSo) {
  const TemporaryDirectory directory;
  std::ofstream(directory / "file") << "x";
  const Outcome outcome = run_program({"stats", "--control", directory / "file"});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_NE(outcome.err.find("file: this file is not a socket\n"), std::string::npos);
}

TEST(CommandLine, HelpNamesTheControlSocketThatIsUsedByDefault) {
  EXPECT_NE(run_program({"run", "--help"}).out.find("sluice.sock)"), std::string::npos);
}

TEST(CommandLine, AFullDiskIsAFailure) {
  const std::string command = program_path() + " version > /dev/full 2> /dev/null";
  const int status = std::system(command.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 1);
}

}  // namespace
}  // namespace sluice::app
