// PyTorch TunableOp's files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "formats/all_formats.h"
#include "formats/shapes/shape_list.h"
#include "formats/tunableop/tunableop_csv.h"

namespace gemmtune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const std::string cublaslt_solution =
    "Gemm_Cublaslt_id_66_tile_10_stages_35_splitk_5_red_2_swizzle_0_custom_1_inner_0_cluster_4";
const std::string cublaslt_kernel =
    "cublaslt_r1_algo66_tile10_stages35_sk5_red2_swizzle0_custom1_inner0_cluster4";

std::string read_text(const std::string& path) {
  auto content = read_file(path);
  EXPECT_TRUE(content.ok()) << content.message();
  return content.ok() ? std::move(*content) : std::string();
}

TunableopFile read_results(const std::string& text) {
  auto file = parse_tunableop_csv("t.csv", text);
  EXPECT_TRUE(file.ok()) << file.message();
  return file.ok() ? std::move(*file) : TunableopFile();
}

TEST(Tunableop, ColumnMajorSizesAreOurs) {
  // F.linear of x [2, 1024] and w [8192, 1024].
  const auto file = read_results(
      "GemmTunableOp_BFloat16_TN,tn_8192_2_1024_ld_1024_1024_8192,Gemm_Hipblaslt_1219,0.0171694\n");
  ASSERT_EQ(file.rows.size(), 1U);
  const TunableopRow& row = file.rows[0];
  EXPECT_EQ(print(row.problem), print(*parse_problem("a16w16 m=2 n=8192 k=1024 x=bf16 w=bf16 y=bf16")));
  EXPECT_EQ(row.solution, "Gemm_Hipblaslt_1219");
  EXPECT_DOUBLE_EQ(row.us.value(), 17.1694);
}

TEST(Tunableop, OrdersBiasAndScales) {
  const auto file = read_results(
      "GemmAndBiasTunableOp_Half_NN,nn_64_3_128_ld_64_128_64,Default,0.1\n"
      "GemmTunableOp_float_TT,tt_64_3_128_ld_128_3_64,Default,0.1\n"
      "ScaledGemmTunableOp_Float8_e4m3fn_Float8_e4m3fn_BFloat16_TN,tn_64_16_128_ld_128_128_64_rw_0_bias_"
      "BFloat16,Default,1\n");
  ASSERT_EQ(file.rows.size(), 3U) << testing::PrintToString(file.diagnostics);
  EXPECT_TRUE(file.rows[0].problem.bias);
  EXPECT_EQ(file.rows[0].problem.w_order, Order::column_major);
  EXPECT_EQ(file.rows[1].problem.x_order, Order::column_major);
  EXPECT_TRUE(file.rows[2].problem.scale_ab && file.rows[2].problem.bias);
  EXPECT_EQ(file.rows[2].problem.y_type, DataType::bf16);
}

TEST(Tunableop, WhatHasNoRowIsNamed) {
  const auto file = read_results(
      "GemmStridedBatchedTunableOp_float_NN,nn_1_2_3_B_4_ld_1_2_3,Default,0.1\n"
      "GemmTunableOp_tf32_TN,tn_1_2_3_ld_3_3_1,Default,0.1\n"
      "GemmTunableOp_float_TN,tn_1_2_ld_3_3_1,Default,0.1\n"
      "GemmTunableOp_float_TN,tn_1_2_3_ld_3_3_1,Default,fast\n"
      "ScaledGemmTunableOp_Float8_e4m3fn_Float8_e4m3fn_Half_TN,tn_64_16_128_ld_128_128_64_rw_1_bias_None,"
      "Default,1\n");
  EXPECT_THAT(file.rows, IsEmpty());
  EXPECT_THAT(
      file.diagnostics,
      ElementsAre(HasSubstr("t.csv:1: GemmStridedBatchedTunableOp: an operation that has no row here"),
                  HasSubstr("t.csv:2: tf32: no type known here"),
                  HasSubstr("t.csv:3: tn_1_2_ld_3_3_1: expected"), HasSubstr("t.csv:4: time 'fast'"),
                  HasSubstr("t.csv:5: ")));
  const auto strided = read_results("GemmTunableOp_float_TN,tn_4_2_3_ld_8_6_4,Default,0.1\n");
  EXPECT_EQ(strided.rows.at(0).strides, "lda = 8, ldb = 6");
}

TEST(Tunableop, AnUntunedLineHasTwoFields) {
  const auto list =
      parse_shape_list("tunableop_untuned0.csv",
                       read_text(std::string(GEMMTUNE_TEST_DATA) + "/tunableop/tunableop_untuned0.csv"), {});
  ASSERT_TRUE(list.ok()) << list.message();
  ASSERT_EQ(list->rows.size(), 2U);
  EXPECT_EQ(print(list->rows[0].problem),
            print(*parse_problem("a16w16 m=16 n=1536 k=7168 x=bf16 w=bf16 y=bf16")));
  EXPECT_TRUE(list->rows[1].problem.bias);
  EXPECT_THAT(list->diagnostics, IsEmpty());
}

