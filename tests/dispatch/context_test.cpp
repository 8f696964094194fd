// Context: cache, counters, log, reload.
#include "dispatch/context.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "support/dispatch_fake_device.h"
#include "support/dispatch_tables.h"

namespace gemmtune {
namespace {

using test::row;
using test::small_problem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Contexts : public ::testing::Test {
 protected:
  Contexts() {
    options_.log = [](LogLevel, std::string_view line, void* lines) {
      static_cast<std::vector<std::string>*>(lines)->emplace_back(line);
    };
    options_.log_context = &lines_;
    options_.tuned_files[Operation::a16w16] = folder_.file("t.csv");
  }
  std::unique_ptr<Context> open() {
    auto context =
        std::make_unique<Context>(options_, Environment(), std::make_unique<test::FakeDevice>(fake_));
    lines_.clear();
    return context;
  }
  void rows(const std::vector<TunedEntry>& entries) { test::write_rows(folder_, "t.csv", entries); }

  test::TemporaryFolder folder_;
  ContextOptions options_;
  std::vector<std::string> lines_;
  std::shared_ptr<test::FakeLog> fake_ = std::make_shared<test::FakeLog>();
};

TEST_F(Contexts, APlanIsMadeOnce) {
  rows({row(small_problem(8), "alpha_r1_a1")});
  const auto context = open();
  const auto first = context->plan(small_problem(8));
  const auto second = context->plan(small_problem(8));
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->get(), second->get());
  EXPECT_EQ(fake_->builds.load(), 1);
  EXPECT_EQ(context->counters().plans_made, 1U);
}

TEST_F(Contexts, CountersTellHowRequestsWereServed) {
  TunedEntry range = row(small_problem(600), "alpha_r1_a1");
  range.m_from = 500;
  rows({row(small_problem(9), "beta_r1_a1"), row(small_problem(16), "alpha_r1_a1"), range,
        row(small_problem(8, 64), "alpha_r1_a1"), row(small_problem(1), "beta_r1_a1")});
  const auto context = open();
  for (int i = 0; i < 2; ++i) {
    (void)context->plan(small_problem(16));     // exact
    (void)context->plan(small_problem(550));    // range
    (void)context->plan(small_problem(9));      // invalid exact row, then fine
    (void)context->plan(small_problem(5, 64));  // coarse: 8
    (void)context->plan(small_problem(2000));   // untuned
  }
  const CounterValues values = context->counters();
  EXPECT_THAT(values.by_match, ElementsAre(2U, 2U, 2U, 2U, 2U, 0U));
  EXPECT_EQ(values.plans_made, 5U);
  EXPECT_EQ(values.invalid_rows, 1U);
  EXPECT_EQ(values.other_environment, 0U);
}

/// A folder of configs by GEMMTUNE_CONFIG_TRITON, or by the config folder, itself or below triton/.
TEST_F(Contexts, BucketsOfTritonConfigsAnswer) {
  const std::string name = "x86-fake-GEMM-A16W16-N=32-K=48.json";
  const std::string content =
      R"({"small_M": {"kernelName": "alpha_r1_a1"}, "medium_M": {"BLOCK_SIZE_M": 16}})";
  folder_.write("by_variable/" + name, content);
  folder_.write("plain/" + name, content);
  folder_.write("below/triton/gemm/" + name, content);
  const auto opened = [&](const std::string& variable, const std::string& config_folder) {
    Environment environment;
    if (!variable.empty()) environment.config_variables["GEMMTUNE_CONFIG_TRITON"] = variable;
    environment.config_folder = config_folder;
    auto context =
        std::make_unique<Context>(options_, environment, std::make_unique<test::FakeDevice>(fake_));
    lines_.clear();
    return context;
  };
  for (const auto& [variable, folder] : {std::pair(folder_.file("by_variable"), std::string()),
                                         {"", folder_.file("plain")},
                                         {"", folder_.file("below")}}) {
    const auto context = opened(variable, folder);
    for (std::int64_t m = 1; m <= 256; ++m) {
      const auto plan = context->plan(small_problem(m));
      ASSERT_TRUE(plan.ok()) << plan.message();
      ASSERT_EQ((*plan)->account().match, Match::bucket) << m << ": " << (*plan)->account().rule;
      ASSERT_EQ((*plan)->account().kernel_name, "alpha_r1_a1");
      ASSERT_EQ((*plan)->account().line, 1U);
    }
    EXPECT_EQ(context->counters().by_match[static_cast<std::size_t>(Match::bucket)], 256U);
  }

  // The variable replaces the config folder's.
  const auto none = opened(folder_.file("missing"), folder_.file("plain"));
  EXPECT_EQ((*none->plan(small_problem(4)))->account().match, Match::untuned);

  // A configuration of Triton alone is counted at each plan and said once for its file.
  const auto context = opened(folder_.file("by_variable"), "");
  for (const std::int64_t m : {300, 400, 500}) {
    const auto plan = context->plan(small_problem(m));
    EXPECT_EQ((*plan)->account().match, Match::untuned);
    EXPECT_THAT((*plan)->account().rule, HasSubstr("only Triton can run"));
  }
  EXPECT_EQ(context->counters().invalid_rows, 3U);
  EXPECT_EQ(std::count_if(lines_.begin(), lines_.end(),
                          [](const std::string& line) {
                            return line.find("that only Triton can run (no kernelName) answer nothing") !=
                                   std::string::npos;
                          }),
            1);
}

TEST_F(Contexts, AMissIsLoggedOnceAndAHitOnlyWhereAsked) {
  rows({row(small_problem(8), "alpha_r1_a1")});
  auto context = open();
  (void)context->plan(small_problem(8));
  EXPECT_THAT(lines_, IsEmpty());
  for (int i = 0; i < 3; ++i) (void)context->plan(small_problem(100));
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("100x32x48 bf16: safe_r1_a1")));
  options_.log_config = true;
  context = open();
  for (int i = 0; i < 3; ++i) (void)context->plan(small_problem(8));
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("alpha_r1_a1 (exact row, M = 8")));
}

