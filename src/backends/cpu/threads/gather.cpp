#include "backends/cpu/threads/gather.h"

#include <atomic>
#include <cstdint>
#include <vector>

namespace gemmtune::cpu {
namespace {

using Clock = std::chrono::steady_clock;

/// A thread that spins looks at the clock more often than that.
constexpr std::chrono::nanoseconds longest_silence{5000};

struct alignas(64) LastSeen {
  std::atomic<Clock::rep> at{0};
};

}  // namespace

bool gather_threads(Executor& executor, std::chrono::milliseconds limit) {
  const auto threads = static_cast<std::size_t>(executor.threads());
  if (threads < 2) return true;
  std::vector<LastSeen> seen(threads);
  std::atomic<bool> is_over = false;
  std::atomic<bool> together = false;
  const auto end = Clock::now() + limit;
  executor.run_parts(static_cast<std::int64_t>(threads), [&](std::int64_t part) {
    const auto own = static_cast<std::size_t>(part);
    while (!is_over.load(std::memory_order_acquire)) {
      const auto now = Clock::now();
      seen[own].at.store(now.time_since_epoch().count(), std::memory_order_release);
      if (now > end) {
        is_over.store(true, std::memory_order_release);
      } else if (own == 0) {
        bool all = true;
        for (const LastSeen& other : seen) {
          const Clock::duration at(other.at.load(std::memory_order_acquire));
          all = all && now.time_since_epoch() - at < longest_silence;
        }
        if (!all) continue;
        together.store(true, std::memory_order_relaxed);
        is_over.store(true, std::memory_order_release);
      }
    }
  });
  return together.load();
}

}  // namespace gemmtune::cpu