TEST(Tunableop, ResultsBeforePytorch26HaveNoLeadingDimensions) {
  const auto file =
      read_results(read_text(std::string(GEMMTUNE_TEST_DATA) + "/tunableop/pytorch_2_5_results0.csv"));
  EXPECT_THAT(file.diagnostics, IsEmpty());
  ASSERT_EQ(file.rows.size(), 3U);
  EXPECT_EQ(print(file.rows[0].problem),
            print(*parse_problem("a16w16 m=64 n=32000 k=8192 x=f16 w=f16 y=f16")));
  EXPECT_EQ(file.rows[0].solution, "Gemm_Hipblaslt_TN_12683");
  EXPECT_EQ(index_of_solution("Gemm_Hipblaslt_TN_12683"), 12683);
  EXPECT_EQ(file.rows[1].problem.n, 25088);
  EXPECT_EQ(file.rows[1].problem.w_order, Order::column_major);
  EXPECT_EQ(library_of_solution(file.rows[1].solution), "rocblas") << "1219 alone";
  EXPECT_FALSE(file.rows[2].us) << "PyTorch reads a result without a time";
}

/// The rows of a file, and what its conversion leaves out.
std::pair<std::string, ConversionRows> converted(const std::string& text, std::string_view to) {
  ConversionOptions device;
  device.gfx = "gfx942";
  device.cu_num = 304;
  auto rows = read_tunableop_rows("t.csv", text, device);
  EXPECT_TRUE(rows.ok()) << rows.message();
  auto written = write_rows(**find_format(to), *rows, device);
  EXPECT_TRUE(written.ok()) << written.message();
  return {*written, std::move(*rows)};
}

TEST(Tunableop, TheIndexOfAHipblasltSolutionGoesIntoTheTarget) {
  const std::string row =
      "GemmTunableOp_BFloat16_TN,tn_8192_32_4096_ld_4096_4096_8192,Gemm_Hipblaslt_617849,0.4\n";
  const auto aiter = converted(row, "aiter");
  EXPECT_THAT(aiter.first, HasSubstr(",hipblaslt,617849,"));
  EXPECT_THAT(aiter.second.left_out, IsEmpty());
  EXPECT_THAT(converted(row, "hipblaslt_csv").first, HasSubstr(",617849,Gemm_Hipblaslt_617849"));
}

TEST(Tunableop, ASolutionThatTheTargetCannotRunIsLeftOut) {
  for (const std::string solution : {"Gemm_Rocblas_5", "1219", "Gemm_Hipblaslt_none"}) {
    const auto aiter = converted(
        "GemmTunableOp_BFloat16_TN,tn_8192_32_4096_ld_4096_4096_8192," + solution + ",0.4\n", "aiter");
    EXPECT_THAT(aiter.first, Not(HasSubstr(solution))) << solution;
    ASSERT_EQ(aiter.second.left_out.size(), 1U) << solution;
  }
}

TEST(Tunableop, OfTwoRowsOfAKeyTheFasterGoesIntoATable) {
  const auto [text, rows] = converted(
      "GemmTunableOp_BFloat16_TN,tn_8192_32_4096_ld_4096_4096_8192,Gemm_Hipblaslt_5,0.5\n"
      "GemmTunableOp_BFloat16_TN,tn_8192_32_4096_ld_4096_4096_8192,Gemm_Hipblaslt_617849,0.4\n",
      "aiter");
  EXPECT_THAT(text, HasSubstr("617849"));
  EXPECT_THAT(text, Not(HasSubstr("Gemm_Hipblaslt_5,")));
  ASSERT_EQ(rows.left_out.size(), 1U);
  EXPECT_EQ(rows.left_out[0].why, "500 µs, but 400 µs for the same key at line 2");
}

TEST(Tunableop, StridedOperandsKeepTheirKeyOrAreLeftOut) {
  const std::string row = "GemmTunableOp_BFloat16_TN,tn_1024_1_128_ld_128_256_1024,Gemm_Hipblaslt_7,0.4\n";
  const auto same = converted(row, "tunableop");
  EXPECT_EQ(same.first, row);
  EXPECT_THAT(same.second.left_out, IsEmpty());
  const auto aiter = converted(row, "aiter");
  EXPECT_THAT(aiter.first, Not(HasSubstr("Gemm_Hipblaslt_7")));
  ASSERT_EQ(aiter.second.left_out.size(), 1U);
  EXPECT_EQ(aiter.second.left_out[0].why, "ldb = 256: aiter has no place for operands that are not dense");
}

