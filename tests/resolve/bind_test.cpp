// Which kernel a row, a name or nothing at all gives, and every reason for a refusal.
#include "resolve/bind.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "resolve/answer.h"
#include "support/dispatch_fake_device.h"
#include "support/dispatch_tables.h"
#include "support/fake_device.h"

namespace gemmtune {
namespace {

using test::packed;
using test::row;
using test::small_problem;
using ::testing::HasSubstr;

class Bind : public ::testing::Test {
 protected:
  Refusal refusal_of(const TunedEntry& entry, const Problem& problem, BindRules rules = {},
                     std::string_view other_environment = {}) {
    const Binding binding = bind_row(device_, entry, other_environment, problem, rules);
    EXPECT_FALSE(binding.bound) << entry.kernel_name;
    EXPECT_FALSE(binding.status.ok());
    return binding.refusal;
  }

  std::shared_ptr<test::FakeLog> log_ = std::make_shared<test::FakeLog>();
  test::FakeDevice device_{log_};
};

TEST_F(Bind, ARowGivesItsKernelForTheProblemsOwnM) {
  const Binding binding = bind_row(device_, row(small_problem(16), "alpha_r1_a2"), {}, small_problem(3), {});
  ASSERT_TRUE(binding.bound) << binding.status.message();
  EXPECT_TRUE(binding.status.ok());
  EXPECT_EQ(binding.bound->candidate.kernel_name(), "alpha_r1_a2");
  EXPECT_EQ(binding.bound->kernel->weight_layout(), WeightLayout::plain);
  EXPECT_EQ(log_->builds, 1);
}

TEST_F(Bind, ANameIsCheckedOnceBeforeItsKernelIsBuilt) {
  ASSERT_TRUE(bind_name(device_, "alpha_r1_a2", small_problem(3)).bound);
  EXPECT_EQ(log_->spaces, 1);
  EXPECT_EQ(log_->builds, 1);
}

TEST_F(Bind, EveryRefusalHasItsWord) {
  const Problem problem = small_problem(9);
  TunedEntry foreign = row(problem, "alpha_r1_a1");
  foreign.cu_num = 4;
  EXPECT_EQ(refusal_of(foreign, problem), Refusal::other_device);
  EXPECT_EQ(refusal_of(row(problem, "alpha_r1_a1"), problem, {.strict_environment = true}, "another machine"),
            Refusal::other_environment);
  EXPECT_EQ(refusal_of(row(problem, "stranger_r1"), problem), Refusal::unknown_kernel);
  EXPECT_EQ(refusal_of(row(problem, "alpha_r7_a1"), problem), Refusal::unknown_kernel)
      << "a revision of the past";
  EXPECT_EQ(refusal_of(row(problem, "alpha_r1_a9"), problem), Refusal::unknown_kernel) << "no value of a";
  EXPECT_EQ(refusal_of(row(problem, "beta_r1_a1"), problem), Refusal::unknown_kernel) << "M above 8";
  EXPECT_EQ(refusal_of(row(problem, "alpha_r1_pdl1"), problem), Refusal::dependent_launch);
  EXPECT_EQ(refusal_of(row(packed(problem), "gamma_r1_a1"), packed(problem)), Refusal::weight_layout);
}

TEST_F(Bind, AnotherEnvironmentIsARefusalOnlyIfTheRulesAreStrict) {
  const TunedEntry entry = row(small_problem(8), "alpha_r1_a1");
  EXPECT_TRUE(bind_row(device_, entry, "another machine", entry.problem, {}).bound);
  EXPECT_TRUE(bind_row(device_, entry, {}, entry.problem, {.strict_environment = true}).bound);
}

TEST_F(Bind, TheDependentKernelGoesFirstIfItIsAllowedAndRuns) {
  TunedEntry entry = row(small_problem(8), "alpha_r1_a1");
  entry.pdl_kernel_name = "alpha_r1_a2_pdl1";
  const auto name = [&](BindRules rules) {
    return bind_row(device_, entry, {}, entry.problem, rules).bound->candidate.kernel_name();
  };
  EXPECT_EQ(name({}), "alpha_r1_a1");
  EXPECT_EQ(name({.dependent_launches = true}), "alpha_r1_a2_pdl1");
  entry.pdl_kernel_name = "gone_r1_pdl1";
  EXPECT_EQ(name({.dependent_launches = true}), "alpha_r1_a1");
}

TEST_F(Bind, ALayoutThatIsNotDecidedTakesAKernelOfAnyLayout) {
  Problem problem = packed(small_problem(8), WeightLayout::any);
  EXPECT_EQ(bind_name(device_, "gamma_r1_a1", problem).bound->kernel->weight_layout(), WeightLayout::onednn);
  EXPECT_EQ(bind_name(device_, "alpha_r1_a1", problem).bound->kernel->weight_layout(), WeightLayout::panel16);
}

TEST_F(Bind, TheLayoutOfARowIsKnownWithoutBuilding) {
  EXPECT_EQ(weight_layout_of(device_, row(packed(small_problem(8)), "gamma_r1_a1")), WeightLayout::onednn);
  EXPECT_EQ(weight_layout_of(device_, row(small_problem(8), "alpha_r1_a1")), WeightLayout::plain);
  EXPECT_FALSE(weight_layout_of(device_, row(packed(small_problem(8)), "stranger_r1")));
  EXPECT_FALSE(weight_layout_of(device_, row(packed(small_problem(8)), "beta_r1_a1")))
      << "plain weights only";
  EXPECT_EQ(log_->builds, 0);
}

TEST_F(Bind, AProblemThatIsPackedAsTheRowsWantHasTheirLayout) {
  const test::TemporaryFolder folder;
  const auto file = test::write_rows(
      folder, "t.csv",
      {row(packed(small_problem(8)), "gamma_r1_a1"), row(packed(small_problem(16)), "alpha_r1_a1"),
       row(packed(small_problem(32)), "alpha_r1_a1")});
  const TableSet tables = load_table_set({test::table(file)});
  const Problem any = packed(small_problem(8), WeightLayout::any);
  const Problem posed = with_tuned_layout(device_, tables, any);
  EXPECT_EQ(posed.weight_layout, WeightLayout::panel16) << "the layout of most rows";
  const Answer answer = answer_problem(device_, tables, posed, {});
  EXPECT_EQ(answer.hit.hit_m, 16);
  ASSERT_EQ(answer.passed.size(), 1U);
  EXPECT_EQ(answer.passed.front().refusal, Refusal::weight_layout);
  EXPECT_THAT(answer.rule(), HasSubstr("reads weight layout onednn, the weight has panel16"));
  EXPECT_EQ(with_tuned_layout(device_, tables, small_problem(8)).weight_layout, WeightLayout::plain);
  const Problem onednn = packed(small_problem(8), WeightLayout::onednn);
  EXPECT_EQ(with_tuned_layout(device_, tables, onednn), onednn) << "the caller's own layout stays";
  EXPECT_EQ(with_tuned_layout(device_, TableSet{}, any), any) << "no row decides";
}

TEST_F(Bind, OnlineRowsAreSearchedAfterTheTunedFiles) {
  const test::TemporaryFolder folder;
  const auto tuned = test::write_rows(folder, "tuned.csv", {row(small_problem(8), "alpha_r1_a1")});
  const auto online = test::write_rows(
      folder, "online.csv", {row(small_problem(8), "alpha_r1_a2", 1), row(small_problem(5), "beta_r1_a2")});
  const TableSet first = load_table_set({test::table(tuned)});
  const TableSet second = load_table_set({test::table(online)});
  EXPECT_EQ(answer_problem(device_, {first, &second}, small_problem(8), {}).kernel_name(), "alpha_r1_a1");
  const Answer answer = answer_problem(device_, {first, &second}, small_problem(5), {});
  EXPECT_EQ(answer.kernel_name(), "alpha_r1_a1")
      << "a padded row of the tuned files goes before an online row";
  EXPECT_EQ(answer_problem(device_, {TableSet(), &second}, small_problem(5), {}).kernel_name(), "beta_r1_a2");
}

/// One family after the other; a failure that is no matter of the kernel ends it.
TEST(BindFallback, AKernelThatCannotBeBuiltIsPassedOver) {
  testing::FakeDevice device;
  device.change_info().backend = "cpu";
  testing::FakeFamilyOptions first{.name = "onednn"};
  first.build_status = Status::unsupported("40 bytes a thread in device memory");
  device.add(first);
  testing::FakeFamilyOptions second{.name = "tiled"};
  second.build_status = Status::unsupported("no room");
  device.add(second);
  const Problem problem = small_problem(64);  // few rows have another order of families
  EXPECT_THAT(bind_fallback(device, problem).message(),
              HasSubstr("onednn_r1: 40 bytes a thread in device memory; tiled_r1: no room; "));
  device.add({.name = "skinny"});
  const auto bound = bind_fallback(device, problem);
  ASSERT_TRUE(bound.ok()) << bound.message();
  EXPECT_EQ(bound->candidate.family, "skinny");
  EXPECT_THAT(describe_fallback(problem, *bound),
              HasSubstr("; passed over onednn_r1: 40 bytes a thread in device memory; tiled_r1: no room"));
}

TEST(BindFallback, AnotherFailureIsAnswered) {
  testing::FakeDevice device;
  device.change_info().backend = "cpu";
  testing::FakeFamilyOptions first{.name = "onednn"};
  first.build_status = Status::out_of_memory("none left");
  device.add(first);
  device.add({.name = "tiled"});
  EXPECT_EQ(bind_fallback(device, small_problem(3)).code(), StatusCode::out_of_memory);
}

}  // namespace
}  // namespace gemmtune
