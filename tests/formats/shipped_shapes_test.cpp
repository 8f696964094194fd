// The lists in shapes/ are what the program makes of the models, and are read as they were written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "formats/model_fixture.h"

namespace gemmtune {
namespace {

const std::string shapes = std::string(GEMMTUNE_SOURCE_DIR) + "/shapes/";

struct ShippedList {
  const char* file;
  const char* model;  // below tests/data/models
  std::int64_t tensor_parallel;
  OperationForm operation;
};

constexpr ShippedList of_models[] = {
    {"deepseek-v3_tp8_bf16_untuned_gemm.csv", "deepseek-v3", 8, Operation::a16w16},
    {"deepseek-v3_tp8_a8w8_blockscale_untuned_gemm.csv", "deepseek-v3", 8, Operation::a8w8_blockscale},
    {"deepseek-v3_tp8_untuned_fmoe.csv", "deepseek-v3", 8, Operation::fused_moe},
    {"llama-3.1-70b_tp8_bf16_untuned_gemm.csv", "llama-3.1-70b", 8, Operation::a16w16},
    {"llama-3.1-405b_tp8_bf16_untuned_gemm.csv", "llama-3.1-405b", 8, Operation::a16w16},
    {"qwen3-32b_tp1_bf16_untuned_gemm.csv", "qwen3-32b", 1, Operation::a16w16},
    {"qwen3-30b-a3b_tp1_bf16_untuned_gemm.csv", "qwen3-30b-a3b", 1, Operation::a16w16},
    {"qwen3-30b-a3b_tp1_untuned_fmoe.csv", "qwen3-30b-a3b", 1, Operation::fused_moe},
    {"qwen3-30b-a3b-fp8_tp1_a8w8_blockscale_untuned_gemm.csv", "qwen3-30b-a3b-fp8", 1,
     Operation::a8w8_blockscale},
    {"qwen3-30b-a3b-fp8_tp1_untuned_fmoe.csv", "qwen3-30b-a3b-fp8", 1, Operation::fused_moe},
    {"gpt-oss-120b_tp1_bf16_untuned_gemm.csv", "gpt-oss-120b", 1, Operation::a16w16},
};
// The other lists, each with a test of its own.
constexpr const char* of_nothing_else[] = {"block_scale_seed.csv", "gpt-oss-120b_tp1_a16w4_untuned_fmoe.csv",
                                           "llama-3.2-1b.csv", "llm_dense_192.csv"};

class ShippedShapes : public ModelTest {};

TEST_F(ShippedShapes, ListsAreWhatTheModelsGive) {
  for (const ShippedList& shipped : of_models) {
    SCOPED_TRACE(shipped.file);
    ModelShapeOptions options;
    options.tokens = {1, 2, 4, 8, 16, 32, 64, 128, 512, 2048, 8192};
    options.tensor_parallel = shipped.tensor_parallel;
    options.operation = shipped.operation;
    options.layer_names = true;
    const auto made = known(shipped.model, options);
    ASSERT_TRUE(made.ok()) << made.message();
    const auto content = read_file(shapes + shipped.file);
    ASSERT_TRUE(content.ok()) << content.message();
    EXPECT_EQ(write_shape_list(made->rows), *content);

    const auto read = read_shape_list(shapes + shipped.file, {});
    ASSERT_TRUE(read.ok()) << read.message();
    EXPECT_THAT(read->diagnostics, ::testing::IsEmpty());
    ASSERT_EQ(read->rows.size(), made->rows.size());
    for (std::size_t row = 0; row < made->rows.size(); ++row) {
      EXPECT_EQ(print(read->rows[row].problem), print(made->rows[row].problem));
      EXPECT_EQ(read->rows[row].calls, made->rows[row].calls);
      EXPECT_EQ(read->rows[row].layer, made->rows[row].layer);
    }
  }
}

TEST_F(ShippedShapes, ExpertsOfGptOssOnHopperHaveWideTokensAndNoPadding) {
  ModelShapeOptions options;
  options.tokens = {1, 2, 4, 8, 16, 32, 64, 128, 512, 2048, 8192};
  options.operation = OperationForm(Operation::fused_moe);
  options.layer_names = true;
  auto made = known("gpt-oss-120b", options);
  ASSERT_TRUE(made.ok()) << made.message();
  for (ShapeRow& row : made->rows) {
    row.problem.n = row.problem.k = 2880;  // AITER pads them to 3072
    row.problem.x_type = DataType::bf16;   // AITER's are MXFP4
  }
  EXPECT_EQ(write_shape_list(made->rows), *read_file(shapes + "gpt-oss-120b_tp1_a16w4_untuned_fmoe.csv"));
}

TEST_F(ShippedShapes, The192DenseShapesAreSixteenLayersOfTwelveM) {
  const auto list = read_shape_list(shapes + "llm_dense_192.csv", {});
  ASSERT_TRUE(list.ok()) << list.message();
  EXPECT_THAT(list->diagnostics, ::testing::IsEmpty());
  EXPECT_EQ(list->rows.size(), 192U);
  std::set<std::string> layers;
  std::set<std::int64_t> tokens;
  for (const ShapeRow& row : list->rows) {
    EXPECT_EQ(row.problem.x_type, DataType::bf16);
    layers.insert(row.layer);
    tokens.insert(row.problem.m);
  }
  EXPECT_EQ(layers.size(), 16U);
  EXPECT_EQ(tokens.size(), 12U);
  EXPECT_EQ(write_shape_list(list->rows), *read_file(shapes + "llm_dense_192.csv"));
}

TEST_F(ShippedShapes, EveryListIsTested) {
  std::set<std::string> tested(std::begin(of_nothing_else), std::end(of_nothing_else));
  for (const ShippedList& shipped : of_models) tested.insert(shipped.file);
  std::set<std::string> there;
  for (const auto& entry : std::filesystem::directory_iterator(shapes)) there.insert(entry.path().filename());
  EXPECT_EQ(there, tested);
}

}  // namespace
}  // namespace gemmtune
