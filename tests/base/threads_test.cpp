#include "base/threads.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <new>
#include <stdexcept>
#include <vector>

namespace gemmtune {
namespace {

TEST(Threads, EachIndexRunsOnce) {
  for (const int count : {0, 1, 2, 7}) {
    std::vector<std::atomic<int>> runs(8);
    run_on_threads(count, [&](int index) { ++runs[static_cast<std::size_t>(index)]; });
    for (int i = 0; i < 8; ++i) EXPECT_EQ(runs[static_cast<std::size_t>(i)], i < count ? 1 : 0);
  }
}

TEST(Threads, AnExceptionReachesTheCallerWhenAllHaveEnded) {
  for (const int thrower : {0, 2}) {
    std::atomic<int> ended{0};
    EXPECT_THROW(run_on_threads(4,
                                [&](int index) {
                                  if (index == thrower) throw std::bad_alloc();
                                  ++ended;
                                }),
                 std::bad_alloc);
    EXPECT_EQ(ended, 3);
  }
}

/// Without room for a stack there is no thread: the caller does it all.
TEST(Threads, TheCallerDoesWhatNoThreadDoes) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer needs more address space than is left";
#endif
  const pid_t child = ::fork();
  if (child == 0) {
    rlimit limit{std::size_t{1} << 24, std::size_t{1} << 24};  // below what is mapped already
    ::setrlimit(RLIMIT_AS, &limit);
    std::atomic<int> runs{0};
    run_on_threads(4, [&](int) { ++runs; });
    ::_exit(runs == 4 ? 7 : 0);
  }
  int result = 0;
  ASSERT_EQ(::waitpid(child, &result, 0), child);
  ASSERT_TRUE(WIFEXITED(result));
  EXPECT_EQ(WEXITSTATUS(result), 7);
}

}  // namespace
}  // namespace gemmtune
