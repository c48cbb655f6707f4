// Runs the program `sluice` of this build and keeps what it said.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/unique_fd.h"

namespace sluice::app {

/// The words of a line, as a shell without quotes parts them.
inline std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<std::string>(stream), {}};
}

/// The program lies beside the test's own.
inline std::string program_path() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / "sluice";
}

/// A running program with its two outputs on pipes. Killed, if need be, when it goes out of scope.
class Program {
 public:
  explicit Program(std::vector<std::string> arguments) {
    std::array<int, 2> out{};
    std::array<int, 2> err{};
    EXPECT_EQ(::pipe(out.data()), 0);
    EXPECT_EQ(::pipe(err.data()), 0);
    arguments.insert(arguments.begin(), program_path());
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(out[1], STDOUT_FILENO);
      ::dup2(err[1], STDERR_FILENO);
      for (const int fd : {out[0], out[1], err[0], err[1]}) ::close(fd);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
    ::close(out[1]);
    ::close(err[1]);
    out_.reset(out[0]);
    err_.reset(err[0]);
  }
  ~Program() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void signal(int number) const { ::kill(pid_, number); }
  [[nodiscard]] pid_t pid() const { return pid_; }

  /// Waits until stderr contains `text`. False if it did not within the time, or the program ended.
  bool wait_for_stderr(const std::string& text) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (stderr_.find(text) == std::string::npos && std::chrono::steady_clock::now() < end) {
      if (!read_some(std::chrono::milliseconds(100))) break;
    }
    return stderr_.find(text) != std::string::npos;
  }

  /// Waits for the end. Returns the exit code, or 128 plus the signal's number.
  int wait() {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (read_some(std::chrono::milliseconds(100))) {
      if (std::chrono::steady_clock::now() < end) continue;
      ADD_FAILURE() << "the program does not end; it said:\n" << stderr_;
      ::kill(pid_, SIGKILL);
      break;
    }
    int status = 0;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  [[nodiscard]] const std::string& out() const { return stdout_; }
  [[nodiscard]] const std::string& err() const { return stderr_; }

 private:
  static constexpr std::chrono::seconds kPatience{60};

  // False when both pipes are at their end.
  bool read_some(std::chrono::milliseconds timeout) {
    std::array<pollfd, 2> fds = {{{out_.get(), POLLIN, 0}, {err_.get(), POLLIN, 0}}};
    ::poll(fds.data(), fds.size(), static_cast<int>(timeout.count()));
    take(fds[0], out_, stdout_);
    take(fds[1], err_, stderr_);
    return out_ || err_;
  }
  static void take(const pollfd& ready, UniqueFd& fd, std::string& text) {
    if (ready.revents == 0) return;
    std::array<char, 4096> bytes;
    const ssize_t got = ::read(fd.get(), bytes.data(), bytes.size());
    if (got > 0) {
      text.append(bytes.data(), static_cast<std::size_t>(got));
    } else {
      fd.reset();
    }
  }

  pid_t pid_ = -1;
  UniqueFd out_;
  UniqueFd err_;
  std::string stdout_;
  std::string stderr_;
};

struct Outcome {
  int code = -1;
  std::string out;
  std::string err;
};

/// Runs the program to its end.
inline Outcome run_program(std::vector<std::string> arguments) {
  Program program(std::move(arguments));
  const int code = program.wait();
  return {code, program.out(), program.err()};
}

/// A directory of its own, removed with all that is in it.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    path_ = ::testing::TempDir() + "sluice_app_XXXXXX";
    EXPECT_NE(::mkdtemp(path_.data()), nullptr);
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  [[nodiscard]] std::string operator/(std::string_view name) const {
    return path_ + "/" + std::string(name);
  }

 private:
  std::string path_;
};

}  // namespace sluice::app
