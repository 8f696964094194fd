#include "backends/cpu/threads/processor_clock.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <string>

#include "base/folder.h"

namespace gemmtune::cpu {
namespace {

/// The clock of a thread of this process, as clock_gettime(2) takes it on Linux: the inverted number of the thread, then three bits: of
/// one thread (4), and the time that the scheduler counts (2).
clockid_t clock_of_thread(int thread) {
  return static_cast<clockid_t>(~static_cast<unsigned>(thread) << 3 | 6);
}

std::optional<double> microseconds_of(clockid_t clock) {
  timespec time{};
  if (clock_gettime(clock, &time) != 0) return std::nullopt;  // the thread has ended
  return 1e6 * static_cast<double>(time.tv_sec) + 1e-3 * static_cast<double>(time.tv_nsec);
}

double own_microseconds() { return microseconds_of(CLOCK_THREAD_CPUTIME_ID).value_or(0); }

struct TimedParts {
  Executor::Body body;
  void* context;
  std::atomic<double> longest{0};
};

void run_timed_part(void* data, std::int64_t part) {
  TimedParts& parts = *static_cast<TimedParts*>(data);
  const double begin = own_microseconds();
  parts.body(parts.context, part);
  const double took = own_microseconds() - begin;
  double longest = parts.longest.load(std::memory_order_relaxed);
  while (longest < took && !parts.longest.compare_exchange_weak(longest, took, std::memory_order_relaxed)) {
  }
}

}  // namespace

void ProcessorClock::begin() {
  process_.clear();
  for (const std::string& task : paths_in("/proc/self/task")) {
    const clockid_t clock = clock_of_thread(std::atoi(task.substr(task.rfind('/') + 1).c_str()));
    if (const auto now = microseconds_of(clock)) process_.push_back({clock, *now});
  }
  counted_ = 0;
  has_parts_ = false;
  alone_since_ = own_microseconds();
}

double ProcessorClock::microseconds() const {
  if (has_parts_) return counted_ + own_microseconds() - alone_since_;
  double longest = 0;
  for (const Thread& thread : process_) {
    if (const auto now = microseconds_of(thread.clock)) longest = std::max(longest, *now - thread.begin);
  }
  return longest;
}

void ProcessorClock::parallel_for(std::int64_t parts, Body body, void* context) {
  TimedParts timed{body, context};
  counted_ += own_microseconds() - alone_since_;
  inner_.parallel_for(parts, &run_timed_part, &timed);
  counted_ += timed.longest.load(std::memory_order_relaxed);
  has_parts_ = true;
  alone_since_ = own_microseconds();
}

}  // namespace gemmtune::cpu
