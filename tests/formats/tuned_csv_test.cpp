#include "formats/aiter/tuned_csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/text.h"
#include "formats/aiter/rates.h"
#include "formats/aiter/tuned_row.h"
#include "scratch_folder.h"
#include "support/fixtures.h"
#include "tuned/key.h"
#include "tuned/table.h"

namespace gemmtune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string tuned_data(const std::string& name) { return std::string(GEMMTUNE_TEST_DATA) + "/tuned/" + name; }

TunedFile read_data(const std::string& name) {
  auto file = read_tuned_csv(tuned_data(name));
  EXPECT_TRUE(file.ok()) << file.message();
  return file.ok() ? std::move(*file) : TunedFile();
}

TEST(TunedCsv, ReadsTodaysEighteenColumns) {
  const TunedFile file = read_data("today_18.csv");
  EXPECT_TRUE(file.has_gfx);
  EXPECT_THAT(file.diagnostics, IsEmpty());
  ASSERT_EQ(file.entries.size(), 4U);
  const TunedEntry& first = file.entries[0];
  EXPECT_EQ(first.gfx, "gfx950");
  EXPECT_EQ(first.cu_num, 256);
  EXPECT_EQ(print(first.problem),
            "a16w16 m=64 n=256 k=5120 x=bf16 w=bf16 y=f32 bias=0 scale_ab=0 layout=plain");
  EXPECT_EQ(first.libtype, "asm");
  EXPECT_EQ(first.solidx, 5);
  EXPECT_EQ(first.split_k, 13);
  EXPECT_EQ(first.us, 7.9191);
  EXPECT_EQ(first.kernel_name, "_ZN5aiter39bf16gemm_fp32bf16_tn_64x64_splitk_cleanE");
  EXPECT_EQ(first.err_ratio, 0);
  EXPECT_EQ(first.line, 2U);
  EXPECT_EQ(first.verdict, Verdict::none);
  EXPECT_FALSE(first.spread.has_value());
  EXPECT_EQ(print(file.entries[1].problem),
            "a16w16 m=1 n=2048 k=2048 x=bf16 w=bf16 y=bf16 bias=1 scale_ab=0 layout=any");
  // Rows with times that can never be chosen are kept.
  EXPECT_EQ(file.entries[2].us, 0);
  EXPECT_TRUE(std::isinf(file.entries[3].us));
}

TEST(TunedCsv, ReadsSeventeenColumnsWithoutGfxAndAShortLastRow) {
  const TunedFile file = read_data("january_17.csv");
  EXPECT_FALSE(file.has_gfx);
  EXPECT_THAT(file.diagnostics, IsEmpty());
  ASSERT_EQ(file.entries.size(), 2U);
  EXPECT_EQ(file.entries[0].gfx, "");
  EXPECT_EQ(file.entries[0].solidx, -1);
  EXPECT_EQ(file.entries[0].kernel_name, "");
  EXPECT_EQ(file.entries[1].solidx, 3);
  EXPECT_EQ(file.entries[1].cu_num, 304);
}

TEST(TunedCsv, ReadsTheOlderHeaders) {
  const TunedFile november = read_data("november_16.csv");
  ASSERT_EQ(november.entries.size(), 1U);
  EXPECT_EQ(november.entries[0].cu_num, 256);
  EXPECT_EQ(november.entries[0].us, 4.4021);
  EXPECT_FALSE(is_packed(november.entries[0].problem));
  const TunedFile december = read_data("december_2024.csv");
  ASSERT_EQ(december.entries.size(), 1U);
  EXPECT_EQ(december.entries[0].us, 19.1353);
  EXPECT_EQ(december.entries[0].solidx, 441325);
  EXPECT_EQ(december.entries[0].cu_num, 0);
  EXPECT_TRUE(std::isnan(december.entries[0].err_ratio));
  EXPECT_THAT(december.diagnostics, ElementsAre(HasSubstr("december_2024.csv:1: no column cu_num")));
}

TEST(TunedCsv, MissingCellsHaveMeanings) {
  const TunedFile file = read_data("missing_cells.csv");
  EXPECT_THAT(file.diagnostics, IsEmpty());
  ASSERT_EQ(file.entries.size(), 4U);
  EXPECT_EQ(file.entries[0].solidx, 0);
  EXPECT_EQ(file.entries[0].split_k, 0);
  EXPECT_DOUBLE_EQ(file.entries[0].err_ratio, 0.005);
  EXPECT_TRUE(std::isnan(file.entries[1].us));
  EXPECT_EQ(file.entries[1].problem.y_type, DataType::bf16);
  EXPECT_TRUE(std::isnan(file.entries[2].us));
  EXPECT_TRUE(std::isnan(file.entries[2].err_ratio));
  EXPECT_EQ(file.entries[3].cu_num, 256);
  const TunedTable table(file.entries);
  LookupKey key{"gfx950", 256, file.entries[1].problem};
  // M = 2 itself has no time, and neither 16 nor 2 answers as its padding.
  EXPECT_THAT(table.lookup(key), IsEmpty());
}