TEST(Tunableop, AFileOfOldPytorchStaysAsItIs) {
  const std::string text = read_text(std::string(GEMMTUNE_TEST_DATA) + "/tunableop/pytorch_2_5_results0.csv");
  EXPECT_EQ(converted(text, "tunableop").first, text);
}

TEST(Tunableop, NamesOfCublasltKernels) {
  EXPECT_EQ(cublaslt_kernel_of(cublaslt_solution), cublaslt_kernel);
  EXPECT_EQ(cublaslt_solution_of(cublaslt_kernel), cublaslt_solution);
  EXPECT_EQ(cublaslt_solution_of(cublaslt_kernel + "_fast1"), "");
  EXPECT_EQ(cublaslt_kernel_of("Gemm_Hipblaslt_1219"), "");
  EXPECT_EQ(cublaslt_solution_of("skinny_r1_bm64"), "");
}

TEST(Tunableop, ATableOfCublasltRowsAndBack) {
  const std::string table =
      "gfx,cu_num,M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,libtype,solidx,splitK,us,kernelName\n"
      "sm_90,132,1,1280,8192,False,torch.bfloat16,torch.bfloat16,False,False,cublaslt,0,0,9.7153," +
      cublaslt_kernel +
      "\n"
      "sm_90,132,2,1280,8192,False,torch.bfloat16,torch.bfloat16,False,False,skinny,0,0,8,skinny_r1\n";
  auto rows = read_aiter_rows("bf16_tuned_gemm.csv", table, {});
  ASSERT_TRUE(rows.ok()) << rows.message();
  const auto text = write_rows(**find_format("tunableop"), *rows, {});
  ASSERT_TRUE(text.ok()) << text.message();
  EXPECT_EQ(*text, "GemmTunableOp_BFloat16_TN,tn_1280_1_8192_ld_8192_8192_1280," + cublaslt_solution +
                       ",0.0097153\n");
  ASSERT_FALSE(rows->left_out.empty());
  EXPECT_THAT(rows->left_out[0].why,
              HasSubstr("kernel 'skinny_r1' of 'skinny', which PyTorch does not have"));
  ConversionOptions device;
  device.gfx = "sm_90";
  device.cu_num = 132;
  auto back = read_tunableop_rows("t.csv", *text, device);
  ASSERT_TRUE(back.ok()) << back.message();
  EXPECT_EQ(back->entries.at(0).kernel_name, cublaslt_kernel);
  EXPECT_EQ(back->entries.at(0).libtype, "cublaslt");
}

TEST(Tunableop, RowsThatNeedMoreWorkspaceThanPyTorchHasAreLeftOut) {
  const std::string names =
      "gfx,cu_num,M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,libtype,solidx,splitK,us,kernelName\n";
  const auto written = [&](int m, const std::string& kernel) {
    auto rows = read_aiter_rows(
        "bf16_tuned_gemm.csv",
        names + "sm_90,132," + std::to_string(m) +
            ",4096,8192,False,torch.bfloat16,torch.bfloat16,False,False,cublaslt,0,0,9," + kernel + "\n",
        {});
    EXPECT_TRUE(rows.ok()) << rows.message();
    EXPECT_TRUE(write_rows(**find_format("tunableop"), *rows, {}).ok());
    return rows->gone.empty() || !rows->gone[0] ? std::string() : rows->left_out[0].why;
  };
  const std::string kernel = "cublaslt_r1_algo66_tile10_stages35_sk4_red2_swizzle0_custom1_inner0_cluster4";
  EXPECT_EQ(written(512, kernel), "") << "512 x 4096 partial sums of 4 bytes, 4 splits: 32 MiB";
  EXPECT_EQ(written(513, kernel), "its partial sums need 32 MiB of workspace, PyTorch gives cuBLASLt 32");
  EXPECT_EQ(written(2048, kernel), "its partial sums need 128 MiB of workspace, PyTorch gives cuBLASLt 32");
  std::string other = kernel;
  other.replace(other.find("red2"), 4, "red4");
  EXPECT_EQ(written(1024, other), "") << "of bf16";
  other.replace(other.find("red4"), 4, "red1");
  EXPECT_EQ(written(8192, other), "") << "in place";
}

TEST(Tunableop, CallsThatWaitAreShapes) {
  const auto list = parse_shape_list(
      "tunableop_untuned0.csv",
      "GemmTunableOp_BFloat16_TN,tn_64_3_128_ld_128_128_64,- { function: matmul, M: 64, N: 3, K: 128 }\n"
      "GemmTunableOp_BFloat16_TN,tn_64_3_128_ld_128_128_64,- { function: matmul, M: 64, N: 3, K: 128 }\n",
      {});
  ASSERT_TRUE(list.ok()) << list.message();
  ASSERT_EQ(list->rows.size(), 1U);
  EXPECT_EQ(list->rows[0].problem.m, 3);
  EXPECT_EQ(list->rows[0].problem.n, 64);
}

}  // namespace
}  // namespace gemmtune
