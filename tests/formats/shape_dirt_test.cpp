// The dirt of untuned files that AITER's users have, on small files of our own making, and the real ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>

#include "formats/models/model_config.h"
#include "formats/shapes/shape_list.h"
#include "scratch_folder.h"
#include "support/fixtures.h"

namespace gemmtune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::string untuned_data(const std::string& name) {
  return std::string(GEMMTUNE_TEST_DATA) + "/untuned/" + name;
}

ShapeList read_data(const std::string& name, const ShapeListOptions& options = {}) {
  auto list = read_shape_list(untuned_data(name), options);
  EXPECT_TRUE(list.ok()) << list.message();
  return list.ok() ? std::move(*list) : ShapeList();
}

TEST(ShapeDirt, Fp32OutputPackedWeightsAndScalesAreProblems) {
  const ShapeList list = read_data("bf16_untuned_gemm.csv");
  EXPECT_THAT(list.diagnostics, IsEmpty());
  ASSERT_THAT(list.rows, SizeIs(3));
  EXPECT_EQ(list.rows[0].problem.y_type, DataType::f32);
  EXPECT_EQ(list.rows[1].problem.weight_layout, WeightLayout::any);
  EXPECT_TRUE(list.rows[2].problem.scale_ab);
  EXPECT_EQ(list.rows[2].problem.x_type, DataType::f8_e4m3fn);
}

TEST(ShapeDirt, BlankLinesMissingColumnsAndNoFinalNewline) {
  EXPECT_THAT(read_data("seven_columns.csv").rows, SizeIs(2));
  EXPECT_EQ(read_data("seven_columns.csv").rows[1].line, 6U);
  const ShapeList five = read_data("five_columns.csv");
  ASSERT_THAT(five.rows, SizeIs(1));
  EXPECT_EQ(five.rows[0].problem.y_type, DataType::bf16);
  EXPECT_FALSE(is_packed(five.rows[0].problem));
}

TEST(ShapeDirt, AnyOrderAnyCaseExtraColumnsAndDuplicates) {
  const ShapeList list = read_data("dirty.csv");
  EXPECT_THAT(list.diagnostics, IsEmpty());
  ASSERT_THAT(list.rows, SizeIs(3));
  EXPECT_EQ(print(list.rows[0].problem),
            "a16w16 m=1 n=8192 k=1280 x=bf16 w=bf16 y=bf16 bias=0 scale_ab=0 layout=plain");
  EXPECT_EQ(list.rows[0].layer, "attn, out");
  EXPECT_EQ(list.rows[0].calls, 3 + 4);
  EXPECT_TRUE(list.rows[1].problem.bias);
  EXPECT_EQ(list.rows[1].problem.y_type, DataType::f16);
  EXPECT_EQ(list.rows[1].calls, 1);
  EXPECT_EQ(list.rows[2].problem.x_type, DataType::f32);
}

TEST(ShapeDirt, EveryBadRowHasOneDiagnostics) {
  const ShapeList list = read_data("bad_rows.csv");
  ASSERT_THAT(list.rows, SizeIs(2));
  EXPECT_EQ(list.rows[0].calls, 0);
  EXPECT_EQ(list.rows[1].problem.m, 7);
  EXPECT_THAT(
      list.diagnostics,
      ElementsAre(HasSubstr("bad_rows.csv:2: column M: value '0', expected a whole number from 1 to "),
                  HasSubstr(":3: column M: value '-3'"), HasSubstr(":4: column M: value '1099511627776'"),
                  HasSubstr(":5: column M: value '1e3x'"), HasSubstr(":6: column M: value ''"),
                  HasSubstr(":7: column bias: value 'maybe', expected True or False"),
                  HasSubstr(":8: column dtype: value 'torch.bloat16', expected a type"),
                  HasSubstr(":9: column outdtype: value 'nonsense'"),
                  HasSubstr(":11: 10 cells, expected at most the header's 9"),
                  HasSubstr(":12: a quote without its end"), HasSubstr(":13: dtype of x is i8"),
                  HasSubstr(":14: x of 1 x 2147483647 x 2147483647"), HasSubstr(":15: column K: value ''")));
}

