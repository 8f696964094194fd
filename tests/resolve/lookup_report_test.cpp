#include "resolve/lookup_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dispatch/planner.h"
#include "support/dispatch_fake_device.h"
#include "support/dispatch_tables.h"

namespace gemmtune {
namespace {

using test::row;
using test::small_problem;
using ::testing::HasSubstr;

class Report : public ::testing::Test {
 protected:
  LookupReport ask(const LookupRequest& request, const Device* device) {
    auto report = explain_lookup(tables_, device, request);
    EXPECT_TRUE(report.ok()) << report.message();
    return report.ok() ? *report : LookupReport();
  }
  void load(const std::vector<TunedEntry>& rows) {
    file_ = test::write_rows(folder_, "t.csv", rows);
    tables_ = load_table_set({test::table(file_)});
  }
  static LookupRequest request(std::int64_t m) {
    LookupRequest asked;
    asked.problem = small_problem(m);
    return asked;
  }

  test::TemporaryFolder folder_;
  test::FakeDevice device_;
  std::string file_;
  TableSet tables_;
};

TEST_F(Report, EveryLevelIsAccountedFor) {
  load({row(small_problem(16), "alpha_r1_a1"), row(small_problem(4), "beta_r1_a1")});
  const LookupReport report = ask(request(3), &device_);
  ASSERT_EQ(report.levels.size(), 6U);
  EXPECT_EQ(report.levels[5].level, Match::fewer_threads);
  EXPECT_EQ(report.levels[0].row, nullptr);
  EXPECT_EQ(report.levels[2].level, Match::bucket);
  EXPECT_EQ(report.levels[2].row, nullptr);
  EXPECT_EQ(report.levels[3].tried_m, 16);
  EXPECT_EQ(report.levels[4].tried_m, 4);
  EXPECT_NE(report.levels[4].row, nullptr);
  EXPECT_TRUE(report.levels[4].runnable);
  EXPECT_EQ(report.level, Match::fine);
  EXPECT_EQ(report.hit_m, 16);
  EXPECT_EQ(report.kernel_name, "alpha_r1_a1");
  EXPECT_EQ(report.libtype, "alpha");
  EXPECT_EQ(report.file, file_);
  EXPECT_EQ(report.line, 2U);
  EXPECT_TRUE(report.runnable);
  EXPECT_EQ(report.why, "");
}

/// "No row" is not all: the row that exists is named, with why it is never chosen.
TEST_F(Report, ARowThatIsNeverChosenIsNamed) {
  TunedEntry failed = row(small_problem(3), "alpha_r1_a1");
  failed.us = 0;
  TunedEntry wrong = row(small_problem(16), "alpha_r1_a2");
  wrong.err_ratio = 0.5;
  load({failed, wrong});
  const LookupReport report = ask(request(3), &device_);
  EXPECT_EQ(report.row, nullptr);
  ASSERT_NE(report.levels[0].never_chosen, nullptr);
  EXPECT_EQ(report.levels[0].hit_m, 3);
  EXPECT_EQ(report.levels[0].why, "never chosen: no valid time");
  ASSERT_NE(report.levels[3].never_chosen, nullptr);
  EXPECT_EQ(report.levels[3].why, "never chosen: an error above the limit");
  EXPECT_EQ(report.levels[4].never_chosen, nullptr);
  EXPECT_THAT(report.rule,
              HasSubstr("never chosen " + file_ + ":2, M = 3, kernel 'alpha_r1_a1': no valid time"));
  LookupRequest of_table = request(3);
  of_table.gfx = "x86-fake";
  of_table.cu_num = 2;
  EXPECT_THAT(ask(of_table, nullptr).why, HasSubstr(":3, M = 16, kernel 'alpha_r1_a2': an error above"));
  of_table.cu_num = 3;
  EXPECT_EQ(ask(of_table, nullptr).why, "the table has no row for this problem");
  // One that would have lost to a row that may be chosen is not the reason of anything.
  load({failed, row(small_problem(3), "alpha_r1_a2")});
  const LookupReport answered = ask(request(3), &device_);
  EXPECT_EQ(answered.kernel_name, "alpha_r1_a2");
  for (const LookupLevel& level : answered.levels) EXPECT_EQ(level.never_chosen, nullptr);
}

TEST_F(Report, DispatchsRuleSkipsRowsThatCannotRun) {
  load({row(small_problem(9), "beta_r1_a1")});
  const LookupReport report = ask(request(9), &device_);
  EXPECT_EQ(report.level, Match::untuned);
  EXPECT_EQ(report.row, nullptr);
  EXPECT_EQ(report.kernel_name, "safe_r1_a1");
  EXPECT_TRUE(report.runnable);
  EXPECT_THAT(report.rule, HasSubstr("fallback"));
  EXPECT_THAT(report.rule, HasSubstr("M above 8"));
}

TEST_F(Report, WithADeviceNamedOnlyTheTableIsAsked) {
  TunedEntry foreign = row(small_problem(8), "asm_bf16_kernel");
  foreign.gfx = "gfx942";
  foreign.cu_num = 304;
  foreign.libtype = "asm";
  load({foreign});
  LookupRequest asked = request(8);
  asked.gfx = "gfx942";
  asked.cu_num = 304;
  const LookupReport report = ask(asked, &device_);
  EXPECT_EQ(report.level, Match::exact);
  EXPECT_EQ(report.libtype, "asm");
  EXPECT_FALSE(report.runnable);
  EXPECT_NE(report.why, "");
  const LookupReport alone = ask(asked, nullptr);
  EXPECT_EQ(alone.level, Match::exact);
  EXPECT_FALSE(alone.runnable);

  asked.runnable = true;
  EXPECT_EQ(ask(asked, &device_).kernel_name, "safe_r1_a1");
}

TEST_F(Report, ATableWithoutTheProblemSaysSo) {
  load({row(small_problem(8), "alpha_r1_a1")});
  LookupRequest asked = request(8);
  asked.gfx = "gfx942";
  asked.cu_num = 304;
  const LookupReport report = ask(asked, &device_);
  EXPECT_EQ(report.level, Match::untuned);
  EXPECT_EQ(report.kernel_name, "");
  EXPECT_EQ(report.rule, "no row");
}

TEST_F(Report, WithoutADeviceItMustBeNamed) {
  load({});
  EXPECT_EQ(explain_lookup(tables_, nullptr, request(8)).code(), StatusCode::invalid_argument);
}

TEST_F(Report, AgreesWithThePlanner) {
  load({row(small_problem(9), "beta_r1_a1"), row(small_problem(16), "alpha_r1_a2"),
        row(small_problem(1), "beta_r1_a2")});
  auto device = std::make_shared<DispatchDevice>();
  device->device = std::make_unique<test::FakeDevice>();
  for (const std::int64_t m : {1, 2, 7, 8, 9, 16, 17, 300}) {
    const auto plan = make_plan(device, tables_, small_problem(m), {});
    ASSERT_TRUE(plan.ok());
    const LookupReport report = ask(request(m), &device_);
    EXPECT_EQ(report.level, (*plan)->account().match) << m;
    EXPECT_EQ(report.kernel_name, (*plan)->account().kernel_name) << m;
    EXPECT_EQ(report.rule, (*plan)->account().rule) << m;
  }
}

TEST_F(Report, AgreesWithThePlannerOnStrictEnvironments) {
  TunedEntry stale = row(small_problem(8), "alpha_r1_a1");
  stale.env = "0123456789";
  load({stale, row(small_problem(16), "alpha_r1_a2")});
  LookupRequest asked = request(8);
  EXPECT_EQ(ask(asked, &device_).kernel_name, "alpha_r1_a1");
  asked.strict_environment = true;
  const LookupReport report = ask(asked, &device_);
  EXPECT_EQ(report.kernel_name, "alpha_r1_a2");
  EXPECT_TRUE(report.levels[0].runnable) << "its kernel can run, its environment is refused";
  EXPECT_TRUE(report.levels[0].other_environment);
  EXPECT_EQ(report.rule,
            answer_problem(device_, tables_, small_problem(8), {.strict_environment = true}).rule());
}

TEST_F(Report, ABucketSaysItsFileAndItsM) {
  const std::string config = folder_.write("configs/x86-fake-GEMM-A16W16-N=32-K=48.json",
                                           R"({
    "M_LEQ_8": {"BLOCK_SIZE_M": 16},
    "M_LEQ_16": {"kernelName": "alpha_r1_a1"}
})");
  folder_.write("configs/x86-fake-GEMM-A16W16.json", R"({"any": {"kernelName": "alpha_r1_a2"}})");
  file_ = test::write_rows(folder_, "t.csv", {row(small_problem(16), "alpha_r1_a2")});
  tables_ = load_table_set({test::table(file_), test::table(folder_.file("configs"))});
  ASSERT_TRUE(tables_.first_fault().ok()) << tables_.describe();
  EXPECT_THAT(tables_.describe(), HasSubstr("configs: 3 buckets in 2 Triton configs"));

