#include "tuned/checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tuned/layouts.h"
#include "tuned/peaks.h"
#include "tuned/table.h"

namespace gemmtune::checks_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TunedEntry row(std::int64_t m, double us, const std::string& kernel = "asm_a") {
  TunedEntry entry;
  entry.gfx = "gfx950";
  entry.cu_num = 256;
  entry.problem.m = m;
  entry.problem.n = 2048;
  entry.problem.k = 1024;
  entry.us = us;
  entry.libtype = "asm";
  entry.kernel_name = kernel;
  return entry;
}

TunedEntry moe_row(std::int64_t tokens, double err1, double err2) {
  TunedEntry entry = row(tokens, 50);
  entry.problem = default_problem(Operation::fused_moe);
  entry.problem.m = tokens;
  entry.problem.n = 512;
  entry.problem.k = 7168;
  entry.problem.moe = {.experts = 8, .topk = 2, .activation = Activation::silu, .gated = true};
  auto stages = std::make_shared<MoeStages>();
  stages->err1 = err1;
  stages->err2 = err2;
  entry.stages = stages;
  return entry;
}

/// "kind:line" of each finding; lines are the rows' places, from 1.
std::vector<std::string> found(std::vector<TunedEntry> entries, const CheckOptions& options = {}) {
  for (std::size_t index = 0; index < entries.size(); ++index) entries[index].line = index + 1;
  const std::vector<std::string> paths{"t.csv"};
  std::vector<std::string> texts;
  for (const Finding& finding : check_rows(rows_of(entries), paths, options)) {
    texts.push_back(std::string(to_string(finding.kind)) + ":" + std::to_string(finding.line));
  }
  return texts;
}

TEST(FindingKinds, EveryNameIsReadBack) {
  for (const FindingKind kind : all_finding_kinds()) {
    EXPECT_EQ(parse_finding_kind(to_string(kind)), kind);
    EXPECT_FALSE(describe(kind).empty());
  }
  EXPECT_FALSE(parse_finding_kind("Malformed"));
}

TunedEntry tagged(std::int64_t tokens, double us, const std::string& tag, const std::string& kernel) {
  TunedEntry entry = moe_row(tokens, 0, 0);
  auto stages = std::make_shared<MoeStages>(*entry.stages);
  stages->tag = tag;
  entry.stages = stages;
  entry.us = us;
  entry.kernel_name = kernel;
  return entry;
}

TEST(Checks, OfTwoTagsOfAKeyTheFirstIsTaken) {
  const std::vector<TunedEntry> entries{tagged(16, 50, "", "first"), tagged(16, 40, "other", "second"),
                                        tagged(16, 45, "", "fastest_of_the_tag")};
  EXPECT_THAT(found(entries), ElementsAre("duplicate_key:1", "duplicate_key:2"));
  const TunedTable table(entries);
  const auto hits = table.lookup({"gfx950", 256, entries[0].problem});
  ASSERT_EQ(hits.size(), 1U);
  EXPECT_EQ(hits[0].entry->kernel_name, "fastest_of_the_tag") << "AITER takes the first tag";
}

TEST(Checks, RowsThatNoLookUpTakesAreNotDominated) {
  EXPECT_THAT(found({tagged(16, 50, "flydsl_fallback", "a"), tagged(32, 40, "flydsl_fallback", "b")}),
              ElementsAre("unreachable:1", "unreachable:2"));
  EXPECT_THAT(found({tagged(16, 50, "", "a"), tagged(32, 40, "", "b")}), ElementsAre("dominated:1"));
}

TEST(Checks, ADuplicateKeyEndsAitersReaderOfDenseTables) {
  const std::vector<std::string> paths{"t.csv"};
  const std::vector<TunedEntry> dense{row(1, 5), row(1, 6, "asm_b")};
  EXPECT_EQ(check_rows(rows_of(dense), paths, {}).at(0).severity(), Severity::error);
  const std::vector<TunedEntry> mixture{tagged(16, 50, "", "a"), tagged(16, 40, "", "b")};
  EXPECT_EQ(check_rows(rows_of(mixture), paths, {}).at(0).severity(), Severity::warning);
}