TEST(ShapeDirt, TypesCanBeGiven) {
  ShapeListOptions options;
  options.x_type = DataType::f16;
  ShapeList list = read_data("five_columns.csv", options);
  EXPECT_EQ(list.rows[0].problem.x_type, DataType::f16);
  EXPECT_EQ(list.rows[0].problem.y_type, DataType::f16);
  options.y_type = DataType::f32;
  list = read_data("bf16_untuned_gemm.csv", options);
  EXPECT_EQ(list.rows[1].problem.y_type, DataType::f32);
}

TEST(ShapeDirt, EveryOperationsListIsRead) {
  const struct {
    const char* name;
    const char* first;
  } cases[] = {
      {"a8w8_bpreshuffle_untuned_gemm.csv",
       "a8w8_bpreshuffle m=1 n=1280 k=8192 x=i8 w=i8 y=bf16 bias=0 scale_ab=0 layout=any"},
      {"bf16_untuned_batched_gemm.csv",
       "batched_bf16 m=1 n=1280 k=8192 x=bf16 w=bf16 y=bf16 bias=0 scale_ab=0 layout=plain batch=16"},
      {"untuned_fmoe.csv",
       "fused_moe m=64 n=1024 k=2048 x=f8_e4m3fn w=f8_e4m3fn y=bf16 bias=0 scale_ab=0 layout=plain experts=8 "
       "topk=2 "
       "act=Silu quant=per_1x128 gated=1 doweight_stage1=0"},
  };
  for (const auto& one : cases) {
    const auto list = read_shape_list(untuned_data(one.name), {});
    ASSERT_TRUE(list.ok()) << list.message();
    EXPECT_THAT(list->diagnostics, IsEmpty());
    EXPECT_EQ(print(list->rows.at(0).problem), one.first);
  }
  EXPECT_THAT(read_shape_list(untuned_data("quantized.csv"), {}).message(),
              HasSubstr("name it with --op (a8w8, a8w8_bpreshuffle)"));
  EXPECT_EQ(read_shape_list(untuned_data("sizes_only.csv"), {})->operation, OperationForm(Operation::a16w16));
  ShapeListOptions options;
  options.operation = OperationForm(Operation::a4w4_blockscale);
  EXPECT_EQ(read_shape_list(untuned_data("sizes_only.csv"), options)->rows.at(0).problem.x_type,
            DataType::f4_e2m1);
}

TEST(ShapeDirt, SizesOfTuneGemm) {
  ShapeListOptions options;
  options.x_type = DataType::bf16;
  const ShapeList list = read_data("sizes.yaml", options);
  ASSERT_THAT(list.rows, SizeIs(3));
  EXPECT_EQ(list.rows[1].calls, 2);
  EXPECT_EQ(list.rows[2].problem.x_order, Order::column_major);
  EXPECT_EQ(list.rows[2].problem.w_order, Order::column_major);
  EXPECT_THAT(list.diagnostics,
              ElementsAre(HasSubstr("sizes.yaml:10: column M: value '0'"),
                          HasSubstr("sizes.yaml:11: column rowMajorB: value 'X'"),
                          HasSubstr("sizes.yaml:12: column M"), HasSubstr("sizes.yaml:13")));
}

class ShapeDirtFiles : public ScratchTest {
 protected:
  /// Reads the shape list with `text` as standard input.
  Result<ShapeList> from_stdin(const std::string& text) const {
    const std::string input = write("input", text);
    const int saved = ::dup(STDIN_FILENO);
    EXPECT_NE(std::freopen(input.c_str(), "r", stdin), nullptr);
    auto list = read_shape_list("-", {});
    ::dup2(saved, STDIN_FILENO);
    ::close(saved);
    return list;
  }
};

