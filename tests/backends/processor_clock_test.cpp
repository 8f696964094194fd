// Times of calls beside other work: what the threads waited for does not count, and the longest part does.
#include "backends/cpu/threads/processor_clock.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <thread>

#include "backends/cpu/threads/thread_pool_executor.h"

namespace gemmtune::cpu {
namespace {

constexpr auto wait = std::chrono::milliseconds(50);  // a thread that has no processor, as the clock sees it
constexpr double waited = 50e3;                       // microseconds

double thread_microseconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return 1e6 * static_cast<double>(time.tv_sec) + 1e-3 * static_cast<double>(time.tv_nsec);
}

void compute(double microseconds) {
  const double end = thread_microseconds() + microseconds;
  while (thread_microseconds() < end) {
  }
}

/// One part after another, as on a machine that has one processor left.
class OneByOne final : public Executor {
 public:
  int threads() const override { return 2; }
  void parallel_for(std::int64_t parts, Body body, void* context) override {
    run_alone(parts, body, context);
  }
};

TEST(ProcessorClock, WaitsDoNotCount) {
  ThreadPoolExecutor pool({2, {}, false});
  ProcessorClock clock(pool);
  clock.begin();
  compute(2000);
  std::this_thread::sleep_for(wait);
  clock.run_parts(2, [](std::int64_t) {
    compute(4000);
    std::this_thread::sleep_for(wait);
  });
  EXPECT_GE(clock.microseconds(), 6000);
  EXPECT_LT(clock.microseconds(), waited);
}

TEST(ProcessorClock, PartsCountAsIfTheyRanAtOnce) {
  OneByOne one_processor;
  ProcessorClock clock(one_processor);
  clock.begin();
  const double begin = thread_microseconds();
  clock.run_parts(2, [](std::int64_t part) { compute(part == 0 ? 8000 : 20000); });
  clock.run_parts(2, [](std::int64_t part) { compute(part == 0 ? 8000 : 20000); });
  const double all = thread_microseconds() - begin;
  EXPECT_GE(clock.microseconds(), 40000);
  EXPECT_LE(clock.microseconds(), all - 15000);
  EXPECT_EQ(clock.threads(), 2);
}

TEST(ProcessorClock, WithoutPartsTheBusiestThreadCounts) {
  OneByOne unused;
  ProcessorClock clock(unused);
  enum class Step { started, begun, computed, read };
  std::atomic<Step> step = Step::started;
  const auto until = [&](Step wanted) {
    while (step != wanted) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  std::thread other([&] {
    until(Step::begun);
    std::this_thread::sleep_for(wait);
    compute(20000);
    step = Step::computed;
    until(Step::read);  // a thread that has ended has no time
  });
  clock.begin();
  step = Step::begun;
  compute(1000);
  until(Step::computed);
  const double microseconds = clock.microseconds();
  step = Step::read;
  other.join();
  EXPECT_GE(microseconds, 20000);
  EXPECT_LT(microseconds, waited);
}

TEST(ProcessorClock, BeginsAnew) {
  OneByOne one_processor;
  ProcessorClock clock(one_processor);
  clock.begin();
  clock.run_parts(2, [](std::int64_t) { compute(30000); });
  clock.begin();
  clock.run_parts(2, [](std::int64_t) {});
  EXPECT_LT(clock.microseconds(), 20000);
}

}  // namespace
}  // namespace gemmtune::cpu