TEST(TunedCsv, BadRowsAreReportedAndTheRestIsUsed) {
  const TunedFile file = read_data("bad_rows.csv");
  ASSERT_EQ(file.entries.size(), 1U);
  EXPECT_EQ(file.entries[0].problem.m, 8);
  EXPECT_FALSE(file.entries[0].spread.has_value());
  EXPECT_FALSE(file.entries[0].m_from.has_value());
  EXPECT_THAT(
      file.diagnostics,
      ElementsAre(HasSubstr("bad_rows.csv:2: column cu_num: value 'many', expected a whole number"),
                  HasSubstr(":3: column M: value '', expected a whole number from 1 to 2147483647"),
                  HasSubstr(":4: column us: value 'fast', expected microseconds"),
                  HasSubstr(":5: column solidx: value 'one'"), HasSubstr(":6: column M: value 'x'"),
                  HasSubstr(":7: column spread: value 'wide'"),
                  HasSubstr(":7: column verdict: value 'perhaps'"),
                  HasSubstr(":7: column m_from: value '9', expected a whole number from 1 to the row's M"),
                  HasSubstr(":8: 22 cells, expected at most the header's 21")));
  const auto strict = read_tuned_csv(tuned_data("bad_rows.csv"), {.strict = true});
  EXPECT_EQ(strict.code(), StatusCode::invalid_argument);
  EXPECT_THAT(strict.message(), HasSubstr("bad_rows.csv:2"));
}

TEST(TunedCsv, ReadsOurOwnColumns) {
  const TunedFile file = read_data("own_columns.csv");
  ASSERT_EQ(file.entries.size(), 1U);
  EXPECT_THAT(file.diagnostics, IsEmpty());
  const TunedEntry& entry = file.entries[0];
  EXPECT_EQ(entry.gfx, "x86-avx512");
  EXPECT_EQ(entry.spread, 3.25);
  EXPECT_EQ(entry.default_us, 1203.4);
  EXPECT_EQ(entry.default_kernel, "onednn_r1");
  EXPECT_EQ(entry.speedup, 1.4811);
  EXPECT_EQ(entry.verdict, Verdict::win);
  EXPECT_EQ(entry.m_from, 97);
  EXPECT_EQ(entry.regret, 0.012);
  EXPECT_FALSE(entry.pdl_us.has_value());
  EXPECT_EQ(entry.env, "3f2a9c01");
  EXPECT_FALSE(entry.accuracy.has_value()) << "a file of an earlier version";
}

class TunedCsvFiles : public ScratchTest {};

TEST_F(TunedCsvFiles, AClassThatIsNotKnownIsKeptAndNamed) {
  const std::string text =
      "gfx,cu_num,M,N,K,dtype,us,kernelName,accuracy\n"
      "sm_90,132,1,64,64,torch.bfloat16,1.0,wgmma_r1_x,fp32\n"
      "sm_90,132,2,64,64,torch.bfloat16,1.0,wgmma_r1_x,fp24\n";
  const auto file = read_tuned_csv(write("t.csv", text), {.operation = OperationForm(Operation::a16w16)});
  ASSERT_TRUE(file.ok()) << file.message();
  ASSERT_EQ(file->entries.size(), 2U);
  EXPECT_EQ(file->entries[0].accuracy, Accuracy::fp32);
  EXPECT_FALSE(file->entries[1].accuracy.has_value());
  ASSERT_EQ(file->diagnostics.size(), 1U);
  EXPECT_THAT(file->diagnostics[0], HasSubstr("accuracy"));
  EXPECT_THAT(file->diagnostics[0], HasSubstr("fp24"));
  ASSERT_NE(find_carried(file->entries[1], "accuracy"), nullptr);
}

TEST_F(TunedCsvFiles, EmptyAndHeaderOnlyFilesHaveNoEntries) {
  const std::string header =
      "gfx,cu_num,M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,libtype,solidx,splitK,us,kernelName";
  for (const std::string& text : {std::string(), std::string("\n\n"), header, header + "\r\n\r\n"}) {
    const auto file = read_tuned_csv(write("t.csv", text));
    ASSERT_TRUE(file.ok()) << file.message();
    EXPECT_THAT(file->entries, IsEmpty());
    EXPECT_THAT(file->diagnostics, IsEmpty());
  }
}

