// Threads: one plan run by many, plans made by many, reload meanwhile. Small, for the thread sanitizer.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "capi/c_support.h"
#include "support/dispatch_fake_device.h"
#include "support/dispatch_tables.h"

namespace gemmtune::threads_test {
namespace {

using test::row;
using test::small_problem;

constexpr int threads = 4;

class Threads : public ::testing::Test {
 protected:
  Threads() {
    write("alpha_r1_a1");
    ContextOptions options;
    options.tuned_files[Operation::a16w16] = folder_.file("t.csv");
    handle_.context =
        std::make_unique<Context>(options, Environment(), std::make_unique<test::FakeDevice>(fake_));
  }
  void write(const char* kernel) {
    std::vector<TunedEntry> rows;
    for (std::int64_t m = 1; m <= 8; ++m) rows.push_back(row(small_problem(m, 16, 16), kernel));
    test::write_rows(folder_, "t.csv", rows);
  }
  template <typename Body>
  static void together(Body body) {
    std::vector<std::thread> all;
    for (int i = 0; i < threads; ++i) all.emplace_back(body, i);
    for (std::thread& thread : all) thread.join();
  }
  static gemmtune_problem asked(std::int64_t m) {
    gemmtune_problem problem{};
    problem.size = sizeof problem;
    problem.x_type = GEMMTUNE_BF16;
    problem.m = m;
    problem.n = problem.k = 16;
    return problem;
  }

  /// One thread's arrays, with the result that is right.
  struct Work {
    explicit Work(std::int64_t rows) : m(rows) {
      for (auto& value : x) value = f32_to_bf16(1);
      for (auto& value : w) value = f32_to_bf16(2);
    }
    gemmtune_operands operands() {
      gemmtune_operands given{};
      given.size = sizeof given;
      given.x = x;
      given.w = w;
      given.y = y;
      return given;
    }
    bool right() const {
      for (std::int64_t i = 0; i < m * 16; ++i) {
        if (y[i] != f32_to_bf16(32)) return false;
      }
      return true;
    }
    std::int64_t m;
    alignas(64) std::uint16_t x[8 * 16];
    alignas(64) std::uint16_t w[16 * 16];
    alignas(64) std::uint16_t y[8 * 16] = {};
    alignas(64) unsigned char workspace[128] = {};
  };

  test::TemporaryFolder folder_;
  std::shared_ptr<test::FakeLog> fake_ = std::make_shared<test::FakeLog>();
  gemmtune_context handle_;
};

TEST_F(Threads, OnePlanRunByAllWithWorkspacesOfTheirOwn) {
  const gemmtune_problem problem = asked(4);
  gemmtune_plan* plan = nullptr;
  ASSERT_EQ(gemmtune_plan_create(&handle_, &problem, &plan), GEMMTUNE_OK);
  std::atomic<int> wrong{0};
  together([&](int) {
    Work work(4);
    const gemmtune_operands given = work.operands();
    for (int i = 0; i < 50; ++i) {
      wrong += gemmtune_plan_run(plan, &given, work.workspace, nullptr) != GEMMTUNE_OK;
    }
    wrong += !work.right();
  });
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_EQ(fake_->runs.load(), threads * 50);
  gemmtune_plan_release(plan);
}

TEST_F(Threads, AProblemAskedByAllAtOnceIsBuiltOnce) {
  fake_->build_milliseconds = 30;
  std::atomic<int> ready{0};
  std::vector<const Plan*> plans(threads);
  together([&](int thread) {
    ready.fetch_add(1);
    while (ready.load() < threads) std::this_thread::yield();
    plans[static_cast<std::size_t>(thread)] = handle_.context->plan(small_problem(3, 16, 16))->get();
  });
  for (const Plan* plan : plans) EXPECT_EQ(plan, plans[0]);
  EXPECT_EQ(fake_->builds.load(), 1);
}

TEST_F(Threads, ReloadWhileOthersRun) {
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::thread reloader([&] {
    for (int i = 0; i < 20; ++i) wrong += gemmtune_context_reload(&handle_) != GEMMTUNE_OK;
    stop = true;
  });
  together([&](int thread) {
    Work work(1 + thread);
    const gemmtune_operands given = work.operands();
    const gemmtune_problem problem = asked(work.m);
    do {
      wrong += gemmtune_gemm(&handle_, &problem, &given, nullptr) != GEMMTUNE_OK;
    } while (!stop.load());
    wrong += !work.right();
  });
  reloader.join();
  EXPECT_EQ(wrong.load(), 0);
}

TEST_F(Threads, AThreadThatEndsLeavesItsWorkspaceToTheNext) {
  const gemmtune_problem problem = asked(4);
  for (int i = 0; i < 5; ++i) {
    std::thread([&] {
      Work work(4);
      const gemmtune_operands given = work.operands();
      EXPECT_EQ(gemmtune_gemm(&handle_, &problem, &given, nullptr), GEMMTUNE_OK);
    }).join();
  }
  EXPECT_EQ(handle_.context->workspaces().buffers(), 1U);
}

}  // namespace
}  // namespace gemmtune::threads_test
