// The list of threads that were ever within a watched call, and the watcher.
#include "base/stall_watch.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <system_error>
#include <vector>

namespace sluice {
namespace {

// One thread, from its first watched call to its end.
struct Watched {
  pthread_t thread = ::pthread_self();
  std::atomic<std::uint64_t> turns{0};
  std::uint64_t seen = 0;  // By the watcher. Several watchers may share it: it is only a hint.
};

struct Register {
  std::mutex mutex;
  std::vector<Watched*> threads;
};

// Never destroyed: threads may end after main() did.
Register& all() {
  static Register& made = *std::make_unique<Register>().release();
  return made;
}

// A thread that ends leaves the list first, so that nobody sends a signal to what took its number.
class Membership {
 public:
  Membership() {
    const std::scoped_lock lock(all().mutex);
    all().threads.push_back(&watched_);
  }
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;
  ~Membership() {
    const std::scoped_lock lock(all().mutex);
    std::erase(all().threads, &watched_);
  }
  [[nodiscard]] std::atomic<std::uint64_t>& turns() { return watched_.turns; }

 private:
  Watched watched_;
};

std::atomic<std::uint64_t>& turns_of_this_thread() {
  thread_local Membership membership;
  return membership.turns();
}

void look_at_all() {
  const std::scoped_lock lock(all().mutex);
  for (Watched* const watched : all().threads) {
    const std::uint64_t turns = watched->turns.load(std::memory_order_relaxed);
    if (turns % 2 == 1 && turns == watched->seen) {
      ::pthread_kill(watched->thread, StallWatch::signal_number());
    }
    watched->seen = turns;
  }
}

void do_nothing(int) {}

}  // namespace

int StallWatch::signal_number() {
  return SIGURG;  // Ignored unless somebody asks for it, and nobody here does.
}

Result<std::unique_ptr<StallWatch>> StallWatch::start() {
  struct sigaction action{};
  action.sa_handler = do_nothing;  // Without SA_RESTART: the call shall end.
  if (::sigaction(signal_number(), &action, nullptr) != 0) {
    return fail_errno("cannot install a signal handler");
  }
  auto watch = std::make_unique<StallWatch>(Passkey{});
  try {
    watch->thread_ = std::thread([raw = watch.get()] { raw->loop(); });
  } catch (const std::system_error& error) {
    return fail(ErrorCode::kSystem, "cannot start a thread", error.code().value());
  }
  return watch;
}

StallWatch::~StallWatch() {
  {
    const std::scoped_lock lock(mutex_);
    ended_ = true;
  }
  ending_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void StallWatch::loop() {
  std::unique_lock lock(mutex_);
  while (!ending_.wait_for(lock, kPatience, [this] { return ended_; })) look_at_all();
}

WatchedCall::WatchedCall() : turns_(turns_of_this_thread()) {
  turns_.store(turns_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

WatchedCall::~WatchedCall() {
  turns_.store(turns_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

}  // namespace sluice