TEST_F(TunedCsvFiles, OtherFilesAreNamed) {
  EXPECT_THAT(read_tuned_csv(write("t.csv", "M,N,bias\n")).message(),
              HasSubstr("t.csv:1: no column K, dtype, us"));
  EXPECT_THAT(read_tuned_csv(write("t.csv", "M,N,K,bias,dtype\n")).message(), HasSubstr("no column us"));
  EXPECT_THAT(read_tuned_csv(write("t.csv", "hello\n")).message(),
              HasSubstr("the header is none of a shape list or tuned file"));
  const auto moe = read_tuned_csv(write("t.csv", "cu_num,token,model_dim,inter_dim,us\n"));
  EXPECT_THAT(moe.message(), HasSubstr("t.csv:1: no column expert, topk, dtype, q_dtype_a, q_dtype_w"));
  EXPECT_THAT(moe.message(), HasSubstr("fused_moe"));
  const std::string sizes = "gfx,cu_num,M,N,K,kernelId,us\n";
  EXPECT_THAT(read_tuned_csv(write("t.csv", sizes)).message(), HasSubstr("name it with --op (a8w8, "));
  EXPECT_EQ(read_tuned_csv(write("x_a4w4_blockscale_tuned_gemm.csv", sizes))->schema().kind,
            TableKind::a4w4_blockscale);
  EXPECT_THAT(
      read_tuned_csv(write("t.csv", sizes), {.operation = OperationForm(Operation::batched_a8w8)}).message(),
      HasSubstr("no column B"));
  EXPECT_THAT(
      read_tuned_csv(write("t.csv", "gfx,cu_num,B,M,N,K,us\n"), {.operation = OperationForm(Operation::a8w8)})
          .message(),
      HasSubstr("expected a8w8"));
  EXPECT_EQ(read_tuned_csv(path("missing.csv")).code(), StatusCode::not_found);
  EXPECT_EQ(read_tuned_csv(folder_.string()).code(), StatusCode::invalid_argument);
}

TEST_F(TunedCsvFiles, DirtIsSurvived) {
  const auto file = read_tuned_csv(write("t.csv",
                                         "\xEF\xBB\xBF us ,KERNELNAME,K, N,M,dtype,cu_num,gfx,note\r\n"
                                         "# by hand\r\n\r\n,,,,,,,,\r\n"
                                         "4.5 ,\"a,b\", 64, 32, 16,torch.bfloat16\t,256,gfx950,\"x\"\r\n"));
  ASSERT_TRUE(file.ok()) << file.message();
  EXPECT_THAT(file->diagnostics, IsEmpty());
  ASSERT_EQ(file->entries.size(), 1U);
  EXPECT_EQ(file->entries[0].kernel_name, "a,b");
  EXPECT_EQ(file->entries[0].problem.k, 64);
  EXPECT_EQ(file->entries[0].us, 4.5);
}

TEST_F(TunedCsvFiles, DiagnosticsHaveAnEnd) {
  std::string text = "M,N,K,dtype,cu_num,us\n";
  for (int row = 0; row < 1500; ++row) text += "garbage\n";
  const auto file = read_tuned_csv(write("t.csv", text));
  ASSERT_TRUE(file.ok());
  ASSERT_EQ(file->diagnostics.size(), 1001U);
  EXPECT_THAT(file->diagnostics.back(), HasSubstr("500 more"));
}

