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
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

class Contexts : public ::testing::Test {
 protected:
  Contexts() {
    options_.log = [](LogLevel level, std::string_view line, void* self) {
      auto* test = static_cast<Contexts*>(self);
      test->lines_.emplace_back(line);
      if (level >= LogLevel::warning) test->warnings_.emplace_back(line);
    };
    options_.log_context = this;
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
  std::vector<std::string> lines_;     // since the last open()
  std::vector<std::string> warnings_;  // of all
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

/// GEMMTUNE_SHIPPED's folder: read where no other table answers; no file of it was named, so one that is damaged is a warning, once, and never an error.
TEST_F(Contexts, ShippedTablesAnswerLastAndADamagedOneIsSaidOnce) {
  rows({row(small_problem(8), "alpha_r1_a1")});
  TunedEntry shipped = row(small_problem(9, 64), "alpha_r1_a2");
  shipped.env = "here";
  const std::string folder = folder_.file("shipped");
  folder_.write("shipped/a_bf16_tuned_gemm.csv",
                write_tuned_csv(Operation::a16w16, {shipped}, CsvSchema::aiter));
  folder_.write("shipped/a_bf16_tuned_gemm.csv.env.json", R"({"here": {"device": "Fake 1"}})");
  folder_.write("shipped/b_bf16_tuned_gemm.csv", std::string("M,N\0", 4));
  Environment environment;
  environment.shipped_folder = folder;
  Context context(options_, environment, std::make_unique<test::FakeDevice>(fake_));
  Context another(options_, environment, std::make_unique<test::FakeDevice>(fake_));
  for (Context* each : {&context, &another}) ASSERT_TRUE(each->plan(small_problem(8)).ok());
  EXPECT_TRUE(warnings_.empty()) << "a row of the user's answered";
  for (Context* each : {&context, &another}) ASSERT_TRUE(each->plan(small_problem(3, 32)).ok());
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("b_bf16_tuned_gemm.csv"), HasSubstr("b_bf16_tuned_gemm.csv")))
      << "one of each context's log";
  EXPECT_TRUE(another.reload().ok());
  const auto plan = another.plan(small_problem(9, 64));
  ASSERT_TRUE(plan.ok()) << plan.message();
  EXPECT_EQ((*plan)->account().match, Match::exact);
  EXPECT_EQ((*plan)->account().file, folder + "/a_bf16_tuned_gemm.csv");
  EXPECT_EQ((*another.plan(small_problem(8)))->account().file, folder_.file("t.csv"));
  ASSERT_TRUE(another.plan(small_problem(3, 96)).ok());
  EXPECT_THAT(lines_, Contains(HasSubstr("not found tuned config in " + folder_.file("t.csv") + ":" + folder +
                                         ", ")));
  EXPECT_EQ(warnings_.size(), 2U);
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
  EXPECT_THAT(values.by_match, ElementsAre(2U, 2U, 2U, 2U, 2U, 0U, 0U));
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
  EXPECT_THAT(lines_,
              ElementsAre(AllOf(StartsWith("shape is M:100, N:32, K:48, "),
                                HasSubstr(", not found tuned config in " + folder_.file("t.csv") + ", "),
                                HasSubstr("will use default config! using safe solution:safe_r1_a1"))));
  options_.log_config = true;
  context = open();
  for (int i = 0; i < 3; ++i) (void)context->plan(small_problem(8));
  EXPECT_THAT(
      lines_,
      Contains(AllOf(StartsWith("shape is M:8, N:32, K:48, "),
                     HasSubstr(", found padded_M: 8, N:32, K:48 is tuned on cu_num = 2 in "),
                     HasSubstr("t.csv, libtype is alpha, kernel name is alpha_r1_a1, exact row, M = 8")))
          .Times(1));
}

