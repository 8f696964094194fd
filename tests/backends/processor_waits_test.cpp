#include "backends/cpu/machine/processor_waits.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>
#include <vector>

#include "backends/cpu/machine/affinity.h"

namespace gemmtune::cpu {
namespace {

using Clock = std::chrono::steady_clock;

TEST(ProcessorWaits, CountsThreadsThatShareACore) {
  if (!std::filesystem::exists("/proc/self/schedstat"))
    GTEST_SKIP() << "a kernel without /proc/<process>/schedstat";
  const CoreList first{thread_affinity().front()};
  std::atomic<int> spinning = 0;
  std::atomic<bool> is_over = false;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      const ScopedAffinity on_first_core(first);
      ++spinning;
      while (!is_over) {
      }
    });
  }
  while (spinning < 3) std::this_thread::yield();
  ProcessorWaits waits;
  waits.begin();
  // A thread that has waited is counted when it runs again: a tenth of what two of three threads wait in that time.
  const auto begin = Clock::now();
  double waited = 0;
  while (waited < 5e4 && Clock::now() - begin < std::chrono::seconds(30)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    waited += waits.since_last();
  }
  is_over = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(waited, 5e4) << "microseconds";
}

TEST(ProcessorWaits, CountsNothingBeforeItBegins) {
  ProcessorWaits waits;
  EXPECT_EQ(waits.since_last(), 0);
}

}  // namespace
}  // namespace gemmtune::cpu