TEST_F(TunedCsvFiles, WhatIsWrittenIsReadBack) {
  std::vector<TunedEntry> entries = read_data("own_columns.csv").entries;
  TunedEntry odd = entries[0];
  odd.problem.m = 7;
  odd.problem.y_type = DataType::f32;
  odd.kernel_name = "a,\"b\"";
  odd.us = 0.12345;
  odd.err_ratio = std::numeric_limits<double>::quiet_NaN();
  odd.verdict = Verdict::keep_default;
  odd.ties = 3;
  odd.m_from.reset();
  odd.regret.reset();
  odd.pdl_us = 99;
  odd.pdl_kernel_name = "other";
  odd.accuracy = Accuracy::tensor_core;
  entries.push_back(odd);
  for (const CsvSchema schema : {CsvSchema::aiter, CsvSchema::seed}) {
    const auto file = read_tuned_csv(write("t.csv", write_tuned_csv(Operation::a16w16, entries, schema)));
    ASSERT_TRUE(file.ok()) << file.message();
    EXPECT_THAT(file->diagnostics, IsEmpty());
    EXPECT_EQ(file->has_gfx, schema == CsvSchema::aiter);
    ASSERT_EQ(file->entries.size(), 2U);
    const TunedEntry& read = file->entries[1];
    EXPECT_EQ(read.gfx, schema == CsvSchema::aiter ? "x86-avx512" : "");
    EXPECT_EQ(read.problem, odd.problem);
    EXPECT_EQ(read.kernel_name, odd.kernel_name);
    EXPECT_EQ(read.us, 0.1235);  // Python rounds the binary value: 0.12345 lies above the tie
    EXPECT_TRUE(std::isnan(read.err_ratio));
    EXPECT_EQ(read.verdict, Verdict::keep_default);
    EXPECT_EQ(read.ties, 3);
    EXPECT_FALSE(file->entries[0].ties.has_value());
    EXPECT_FALSE(read.m_from.has_value());
    EXPECT_EQ(read.pdl_us, 99);
    EXPECT_EQ(read.accuracy, Accuracy::tensor_core);
    EXPECT_FALSE(file->entries[0].accuracy.has_value());
    EXPECT_EQ(read.env, "3f2a9c01");
  }
}

TEST_F(TunedCsvFiles, TheTextIsAiters) {
  TunedEntry entry = read_data("today_18.csv").entries[0];
  entry.us = 10;
  entry.speedup = 1.25;
  EXPECT_EQ(write_tuned_csv(Operation::a16w16, {entry}, CsvSchema::aiter),
            "gfx,cu_num,M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,libtype,solidx,splitK,us,kernelName,"
            "err_ratio,tflops,bw,spread,default_us,default_kernel,speedup,verdict,ties,m_from,regret,"
            "pdl_kernelName,pdl_us,env,accuracy,speedup_low,speedup_high\n"
            "gfx950,256,64,256,5120,False,torch.bfloat16,torch.float32,False,False,asm,5,13,10.0,"
            "_ZN5aiter39bf16gemm_fp32bf16_tn_64x64_splitk_cleanE,0.0,16.78,330.96,,,,1.25,,,,,,,,,,\n");
}

TEST(TunedCsvColumns, RatesOfInvalidTimesAreZero) {
  Problem problem;
  problem.m = problem.n = problem.k = 1024;
  for (const double us : {0.0, -1.0, std::numeric_limits<double>::infinity(), std::nan("")}) {
    EXPECT_EQ(tflops_column(problem, us), 0);
    EXPECT_EQ(bandwidth_column(problem, us), 0);
  }
  EXPECT_EQ(tflops_column(problem, 100), 21.47);
  EXPECT_EQ(bandwidth_column(problem, 100), 62.91);
}

// AITER's fused MoE tables lack both columns: a file has them only where a row of ours does.
TEST(TunedCsvColumns, SharedExpertsAndTheRoutingAreColumnsWhereARowHasThem) {
  const std::string key =
      "gfx,cu_num,token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,"
      "doweight_stage1,us,kernelName1";
  const std::string row =
      "sm_90,132,16,7168,256,257,9,ActivationType.Silu,torch.bfloat16,torch.float8_e4m3fn,torch.float8_"
      "e4m3fn,"
      "QuantType.per_1x128,1,0,80.5,simt_moe_r1_bm16";
  const auto plain = parse_tuned_csv("tuned_fmoe.csv", key + "\n" + row + "\n", {});
  ASSERT_TRUE(plain.ok()) << plain.message();
  ASSERT_EQ(plain->entries.size(), 1U);
  EXPECT_EQ(plain->entries[0].problem.moe.shared_experts, 0);
  EXPECT_THAT(write_tuned_csv(Operation::fused_moe, plain->entries, CsvSchema::aiter),
              ::testing::Not(HasSubstr("shared_experts")));
  const auto ours =
      parse_tuned_csv("tuned_fmoe.csv", key + ",shared_experts,routing\n" + row + ",1,zipf\n", {});
  ASSERT_TRUE(ours.ok()) << ours.message();
  ASSERT_EQ(ours->entries.size(), 1U);
  EXPECT_THAT(ours->diagnostics, IsEmpty());
  EXPECT_EQ(ours->entries[0].problem.moe.shared_experts, 1);
  EXPECT_EQ(ours->entries[0].routing, "zipf");
  EXPECT_FALSE(same_row(plain->entries[0], ours->entries[0]));
  const std::string written = write_tuned_csv(Operation::fused_moe, ours->entries, CsvSchema::aiter);
  const auto again = parse_tuned_csv("tuned_fmoe.csv", written, {});
  ASSERT_TRUE(again.ok() && again->entries.size() == 1) << written;
  EXPECT_TRUE(same_row(ours->entries[0], again->entries[0]));
  const auto biased = parse_tuned_csv("tuned_fmoe.csv", key + ",bias\n" + row + ",True\n", {});
  ASSERT_TRUE(biased.ok() && biased->entries.size() == 1) << biased.message();
  EXPECT_TRUE(biased->entries[0].problem.bias);
  EXPECT_FALSE(same_row(plain->entries[0], biased->entries[0]));
  EXPECT_TRUE(same_key(plain->entries[0].problem, biased->entries[0].problem));
  EXPECT_THAT(write_tuned_csv(Operation::fused_moe, biased->entries, CsvSchema::aiter), HasSubstr(",bias"));
  EXPECT_THAT(write_tuned_csv(Operation::fused_moe, plain->entries, CsvSchema::aiter),
              ::testing::Not(HasSubstr("bias")));
  const auto bad = parse_tuned_csv("tuned_fmoe.csv", key + ",shared_experts\n" + row + ",9\n", {});
  ASSERT_TRUE(bad.ok());
  EXPECT_THAT(
      bad->diagnostics,
      ElementsAre(HasSubstr("column shared_experts: value '9', expected a whole number from 0 to 8")));
}

