// The worker's loop, and how it sleeps without losing a wake-up.
#include "switch/worker.h"

#include <immintrin.h>
#include <pthread.h>
#include <sched.h>
#include <sys/epoll.h>

#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/block_signals.h"

namespace sluice::fabric {

namespace {

using Clock = std::chrono::steady_clock;

// Rounds without work are spaced by this many pauses: the other thread of the core, which may be
// the guest, runs meanwhile, and the clock is read less often.
constexpr int kPausesPerEmptyRound = 8;

Status pin(std::jthread& thread, int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (core < 0 || core >= CPU_SETSIZE) {
    return fail(ErrorCode::kInvalidArgument, "workers.cores: no such core", core);
  }
  CPU_SET(static_cast<std::size_t>(core), &set);
  const int error = ::pthread_setaffinity_np(thread.native_handle(), sizeof set, &set);
  if (error != 0) {
    return fail(error == EINVAL ? ErrorCode::kInvalidArgument : ErrorCode::kSystem,
                "workers.cores: cannot pin a worker to this core", core);
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Worker>> Worker::create(const Options& options,
                                               std::vector<WorkerQueue> queues,
                                               Forwarder& forwarder) {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return fail_errno("cannot make an epoll set");
  auto bell = TRY(EventFd::create());
  epoll_event event{.events = EPOLLIN, .data = {.u64 = 0}};
  if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, bell.fd(), &event) != 0) {
    return fail_errno("cannot wait for an eventfd");
  }
  return std::make_unique<Worker>(Passkey{}, options, std::move(queues), forwarder,
                                  Wait{std::move(epoll), std::move(bell)});
}

Worker::Worker(Passkey, const Options& options, std::vector<WorkerQueue> queues,
               Forwarder& forwarder, Wait wait)
    : options_(options),
      queues_(std::move(queues)),
      forwarder_(forwarder),
      wait_(std::move(wait)),
      registered_(queues_.size()),
      scratch_(std::make_unique<Scratch>()) {}

Worker::~Worker() {
  stop();
}

Status Worker::start() {
  const BlockSignals blocked;
  try {
    thread_ = std::jthread([this](const std::stop_token& stop) { loop(stop); });
  } catch (const std::system_error& error) {
    return fail(ErrorCode::kSystem, "cannot start a worker thread", error.code().value());
  }
  if (options_.core == kNoCore) return {};
  const Status pinned = pin(thread_, options_.core);
  if (!pinned.has_value()) stop();
  return pinned;
}

void Worker::stop() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  wake();
  thread_.join();
  for (std::size_t i = 0; i < registered_.size(); ++i) register_source(i, {});
}

void Worker::wake() {
  look_again_.store(true, std::memory_order_release);
  wait_.bell.signal();
}

std::size_t Worker::run_once() {
  std::size_t moved = 0;
  for (const WorkerQueue& queue : queues_) {
    const std::size_t count = queue.port->receive(queue.queue, scratch_->burst);
    if (count == 0) continue;
    const Ingress from{.port = queue.port_number,
                       .hint = queue.queue,
                       .counters = &queue.port->from_driver(queue.queue)};
    forwarder_.forward(from, scratch_->burst, scratch_->forward);
    queue.port->release(queue.queue);
    moved += count;
  }
  counters_.iterations.add();
  if (moved != 0) counters_.busy_iterations.add();
  return moved;
}

void Worker::loop(const std::stop_token& stop) {
  auto spin_until = Clock::now() + options_.spin;
  bool idle = false;
  while (!stop.stop_requested()) {
    if (look_again_.load(std::memory_order_relaxed)) [[unlikely]]
      register_sources();
    if (run_once() != 0) {
      idle = false;
      continue;
    }
    for (int i = 0; i < kPausesPerEmptyRound; ++i) _mm_pause();
    if (options_.poll == PollMode::kBusy) continue;
    const auto now = Clock::now();
    if (!idle) {
      idle = true;
      spin_until = now + (options_.poll == PollMode::kAdaptive ? options_.spin
                                                               : std::chrono::microseconds{0});
    }
    if (now < spin_until) continue;
    // What the clock alone woke finds nothing as a rule, and spinning for it would be most of an
    // idle switch's load: one round, and back to sleep.
    if (sleep() == Woken::kByEvent) idle = false;
  }
}

Worker::Woken Worker::sleep() {
  bool work = false;
  for (const WorkerQueue& queue : queues_) work |= queue.port->arm(queue.queue);
  // Pairs with wake(): what was stored before the bell rang is seen here, or the bell wakes us.
  work |= look_again_.load(std::memory_order_acquire);
  bool by_event = true;
  if (!work) {
    counters_.sleeps.add();
    std::array<epoll_event, 16> events;
    const int timeout = poll_by_clock_ ? static_cast<int>(kPollInterval.count()) : -1;
    const int ready =
        ::epoll_wait(wait_.epoll.get(), events.data(), static_cast<int>(events.size()), timeout);
    by_event = ready != 0;
    wait_.bell.drain();
  }
  for (const WorkerQueue& queue : queues_) queue.port->disarm(queue.queue);
  return by_event ? Woken::kByEvent : Woken::kByClock;
}

void Worker::register_sources() {
  // Cleared first: a change that comes while we read is seen in the next round.
  look_again_.exchange(false, std::memory_order_acq_rel);
  poll_by_clock_ = false;
  for (std::size_t i = 0; i < queues_.size(); ++i) {
    register_source(i, queues_[i].port->wake_source(queues_[i].queue));
    poll_by_clock_ |= registered_[i].must_poll;
  }
}

void Worker::register_source(std::size_t index, const WakeSource& source) {
  WakeSource& current = registered_[index];
  const bool same = current.event == source.event && current.generation == source.generation;
  current.must_poll = source.must_poll;
  if (same) return;
  // Our share of the old event keeps its descriptor open until here, so this removes that very
  // registration and not a later file of the same number.
  if (current.event != nullptr) {
    ::epoll_ctl(wait_.epoll.get(), EPOLL_CTL_DEL, current.event->fd(), nullptr);
  }
  current = source;
  if (current.event == nullptr) return;
  // Edge-triggered: a peer that keeps its counter above zero wakes us when it writes, not always.
  epoll_event event{.events = EPOLLIN | EPOLLET, .data = {.u64 = 0}};
  if (::epoll_ctl(wait_.epoll.get(), EPOLL_CTL_ADD, current.event->fd(), &event) != 0) {
    current = {.event = nullptr, .generation = 0, .must_poll = true};  // It cannot wake us.
  }
}

}  // namespace sluice::fabric
