// Files of other programs, one of each writer: what is read as its writer means it, and what is refused by name.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "base/file.h"
#include "formats/aic/aic_csv.h"
#include "formats/aiter/tuned_csv.h"
#include "formats/all_formats.h"
#include "formats/shapes/call_log.h"
#include "formats/triton/triton_json.h"
#include "tuned/checks.h"

namespace gemmtune::foreign_files_test {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::string data(const std::string& name) {
  auto content = read_file(std::string(GEMMTUNE_TEST_DATA) + "/" + name);
  EXPECT_TRUE(content.ok()) << content.message();
  return content.ok() ? std::move(*content) : std::string();
}

std::vector<std::string> problems_of(const ShapeList& list) {
  std::vector<std::string> texts;
  for (const ShapeRow& row : list.rows) texts.push_back(fmt::format("{} x{}", print(row.problem), row.calls));
  return texts;
}

std::string problem(const std::string& text) { return print(*parse_problem(text)); }

TEST(ForeignYaml, ACallOfABenchIsReadColumnMajorWithItsTypes) {
  const std::string text = data("bench/hipblaslt_bench.yaml");
  EXPECT_EQ(detect_format("calls.yaml", text).name, "rocblas_yaml");
  const auto list = parse_shape_list("calls.yaml", text, {});
  ASSERT_TRUE(list.ok()) << list.message();
  EXPECT_THAT(problems_of(*list), ElementsAre(problem("a16w16 m=3 n=64 k=128 x=bf16 w=bf16 y=bf16") + " x1",
                                              problem("a16w16 m=3 n=64 k=128 x=f16 w=f16 y=f16") + " x1"));
  EXPECT_THAT(list->diagnostics, ElementsAre(HasSubstr("calls.yaml:3: batch_count 8")));
  ASSERT_THAT(list->ignored, SizeIs(1));
  EXPECT_EQ(list->ignored[0].count, 1U) << "lda 256";
}

TEST(ForeignYaml, TuneGemmsFilesAreNoCalls) {
  EXPECT_EQ(
      detect_format("r.yaml", "- {'M': 16, 'N': 64, 'K': 128, 'rowMajorA': 'T', 'rowMajorB': 'N'}\n").name,
      "tune_gemm_yaml");
  auto rows = read_bench_rows("calls.yaml",
                              "- {function: matmul, M: 64, N: 3, K: 128, transA: T, a_type: bf16_r, "
                              "b_type: bf16_r, c_type: bf16_r}\n",
                              {});
  ASSERT_TRUE(rows.ok()) << rows.message();
  const auto table = write_rows(**find_format("aiter"), *rows, {});
  EXPECT_FALSE(table.ok() && table->find("triton") != std::string::npos) << "no config of Triton";
}

TEST(ForeignCsv, CutlassProfilerIsNamedAndItsGemmsAreShapes) {
  const std::string text = data("bench/cutlass.csv");
  EXPECT_EQ(detect_format("cutlass.csv", text).name, "cutlass_csv");
  EXPECT_THAT(require_tuned_format("cutlass.csv", text).message(),
              HasSubstr("is cutlass_csv (what CUTLASS's profiler"));
  const auto list = parse_shape_list("cutlass.csv", text, {});
  ASSERT_TRUE(list.ok()) << list.message();
  EXPECT_THAT(problems_of(*list),
              ElementsAre(problem("a16w16 m=16 n=1536 k=7168 x=bf16 w=bf16 y=bf16") + " x1",
                          problem("a16w16 m=16 n=1536 k=7168 x=f16 w=f16 y=f16") + " x1"));
  EXPECT_THAT(list->diagnostics, ElementsAre(HasSubstr("cutlass.csv:5: batch_count 4")));
}

TEST(ForeignCsv, AProfileOfMixturesIsNoTunedTable) {
  const std::string columns =
      "token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,doweight_"
      "stage1,";
  const std::string key =
      "16,4096,256,8,2,ActivationType.Silu,torch.bfloat16,torch.bfloat16,torch.bfloat16,"
      "QuantType.No,1,0,";
  const auto profile = parse_tuned_csv(
      "profile_fmoe.csv", "cu_num," + columns + "stage,block_m,us,kernelName1\n80," + key + "stage1,32,5,k\n",
      {});
  EXPECT_THAT(profile.message(), HasSubstr("is a profile of AITER's MoE tuner (column stage"));
  const auto lone = parse_tuned_csv("tuned_fmoe.csv",
                                    "cu_num," + columns +
                                        "block_m,ksplit,us1,kernelName1,err1,us2,kernelName2,err2,us\n80," +
                                        key + "32,0,0,,0,3,moe_stage2,0,3\n",
                                    {});
  ASSERT_TRUE(lone.ok()) << lone.message();
  EXPECT_THAT(lone->entries, IsEmpty()) << "a stage 2 alone must not win";
  EXPECT_THAT(lone->diagnostics, ElementsAre(HasSubstr("a row of stage 2 alone is of a profile")));
}

TEST(ForeignCsv, ParquetIsRefusedWithItsConversion) {
  const auto parsed = parse_aic_csv("gemm_perf.parquet", std::string("PAR1\0\0x", 7));
  EXPECT_THAT(parsed.message(), HasSubstr("is parquet, expected CSV; convert it first: python3 -c"));
}

TEST(ForeignJson, OtherProgramsFilesAreNamed) {
  const auto why = [](const std::string& text) { return parse_triton_json("f.json", text).message(); };
  const std::string open =
      R"({"device_name": "A", "kernel_name": "gemm", "tune_params_keys": ["x"], "cache": {"1": {)";
  EXPECT_THAT(why(open), HasSubstr("is a cache of Kernel Tuner that was not closed"));
  EXPECT_THAT(why(R"({"kernel_name": "gemm", "tune_params_keys": ["x"], "cache": {"1": {"time": 1}}})"),
              HasSubstr("is a cache of Kernel Tuner, expected"));
  EXPECT_THAT(why(R"([{"m": 16, "n": 64, "k": 128, "layout": "tnn", "dtype_a": "f16"}])"),
              HasSubstr("is a list of nvMatmulHeuristics"));
  EXPECT_THAT(why(data("logs/trace.json")), HasSubstr("--from-log"));
}

TEST(CallLog, EveryWritersLineIsAShape) {
  CallLogOptions options;
  options.tokens = {1, 16};
  const auto list = parse_call_log("server.log", data("logs/server.log"), options);
  ASSERT_TRUE(list.ok()) << list.message();
  const std::string bf16 = "x=bf16 w=bf16 y=bf16";
  std::vector<std::string> texts = problems_of(*list);
  EXPECT_THAT(texts, SizeIs(11));
  EXPECT_THAT(texts, Contains(problem("a16w16 m=64 n=7168 k=2048 " + bf16) + " x2"));
  EXPECT_THAT(texts, Contains(HasSubstr("a8w8_blockscale m=16 n=2112 k=7168")));
  EXPECT_THAT(texts, Contains(HasSubstr("a8w8 m=1 n=512 k=128")));
  EXPECT_THAT(texts, Contains(HasSubstr("batched_a8w8 m=16 n=64 k=128")));
  EXPECT_THAT(texts, Contains(HasSubstr("fused_moe m=16 n=256 k=7168")));
  EXPECT_THAT(texts, Contains(HasSubstr("a8w8_blockscale m=1 n=1536 k=7168")));
  EXPECT_THAT(texts, Contains(HasSubstr("a8w8_blockscale m=16 n=1536 k=7168")));
  EXPECT_THAT(texts, Contains(problem("a16w16 m=16 n=1536 k=7168 " + bf16) + " x1"));
  EXPECT_THAT(texts, Contains(problem("a16w16 m=5 n=48 k=7168 " + bf16 + " bias=1") + " x1"));
  EXPECT_THAT(list->diagnostics,
              ElementsAre(HasSubstr("server.log:9: E = 8, N = 64: the line does not say model_dim")));
  const auto without = parse_call_log("server.log", data("logs/server.log"), {});
  ASSERT_TRUE(without.ok());
  EXPECT_THAT(without->diagnostics,
              Contains(HasSubstr("N = 1536, K = 7168: the line does not say M; give --nsets")));
}

TEST(CallLog, OrdersOfBenchAndOnednn) {
  const auto list = parse_call_log("server.log", data("logs/server.log"), {});
  ASSERT_TRUE(list.ok());
  for (const ShapeRow& row : list->rows) {
    if (row.problem.n == 64 && row.problem.m == 3) {
      EXPECT_EQ(row.problem.w_order, Order::column_major);
      EXPECT_EQ(row.problem.x_order, Order::column_major);
      EXPECT_EQ(row.problem.x_type, DataType::f16);
    }
    if (row.problem.n == 24) {
      EXPECT_EQ(row.problem.w_order, Order::column_major) << "wei ab";
    }
    if (row.problem.n == 48) {
      EXPECT_EQ(row.problem.w_order, Order::row_major) << "wei ba";
    }
  }
}

TEST(CallLog, ATraceOfPytorchsProfiler) {
  const auto list = parse_call_log("trace.json", data("logs/trace.json"), {});
  ASSERT_TRUE(list.ok()) << list.message();
  EXPECT_THAT(problems_of(*list),
              ElementsAre(problem("a16w16 m=16 n=64 k=128 x=bf16 w=bf16 y=bf16") + " x2",
                          problem("a16w16 m=3 n=64 k=128 x=f16 w=f16 y=f16 bias=1") + " x1"));
  EXPECT_THAT(
      parse_call_log("t.json", R"({"traceEvents": [{"name": "aten::mm", "args": {}}]})", {}).message(),
      HasSubstr("record_shapes=True"));
  EXPECT_THAT(parse_call_log("t.log", "nothing\n", {}).message(), HasSubstr("no line names a GEMM"));
}

TEST(Aic, ImpossibleAndDominatedRowsAreFound) {
  const std::string text = data("aic/gemm_perf.csv");
  EXPECT_EQ(detect_format("gemm_perf.csv", text).name, "aic");
  const auto file = parse_aic_csv("gemm_perf.csv", text);
  ASSERT_TRUE(file.ok()) << file.message();
  ASSERT_THAT(file->entries, SizeIs(5));
  EXPECT_EQ(file->entries[0].us, 50);
  EXPECT_EQ(file->entries[0].gfx, "sm_90");
  EXPECT_EQ(file->entries[4].unknown_types, "gemm_dtype=nvfp4");
  EXPECT_THAT(file->diagnostics, ElementsAre(HasSubstr("gemm_perf.csv:7: column m: value '0'")));
  std::vector<const TunedEntry*> rows;
  for (const TunedEntry& entry : file->entries) rows.push_back(&entry);
  const std::vector<std::string> paths{"gemm_perf.csv"};
  std::vector<std::string> found;
  for (const Finding& finding : check_rows(rows, paths, {}))
    found.push_back(fmt::format("{}:{}", finding.line, to_string(finding.kind)));
  EXPECT_THAT(found, ElementsAre("4:impossible_rate", "2:dominated"));
}

TEST(Aic, MixturesHaveTheShardsSizes) {
  const auto file = parse_aic_csv("moe_perf.csv", data("aic/moe_perf.csv"));
  ASSERT_TRUE(file.ok()) << file.message();
  ASSERT_THAT(file->entries, SizeIs(2));
  const Problem& one = file->entries[0].problem;
  EXPECT_EQ(one.n, 256) << "2048 of 8 shards";
  EXPECT_EQ(one.k, 7168);
  EXPECT_EQ(one.moe.experts, 256);
  EXPECT_EQ(one.moe.quant_type, QuantType::per_1x128);
}

TEST(Aic, ARowOfSeveralRanksIsRatedByTheFirstRanksPart) {
  const auto file = parse_aic_csv("moe_perf.csv", data("aic/moe_ranks_perf.csv"));
  ASSERT_TRUE(file.ok()) << file.message();
  std::vector<const TunedEntry*> rows;
  for (const TunedEntry& entry : file->entries) rows.push_back(&entry);
  const std::vector<std::string> paths{"moe_perf.csv"};
  std::vector<std::string> found;
  for (const Finding& finding : check_rows(rows, paths, {}))
    found.push_back(fmt::format("{}:{} {}", finding.line, to_string(finding.kind), finding.text));
  // An eighth of 65536 tokens' 8 choices, two products of 7168 x 2048 each: 3848 GFLOP, which an H200 takes 1945 us for.
  EXPECT_THAT(found, ElementsAre(HasSubstr("2:impossible_rate 1900"),
                                 HasSubstr("4:impossible_rate 1900 µs, but the device")));
  EXPECT_THAT(found[0], HasSubstr("8.33 % of the products"));
  using ::testing::Pair;
  EXPECT_THAT(
      file->unrated,
      ElementsAre(
          Pair("moe_dtype=int4_wo: no peak of it is known", 1U),
          Pair(HasSubstr("wideep_moe_eplb of distribution power_law_1.2_eplb with moe_ep_size > 1"), 1U)));
}

/// The rule of the collectors, choice by choice.
TEST(Aic, TheFirstRanksPartOfEvenTokens) {
  const std::string columns =
      "op_name,device,moe_dtype,num_tokens,hidden_size,inter_size,topk,num_experts,moe_tp_size,moe_ep_size,"
      "distribution,latency\n";
  for (const auto& [tokens, topk, experts, ranks] :
       std::vector<std::array<std::int64_t, 4>>{{1, 8, 256, 8},
                                                {5, 8, 256, 4},
                                                {31, 8, 256, 8},
                                                {32, 8, 256, 8},
                                                {33, 8, 256, 2},
                                                {1000, 6, 160, 8},
                                                {4097, 4, 128, 32},
                                                {300, 1, 16, 16}}) {
    const std::int64_t stride = (experts + topk - 1) / topk;
    std::int64_t choices = 0;
    for (std::int64_t token = 0; token < tokens; ++token) {
      for (std::int64_t place = 0; place < topk; ++place) {
        const std::int64_t first = tokens >= stride ? token : token * stride / tokens;
        choices += (first + place * stride) % experts < experts / ranks ? 1 : 0;
      }
    }
    const auto file = parse_aic_csv(
        "moe_perf.csv", columns + fmt::format("moe,NVIDIA H200,fp8,{},64,64,{},{},1,{},balanced,1\n", tokens,
                                              topk, experts, ranks));
    ASSERT_TRUE(file.ok()) << file.message();
    ASSERT_THAT(file->entries, SizeIs(1));
    EXPECT_FLOAT_EQ(file->entries[0].rated_share,
                    0.6666F * static_cast<float>(choices) / static_cast<float>(tokens * topk))
        << tokens << " tokens";
  }
}

/// Tables of wide expert parallelism have columns of their own.
TEST(Aic, RowsThatDifferInAFurtherColumnAreNotDuplicates) {
  const std::string columns =
      "op_name,device,moe_dtype,num_tokens,hidden_size,inter_size,topk,num_experts,num_slots,moe_tp_size,"
      "moe_ep_size,distribution,latency\n";
  const auto file = parse_aic_csv("wideep_moe_perf.csv",
                                  columns +
                                      "wideep_moe,NVIDIA H200,fp8,16,64,64,8,256,256,1,8,power_law_1.2,1\n"
                                      "wideep_moe,NVIDIA H200,fp8,16,64,64,8,256,288,1,8,power_law_1.2,2\n");
  ASSERT_TRUE(file.ok()) << file.message();
  ASSERT_THAT(file->entries, SizeIs(2));
  const std::vector<const TunedEntry*> rows{&file->entries[0], &file->entries[1]};
  const std::vector<std::string> paths{"wideep_moe_perf.csv"};
  EXPECT_THAT(check_rows(rows, paths, {}), IsEmpty());
}

TEST(Aic, ATableOfOursIsWritten) {
  auto rows = read_aiter_rows(
      "bf16_tuned_gemm.csv",
      "gfx,cu_num,M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,libtype,solidx,splitK,us,kernelName\n"
      "sm_90,132,16,1536,7168,False,torch.bfloat16,torch.bfloat16,False,False,skinny,0,0,8.5,skinny_r1\n"
      "sm_90,132,32,1536,7168,True,torch.bfloat16,torch.bfloat16,False,False,skinny,0,0,8.5,skinny_r1\n",
      {});
  ASSERT_TRUE(rows.ok()) << rows.message();
  const auto text = write_rows(**find_format("aic"), *rows, {});
  ASSERT_TRUE(text.ok()) << text.message();
  EXPECT_EQ(*text,
            "framework,version,device,op_name,kernel_source,gemm_dtype,m,n,k,latency\n"
            "GEMMTUNE,,sm_90,gemm,skinny_r1,bfloat16,16,1536,7168,0.0085\n");
  ASSERT_FALSE(rows->left_out.empty());
  EXPECT_THAT(rows->left_out[0].why, HasSubstr("a bias"));
}

}  // namespace
}  // namespace gemmtune::foreign_files_test
