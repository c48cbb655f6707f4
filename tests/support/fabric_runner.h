// FabricRunner: a switch with a control thread of its own, so that a test can talk to it as a
// front-end and wait for answers.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "net/net_driver.h"
#include "support/conservation.h"
#include "support/driver_pair.h"
#include "switch/fabric.h"
#include "vhost/frontend.h"
#include "vhost/frontend_source.h"

namespace sluice::test {

class FabricRunner {
 public:
  /// Creates and starts the switch.
  explicit FabricRunner(const fabric::SwitchOptions& options) {
    std::promise<Status> started;
    auto outcome = started.get_future();
    thread_ = std::thread([this, &options, &started] { run(options, started); });
    const Status status = outcome.get();
    EXPECT_TRUE(status.has_value()) << status.error().text;
  }
  FabricRunner(const FabricRunner&) = delete;
  FabricRunner& operator=(const FabricRunner&) = delete;
  ~FabricRunner() { stop(); }

  /// Has the control thread ask the switch something.
  template <class Question>
  auto ask(Question question) {
    std::packaged_task<decltype(question(*fabric_))()> task([&] { return question(*fabric_); });
    auto answer = task.get_future();
    if (!thread_.joinable()) {
      task();
      return answer.get();
    }
    {
      const std::lock_guard guard(mutex_);
      tasks_.emplace_back([&task] { task(); });
    }
    return answer.get();
  }
  /// Stops the switch; it still answers.
  void stop() {
    if (!thread_.joinable()) return;
    stop_ = true;
    thread_.join();
  }
  [[nodiscard]] ::testing::AssertionResult conserved(std::uint64_t made = 0) {
    return ask([&](fabric::Fabric& fabric) {
      return test::conserved(fabric.stats(), fabric.forwarding(), made);
    });
  }
  fabric::PortView port(std::size_t number) {
    return ask([&](fabric::Fabric& fabric) { return fabric.ports().at(number); });
  }
  fabric::PortStats stats(std::size_t number) {
    return ask([&](fabric::Fabric& fabric) { return fabric.stats().at(number); });
  }

 private:
  void run(const fabric::SwitchOptions& options, std::promise<Status>& started) {
    auto made = fabric::Fabric::create(options);
    if (!made.has_value()) {
      started.set_value(std::unexpected(made.error()));
      return;
    }
    fabric_ = *std::move(made);
    started.set_value(fabric_->start());
    while (!stop_) {
      fabric_->poll(std::chrono::milliseconds(1));
      std::vector<std::function<void()>> tasks;
      {
        const std::lock_guard guard(mutex_);
        tasks.swap(tasks_);
      }
      for (const auto& task : tasks) task();
    }
    fabric_->stop();
  }

  std::unique_ptr<fabric::Fabric> fabric_;
  std::thread thread_;
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::vector<std::function<void()>> tasks_;
};

/// A driver on the socket `path`, not started.
[[nodiscard]] inline std::unique_ptr<net::NetDriver> connect_driver(
    const std::string& path, const net::NetDriverOptions& options = {}) {
  auto source = vhost::FrontendSource::create({.path = path, .frontend = {}});
  EXPECT_TRUE(source.has_value());
  if (!source.has_value()) return nullptr;
  auto frontend = source->next(std::chrono::seconds(20));
  EXPECT_TRUE(frontend.has_value()) << frontend.error().text;
  if (!frontend.has_value()) return nullptr;
  auto driver = net::NetDriver::create(options, *std::move(frontend));
  EXPECT_TRUE(driver.has_value()) << driver.error().text;
  return driver.has_value() ? *std::move(driver) : nullptr;
}

}  // namespace sluice::test
