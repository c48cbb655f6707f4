// A program on a pseudo-terminal: its prompt, its answers, its end.
#include "app/dialogue.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sluice::app {
namespace {

// Answers each line, in two parts; ends at "quit".
const std::vector<std::string> kEcho = {
    "sh", "-c",
    "printf 'hello\\n> '; while read line; do test \"$line\" = quit && exit; "
    "printf 'got '; sleep 0.05; printf \"$line\\n> \"; done"};

TEST(Dialogue, ACommandIsAnsweredUpToTheNextPrompt) {
  auto dialogue = Dialogue::start(kEcho, "> ");
  ASSERT_TRUE(dialogue.has_value()) << dialogue.error().text;
  for (const char* line : {"one", "two"}) {
    const auto answer = dialogue->command(line);
    ASSERT_TRUE(answer.has_value()) << answer.error().text;
    EXPECT_NE(answer->find(std::string("got ") + line + "\n"), std::string::npos) << *answer;
  }
  EXPECT_TRUE(dialogue->quit("quit"));
}

TEST(Dialogue, AProgramThatIsMissingOrEndsIsAnError) {
  EXPECT_EQ(Dialogue::start(std::vector<std::string>{"sluice-no-such-program"}, ">").error().code,
            ErrorCode::kNotFound);
  EXPECT_EQ(Dialogue::start(std::vector<std::string>{"true"}, "> ").error().code,
            ErrorCode::kClosed);
  auto dialogue = Dialogue::start(kEcho, "> ");
  ASSERT_TRUE(dialogue.has_value());
  EXPECT_EQ(dialogue->command("quit").error().code, ErrorCode::kClosed);
}

}  // namespace
}  // namespace sluice::app
