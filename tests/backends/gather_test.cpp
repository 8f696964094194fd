#include "backends/cpu/threads/gather.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <thread>

#include "backends/cpu/threads/thread_pool_executor.h"

namespace gemmtune::cpu {
namespace {

using std::chrono::milliseconds;

/// Says that it has two threads, and has one: a call from inside a parallel region.
class RunsAlone final : public Executor {
 public:
  int threads() const override { return 2; }
  void parallel_for(std::int64_t parts, Body body, void* context) override {
    run_alone(parts, body, context);
  }
};

TEST(GatherThreads, ATeamRunsAtTheSameTimeInTheEnd) {
  ThreadPoolExecutor pool(PoolOptions{2, {}, false});
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "one processor";
  EXPECT_TRUE(gather_threads(pool, milliseconds(60'000)));
}

TEST(GatherThreads, PartsThatRunAfterEachOtherGiveUp) {
  RunsAlone executor;
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_FALSE(gather_threads(executor, milliseconds(20)));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(20));
}

TEST(GatherThreads, OneThreadNeedsNobody) {
  ThreadPoolExecutor pool(PoolOptions{1, {}, false});
  EXPECT_TRUE(gather_threads(pool, milliseconds(0)));
}

}  // namespace
}  // namespace gemmtune::cpu
