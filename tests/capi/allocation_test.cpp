// What must not allocate: running a plan, the one-call form once it is warm, a plan from the cache.
#include <gtest/gtest.h>

#include <vector>

#include "capi/c_support.h"
#include "support/captures.h"
#include "support/dispatch_allocation_count.h"
#include "support/dispatch_fake_device.h"
#include "support/dispatch_tables.h"

namespace gemmtune {
namespace {

using test::row;
using test::small_problem;

class Allocation : public ::testing::Test {
 protected:
  Allocation() {
    ContextOptions options;
    options.tuned_files[Operation::a16w16] =
        test::write_rows(folder_, "t.csv", {row(small_problem(4, 16, 16), "alpha_r1_a1")});
    handle_.context = std::make_unique<Context>(options, Environment(), std::make_unique<test::FakeDevice>());
    problem_.size = sizeof problem_;
    problem_.x_type = GEMMTUNE_BF16;
    problem_.m = 4;
    problem_.n = problem_.k = 16;
    operands_.size = sizeof operands_;
    operands_.x = x_;
    operands_.w = w_;
    operands_.y = y_;
  }

  test::TemporaryFolder folder_;
  gemmtune_context handle_;
  gemmtune_problem problem_{};
  gemmtune_operands operands_{};
  alignas(64) std::uint16_t x_[4 * 16] = {};
  alignas(64) std::uint16_t w_[16 * 16] = {};
  alignas(64) std::uint16_t y_[4 * 16] = {};
  alignas(64) unsigned char workspace_[128] = {};
};

TEST_F(Allocation, TheHookCounts) {
  const long before = test::allocations();
  const std::vector<int> kept(100, 1);
  EXPECT_EQ(kept[50], 1);
  EXPECT_GT(test::allocations(), before);
}

TEST_F(Allocation, RunningAPlanAllocatesNothing) {
  gemmtune_plan* plan = nullptr;
  ASSERT_EQ(gemmtune_plan_create(&handle_, &problem_, &plan), GEMMTUNE_OK);
  const long before = test::allocations();
  for (int i = 0; i < 100; ++i) {
    if (gemmtune_plan_run(plan, &operands_, workspace_, nullptr) != GEMMTUNE_OK) FAIL();
  }
  EXPECT_EQ(test::allocations(), before);
  gemmtune_plan_release(plan);
}

TEST_F(Allocation, TheShortFormAllocatesOnItsFirstCallOnly) {
  ASSERT_EQ(gemmtune_gemm(&handle_, &problem_, &operands_, nullptr), GEMMTUNE_OK);
  const long before = test::allocations();
  for (int i = 0; i < 100; ++i) {
    if (gemmtune_gemm(&handle_, &problem_, &operands_, nullptr) != GEMMTUNE_OK) FAIL();
  }
  EXPECT_EQ(test::allocations(), before);
}

TEST_F(Allocation, ACachedPlanAllocatesNothingWhileItIsCaptured) {
  ContextOptions options;
  options.capture = true;
  options.capture_folder = folder_.file("captured");
  Context context(options, Environment(), std::make_unique<test::FakeDevice>());
  const Problem problem = small_problem(4, 16, 16);
  ASSERT_TRUE(context.plan(problem).ok());
  // Capture's thread, which is counted too, writes once a second.
  std::uint64_t calls = 1;
  bool allocated = true;
  for (int tries = 0; tries < 20 && allocated; ++tries) {
    const long before = test::allocations();
    for (int i = 0; i < 100; ++i, ++calls) {
      if (!context.plan(problem).ok()) FAIL();
    }
    allocated = test::allocations() != before;
  }
  EXPECT_FALSE(allocated);
  ASSERT_TRUE(context.flush_capture().ok());
  EXPECT_EQ(
      read_capture(folder_.file("captured/bf16_untuned_gemm.csv"), Operation::a16w16)->problems[0].calls,
      calls);
}

}  // namespace
}  // namespace gemmtune
