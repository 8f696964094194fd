// gemmtune_plan_create_tuned over the fake device: a plan if a row answers, else nothing is made.
#include <gtest/gtest.h>

#include <memory>

#include "capi/c_support.h"
#include "support/c_problem.h"
#include "support/dispatch_fake_device.h"
#include "support/dispatch_tables.h"
#include "support/temporary_folder.h"

namespace gemmtune {
namespace {

class TunedPlan : public ::testing::Test {
 protected:
  TunedPlan() {
    ContextOptions options;
    options.tuned_files[Operation::a16w16] =
        test::write_rows(folder_, "t.csv",
                         {test::row(test::small_problem(3, 20, 24), "alpha_r1_a1"),
                          test::row(test::small_problem(32, 20, 24), "alpha_r1_a1")});
    handle_.context = std::make_unique<Context>(options, Environment(), std::make_unique<test::FakeDevice>());
  }
  static gemmtune_problem problem(std::int64_t m) {
    gemmtune_problem asked{};
    asked.size = sizeof asked;
    asked.x_type = GEMMTUNE_BF16;
    asked.m = m;
    asked.n = 20;
    asked.k = 24;
    return asked;
  }
  static gemmtune_plan_info info_of(const gemmtune_plan* plan) {
    gemmtune_plan_info info{};
    info.size = sizeof info;
    EXPECT_EQ(gemmtune_plan_get_info(plan, &info), GEMMTUNE_OK);
    return info;
  }

  test::TemporaryFolder folder_;
  gemmtune_context handle_;
};

TEST_F(TunedPlan, IsThatOfARow) {
  const auto counted = [&] {
    gemmtune_counters counters{};
    counters.size = sizeof counters;
    EXPECT_EQ(gemmtune_context_counters(&handle_, &counters), GEMMTUNE_OK);
    return counters;
  };
  const auto tuned_plan = [&](std::int64_t m) {
    const gemmtune_problem asked = problem(m);
    gemmtune_plan* plan = nullptr;
    EXPECT_EQ(gemmtune_plan_create_tuned(&handle_, &asked, &plan), GEMMTUNE_OK) << gemmtune_last_error();
    return plan;
  };
  gemmtune_plan* tuned = tuned_plan(3);
  ASSERT_NE(tuned, nullptr);
  EXPECT_EQ(info_of(tuned).match, GEMMTUNE_MATCH_EXACT);
  EXPECT_STREQ(info_of(tuned).kernel_name, "alpha_r1_a1");
  gemmtune_plan_release(tuned);
  for (int call = 0; call < 2; ++call)
    EXPECT_EQ(tuned_plan(600), nullptr);  // the second answer is a cached one
  EXPECT_EQ(tuned_plan(0), nullptr);
  const gemmtune_counters after = counted();
  EXPECT_EQ(after.exact, 1U);
  EXPECT_EQ(after.untuned, 3U);
  EXPECT_EQ(after.plans_made, 3U);

  // The answer "no row" is no plan of the problem.
  gemmtune_problem asked = problem(600);
  gemmtune_plan* found = nullptr;
  EXPECT_EQ(gemmtune_plan_find(&handle_, &asked, &found), GEMMTUNE_NOT_FOUND);
  ASSERT_EQ(gemmtune_plan_create(&handle_, &asked, &found), GEMMTUNE_OK) << gemmtune_last_error();
  EXPECT_EQ(info_of(found).match, GEMMTUNE_MATCH_UNTUNED);
  EXPECT_STRNE(info_of(found).kernel_name, "");
  gemmtune_plan_release(found);
  EXPECT_EQ(tuned_plan(600), nullptr);  // although the fallback's plan is cached by now
  ASSERT_EQ(gemmtune_context_reload(&handle_), GEMMTUNE_OK) << gemmtune_last_error();
  EXPECT_EQ(tuned_plan(600), nullptr);
}

// A row of M = 32 answers M = 31 for plan_create; nobody measured its kernel there.
TEST_F(TunedPlan, IsOfARowThatWasMeasuredAtItsM) {
  const gemmtune_problem asked = problem(31);
  for (int call = 0; call < 2; ++call) {
    gemmtune_plan* plan = nullptr;
    ASSERT_EQ(gemmtune_plan_create_tuned(&handle_, &asked, &plan), GEMMTUNE_OK) << gemmtune_last_error();
    EXPECT_EQ(plan, nullptr);
    ASSERT_EQ(gemmtune_plan_create(&handle_, &asked, &plan), GEMMTUNE_OK) << gemmtune_last_error();
    EXPECT_EQ(info_of(plan).match, GEMMTUNE_MATCH_FINE);
    gemmtune_plan_release(plan);  // cached for the second call
  }
}

// The row of a mixture's token tier was tuned for all of the tier.
TEST_F(TunedPlan, IsOfTheRowOfATokenTier) {
  Problem mixture = default_problem(Operation::fused_moe);
  mixture.m = 32;
  mixture.n = 64;
  mixture.k = 128;
  mixture.moe = {.experts = 4, .topk = 2, .activation = Activation::silu, .gated = true};
  ContextOptions options;
  options.tuned_files[Operation::fused_moe] = folder_.write(
      "moe.csv",
      write_tuned_csv(Operation::fused_moe, {test::row(mixture, "alpha_r1_a1")}, CsvSchema::aiter));
  handle_.context = std::make_unique<Context>(options, Environment(), std::make_unique<test::FakeDevice>());
  for (const std::int64_t m : {31, 33}) {
    mixture.m = m;
    const test::CProblem asked(mixture);
    gemmtune_plan* plan = nullptr;
    ASSERT_EQ(gemmtune_plan_create_tuned(&handle_, asked.get(), &plan), GEMMTUNE_OK) << gemmtune_last_error();
    ASSERT_EQ(plan != nullptr, m == 31) << m;
    if (plan == nullptr) continue;
    EXPECT_EQ(info_of(plan).match, GEMMTUNE_MATCH_COARSE);
    gemmtune_plan_release(plan);
  }
}

}  // namespace
}  // namespace gemmtune