TEST_F(Contexts, RowsThatCannotRunAreSaidOncePerFile) {
  rows({row(small_problem(9), "beta_r1_a1"), row(small_problem(10), "beta_r1_a1")});
  const auto context = open();
  (void)context->plan(small_problem(9));
  (void)context->plan(small_problem(10));
  EXPECT_THAT(lines_,
              Contains(HasSubstr("t.csv: rows whose kernel cannot run here are passed over, the first for "
                                 "9x32x48 bf16"))
                  .Times(1));
}

TEST_F(Contexts, AFileThatIsNotUsedSaysSo) {
  TunedEntry other = row(small_problem(8), "alpha_r1_a1");
  other.gfx = "gfx950";
  other.cu_num = 256;
  TunedEntry another = other;
  another.gfx = "gfx1250";
  another.cu_num = 96;
  another.problem.m = 9;
  rows({other, other, another});
  const auto context = open();
  EXPECT_THAT(warnings_,
              ElementsAre(HasSubstr("t.csv is not used: 3 rows of gfx950/256 and gfx1250/96, none of this "
                                    "device, x86-fake/2")));
}

/// Nobody named the files of the config folder: those of an operation that is not asked for are nobody's loss.
TEST_F(Contexts, AFileOfTheConfigFolderThatIsNotUsedSaysSoWhenItsOperationIsAskedFor) {
  TunedEntry other = row(small_problem(8), "alpha_r1_a1");
  other.cu_num = 64;
  test::write_rows(folder_, "bf16_tuned_gemm.csv", {other});
  options_.tuned_files.clear();
  options_.config_folder = folder_.path();
  const auto context = open();
  EXPECT_THAT(warnings_, IsEmpty());
  (void)context->plan(small_problem(8));
  (void)context->plan(small_problem(9));
  EXPECT_THAT(
      warnings_,
      Contains(HasSubstr("bf16_tuned_gemm.csv is not used: 1 row of x86-fake/64, none of this device, "
                         "x86-fake/2 (this process may use 2 threads)"))
          .Times(1));
}

TEST_F(Contexts, ANamedFileThatIsMissingSaysSo) {
  options_.tuned_files = {{OperationForm(Operation::a16w16), folder_.file("none.csv")}};
  const auto context = open();
  EXPECT_THAT(warnings_, ElementsAre(folder_.file("none.csv") + ": no such file"));
}

TEST_F(Contexts, RowsThatStrictModeDropsAreSaid) {
  TunedEntry one = row(small_problem(8), "alpha_r1_a1");
  one.env = "0123456789";
  rows({one, row(small_problem(9), "alpha_r1_a1")});
  folder_.write("t.csv.env.json", R"({"0123456789": {"libraries": {"fastlib": "1.0"}}})");
  options_.strict_environment = true;
  const auto context = open();
  EXPECT_THAT(warnings_,
              ElementsAre(HasSubstr("t.csv: 1 of 2 rows of this device are not used, they are of another "
                                    "environment: measured with fastlib 1.0, here is 2.6.3")));
}

TEST_F(Contexts, RowsOfFewerThreadsAnswerAreCountedAndSaid) {
  TunedEntry fewer = row(small_problem(8), "alpha_r1_a1");
  fewer.cu_num = 1;
  rows({fewer});
  auto context = open();
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr(
                             "t.csv: 1 row of x86-fake/1, this process may use 2 threads: they answer as "
                             "fewer_threads")));
  EXPECT_EQ((*context->plan(small_problem(8)))->account().match, Match::fewer_threads);
  EXPECT_EQ(context->counters().by_match[static_cast<std::size_t>(Match::fewer_threads)], 1U);
  options_.own_threads_only = true;
  context = open();
  EXPECT_EQ((*context->plan(small_problem(8)))->account().match, Match::untuned);
  EXPECT_THAT(warnings_, Contains(HasSubstr("t.csv is not used: 1 row of x86-fake/1")));
  options_.own_threads_only = false;
  options_.strict_environment = true;
  EXPECT_EQ((*open()->plan(small_problem(8)))->account().match, Match::untuned);
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
