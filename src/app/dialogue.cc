// Spawning the program, and reading up to its prompt.
#include "app/dialogue.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>
#include <vector>

namespace sluice::app {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

constexpr seconds kStartPatience{60};
constexpr seconds kCommandPatience{20};

struct Terminal {
  UniqueFd master;
  UniqueFd slave;
};

Result<Terminal> open_terminal() {
  UniqueFd master(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  std::array<char, 64> name{};
  if (!master || ::grantpt(master.get()) != 0 || ::unlockpt(master.get()) != 0 ||
      ::ptsname_r(master.get(), name.data(), name.size()) != 0) {
    return fail_errno("cannot make a pseudo-terminal");
  }
  UniqueFd slave(::open(name.data(), O_RDWR | O_NOCTTY | O_CLOEXEC));
  termios settings{};
  if (!slave || ::tcgetattr(slave.get(), &settings) != 0) {
    return fail_errno("cannot open a pseudo-terminal");
  }
  ::cfmakeraw(&settings);
  if (::tcsetattr(slave.get(), TCSANOW, &settings) != 0) {
    return fail_errno("cannot set up a pseudo-terminal");
  }
  return Terminal{std::move(master), std::move(slave)};
}

Result<int> spawn(std::span<const std::string> words, const UniqueFd& terminal) {
  std::vector<std::string> copies(words.begin(), words.end());
  std::vector<char*> arguments;
  for (std::string& word : copies) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, terminal.get(), STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, terminal.get(), STDOUT_FILENO);
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t pid = -1;
  const int failed =
      ::posix_spawnp(&pid, arguments[0], &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (failed == ENOENT) return fail(ErrorCode::kNotFound, "the program is not installed");
  if (failed != 0) return fail(ErrorCode::kSystem, "cannot start the program", failed);
  return pid;
}

}  // namespace

Dialogue::Dialogue(int pid, UniqueFd terminal, std::string_view prompt)
    : pid_(pid), terminal_(std::move(terminal)), prompt_(prompt) {}
Dialogue::Dialogue(Dialogue&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      terminal_(std::move(other.terminal_)),
      prompt_(std::move(other.prompt_)) {}
Dialogue::~Dialogue() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

Result<Dialogue> Dialogue::start(std::span<const std::string> words, std::string_view prompt) {
  Terminal terminal = TRY(open_terminal());
  const int pid = TRY(spawn(words, terminal.slave));
  Dialogue dialogue(pid, std::move(terminal.master), prompt);
  terminal.slave.reset();  // With the program's own it is gone, and we read of its end.
  TRY(dialogue.read_to_prompt(kStartPatience));
  return dialogue;
}

Status Dialogue::type(std::string_view line) const {
  const std::string text = std::string(line) + "\n";
  if (::write(terminal_.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return fail_errno("cannot write to the program's terminal");
  }
  return {};
}

Result<std::string> Dialogue::command(std::string_view line) {
  TRY(type(line));
  return read_to_prompt(kCommandPatience);
}

Result<std::string> Dialogue::read_to_prompt(seconds patience) {
  const auto deadline = Clock::now() + patience;
  std::string text;
  while (!text.ends_with(prompt_)) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
    pollfd item{terminal_.get(), POLLIN, 0};
    if (left.count() <= 0 || ::poll(&item, 1, static_cast<int>(left.count())) <= 0) {
      return fail(ErrorCode::kTimeout, "the program does not answer");
    }
    std::array<char, 4096> part{};
    const ssize_t length = ::read(terminal_.get(), part.data(), part.size());
    if (length <= 0) return fail(ErrorCode::kClosed, "the program ended");
    text.append(part.data(), static_cast<std::size_t>(length));
  }
  return text;
}

Status Dialogue::quit(std::string_view line) {
  TRY(type(line));
  const auto deadline = Clock::now() + kCommandPatience;
  while (Clock::now() < deadline) {
    // It may have much to say before it ends.
    pollfd item{terminal_.get(), POLLIN, 0};
    std::array<char, 4096> rest{};
    if (::poll(&item, 1, 10) > 0 && ::read(terminal_.get(), rest.data(), rest.size()) <= 0) {
      ::usleep(10'000);
    }
    if (::waitpid(pid_, nullptr, WNOHANG) == pid_) {
      pid_ = -1;
      return {};
    }
  }
  return fail(ErrorCode::kTimeout, "the program does not end");
}

}  // namespace sluice::app
