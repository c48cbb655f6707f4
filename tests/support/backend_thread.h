// BackendThread: the product's vhost-user back-end in a thread of its own, with a fake device whose
// queues it serves all the time: what a front-end needs to talk to.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/unique_fd.h"
#include "support/fake_device.h"
#include "vhost/server.h"

namespace sluice::test {

class BackendThread {
 public:
  explicit BackendThread(std::uint16_t pairs = 2) : device(pairs) {}
  ~BackendThread() { stop(); }
  BackendThread(const BackendThread&) = delete;
  BackendThread& operator=(const BackendThread&) = delete;

  /// Begins a session and returns the front-end's end of it.
  [[nodiscard]] UniqueFd start() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    start_on(UniqueFd(ends[0]));
    return UniqueFd(ends[1]);
  }
  void start_on(UniqueFd socket) {
    stop();
    auto session = vhost::Session::create(std::move(socket), device, {});
    ASSERT_TRUE(session);
    session_ = std::move(*session);
    stop_.store(false);
    thread_ = std::thread([this] { run(); });
  }
  /// The session ends, as if the process had been killed.
  void stop() {
    stop_.store(true);
    if (thread_.joinable()) thread_.join();
    session_.reset();
  }

  /// Looks at the device, or changes it, while the thread pauses.
  template <class Visitor>
  auto with_device(Visitor visitor) {
    const std::lock_guard lock(mutex_);
    return visitor(device);
  }
  [[nodiscard]] vhost::SessionView view() {
    const std::lock_guard lock(mutex_);
    return session_->view();
  }
  void tell_config_changed() {
    const std::lock_guard lock(mutex_);
    session_->config_changed();
  }
  /// Why the session ended by itself.
  [[nodiscard]] std::optional<Error> ended() {
    const std::lock_guard lock(mutex_);
    return ended_;
  }

  /// Up to how many buffers of a queue are served from now on, and with how many bytes.
  void allow(std::size_t queue, std::size_t buffers, std::uint32_t written) {
    const std::lock_guard lock(mutex_);
    quota_[queue] = {buffers, written};
  }
  [[nodiscard]] std::size_t served(std::size_t queue) {
    const std::lock_guard lock(mutex_);
    return served_[queue];
  }

  FakeDevice device;  // Before start() only; then with_device().

 private:
  struct Quota {
    std::size_t buffers = 0;
    std::uint32_t written = 0;
  };

  void run() {
    while (!stop_.load()) {
      pollfd item{.fd = session_->fd(), .events = POLLIN, .revents = 0};
      ::poll(&item, 1, 1);
      const std::lock_guard lock(mutex_);
      if ((item.revents & POLLIN) != 0) {
        const Status outcome = session_->on_ready();
        if (!outcome) {
          ended_ = outcome.error();
          return;
        }
      }
      for (auto& [queue, quota] : quota_) {
        const std::size_t count = device.serve(queue, quota.buffers, quota.written);
        quota.buffers -= count;
        served_[queue] += count;
      }
    }
  }

  std::mutex mutex_;
  std::unique_ptr<vhost::Session> session_;
  std::map<std::size_t, Quota> quota_;
  std::map<std::size_t, std::size_t> served_;
  std::optional<Error> ended_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace sluice::test