TEST_F(ShapeDirtFiles, StandardInputMayBeEither) {
  const auto csv = from_stdin("M,N,K,dtype\n1,2,3,bf16\n0,2,3,bf16\n");
  ASSERT_TRUE(csv.ok()) << csv.message();
  EXPECT_EQ(csv->rows[0].problem.x_type, DataType::bf16);
  EXPECT_THAT(csv->diagnostics, ElementsAre(HasSubstr("standard input:3: column M")));
  const auto yaml = from_stdin("# sizes\n- {M: 1, N: 2, K: 3}\n");
  ASSERT_TRUE(yaml.ok()) << yaml.message();
  EXPECT_EQ(yaml->rows[0].problem.k, 3);
}

TEST_F(ShapeDirtFiles, ATunedFileIsAShapeListWithoutCountingDevices) {
  const auto list = read_shape_list(write("tuned.csv",
                                          "gfx,cu_num,M,N,K,bias,dtype,outdtype,us,kernelName\n"
                                          "gfx950,256,1,2,3,False,torch.bfloat16,torch.bfloat16,4.5,k\n"
                                          "gfx942,304,1,2,3,False,torch.bfloat16,torch.bfloat16,5.5,k\n"),
                                    {});
  ASSERT_TRUE(list.ok()) << list.message();
  ASSERT_THAT(list->rows, SizeIs(1));
  EXPECT_EQ(list->rows[0].calls, 1);
}

TEST(ShapeFixtures, RealFilesAreReadWhole) {
  GEMMTUNE_NEEDS_FIXTURES(folder);
  const struct {
    const char* name;
    std::size_t rows;
  } cases[] = {{"aiter/configs/bf16_untuned_gemm.csv", 442},
               {"aiter/configs/model_configs/llama405B_untuned_gemm_bf16.csv", 156},
               {"aiter/configs/model_configs/qwen3_5_397b_untuned_gemm.csv", 188}};
  for (const auto& one : cases) {
    const auto list = read_shape_list(folder + "/" + one.name, {});
    ASSERT_TRUE(list.ok()) << list.message();
    EXPECT_THAT(list->diagnostics, IsEmpty()) << one.name;
    std::int64_t rows = 0;
    for (const ShapeRow& row : list->rows) rows += row.calls;
    EXPECT_EQ(rows, static_cast<std::int64_t>(one.rows)) << one.name;
  }
  ShapeListOptions options;
  options.x_type = DataType::bf16;
  const auto yaml = read_shape_list(folder + "/tune_gemm/fallback_tuned_configs.yaml", options);
  ASSERT_TRUE(yaml.ok()) << yaml.message();
  EXPECT_THAT(yaml->diagnostics, IsEmpty());
  EXPECT_THAT(yaml->rows, SizeIs(63));
  const struct {
    const char* name;
    OperationForm operation;
    std::int64_t rows;
  } others[] = {
      {"a4w4_blockscale_untuned_gemm.csv", Operation::a4w4_blockscale, 194},
      {"a8w8_blockscale_bpreshuffle_untuned_gemm.csv", OperationForm(Operation::a8w8_blockscale, true), 0},
      {"a8w8_blockscale_untuned_gemm.csv", Operation::a8w8_blockscale, 80},
      {"a8w8_bpreshuffle_untuned_gemm.csv", OperationForm(Operation::a8w8, true), 32},
      {"a8w8_untuned_batched_gemm.csv", Operation::batched_a8w8, 26},
      {"a8w8_untuned_gemm.csv", Operation::a8w8, 66},
      {"bf16_untuned_batched_gemm.csv", Operation::batched_bf16, 26},
      {"untuned_fmoe.csv", Operation::fused_moe, 13},
      {"model_configs/a8w8_blockscale_bpreshuffle_untuned_gemm_mm2.5.csv",
       OperationForm(Operation::a8w8_blockscale, true), 16}};
  for (const auto& other : others) {
    ShapeListOptions by_name;
    const auto list = read_shape_list(folder + "/aiter/configs/" + other.name, by_name);
    ASSERT_TRUE(list.ok()) << list.message();
    EXPECT_THAT(list->diagnostics, IsEmpty()) << other.name;
    EXPECT_EQ(list->operation, other.operation) << other.name;
    std::int64_t rows = 0;
    for (const ShapeRow& row : list->rows) rows += row.calls;
    EXPECT_EQ(rows, other.rows) << other.name;
  }
}

}  // namespace
}  // namespace gemmtune