TEST(FindingKinds, EverySeverityIsReadBack) {
  for (const Severity severity : {Severity::note, Severity::warning, Severity::error})
    EXPECT_EQ(parse_severity(to_string(severity)), severity);
  EXPECT_FALSE(parse_severity("Error"));
  EXPECT_EQ(severity_of(FindingKind::wrong_key), Severity::error);
  EXPECT_EQ(severity_of(FindingKind::redundant), Severity::note);
}

TEST(Checks, GoodRowsHaveNoFindings) {
  EXPECT_THAT(found({row(1, 5), row(2, 5, "asm_b"), row(4, 6)}), IsEmpty());
}

TEST(Checks, TimesThatCanNeverBeChosen) {
  const double infinite = std::numeric_limits<double>::infinity();
  EXPECT_THAT(found({row(1, 0)}), ElementsAre("failed_time:1"));
  EXPECT_THAT(found({row(1, -1)}), ElementsAre("failed_time:1"));
  EXPECT_THAT(found({row(1, infinite)}), ElementsAre("failed_time:1"));
  EXPECT_THAT(found({row(1, std::nan(""))}), ElementsAre("failed_time:1"));
}

TEST(Checks, TheErrorMayEqualTheLimit) {
  TunedEntry entry = row(1, 5);
  entry.err_ratio = 0.05;
  EXPECT_THAT(found({entry}), IsEmpty());
  entry.err_ratio = 0.0501;
  EXPECT_THAT(found({entry}), ElementsAre("over_tolerance:1"));
  CheckOptions loose;
  loose.err_ratio = 0.1;
  EXPECT_THAT(found({entry}, loose), IsEmpty());
}

/// An M of tensors that are too large to be asked for answers smaller ones, which are padded to it.
TEST(Checks, ARowTooLargeForItsOwnMAnswersSmallerOnes) {
  TunedEntry large;
  large.gfx = "gfx950";
  large.cu_num = 256;
  large.problem = default_problem(Operation::a8w8_blockscale);
  large.problem.m = std::int64_t{1} << 30;
  large.problem.n = 8;
  large.problem.k = 200000;
  large.us = 9e8;
  large.libtype = "ck";
  ASSERT_FALSE(check_asked(large.problem).ok());
  EXPECT_EQ(why_unreachable(large), "");
  LookupKey key{"gfx950", 256, large.problem};
  key.problem.m = 600'000'000;
  ASSERT_TRUE(check_asked(key.problem).ok());
  EXPECT_EQ(TunedTable({large}).lookup(key).size(), 1U);
}

TEST(Checks, BothStagesOfAFusedMoeHaveALimitOfTheirOwn) {
  EXPECT_THAT(found({moe_row(16, 0.09, 0.1)}), IsEmpty());
  EXPECT_THAT(found({moe_row(16, 0.11, 0)}), ElementsAre("over_tolerance:1"));
  EXPECT_THAT(found({moe_row(16, 0, 0.11)}), ElementsAre("over_tolerance:1"));
}

TEST(Choice, OneRuleForTimesErrorsAndRates) {
  TunedEntry entry = row(16, 5);
  EXPECT_TRUE(may_be_chosen(entry));
  entry.err_ratio = std::nan("");
  EXPECT_TRUE(may_be_chosen(entry));
  entry.err_ratio = 0.05;
  EXPECT_TRUE(may_be_chosen(entry));
  entry.err_ratio = 0.051;
  EXPECT_THAT(std::string(why_never_chosen(entry)), HasSubstr("error"));
  EXPECT_THAT(std::string(why_never_chosen(row(16, 0))), HasSubstr("time"));
  EXPECT_THAT(std::string(why_never_chosen(row(16, 1e-6))), HasSubstr("faster"));
  EXPECT_TRUE(may_be_chosen(moe_row(16, 0.1, 0.1)));
  EXPECT_FALSE(may_be_chosen(moe_row(16, 0.01, 0.11)));
}

