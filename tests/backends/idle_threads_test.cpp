#include "backends/cpu/threads/idle_threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace gemmtune::cpu {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

/// A pool that goes on spinning for a while after its work, as OpenMP's do.
class Spinning {
 public:
  explicit Spinning(milliseconds time)
      : thread_([this, end = Clock::now() + time] {
          started_ = true;
          while (Clock::now() < end) {
          }
          done_ = true;
          while (!stop_) std::this_thread::sleep_for(milliseconds(5));
        }) {
    while (!started_) std::this_thread::yield();
  }
  ~Spinning() {
    stop_ = true;
    thread_.join();
  }
  bool done() const { return done_; }

 private:
  std::atomic<bool> started_{false};
  std::atomic<bool> done_{false};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

TEST(IdleThreads, ASpinningThreadIsWaitedFor) {
  const Spinning pool(milliseconds(60));
  EXPECT_TRUE(wait_until_other_threads_sleep(milliseconds(20000)));
  EXPECT_TRUE(pool.done()) << "it was still spinning";
}

TEST(IdleThreads, ButNotForEver) {
  const Spinning pool(milliseconds(1000));
  const auto begin = Clock::now();
  EXPECT_FALSE(wait_until_other_threads_sleep(milliseconds(30)));
  EXPECT_GE(Clock::now() - begin, milliseconds(30));
  EXPECT_FALSE(pool.done());
}

}  // namespace
}  // namespace gemmtune::cpu
