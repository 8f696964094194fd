#include "backends/cpu/threads/thread_pool_executor.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <system_error>
#include <utility>

#include <climits>

namespace gemmtune::cpu {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto longest_spin = std::chrono::microseconds(50);
constexpr int pauses_between_clock_reads = 64;

void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

/// Sleeps while `word` is `expected`; may return early for no reason.
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected) {
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr,
          0);
}

void futex_wake_all(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr,
          0);
}

/// The cores of worker `index`; empty where it may run anywhere.
CoreList cores_of_worker(const PoolOptions& options, int index) {
  const auto place = static_cast<std::size_t>(index);
  if (!options.pin || place >= options.cores.size()) return options.cores;
  return {options.cores[place]};
}

}  // namespace

ThreadPoolExecutor::ThreadPoolExecutor(PoolOptions options)
    : options_(std::move(options)), process_(::getpid()) {
  options_.threads = std::max(options_.threads, 1);
  workers_->reserve(static_cast<std::size_t>(options_.threads - 1));
  try {
    for (int index = 1; index < options_.threads; ++index) {
      workers_->emplace_back([this, index] { worker_main(index); });
    }
  } catch (const std::system_error&) {
    // The operating system gives no more threads: callers do the parts of those that are missing.
  } catch (...) {
    stop();
    throw;
  }
}

ThreadPoolExecutor::~ThreadPoolExecutor() {
  if (::getpid() != process_) {
    // Joining them would wait for ever or fail, and so may detaching them.
    (void)workers_.release();
    return;
  }
  stop();
}

void ThreadPoolExecutor::stop() {
  stopping_.store(true);
  wakeups_.fetch_add(1);
  futex_wake_all(wakeups_);
  for (std::thread& worker : *workers_) worker.join();
}

void ThreadPoolExecutor::parallel_for(std::int64_t parts, Body body, void* context) {
  if (parts <= 1 || workers_->empty() || parts > static_cast<std::int64_t>(parts_mask) ||
      busy_.exchange(true, std::memory_order_acquire)) {
    return run_alone(parts, body, context);
  }
  body_.store(body, std::memory_order_relaxed);
  context_.store(context, std::memory_order_relaxed);
  parts_.store(parts, std::memory_order_relaxed);
  finished_.store(0, std::memory_order_relaxed);
  const std::uint64_t number = (ticket_.load(std::memory_order_relaxed) >> 32) + 1;
  const std::uint64_t ticket = number << 32 | static_cast<std::uint64_t>(parts);
  ticket_.store(ticket);
  wake_workers();
  take_parts(ticket);
  wait_until_finished(parts);
  busy_.store(false, std::memory_order_release);
}

/// Does parts of the job of `ticket` until none is left.
///
/// body_, context_ and parts_ are read before a part is claimed. They belong to the claimed job all the same:
/// the caller writes the next job only after every part of this one was finished, and the part that the
/// exchange claims was not even taken when they were read.
void ThreadPoolExecutor::take_parts(std::uint64_t ticket) {
  const std::uint64_t number = ticket >> 32;
  std::int64_t done = 0;
  while ((ticket & parts_mask) != 0 && ticket >> 32 == number) {
    const Body body = body_.load(std::memory_order_relaxed);
    void* const context = context_.load(std::memory_order_relaxed);
    const std::int64_t parts = parts_.load(std::memory_order_relaxed);
    if (!ticket_.compare_exchange_weak(ticket, ticket - 1, std::memory_order_acq_rel,
                                       std::memory_order_acquire)) {
      continue;
    }
    body(context, parts - static_cast<std::int64_t>(ticket & parts_mask));
    ++done;
    --ticket;
  }
  if (done > 0) finished_.fetch_add(done, std::memory_order_release);
}

void ThreadPoolExecutor::wake_workers() {
  // Sequentially consistent on both sides: either the worker that goes to sleep sees the new number, or its
  // entry in sleepers_ is seen here.
  wakeups_.fetch_add(1);
  if (sleepers_.load() > 0) futex_wake_all(wakeups_);
}

void ThreadPoolExecutor::wait_until_finished(std::int64_t parts) const {
  const auto begin = Clock::now();
  bool yielding = false;
  for (int pauses = 1; finished_.load(std::memory_order_acquire) != parts; ++pauses) {
    if (yielding) {
      // A worker that lost its core may need this one.
      std::this_thread::yield();
      continue;
    }
    pause_core();
    if (pauses % pauses_between_clock_reads == 0) yielding = Clock::now() - begin > longest_spin;
  }
}

/// Returns true when there may be work, false when the pool stops.
bool ThreadPoolExecutor::wait_for_work() {
  const auto begin = Clock::now();
  for (;;) {
    for (int i = 0; i < pauses_between_clock_reads; ++i) {
      if ((ticket_.load(std::memory_order_relaxed) & parts_mask) != 0) return true;
      pause_core();
    }
    if (stopping_.load(std::memory_order_relaxed)) return false;
    if (Clock::now() - begin > longest_spin) break;
  }
  sleepers_.fetch_add(1);
  const std::uint32_t seen = wakeups_.load();
  if ((ticket_.load() & parts_mask) == 0 && !stopping_.load()) futex_wait(wakeups_, seen);
  sleepers_.fetch_sub(1);
  return !stopping_.load();
}

void ThreadPoolExecutor::worker_main(int index) {
  try {
    if (const CoreList cores = cores_of_worker(options_, index); !cores.empty()) set_thread_affinity(cores);
  } catch (const std::bad_alloc&) {  // on any core, then
  }
  while (wait_for_work()) take_parts(ticket_.load(std::memory_order_acquire));
}

}  // namespace gemmtune::cpu