TEST(Checks, RatesAboveThePeak) {
  TunedEntry entry = row(8192, 0);
  entry.problem.n = entry.problem.k = 8192;
  const double at_peak = flops(entry.problem) / 2516.6e6;
  entry.us = at_peak * 1.001;
  EXPECT_THAT(found({entry}), IsEmpty());
  entry.us = at_peak * 0.999;
  EXPECT_THAT(found({entry}), ElementsAre("impossible_rate:1"));
}

TEST(Peaks, ScaleWithTypesAndComputeUnits) {
  Problem problem;
  EXPECT_DOUBLE_EQ(peak_tflops("gfx942", 304, problem), 1307.4);
  EXPECT_DOUBLE_EQ(peak_tflops("gfx942", 152, problem), 1307.4 / 2);
  EXPECT_DOUBLE_EQ(peak_tflops("", 256, problem), 2516.6);
  EXPECT_DOUBLE_EQ(peak_tflops("x86-amx", 16, problem), unknown_device_peak);
  problem.x_type = problem.w_type = DataType::f8_e4m3fn;
  EXPECT_DOUBLE_EQ(peak_tflops("sm_90", 132, problem), 1978.9);
  problem.w_type = DataType::f4_e2m1;
  EXPECT_DOUBLE_EQ(peak_tflops("gfx950", 256, problem), 10066.3);
}

TEST(Checks, TheLimitOfACpuFollowsItsCoresAndInstructions) {
  TunedEntry entry = row(8192, 0);
  entry.problem.n = entry.problem.k = 8192;
  entry.gfx = "x86-avx2";
  entry.cu_num = 2;
  entry.us = 1e5;  // 11 TFLOP/s
  EXPECT_FALSE(may_be_chosen(entry));
  for (const auto& [gfx, cores] :
       std::vector<std::pair<std::string, int>>{{"x86-amx", 2}, {"x86-avx2", 64}, {"x86-avx2", 0}}) {
    entry.gfx = gfx;
    entry.cu_num = cores;
    EXPECT_TRUE(may_be_chosen(entry)) << gfx << " " << cores;
  }
  // Where little is computed, reading takes time: 134 MB of a weight.
  entry.problem.m = 1;
  entry.gfx = "x86-amx";
  entry.cu_num = 2;
  entry.us = 40;
  EXPECT_FALSE(may_be_chosen(entry));
  entry.us = 60;
  EXPECT_TRUE(may_be_chosen(entry));
  entry.us = 1e-6;
  entry.problem.n = entry.problem.k = 64;
  EXPECT_FALSE(may_be_chosen(entry));
  // What lies beyond all caches comes from memory: 137 GB on any number of cores.
  entry.problem.n = entry.problem.k = std::int64_t{1} << 18;
  entry.cu_num = 1 << 20;
  entry.us = 1e4;
  EXPECT_FALSE(may_be_chosen(entry));
  entry.us = 2e4;
  EXPECT_TRUE(may_be_chosen(entry));
}

TEST(Checks, TheBestOfAKeyIsNoDuplicate) {
  EXPECT_THAT(found({row(1, 5), row(1, 4, "asm_b"), row(1, 4, "asm_c")}),
              ElementsAre("duplicate_key:1", "duplicate_key:3"));
  EXPECT_THAT(found({row(1, 5), row(1, -1)}), ElementsAre("failed_time:2", "duplicate_key:2"));
}

