// Dialogue: a program with a command line of its own, on a pseudo-terminal so that it does not
// buffer what it says.
#pragma once

#include <chrono>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/unique_fd.h"

namespace sluice::app {

class Dialogue {
 public:
  /// Starts `words[0]`, sought on PATH, and waits for its first prompt. What it says on standard
  /// error is lost: a log line in the middle of a prompt would hide it.
  /// Errors: kNotFound if there is no such program; kTimeout, kClosed, kSystem.
  [[nodiscard]] static Result<Dialogue> start(std::span<const std::string> words,
                                              std::string_view prompt);
  Dialogue(Dialogue&& other) noexcept;
  Dialogue& operator=(Dialogue&&) = delete;
  /// Ends the program at once if it still runs.
  ~Dialogue();

  /// Types a line and returns what the program says up to its next prompt.
  /// Errors: kTimeout, kClosed, kSystem.
  Result<std::string> command(std::string_view line);
  /// Types the line with which the program ends, and waits for that.
  Status quit(std::string_view line);

 private:
  Dialogue(int pid, UniqueFd terminal, std::string_view prompt);
  Status type(std::string_view line) const;
  [[nodiscard]] Result<std::string> read_to_prompt(std::chrono::seconds patience);

  int pid_;
  UniqueFd terminal_;
  std::string prompt_;
};

}  // namespace sluice::app
