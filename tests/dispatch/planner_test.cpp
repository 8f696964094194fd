// The level that answers: exact, range, fine, coarse, fallback; rows that cannot run here.
#include "dispatch/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/dispatch_fake_device.h"
#include "support/dispatch_tables.h"

namespace gemmtune {
namespace {

using test::packed;
using test::row;
using test::small_problem;
using ::testing::HasSubstr;

class Planner : public ::testing::Test {
 protected:
  PlanRef plan(const std::vector<TunedEntry>& rows, const Problem& problem, bool strict = false) {
    file_ = test::write_rows(folder_, "tuned.csv", rows);
    tables_ = load_table_set({test::table(file_)});
    auto made = make_plan(device_, tables_, problem, {.strict_environment = strict});
    EXPECT_TRUE(made.ok()) << made.message();
    return made.ok() ? *made : PlanRef();
  }

  static std::shared_ptr<DispatchDevice> open_fake() {
    auto device = std::make_shared<DispatchDevice>();
    device->device = std::make_unique<test::FakeDevice>();
    return device;
  }

  test::TemporaryFolder folder_;
  std::string file_;
  TableSet tables_;
  std::shared_ptr<DispatchDevice> device_ = open_fake();
};

TEST_F(Planner, ExactRowWinsOverEveryOtherLevel) {
  TunedEntry range = row(small_problem(64), "alpha_r1_a2");
  range.m_from = 2;
  const PlanRef made = plan({row(small_problem(3), "alpha_r1_a1"), row(small_problem(16), "beta_r1_a1"),
                             row(small_problem(4), "beta_r1_a2"), range},
                            small_problem(3));
  EXPECT_EQ(made->account().match, Match::exact);
  EXPECT_EQ(made->account().hit_m, 3);
  EXPECT_EQ(made->account().kernel_name, "alpha_r1_a1");
  EXPECT_EQ(made->account().family, "alpha");
  EXPECT_EQ(made->account().file, file_);
  EXPECT_EQ(made->account().line, 2U);
  EXPECT_THAT(made->account().rule, HasSubstr("exact row, M = 3"));
  EXPECT_EQ(made->workspace_bytes(), 128U);
}

TEST_F(Planner, LooksForThreadsBeforeItAsksWhichTeamARowIsOf) {
  TunedEntry here = row(small_problem(3), "alpha_r1_a1");
  here.env = "abc";
  folder_.write("tuned.csv.env.json", R"({"abc": {"team": "openmp"}})");
  EXPECT_EQ(plan({here}, small_problem(3))->account().other_environment, "");
  folder_.write("tuned.csv.env.json", R"({"abc": {"team": "own"}})");
  EXPECT_THAT(plan({here}, small_problem(3))->account().other_environment, HasSubstr("team own"));
}

TEST_F(Planner, ARowOfOneOrderDoesNotAnswerAnother) {
  Problem columns = small_problem(3);
  columns.w_order = Order::column_major;
  const PlanRef made = plan({row(small_problem(3), "alpha_r1_a1")}, columns);
  EXPECT_EQ(made->account().match, Match::untuned);
  EXPECT_EQ(make_plan(device_, tables_, small_problem(3), {}).value()->account().match, Match::exact);
}

TEST_F(Planner, ADependentLaunchNeedsTheCallersPromises) {
  TunedEntry both = row(small_problem(3), "alpha_r1_a1");
  both.pdl_kernel_name = "alpha_r1_a2_pdl1";
  both.pdl_us = 1;
  const PlanRef plain = plan({both}, small_problem(3));
  EXPECT_EQ(plain->account().kernel_name, "alpha_r1_a1");
  const auto early = make_plan(device_, tables_, small_problem(3), {.dependent_launches = true});
  ASSERT_TRUE(early.ok()) << early.message();
  EXPECT_EQ((*early)->account().kernel_name, "alpha_r1_a2_pdl1");
  EXPECT_THAT((*early)->account().rule, HasSubstr("programmatic dependent launch"));
}

TEST_F(Planner, APlainRowNeverLaunchesEarly) {
  const PlanRef made = plan({row(small_problem(3), "alpha_r1_a2_pdl1")}, small_problem(3));
  EXPECT_EQ(made->account().match, Match::untuned);
  EXPECT_THAT(made->account().rule, HasSubstr("constant_weights and predecessor_triggers"));
}

TEST_F(Planner, ARowWhoseDependentKernelIsUnknownRunsItsPlainOne) {
  TunedEntry both = row(small_problem(3), "alpha_r1_a1");
  both.pdl_kernel_name = "gone_r1_pdl1";
  both.pdl_us = 1;
  (void)plan({both}, small_problem(3));
  const auto made = make_plan(device_, tables_, small_problem(3), {.dependent_launches = true});
  ASSERT_TRUE(made.ok()) << made.message();
  EXPECT_EQ((*made)->account().kernel_name, "alpha_r1_a1");
}

TEST_F(Planner, RangeWinsOverPadding) {
  TunedEntry range = row(small_problem(64), "alpha_r1_a2");
  range.m_from = 2;
  const PlanRef made = plan({row(small_problem(16), "beta_r1_a1"), range}, small_problem(3));
  EXPECT_EQ(made->account().match, Match::range);
  EXPECT_EQ(made->account().hit_m, 64);
}

TEST_F(Planner, FineWinsOverCoarse) {
  const std::vector<TunedEntry> rows{row(small_problem(16), "alpha_r1_a1"),
                                     row(small_problem(4), "beta_r1_a1")};
  const PlanRef fine = plan(rows, small_problem(3));
  EXPECT_EQ(fine->account().match, Match::fine);
  EXPECT_EQ(fine->account().hit_m, 16);
  const PlanRef coarse = plan({rows[1]}, small_problem(3));
  EXPECT_EQ(coarse->account().match, Match::coarse);
  EXPECT_EQ(coarse->account().hit_m, 4);
}

TEST_F(Planner, KernelIsMadeForTheRealM) {
  const PlanRef made = plan({row(small_problem(16), "alpha_r1_a1")}, small_problem(3));
  EXPECT_EQ(made->problem().m, 3);
}

TunedEntry row_of_class(std::int64_t m, const std::string& kernel) {
  TunedEntry entry = row(small_problem(m), kernel);
  entry.bits = "f32-0123456789ab";
  return entry;
}

TEST_F(Planner, ARowOfABitClassAnswersEveryM) {
  const std::vector<TunedEntry> rows{row_of_class(4, "alpha_r1_a1"), row_of_class(64, "alpha_r1_a2"),
                                     row(small_problem(9), "beta_r1_a2")};
  const PlanRef other = plan(rows, small_problem(9));
  EXPECT_EQ(other->account().match, Match::range);
  EXPECT_EQ(other->account().kernel_name, "alpha_r1_a1") << "not the row of M = 9, which has no class";
  EXPECT_EQ(other->account().bits, "f32-0123456789ab");
  EXPECT_EQ(plan(rows, small_problem(5000))->account().kernel_name, "alpha_r1_a2");
  EXPECT_EQ(plan(rows, small_problem(64))->account().match, Match::exact);
}

TEST_F(Planner, WhereNoKernelOfTheClassRunsNothingElseDoes) {
  file_ = test::write_rows(folder_, "tuned.csv",
                           {row_of_class(4, "gone_r1_a1"), row(small_problem(3), "alpha_r1_a1")});
  tables_ = load_table_set({test::table(file_)});
  const auto made = make_plan(device_, tables_, small_problem(3), {});
  ASSERT_FALSE(made.ok()) << made.value()->account().rule;
  EXPECT_THAT(made.message(), HasSubstr("no kernel of bit class f32-0123456789ab runs here"));
  EXPECT_THAT(made.message(), HasSubstr("gone_r1_a1"));
}

TEST_F(Planner, AKernelWithoutAPromiseAnswersItsOwnMAlone) {
  const std::vector<TunedEntry> rows{row_of_class(4, "beta_r1_a1"), row_of_class(64, "alpha_r1_a1")};
  EXPECT_EQ(plan(rows, small_problem(4))->account().kernel_name, "beta_r1_a1");
  const PlanRef other = plan(rows, small_problem(5));
  EXPECT_EQ(other->account().kernel_name, "alpha_r1_a1");
  EXPECT_THAT(other->account().rule, HasSubstr("its bit class was seen at M = 4 alone"));
}

TEST_F(Planner, ARowOfAClassWhoseKernelDoesNotTakeThisMIsNoBrokenRow) {
  const TunedEntry next = row_of_class(64, "alpha_r1_a1");
  EXPECT_EQ(plan({row_of_class(4, "beta_r1_a1"), next}, small_problem(9))->account().passed_file, "");
  EXPECT_NE(plan({row_of_class(4, "gone_r1_a1"), next}, small_problem(4))->account().passed_file, "");
}

TEST_F(Planner, InvariantOnlyRefusesAWeightWithoutSuchARow) {
  const PlanRef known =
      plan({row_of_class(4, "alpha_r1_a1"), row(small_problem(3, 64), "alpha_r1_a1")}, small_problem(3));
  EXPECT_EQ(known->account().kernel_name, "alpha_r1_a1");
  for (const bool measured_only : {false, true}) {
    const BindRules rules{.measured_only = measured_only, .invariant_only = true};
    EXPECT_TRUE(make_plan(device_, tables_, small_problem(3), rules).ok());
    const auto other = make_plan(device_, tables_, small_problem(3, 64), rules);
    ASSERT_FALSE(other.ok());
    EXPECT_THAT(other.message(), HasSubstr("GEMMTUNE_INVARIANT=rows, and no row of N = 64"));
  }
}

TEST_F(Planner, ARowThatKeepsTheLibraryOfTheProgramLeavesTheProductToIt) {
  DeviceInfo& info = static_cast<test::FakeDevice&>(*device_->device).change_info();
  info.libraries[0].name = "Alpha";
  TunedEntry keeps = row(small_problem(3), "alpha_r1_a1"), wins = row(small_problem(4), "alpha_r1_a2");
  keeps.default_kernel = wins.default_kernel = "alpha_r1_a1";
  TunedEntry of_class = row_of_class(64, "alpha_r1_a1");
  of_class.problem.n = 96;
  of_class.default_kernel = "alpha_r1_a1";
  TunedEntry ours = row(small_problem(5), "beta_r1_a1");
  ours.default_kernel = "beta_r1_a1";
  EXPECT_TRUE(plan({keeps, wins, of_class, ours}, small_problem(3))->account().callers_kernel);
  const auto runs = [&](const Problem& problem) {
    const auto made = make_plan(device_, tables_, problem, {.measured_only = true});
    return made.ok() && (*made)->kernel() != nullptr;
  };
  EXPECT_FALSE(runs(small_problem(3)));
  EXPECT_TRUE(runs(small_problem(4)));
  EXPECT_TRUE(runs(small_problem(5))) << "beta is no library";
  Problem other = small_problem(64);
  other.n = 96;
  EXPECT_TRUE(runs(other)) << "a bit class";
  info.backend = "cpu";
  EXPECT_TRUE(runs(small_problem(3))) << "programs have another library on a CPU";
}

TEST_F(Planner, NoRowGetsTheFallbackAndTheRuleSaysSo) {
  const PlanRef made = plan({row(small_problem(16, 64), "alpha_r1_a1")}, small_problem(3));
  EXPECT_EQ(made->account().match, Match::untuned);
  EXPECT_EQ(made->account().hit_m, 0);
  EXPECT_EQ(made->account().kernel_name, "safe_r1_a1");
  EXPECT_EQ(made->account().file, "");
  EXPECT_THAT(made->account().rule, HasSubstr("fallback for a plain weight is safe"));
}

TEST_F(Planner, RowsThatCannotRunAreInvalidAndTheSearchGoesOn) {
  // M = 9: beta refuses it, the fine row's name is of nobody, the coarse row runs.
  const Problem coarse_only = small_problem(17);
  const PlanRef made =
      plan({row(small_problem(17), "beta_r1_a1"), row(small_problem(32), "alpha_r1_a2")}, coarse_only);
  EXPECT_EQ(made->account().match, Match::fine);
  EXPECT_EQ(made->account().invalid_rows, 1);
  EXPECT_THAT(made->account().rule, HasSubstr("passed over exact row, M = 17"));
  EXPECT_THAT(made->account().rule, HasSubstr("M above 8"));

  const PlanRef fallback =
      plan({row(small_problem(9), "beta_r1_a1"), row(small_problem(16), "stranger_r1_a2")}, small_problem(9));
  EXPECT_EQ(fallback->account().match, Match::untuned);
  EXPECT_EQ(fallback->account().invalid_rows, 2);
  EXPECT_EQ(fallback->account().family, "safe");
}

TEST_F(Planner, UnknownParameterOfAKnownFamilyIsInvalid) {
  const PlanRef made = plan({row(small_problem(9), "alpha_r1_zz7")}, small_problem(9));
  EXPECT_EQ(made->account().match, Match::untuned);
  EXPECT_EQ(made->account().invalid_rows, 1);
}

TEST_F(Planner, RowOfAnotherWeightLayoutIsAMiss) {
  const Problem asked = packed(small_problem(8));
  const PlanRef made = plan(
      {row(packed(small_problem(8)), "gamma_r1_a1"), row(packed(small_problem(16)), "alpha_r1_a1")}, asked);
  EXPECT_EQ(made->account().match, Match::fine);
  EXPECT_EQ(made->account().invalid_rows, 1);
  EXPECT_THAT(made->account().rule, HasSubstr("reads weight layout onednn, the weight has panel16"));
  EXPECT_EQ(made->kernel()->weight_layout(), WeightLayout::panel16);
}

TEST_F(Planner, PlainRowsDoNotAnswerForAPackedWeight) {
  const PlanRef made = plan({row(small_problem(8), "alpha_r1_a1")}, packed(small_problem(8)));
  EXPECT_EQ(made->account().match, Match::untuned);
  EXPECT_EQ(made->account().invalid_rows, 0);
}

TEST_F(Planner, PackedWeightWithoutAFallbackIsAnErrorThatSaysWhy) {
  tables_ = load_table_set({});
  const auto made = make_plan(device_, tables_, packed(small_problem(8), WeightLayout::onednn), {});
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.code(), StatusCode::unsupported);
  EXPECT_THAT(made.message(), HasSubstr("no row and no fallback"));
}

TEST_F(Planner, OtherEnvironmentAnswersUnlessStrict) {
  TunedEntry other = row(small_problem(8), "alpha_r1_a1");
  other.env = "0123456789";
  folder_.write("tuned.csv.env.json", R"({"0123456789": {"device": "Fake 2"}})");
  const PlanRef made = plan({other}, small_problem(8));
  EXPECT_EQ(made->account().match, Match::exact);
  EXPECT_EQ(made->account().other_environment, "measured on 'Fake 2', this is 'Fake 1'");
  const PlanRef strict = plan({other}, small_problem(8), true);
  EXPECT_EQ(strict->account().match, Match::untuned);
  EXPECT_EQ(strict->account().invalid_rows, 0);
  EXPECT_THAT(strict->account().rule, HasSubstr("Fake 2"));
}

TEST_F(Planner, ZeroRowsNeedNoKernel) {
  const PlanRef made = plan({}, small_problem(0));
  EXPECT_EQ(made->kernel(), nullptr);
  EXPECT_EQ(made->workspace_bytes(), 0U);
}

TEST_F(Planner, ProblemsAreChecked) {
  const auto made = make_plan(device_, tables_, small_problem(-1), {});
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.code(), StatusCode::invalid_argument);
  EXPECT_THAT(made.message(), HasSubstr("M = -1"));
}

