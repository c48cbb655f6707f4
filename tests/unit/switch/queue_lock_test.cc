// QueueLock: exclusion, control's precedence, and its deadline.
#include "switch/queue_lock.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace sluice::fabric {
namespace {

using namespace std::chrono_literals;

TEST(QueueLock, IsHeldByOneAtATime) {
  QueueLock lock;
  ASSERT_TRUE(lock.try_lock());
  EXPECT_FALSE(lock.try_lock());
  EXPECT_FALSE(lock.try_lock_briefly());
  lock.unlock();
  EXPECT_TRUE(lock.try_lock_briefly());
  lock.unlock();
}

TEST(QueueLock, ControlGivesUpAtTheDeadlineAndLeavesWorkersAlone) {
  QueueLock lock;
  ASSERT_TRUE(lock.try_lock());
  const Status status = lock.lock_for_control(5ms);
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, ErrorCode::kTimeout);
  lock.unlock();
  EXPECT_TRUE(lock.try_lock()) << "a pause that timed out must not last";
  lock.unlock();
}

// True if a worker got the lock between its release and control that waits for it.
bool worker_slips_in() {
  QueueLock lock;
  EXPECT_TRUE(lock.try_lock());
  std::atomic<bool> has_it{false};
  std::jthread control([&] {
    EXPECT_TRUE(lock.lock_for_control(60s).has_value());
    has_it = true;
  });
  std::this_thread::sleep_for(20ms);  // Control announces itself, unless it got no processor.
  lock.unlock();
  while (!has_it) {
    if (!lock.try_lock()) continue;
    lock.unlock();
    control.join();
    return true;
  }
  return false;
}

TEST(QueueLock, WorkersDoNotEnterWhileControlWaits) {
  int slips = 0;
  while (slips < 10 && worker_slips_in()) ++slips;
  EXPECT_LT(slips, 10) << "nothing keeps workers out while control waits";
}

// A plain integer behind the lock: ThreadSanitizer, or a lost count, shows a hole.
TEST(QueueLock, GuardsPlainDataAmongWorkersAndControl) {
  QueueLock lock;
  std::uint64_t guarded = 0;
  std::atomic<std::uint64_t> expected{0};
  std::atomic<bool> stop{false};
  std::vector<std::jthread> workers;
  for (int i = 0; i < 2; ++i) {
    workers.emplace_back([&] {
      while (!stop) {
        if (!lock.try_lock_briefly()) continue;
        ++guarded;
        expected.fetch_add(1);
        lock.unlock();
      }
    });
  }
  for (int i = 0; i < 500; ++i) {
    ASSERT_TRUE(lock.lock_for_control(60s).has_value());
    ++guarded;
    expected.fetch_add(1);
    lock.unlock();
  }
  stop = true;
  workers.clear();
  EXPECT_EQ(guarded, expected);
}

}  // namespace
}  // namespace sluice::fabric