TEST_F(Contexts, AnotherEnvironmentIsSaidOnceAndCounted) {
  TunedEntry one = row(small_problem(8), "alpha_r1_a1");
  TunedEntry two = row(small_problem(9), "alpha_r1_a1");
  one.env = two.env = "0123456789";
  rows({one, two});
  folder_.write("t.csv.env.json", R"({"0123456789": {"libraries": {"fastlib": "1.0"}}})");
  const auto context = open();
  (void)context->plan(small_problem(8));
  (void)context->plan(small_problem(9));
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("measured with fastlib 1.0, here is 2.6.3")));
  EXPECT_EQ(context->counters().other_environment, 2U);
  EXPECT_EQ(context->counters().by_match[0], 2U);
}

TEST_F(Contexts, ReloadSwapsTheTableAndKeepsPlansInUse) {
  rows({row(small_problem(8), "alpha_r1_a1")});
  const auto context = open();
  const PlanRef before = *context->plan(small_problem(8));
  const auto old_tables = context->tables();
  rows({row(small_problem(8), "alpha_r1_a2")});
  ASSERT_TRUE(context->reload().ok());
  const PlanRef after = *context->plan(small_problem(8));
  EXPECT_EQ(before->account().kernel_name, "alpha_r1_a1");
  EXPECT_EQ(after->account().kernel_name, "alpha_r1_a2");
  EXPECT_EQ(old_tables->table.entries().at(0).kernel_name, "alpha_r1_a1");
}

TEST_F(Contexts, AReloadThatCannotReadKeepsTheOldRows) {
  rows({row(small_problem(8), "alpha_r1_a1")});
  const auto context = open();
  folder_.write("t.csv", "colour\nred\n");
  const Status status = context->reload();
  EXPECT_EQ(status.code(), StatusCode::invalid_argument);
  EXPECT_EQ((*context->plan(small_problem(8)))->account().match, Match::exact);
}

TEST_F(Contexts, APlanOutlivesItsContext) {
  auto context = open();
  const PlanRef plan = *context->plan(small_problem(1, 1, 1));
  context.reset();
  const std::uint16_t one = f32_to_bf16(1);
  std::uint16_t result = 0;
  Operands operands;
  operands.x = operands.w = &one;
  operands.y = &result;
  operands.ldx = operands.ldy = 1;
  EXPECT_TRUE(plan->kernel()->run(operands, nullptr, {}).ok());
  EXPECT_EQ(result, one);
}

}  // namespace
}  // namespace gemmtune