TEST_F(Planner, RowsOfAnotherDeviceDoNotAnswer) {
  TunedEntry wider = row(small_problem(8), "alpha_r1_a1");
  wider.cu_num = 4;
  EXPECT_EQ(plan({wider}, small_problem(8))->account().match, Match::untuned);
}

TEST_F(Planner, ARowOfFewerThreadsAnswersLast) {
  TunedEntry one = row(small_problem(4), "alpha_r1_a2");
  one.cu_num = 1;
  TunedEntry four = row(small_problem(4), "alpha_r1_a1");
  four.cu_num = 4;
  const PlanRef made = plan({one, four, row(small_problem(16), "beta_r1_a1")}, small_problem(4));
  EXPECT_EQ(made->account().match, Match::fine) << "rows of its own go first: " << made->account().rule;
  const PlanRef fewer = plan({one, four}, small_problem(3));
  EXPECT_EQ(fewer->account().match, Match::fewer_threads);
  EXPECT_EQ(fewer->account().hit_m, 4);
  EXPECT_EQ(fewer->account().kernel_name, "alpha_r1_a2");
  EXPECT_EQ(fewer->account().rule, "fewer_threads row, cu_num = 1, M = 4, " + file_ + ":2");
  EXPECT_TRUE(fewer->has_miss()) << "online tuning may find a row of its own";
  EXPECT_EQ(plan({one, four}, small_problem(3), true)->account().match, Match::untuned);
}

}  // namespace
}  // namespace gemmtune