TEST(Checks, RowsOfOtherKeysAreNoDuplicates) {
  TunedEntry other = row(1, 5);
  other.problem.bias = true;
  TunedEntry device = row(1, 5);
  device.cu_num = 128;
  TunedEntry tagged = moe_row(16, 0, 0);
  auto stages = std::make_shared<MoeStages>(*tagged.stages);
  stages->tag = "exact-m4096-a";
  tagged.stages = stages;
  EXPECT_THAT(found({row(1, 5), other, device, moe_row(16, 0, 0)}), IsEmpty());
  EXPECT_THAT(found({moe_row(16, 0, 0), tagged}), ElementsAre("duplicate_key:2"))
      << "look-up asks for no tag";
}

TEST(Checks, AFusedMoeWithoutGfxHasTheOneOfItsComputeUnits) {
  TunedEntry without = moe_row(16, 0, 0);
  without.gfx.clear();
  EXPECT_THAT(found({without, moe_row(16, 0, 0)}), ElementsAre("duplicate_key:2"));
}

TEST(Checks, DominatedCountsFromTheGivenPercent) {
  EXPECT_THAT(found({row(1, 10.49), row(2, 10, "asm_b")}), IsEmpty());
  EXPECT_THAT(found({row(1, 10.5), row(2, 10, "asm_b")}), ElementsAre("dominated:1"));
  // The faster row need not be the next one, and failed rows dominate nobody.
  EXPECT_THAT(found({row(1, 20), row(2, 21, "asm_b"), row(4, 10)}),
              ElementsAre("dominated:2", "dominated:1"));
  EXPECT_THAT(found({row(1, 20), row(2, 0, "asm_b")}), ElementsAre("failed_time:2"));
  CheckOptions options;
  options.dominated_percent = 200;
  EXPECT_THAT(found({row(1, 20), row(2, 10, "asm_b")}, options), IsEmpty());
}

/// A lower class is faster because it keeps fewer bits; a higher one that is faster dominates all the more.
TEST(Checks, DominatedComparesWithinAnAccuracyClass) {
  const auto of_class = [](std::int64_t m, double us, Accuracy accuracy) {
    TunedEntry entry = row(m, us, "kernel" + std::to_string(m));
    entry.accuracy = accuracy;
    return entry;
  };
  const TunedEntry low = of_class(4, 10, Accuracy::tensor_core);
  EXPECT_THAT(found({of_class(1, 20, Accuracy::fp32), low}), IsEmpty());
  EXPECT_THAT(found({row(1, 20), low}), IsEmpty()) << "a row without a class is fp32";
  EXPECT_THAT(found({of_class(1, 20, Accuracy::tensor_core), low}), ElementsAre("dominated:1"));
  EXPECT_THAT(found({of_class(1, 20, Accuracy::tensor_core), row(4, 10, "asm_b")}),
              ElementsAre("dominated:1"));
  // The faster row of the class need not be the fastest of all.
  EXPECT_THAT(found({of_class(1, 20, Accuracy::fp32), of_class(2, 15, Accuracy::fp32), low}),
              ElementsAre("dominated:1"));
}

TEST(Checks, RedundantIsARowThatNoLookUpNeeds) {
  // M = 20 is padded to 32, which answers alike; M = 32 itself is padded to nothing else.
  EXPECT_THAT(found({row(20, 5), row(32, 5)}), ElementsAre("redundant:1"));
  EXPECT_THAT(found({row(20, 5), row(32, 5, "asm_b")}), IsEmpty());
  // M = 65 to 79 are padded to 80 first, then to 128.
  EXPECT_THAT(found({row(80, 5), row(128, 5)}), ElementsAre("redundant:1"));
  TunedEntry split = row(20, 5);
  split.split_k = 4;
  EXPECT_THAT(found({split, row(32, 5)}), IsEmpty());
  TunedEntry range = row(64, 5);
  range.m_from = 30;
  EXPECT_THAT(found({row(32, 5), range}), IsEmpty());  // M = 17 to 29 reach it by padding alone
  range.m_from = 17;
  EXPECT_THAT(found({row(32, 5), range}), ElementsAre("redundant:1"));
  // Without the first row, the second of its key would be chosen.
  EXPECT_THAT(found({row(32, 5), row(32, 5, "asm_b"), range}), ElementsAre("duplicate_key:2"));
}