/// Of int4 experts alone, whose groups are part of the key.
TEST(TunedCsvColumns, GroupsAndZeroPointsAreColumnsOfMixturesWhereARowHasThem) {
  const std::string key =
      "gfx,cu_num,token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,"
      "doweight_stage1,us,kernelName1";
  const auto row = [](const std::string& q_type) {
    return "sm_90,132,16,7168,256,384,8,ActivationType.Silu,torch.bfloat16,torch.bfloat16,torch.int4,"
           "QuantType." +
           q_type + ",1,0,80.5,simt_moe_r1_bm16";
  };
  const auto read = [&](const std::string& columns, const std::string& line) {
    auto file = parse_tuned_csv("tuned_fmoe.csv", key + columns + "\n" + line + "\n", {});
    EXPECT_TRUE(file.ok()) << file.message();
    EXPECT_THAT(file->diagnostics, IsEmpty());
    EXPECT_EQ(file->entries.size(), 1U);
    EXPECT_TRUE(check(file->entries[0].problem).ok()) << check(file->entries[0].problem).message();
    return file->entries[0];
  };
  const TunedEntry grouped = read(",group,zero_points", row("per_group") + ",32,True");
  EXPECT_EQ(grouped.problem.w_group, 32);
  EXPECT_TRUE(grouped.problem.zero_points);
  const std::string written = write_tuned_csv(Operation::fused_moe, {grouped}, CsvSchema::aiter);
  EXPECT_THAT(written, HasSubstr(",group,zero_points"));
  const auto again = parse_tuned_csv("tuned_fmoe.csv", written, {});
  ASSERT_TRUE(again.ok() && again->entries.size() == 1) << written;
  EXPECT_EQ(again->entries[0].problem, grouped.problem);
  EXPECT_EQ(read("", row("per_group")).problem.w_group, 128) << "what a table means that does not say";
  EXPECT_EQ(read(",group", row("per_group") + ",row").problem.w_group, 7168);
  EXPECT_FALSE(same_key(grouped.problem, read(",group", row("per_group") + ",32").problem));
  // AITER's word for groups of 32.
  const TunedEntry of_aiter = read("", row("per_1x32"));
  EXPECT_EQ(of_aiter.problem.moe.quant_type, QuantType::per_group);
  EXPECT_TRUE(same_key(of_aiter.problem, read(",group", row("per_group") + ",32").problem));
  const TunedEntry without = read("", row("per_Token"));
  EXPECT_EQ(without.problem.w_group, 0);
  EXPECT_THAT(write_tuned_csv(Operation::fused_moe, {without}, CsvSchema::aiter),
              ::testing::Not(HasSubstr("group")));
  const auto bad = parse_tuned_csv("tuned_fmoe.csv", key + ",group\n" + row("per_group") + ",many\n", {});
  ASSERT_TRUE(bad.ok());
  EXPECT_THAT(bad->diagnostics,
              ElementsAre(HasSubstr("column group: value 'many', expected 32, 64, 128 or row")));
}

}  // namespace
}  // namespace gemmtune