  LookupReport report = ask(request(9), &device_);
  EXPECT_EQ(report.level, Match::bucket);
  EXPECT_EQ(report.kernel_name, "alpha_r1_a1");
  EXPECT_EQ(report.file, config);
  EXPECT_EQ(report.line, 3U);
  EXPECT_EQ(report.hit_m, 16);
  EXPECT_EQ(report.rule, "bucket M_LEQ_16 (M = 9 to 16), " + config + ":3");
  EXPECT_EQ(ask(request(16), &device_).level, Match::exact) << "a row of this M goes before its bucket";

  // A configuration of Triton alone: a miss with its reason, and the padded row answers.
  report = ask(request(5), &device_);
  EXPECT_EQ(report.level, Match::fine);
  EXPECT_THAT(report.rule,
              HasSubstr("passed over bucket M_LEQ_8 (M = 1 to 8), " + config +
                        ":2, kernel 'BLOCK_SIZE_M=16': a configuration that only Triton can run"));
  const Answer answer = answer_problem(device_, tables_, small_problem(5), {});
  EXPECT_EQ(answer.invalid_rows(), 1);
  EXPECT_EQ(answer.rule(), report.rule);

  // The special file replaces the default one: nothing of the latter answers above M = 16, but for other sizes it does.
  EXPECT_EQ(ask(request(200), &device_).level, Match::untuned);
  LookupRequest other = request(200);
  other.problem.n = 64;
  EXPECT_EQ(ask(other, &device_).kernel_name, "alpha_r1_a2");
}

TEST_F(Report, OnlineRowsHaveLevelsOfTheirOwn) {
  load({row(small_problem(64), "alpha_r1_a1")});
  const auto file = test::write_rows(folder_, "online.csv", {row(small_problem(5), "beta_r1_a2")});
  const TableSet online = load_table_set({test::table(file)});
  const auto report = explain_lookup({tables_, &online}, &device_, request(5));
  ASSERT_TRUE(report.ok()) << report.message();
  ASSERT_EQ(report->levels.size(), 11U);
  EXPECT_EQ(report->levels[0].row, nullptr);
  EXPECT_EQ(report->levels[5].tables, &online);
  EXPECT_EQ(report->kernel_name, "beta_r1_a2");
  EXPECT_EQ(report->file, file);
  EXPECT_EQ(report->rule, answer_problem(device_, {tables_, &online}, small_problem(5), {}).rule());
}

TEST_F(Report, RowsOfFewerThreadsAreALevelOfCpus) {
  TunedEntry fewer = row(small_problem(4), "alpha_r1_a1");
  fewer.cu_num = 1;
  load({fewer});
  const LookupReport report = ask(request(3), &device_);
  EXPECT_EQ(report.level, Match::fewer_threads);
  EXPECT_EQ(report.hit_m, 4);
  EXPECT_TRUE(report.runnable);
  EXPECT_EQ(report.rule, "fewer_threads row, cu_num = 1, M = 4, " + file_ + ":2");
  LookupRequest strict = request(3);
  strict.strict_environment = true;
  EXPECT_EQ(ask(strict, &device_).level, Match::untuned);
  tables_.fewer_threads = false;
  EXPECT_EQ(ask(request(3), &device_).level, Match::untuned);
  tables_.fewer_threads = true;
  LookupRequest gpu = request(3);
  gpu.gfx = "gfx942";
  gpu.cu_num = 304;
  for (const LookupLevel& level : ask(gpu, nullptr).levels) EXPECT_NE(level.level, Match::fewer_threads);
}

}  // namespace
}  // namespace gemmtune