TEST(Checks, RowsThatNoRequestFinds) {
  EXPECT_EQ(why_unreachable(row(3, 5)), "");
  TunedEntry no_units = row(1, 5);
  no_units.cu_num = 0;
  EXPECT_THAT(why_unreachable(no_units), HasSubstr("cu_num"));
  TunedEntry features = row(1, 5);
  features.gfx = "gfx942:sramecc+:xnack-";
  EXPECT_THAT(why_unreachable(features), HasSubstr("without features"));
  EXPECT_EQ(why_unreachable(moe_row(64, 0, 0)), "");
  EXPECT_THAT(why_unreachable(moe_row(56, 0, 0)), HasSubstr("looked up as 64"));
  TunedEntry range = moe_row(56, 0, 0);
  range.m_from = 40;
  EXPECT_EQ(why_unreachable(range), "");
  TunedEntry tagged = moe_row(64, 0, 0);
  auto stages = std::make_shared<MoeStages>(*tagged.stages);
  stages->tag = "flydsl_fallback";
  tagged.stages = stages;
  EXPECT_THAT(why_unreachable(tagged), HasSubstr("flydsl_fallback"));
  TunedEntry fp4 = row(1, 5);
  fp4.problem = default_problem(Operation::a4w4_blockscale);
  fp4.problem.m = 1;
  fp4.problem.n = 512;
  fp4.problem.k = 48;
  EXPECT_THAT(why_unreachable(fp4), HasSubstr("multiple of 32"));
}

TunedEntry packed(std::int64_t m, double us, const std::string& layout) {
  TunedEntry entry = row(m, us, "tiled_r1_mr8_w" + layout);
  entry.problem.weight_layout = WeightLayout::any;
  return entry;
}

TEST(Layouts, AreToldByTheNameOfTheKernel) {
  EXPECT_EQ(layout_of_kernel_name("tiled_r1_mr8_wpanel16"), WeightLayout::panel16);
  EXPECT_EQ(layout_of_kernel_name("onednn_r1_wonednn"), WeightLayout::onednn);
  EXPECT_FALSE(layout_of_kernel_name("tiled_r1_mr8"));
  EXPECT_FALSE(layout_of_kernel_name("flydsl_gemm5_block_m_warp1_w4"));
}

TEST(Layouts, TheFastestSumOverCommonRowsIsKept) {
  const std::vector<TunedEntry> entries{packed(1, 5, "panel16"), packed(1, 6, "onednn"),
                                        packed(2, 9, "panel16"), packed(2, 7, "onednn"),
                                        packed(4, 100, "onednn")};
  const auto choices = choose_layouts(rows_of(entries));
  ASSERT_EQ(choices.size(), 1U);
  EXPECT_EQ(choices[0].kept, WeightLayout::onednn);
  EXPECT_THAT(choices[0].dropped, ElementsAre(&entries[0], &entries[2]));
}

TEST(Layouts, WithoutCommonRowsTheOneWithMostIsKept) {
  const std::vector<TunedEntry> entries{packed(1, 5, "panel16"), packed(2, 6, "onednn"),
                                        packed(4, 9, "onednn")};
  const auto choices = choose_layouts(rows_of(entries));
  ASSERT_EQ(choices.size(), 1U);
  EXPECT_EQ(choices[0].kept, WeightLayout::onednn);
}

TEST(Layouts, PlainProblemsHaveNone) {
  EXPECT_THAT(
      choose_layouts(rows_of(std::vector{row(1, 5, "tiled_r1_wpanel16"), row(2, 5, "onednn_r1_wonednn")})),
      IsEmpty());
  EXPECT_THAT(found({packed(1, 5, "panel16"), packed(2, 6, "onednn")}), ElementsAre("mixed_layout:2"));
}

}  // namespace
}  // namespace gemmtune::checks_test
