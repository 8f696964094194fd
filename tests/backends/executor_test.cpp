// The pool of threads behind a CPU device, and a host's own parallel_for in its place.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <numeric>
#include <thread>
#include <vector>

#include "backends/cpu/threads/thread_pool_executor.h"
#include "backends/host_executor.h"

namespace gemmtune::cpu {
namespace {

/// How often each of `parts` parts ran in one call.
std::vector<int> count_runs(Executor& executor, std::int64_t parts) {
  std::vector<std::atomic<int>> runs(static_cast<std::size_t>(parts));
  executor.run_parts(parts, [&](std::int64_t part) { runs[static_cast<std::size_t>(part)].fetch_add(1); });
  return {runs.begin(), runs.end()};
}

class PoolOfThreads : public ::testing::TestWithParam<int> {
 protected:
  ThreadPoolExecutor pool_{PoolOptions{GetParam(), {}, false}};
};

TEST_P(PoolOfThreads, RunsEveryPartExactlyOnce) {
  EXPECT_EQ(pool_.threads(), GetParam());
  for (const std::int64_t parts : {0, 1, 2, 3, 4, 7, 64, 1000}) {
    EXPECT_EQ(count_runs(pool_, parts), std::vector<int>(static_cast<std::size_t>(parts), 1)) << parts;
  }
}

TEST_P(PoolOfThreads, SeesEachJobsOwnDataInManyShortJobs) {
  // Plain, unsynchronized memory: the pool alone orders caller and workers.
  std::vector<std::int64_t> squares(5);
  for (std::int64_t job = 1; job <= 3000; ++job) {
    const std::int64_t factor = job;
    const auto parts = 1 + job % 5;
    pool_.run_parts(parts,
                    [&](std::int64_t part) { squares[static_cast<std::size_t>(part)] = part * factor; });
    for (std::int64_t part = 0; part < parts; ++part) {
      ASSERT_EQ(squares[static_cast<std::size_t>(part)], part * job);
    }
  }
}

TEST_P(PoolOfThreads, WakesSleepingWorkers) {
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // beyond the spin: workers are asleep
    EXPECT_EQ(count_runs(pool_, 16), std::vector<int>(16, 1));
  }
}

TEST_P(PoolOfThreads, ServesSeveralCallersAtOnce) {
  std::atomic<std::int64_t> sum{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 3; ++caller) {
    callers.emplace_back([&] {
      for (int job = 0; job < 300; ++job) {
        std::vector<std::int64_t> own(8, 0);
        pool_.run_parts(8, [&](std::int64_t part) { own[static_cast<std::size_t>(part)] += part + 1; });
        sum.fetch_add(std::accumulate(own.begin(), own.end(), std::int64_t{0}));
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sum.load(), 3 * 300 * 36);
}

TEST_P(PoolOfThreads, RunsAJobFromInsideAPart) {
  std::atomic<int> inner{0};
  pool_.run_parts(4, [&](std::int64_t) { pool_.run_parts(3, [&](std::int64_t) { inner.fetch_add(1); }); });
  EXPECT_EQ(inner.load(), 12);
}

TEST_P(PoolOfThreads, LeavesTheCallersCoresAlone) {
  const CoreList before = thread_affinity();
  ThreadPoolExecutor pinned(PoolOptions{GetParam(), before, true});
  EXPECT_EQ(count_runs(pinned, 32), std::vector<int>(32, 1));
  EXPECT_EQ(thread_affinity(), before);
}

INSTANTIATE_TEST_SUITE_P(OneToFour, PoolOfThreads, ::testing::Range(1, 5));

TEST(ThreadPoolExecutor, UsesItsWorkers) {
  ThreadPoolExecutor pool(PoolOptions{3, {}, false});
  // Two parts that each wait until the other has begun: possible on two threads only. (Kernels must not do
  // this.)
  std::atomic<int> begun{0};
  pool.run_parts(2, [&](std::int64_t) {
    begun.fetch_add(1);
    while (begun.load() < 2) std::this_thread::yield();
  });
  EXPECT_EQ(begun.load(), 2);
}

TEST(ThreadPoolExecutor, WaitsForTheSlowestWorker) {
  ThreadPoolExecutor pool(PoolOptions{2, {}, false});
  const auto caller = std::this_thread::get_id();
  for (int round = 0; round < 3; ++round) {
    std::atomic<int> begun{0};
    bool worker_done = false;
    pool.run_parts(2, [&](std::int64_t) {
      begun.fetch_add(1);
      while (begun.load() < 2) std::this_thread::yield();
      if (std::this_thread::get_id() == caller) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      worker_done = true;
    });
    EXPECT_TRUE(worker_done);
  }
}

TEST(ThreadPoolExecutor, PinsEachWorkerToItsCore) {
  const CoreList cores = thread_affinity();
  if (cores.size() < 2) GTEST_SKIP() << "one core only";
  ThreadPoolExecutor pool(PoolOptions{2, {cores[0], cores[1]}, true});
  const auto caller = std::this_thread::get_id();
  std::atomic<int> begun{0};
  CoreList of_worker;
  pool.run_parts(2, [&](std::int64_t) {
    begun.fetch_add(1);
    while (begun.load() < 2) std::this_thread::yield();
    if (std::this_thread::get_id() != caller) of_worker = thread_affinity();
  });
  EXPECT_EQ(of_worker, CoreList{cores[1]});
}

/// A host's parallel_for: starts a thread a part and counts its calls.
struct Host {
  static void parallel_for(void* context, std::int64_t parts, HostParallelFor::Task task,
                           void* task_context) {
    ++static_cast<Host*>(context)->calls;
    std::vector<std::thread> threads;
    for (std::int64_t part = 0; part < parts; ++part) threads.emplace_back(task, task_context, part);
    for (std::thread& thread : threads) thread.join();
  }
  int calls = 0;
};

TEST(HostExecutor, HandsPartsToTheHost) {
  Host host;
  const auto adapter = make_host_executor({&Host::parallel_for, &host, 4});
  auto& executor = *static_cast<Executor*>(adapter->stream().handle);
  EXPECT_EQ(executor.threads(), 4);
  EXPECT_EQ(count_runs(executor, 5), std::vector<int>(5, 1));
  EXPECT_EQ(host.calls, 1);
}

}  // namespace
}  // namespace gemmtune::cpu
