// tune_gemm's result files as gemmtune writes them: kernels of its own, equal keys replaced, all else kept.
#include "formats/tune_gemm/gemm_result_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "formats/all_formats.h"
#include "formats/shapes/shape_list.h"
#include "scratch_folder.h"
#include "support/gemm_results.h"

namespace gemmtune {
namespace {

using ::testing::HasSubstr;

TunedEntry row_of(std::int64_t m, DataType type = DataType::f16) {
  TunedEntry entry;
  entry.problem.m = m;
  entry.problem.n = 64;
  entry.problem.k = 128;
  entry.problem.x_type = entry.problem.w_type = entry.problem.y_type = type;
  entry.libtype = "tiled";
  entry.kernel_name = "tiled_r1_mr8_sk2";
  entry.us = 8;
  return entry;
}

GemmResult result_for(std::int64_t m, DataType type = DataType::f16) {
  const TunedEntry entry = row_of(m, type);
  GemmResult result = gemm_result_of(entry, {{"mr", "8"}, {"sk", "2"}, {"isa", "avx2"}});
  add_problem_parameters(entry.problem, result);
  return result;
}

const std::string line_16 =
    "- {'M': 16, 'N': 64, 'K': 128, 'rowMajorA': 'T', 'rowMajorB': 'N', 'kernelName': 'tiled_r1_mr8_sk2', "
    "'SPLIT_K': 2, 'mr': 8, 'isa': 'avx2'} # TFLOPS: 0.03 time(us): 8.00\n";

using GemmResultFileTest = ScratchTest;

TEST_F(GemmResultFileTest, ARowHasItsKernelAndItsSettingsUnderTuneGemmsKeys) {
  const std::string file = path("r.yaml");
  ASSERT_TRUE(update_gemm_results(file, {result_for(16)}).ok());
  EXPECT_EQ(content("r.yaml"), line_16);
  const std::vector<std::pair<std::string, std::string>> gpu = {
      {"bm", "128"}, {"bn", "64"}, {"bk", "32"}, {"nw", "8"}, {"st", "3"}};
  const GemmResult tile = gemm_result_of(row_of(16), gpu);
  for (const auto& [key, value] : std::map<std::string, std::int64_t>{{"BLOCK_SIZE_M", 128},
                                                                      {"BLOCK_SIZE_N", 64},
                                                                      {"BLOCK_SIZE_K", 32},
                                                                      {"num_warps", 8},
                                                                      {"num_stages", 3}}) {
    ASSERT_NE(tile.find(key), nullptr) << key;
    EXPECT_EQ(tile.find(key)->integer(), value) << key;
  }
  TunedEntry of_mfma = row_of(16);
  of_mfma.libtype = "mfma";  // whose bk counts bytes, of two-byte elements here
  const GemmResult amd = gemm_result_of(
      of_mfma, {{"bm", "64"}, {"bk", "128"}, {"mi", "32"}, {"kp", "2"}, {"eu", "2"}, {"gm", "8"}});
  for (const auto& [key, value] : std::map<std::string, std::int64_t>{{"BLOCK_SIZE_M", 64},
                                                                      {"BLOCK_SIZE_K", 64},
                                                                      {"matrix_instr_nonkdim", 32},
                                                                      {"kpack", 2},
                                                                      {"waves_per_eu", 2},
                                                                      {"GROUP_SIZE_M", 8}}) {
    ASSERT_NE(amd.find(key), nullptr) << key;
    EXPECT_EQ(amd.find(key)->integer(), value) << key;
  }
  auto swapped = gpu;
  swapped.emplace_back("swap", "1");
  const GemmResult other = gemm_result_of(row_of(16), swapped);
  ASSERT_EQ(other.find("BLOCK_SIZE_M"), nullptr) << "bm is a block of N then";
  EXPECT_EQ(other.find("bm")->integer(), 128);
}

TEST_F(GemmResultFileTest, SmallRatesAreNotRoundedToNothing) {
  TunedEntry tiny = row_of(1);
  tiny.problem.n = tiny.problem.k = 1;
  const GemmResult result = gemm_result_of(tiny, {});
  EXPECT_THAT(write_gemm_results({result}, TuneGemmVersion::v3_4),
              HasSubstr("TFLOPS: 2.500e-07 time(us): 8.00"));
}

TEST_F(GemmResultFileTest, EqualKeysAreReplacedAndOtherLinesKept) {
  const std::string head = "# by hand\n\n- {'M': 1, 'N': 64, 'K': 128, 'BLOCK_SIZE_M': 16} # mine\n";
  const std::string old =
      "- {'M': 16, 'N': 64, 'K': 128, 'BLOCK_SIZE_M': 32} # TFLOPS: 0.01 time(us): 9.00\n";
  const std::string tail = "- {M: 17, N: 64, K: 'x'}\n# the end\n";
  const std::string file = write("r.yaml", head + old + tail);
  ASSERT_TRUE(update_gemm_results(file, {result_for(16), result_for(32)}).ok());
  std::string line_32 = line_16;
  line_32.replace(line_32.find("16"), 2, "32").replace(line_32.find("0.03"), 4, "0.07");
  EXPECT_EQ(content("r.yaml"), head + line_16 + tail + line_32);
  const std::string whole = content("r.yaml");
  ASSERT_TRUE(update_gemm_results(file, {result_for(16)}).ok());
  EXPECT_EQ(content("r.yaml"), whole) << "the same again changes nothing";
}

TEST_F(GemmResultFileTest, AMapOfSeveralLinesIsReplacedAsAWhole) {
  const std::string file =
      write("r.yaml", "- M: 16\n  N: 64\n  K: 128\n  BLOCK_SIZE_M: 32\n- {M: 1, N: 2, K: 3}");
  ASSERT_TRUE(update_gemm_results(file, {result_for(16)}).ok());
  EXPECT_EQ(content("r.yaml"), line_16 + "- {M: 1, N: 2, K: 3}\n");
}

TEST_F(GemmResultFileTest, AListOfSizesIsRefused) {
  const std::string sizes = "- {M: 16, N: 64, K: 128}\n- {M: 1, N: 2, K: 3, dtype_a: bf16}\n";
  const std::string file = write("sizes.yaml", sizes);
  for (const Status& status : {check_gemm_result_file(file), update_gemm_results(file, {result_for(16)})}) {
    EXPECT_THAT(status.message(), HasSubstr("sizes.yaml: is a list of sizes, expected results"));
  }
  EXPECT_EQ(content("sizes.yaml"), sizes);
}

TEST_F(GemmResultFileTest, TypesOrdersAndBiasBelongToTheKey) {
  const std::string file = path("r.yaml");
  GemmResult with_bias = result_for(16);
  with_bias.parameters.push_back({"bias_vector", "1", false});
  GemmResult other_order = result_for(16);
  other_order.b_order = Order::row_major;
  const std::vector<GemmResult> all = {result_for(16), result_for(16, DataType::bf16), with_bias,
                                       other_order};
  ASSERT_TRUE(update_gemm_results(file, all).ok());
  ASSERT_TRUE(update_gemm_results(file, all).ok());
  const auto read = read_gemm_results(file);
  ASSERT_TRUE(read.ok());
  ASSERT_EQ(read->results.size(), 4U);
  EXPECT_EQ(problem_of_result(read->results[0], {}, {}, {})->x_type, DataType::f16);
  EXPECT_EQ(problem_of_result(read->results[0], DataType::bf16, {}, {})->x_type, DataType::bf16);
  EXPECT_EQ(problem_of_result(read->results[1], DataType::f32, {}, {})->y_type, DataType::bf16) << "its own";
  EXPECT_TRUE(problem_of_result(read->results[2], {}, {}, {})->bias);
  EXPECT_EQ(problem_of_result(read->results[3], {}, {}, {})->w_order, Order::column_major);
  // As a list of sizes it says the same.
  const auto shapes = read_shape_list(file, {});
  ASSERT_TRUE(shapes.ok());
  ASSERT_EQ(shapes->rows.size(), 4U);
  EXPECT_EQ(shapes->rows[1].problem.x_type, DataType::bf16);
  EXPECT_TRUE(shapes->rows[2].problem.bias);
}

TEST_F(GemmResultFileTest, OfTwoResultsOfOneKeyTheLaterCounts) {
  GemmResult later = result_for(16);
  later.us = 4;
  ASSERT_TRUE(update_gemm_results(path("r.yaml"), {result_for(16), later}).ok());
  EXPECT_THAT(content("r.yaml"), HasSubstr("time(us): 4.00"));
  EXPECT_EQ(read_gemm_results(path("r.yaml"))->results.size(), 1U);
}

TEST_F(GemmResultFileTest, WhatWouldBeDamagedIsRefusedAndStays) {
  for (const std::string text :
       {"[{'M': 1, 'N': 2, 'K': 3}]\n", "  - {'M': 1, 'N': 2, 'K': 3}\n", "a: b\n"}) {
    const std::string file = write("r.yaml", text);
    const Status status = update_gemm_results(file, {result_for(16)});
    EXPECT_FALSE(status.ok()) << text;
    EXPECT_THAT(status.message(), HasSubstr("r.yaml"));
    EXPECT_EQ(content("r.yaml"), text);
    EXPECT_FALSE(check_gemm_result_file(file).ok()) << text;
  }
  EXPECT_TRUE(check_gemm_result_file(path("absent.yaml")).ok());
}

TEST_F(GemmResultFileTest, ConvertsToATunedTableAndBack) {
  ConversionOptions options;
  options.gfx = "x86-avx2";
  options.cu_num = 2;
  const Format& yaml = **find_format("tune_gemm_yaml");
  const Format& csv = **find_format("aiter");
  const std::string text = write_gemm_results({result_for(16, DataType::bf16)}, TuneGemmVersion::v3_4);
  auto rows = yaml.read("r.yaml", text, options);
  ASSERT_TRUE(rows.ok());
  EXPECT_TRUE(rows->has_types) << "the file says them";
  ASSERT_EQ(rows->entries.size(), 1U);
  EXPECT_EQ(rows->entries[0].libtype, "tiled");
  EXPECT_EQ(rows->entries[0].kernel_name, "tiled_r1_mr8_sk2");
  const auto table = write_rows(csv, *rows, options);
  ASSERT_TRUE(table.ok()) << table.message();
  EXPECT_THAT(*table,
              HasSubstr("x86-avx2,2,16,64,128,False,torch.bfloat16,torch.bfloat16,False,False,tiled,0,2,8.0,"
                        "tiled_r1_mr8_sk2,"));
  auto back = csv.read("bf16_tuned_gemm.csv", *table, options);
  ASSERT_TRUE(back.ok());
  const auto again = write_rows(yaml, *back, options);
  ASSERT_TRUE(again.ok());
  EXPECT_THAT(*again, HasSubstr("'kernelName': 'tiled_r1_mr8_sk2', 'SPLIT_K': 2}"));
  auto foreign = yaml.read("r.yaml", "- {'M': 1, 'N': 2, 'K': 3, 'kernelName': 'gemm'}\n", options);
  ASSERT_TRUE(foreign.ok());
  ASSERT_EQ(foreign->left_out.size(), 1U);
  EXPECT_THAT(foreign->left_out[0].why, HasSubstr("kernelName 'gemm': expected"));
}

}  // namespace
}  // namespace gemmtune
