#include "problem/problem.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <string_view>

#include "problem/operands.h"

namespace gemmtune {
namespace {

Problem valid() {
  Problem problem;
  problem.m = 3;
  problem.n = 2048;
  problem.k = 64;
  return problem;
}

TEST(Problem, PrintAndParseAreInverse) {
  Problem problem = valid();
  EXPECT_EQ(print(problem), "a16w16 m=3 n=2048 k=64 x=bf16 w=bf16 y=bf16 bias=0 scale_ab=0 layout=plain");
  EXPECT_EQ(*parse_problem(print(problem)), problem);
  problem.bias = true;
  problem.y_type = DataType::f32;
  problem.weight_layout = WeightLayout::panel16;
  problem.w_order = Order::column_major;
  problem.alignment = 64;
  problem.batch = 2;
  EXPECT_EQ(*parse_problem(print(problem)), problem);
}

TEST(Problem, ScalesOfBlocksMayBePowersOfTwo) {
  Problem problem = default_problem(Operation::a8w8_blockscale);
  problem.m = 3;
  problem.n = 300;
  problem.k = 200;
  EXPECT_EQ(operand_shapes(problem).w.scale_bytes(), 3 * 2 * 4);
  problem.e8m0_scales = true;
  EXPECT_TRUE(check(problem).ok());
  EXPECT_EQ(*parse_problem(print(problem)), problem) << print(problem);
  EXPECT_EQ(operand_shapes(problem).x.scale_bytes(), 3 * 2);
  EXPECT_EQ(operand_shapes(problem).w.scale_bytes(), 3 * 2);
  EXPECT_EQ(operand_shapes(problem).w.scale.type, ScaleType::e8m0);
  for (const Operation other : {Operation::a8w8, Operation::a4w4_blockscale, Operation::batched_a8w8}) {
    Problem wrong = default_problem({other, false});
    wrong.m = wrong.n = wrong.k = 32;
    wrong.e8m0_scales = true;
    EXPECT_NE(check(wrong).message().find("expected it with a8w8_blockscale only"), std::string::npos);
  }
}

TEST(Problem, Nvfp4HasTwoKindsOfScales) {
  Problem problem = default_problem(Operation::a4w4_nvfp4);
  problem.m = 3;
  problem.n = 5;
  problem.k = 48;
  EXPECT_TRUE(check(problem).ok()) << check(problem).message();
  const OperandShapes both = operand_shapes(problem);
  for (const MatrixShape& matrix : {both.x, both.w}) {
    EXPECT_EQ(matrix.type, DataType::f4_e2m1);
    EXPECT_EQ(matrix.scale.type, ScaleType::e4m3);
    EXPECT_EQ(matrix.scale.columns, 3);
    EXPECT_EQ(matrix.scale_bytes(), matrix.rows * 3);
    EXPECT_EQ(matrix.scale.global_bytes(), 4);
    EXPECT_EQ(matrix.scale.index(2, 17), 2 * 3 + 1);
  }
  problem.k = 40;
  EXPECT_NE(check(problem).message().find("K = 40, expected a multiple of 16"), std::string::npos);
  Problem weight = default_problem(Operation::a8w4_nvfp4);
  weight.m = weight.n = weight.k = 16;
  const OperandShapes shapes = operand_shapes(weight);
  EXPECT_EQ(shapes.x.scale.type, ScaleType::f32);
  EXPECT_EQ(shapes.x.scale.rows, 16);
  EXPECT_FALSE(shapes.x.scale.global);
  EXPECT_TRUE(shapes.w.scale.global);
  EXPECT_EQ(quantization(weight), QuantType::per_token);
  EXPECT_EQ(weight_quantization(weight), QuantType::per_1x16);
}

TEST(Problem, Int4WeightsHaveGroupsAndZeroPoints) {
  Problem problem = default_problem(Operation::a16w4_int4);
  problem.m = 3;
  problem.n = 5;
  problem.k = 384;
  EXPECT_EQ(problem.w_group, 128);
  EXPECT_EQ(operand_shapes(problem).w.scale.type, ScaleType::bf16);
  EXPECT_EQ(operand_shapes(problem).w.scale_bytes(), 5 * 3 * 2);
  EXPECT_EQ(operand_shapes(problem).w.scale.zero_point_bytes(), 0);
  for (const std::int32_t group : {32, 64, 128, 384})
    for (const bool zero_points : {false, true}) {
      problem.w_group = group;
      problem.zero_points = zero_points;
      EXPECT_TRUE(check(problem).ok()) << check(problem).message();
      EXPECT_EQ(*parse_problem(print(problem)), problem) << print(problem);
      EXPECT_EQ(operand_shapes(problem).w.scale.columns, 384 / group);
      EXPECT_EQ(operand_shapes(problem).w.scale.zero_point_bytes(), zero_points ? 5 * 384 / group : 0);
    }
  EXPECT_NE(print(problem).find(" group=row zero_points=1"), std::string::npos) << print(problem);
  EXPECT_EQ(short_name(problem), "a16w4_int4 3x5x384 bf16 grow zp");
  problem.y_type = DataType::f16;
  EXPECT_EQ(operand_shapes(problem).w.scale.type, ScaleType::f16);
}

TEST(Problem, GroupsAreOfWholeBytesAndOfInt4WeightsAlone) {
  Problem problem = default_problem(Operation::a8w4_int4);
  problem.m = problem.n = 4;
  problem.k = 96;
  problem.w_group = 64;
  EXPECT_NE(check(problem).message().find("K = 96, expected a multiple of 64"), std::string::npos);
  problem.w_group = 48;
  EXPECT_NE(check(problem).message().find("group = 48, expected 32, 64, 128 or row"), std::string::npos);
  problem.k = problem.w_group = 33;
  EXPECT_NE(check(problem).message().find("K = 33, expected a multiple of 2"), std::string::npos);
  problem.k = problem.w_group = 34;
  EXPECT_TRUE(check(problem).ok()) << check(problem).message();
  Problem other = valid();
  other.zero_points = true;
  EXPECT_NE(check(other).message().find("expected both with int4 weights only, not a16w16"),
            std::string::npos);
  other.zero_points = false;
  other.w_group = 32;
  EXPECT_NE(check(other).message().find("group = 32"), std::string::npos);
  EXPECT_FALSE(parse_problem("a16w4_int4 m=1 n=1 group=row").ok());  // K is not known
  EXPECT_FALSE(parse_problem("a16w4_int4 m=1 n=1 k=64 group=0").ok());
  EXPECT_EQ(parse_problem("a16w4_int4 m=1 n=1 k=64 w=i4 group=row")->w_group, 64);
}

Problem mixture_of(QuantType quant, DataType w) {
  Problem problem = default_problem(Operation::fused_moe);
  problem.m = 3;
  problem.n = 64;
  problem.k = 256;
  problem.w_type = w;
  problem.moe.experts = 5;
  problem.moe.topk = 2;
  problem.moe.quant_type = quant;
  return problem;
}

TEST(Problem, ExpertsOfInt4HaveGroupsOfBothWeights) {
  Problem problem = mixture_of(QuantType::per_group, DataType::i4);
  EXPECT_NE(check(problem).message().find("group = 0, expected 32, 64, 128 or row"), std::string::npos);
  problem.w_group = 32;
  problem.zero_points = true;
  ASSERT_TRUE(check(problem).ok()) << check(problem).message();
  EXPECT_EQ(*parse_problem(print(problem)), problem) << print(problem);
  EXPECT_NE(print(problem).find(" group=32 zero_points=1 "), std::string::npos) << print(problem);
  const OperandShapes shapes = operand_shapes(problem);
  EXPECT_EQ(shapes.x.scale.type, ScaleType::none);
  EXPECT_EQ(shapes.w.scale.type, ScaleType::bf16);
  EXPECT_EQ(shapes.w.scale_bytes(), 5 * 128 * 8 * 2);
  EXPECT_EQ(shapes.w.zero_point_bytes(), 5 * 128 * 8);
  EXPECT_EQ(shapes.w2.scale_bytes(), 5 * 256 * 2 * 2);
  EXPECT_EQ(shapes.w2.zero_point_bytes(), 5 * 256 * 2);
  problem.w_group = 128;
  EXPECT_NE(
      check(problem).message().find("inter_dim = 64, expected multiples of 128 for elements of 4 bits in "
                                    "groups of 128"),
      std::string::npos)
      << check(problem).message();
  problem.w_group = 256;  // whole rows, of both
  ASSERT_TRUE(check(problem).ok()) << check(problem).message();
  EXPECT_EQ(group_text(problem), "row");
  EXPECT_EQ(*parse_problem(print(problem)), problem) << print(problem);
  EXPECT_EQ(operand_shapes(problem).w.scale_bytes(), 5 * 128 * 2);
  EXPECT_EQ(operand_shapes(problem).w2.scale_bytes(), 5 * 256 * 2);
  problem.k = 64;  // groups of 64: w2 of 128 has two
  problem.n = 128;
  problem.w_group = 64;
  ASSERT_TRUE(check(problem).ok()) << check(problem).message();
  EXPECT_EQ(group_text(problem), "64");
  EXPECT_EQ(operand_shapes(problem).w2.scale.columns, 2);
}

TEST(Problem, ExpertsOfNvfp4HaveAScaleMoreEach) {
  Problem problem = mixture_of(QuantType::per_1x16, DataType::f4_e2m1);
  problem.n = 48;
  problem.k = 16;
  ASSERT_TRUE(check(problem).ok()) << check(problem).message();
  EXPECT_EQ(*parse_problem(print(problem)), problem) << print(problem);
  EXPECT_NE(short_name(problem).find("f4_e2m1 5 experts top 2 NVFP4"), std::string::npos)
      << short_name(problem);
  const OperandShapes shapes = operand_shapes(problem);
  EXPECT_EQ(shapes.x.scale.type, ScaleType::none);
  EXPECT_EQ(shapes.w.scale.type, ScaleType::e4m3);
  EXPECT_EQ(shapes.w.scale_bytes(), 5 * 96);
  EXPECT_EQ(shapes.w2.scale_bytes(), 5 * 16 * 3);
  EXPECT_EQ(shapes.w.global_scale_bytes(), 5 * 4);
  EXPECT_EQ(shapes.w2.global_scale_bytes(), 5 * 4);
  problem.n = 40;
  EXPECT_NE(check(problem).message().find("inter_dim = 40, expected multiples of 16"), std::string::npos);
}

TEST(Problem, FormatsOfWeightsAloneLeaveTokensAsTheyAre) {
  Problem problem = mixture_of(QuantType::per_1x16, DataType::f4_e2m1);
  problem.x_type = DataType::f8_e4m3fn;
  EXPECT_NE(check(problem).message().find(
                "dtype of x with q_type = per_1x16 is f8_e4m3fn, expected one of bf16, f16"),
            std::string::npos)
      << check(problem).message();
  problem.x_type = DataType::f16;
  EXPECT_TRUE(check(problem).ok());
  problem.w_type = DataType::i4;
  EXPECT_NE(check(problem).message().find("dtype of w with q_type = per_1x16 is i4, expected one of f4_e2m1"),
            std::string::npos)
      << check(problem).message();
  problem = mixture_of(QuantType::per_token, DataType::i4);
  problem.w_group = 32;
  EXPECT_NE(check(problem).message().find("not fused_moe without q_type = per_group"), std::string::npos)
      << check(problem).message();
}

TEST(ScaleTypes, EveryCodeIsItsNumber) {
  const std::uint8_t bytes[] = {0x01, 0x38, 0x7e, 0x7f, 0x80, 0xff};
  EXPECT_EQ(scale_value(ScaleType::e4m3, bytes, 0), 0x1p-9);
  EXPECT_EQ(scale_value(ScaleType::e4m3, bytes, 1), 1);
  EXPECT_EQ(scale_value(ScaleType::e4m3, bytes, 2), 448);
  EXPECT_TRUE(std::isnan(scale_value(ScaleType::e4m3, bytes, 3)));
  EXPECT_EQ(scale_value(ScaleType::e4m3, bytes, 4), 0);
  EXPECT_EQ(scale_value(ScaleType::e8m0, bytes, 0), 0x1p-126);
  EXPECT_TRUE(std::isnan(scale_value(ScaleType::e8m0, bytes, 5)));
  const std::uint16_t words[] = {0x3f80, 0x3c00};
  EXPECT_EQ(scale_value(ScaleType::bf16, words, 0), 1);
  EXPECT_EQ(scale_value(ScaleType::f16, words, 1), 1);
  EXPECT_EQ(scale_value(ScaleType::none, nullptr, 3), 1);
  const float single = -2.5F;
  EXPECT_EQ(scale_value(ScaleType::f32, &single, 0), -2.5);
}

TEST(Problem, AllFourOrdersAreCheckedPrintedAndParsed) {
  for (const Order x : {Order::row_major, Order::column_major})
    for (const Order w : {Order::row_major, Order::column_major}) {
      Problem problem = valid();
      problem.x_order = x;
      problem.w_order = w;
      EXPECT_TRUE(check(problem).ok()) << check(problem).message();
      EXPECT_EQ(*parse_problem(print(problem)), problem) << print(problem);
      EXPECT_EQ(print(problem).find("w_order=N") != std::string::npos, w == Order::column_major);
      EXPECT_EQ(short_name(problem).find("x:N") != std::string::npos, x == Order::column_major);
    }
}

TEST(Problem, ColumnMajorOperandsAreOfPlainA16w16Alone) {
  Problem problem = default_problem(Operation::a8w8);
  problem.m = problem.n = problem.k = 16;
  problem.w_order = Order::column_major;
  EXPECT_NE(check(problem).message().find("column-major operands with a16w16 only, not a8w8"),
            std::string::npos);
  problem = valid();
  problem.w_order = Order::column_major;
  problem.weight_layout = WeightLayout::any;
  EXPECT_NE(check(problem).message().find("a packed weight has no order"), std::string::npos);
  problem.w_order = Order::row_major;
  problem.x_order = Order::column_major;
  EXPECT_TRUE(check(problem).ok()) << check(problem).message();
}

TEST(Problem, EveryOperationIsCheckedPrintedAndParsed) {
  for (const OperationForm operation : all_operation_forms()) {
    Problem problem = default_problem(operation);
    problem.m = 3;
    problem.n = 2048;
    problem.k = 256;
    if (operation == Operation::fused_moe)
      problem.moe = {.experts = 256,
                     .topk = 8,
                     .shared_experts = 1,
                     .activation = Activation::swiglu,
                     .quant_type = QuantType::per_1x128,
                     .gated = true,
                     .doweight_stage1 = true};
    EXPECT_TRUE(check(problem).ok()) << check(problem).message();
    const auto parsed = parse_problem(print(problem));
    ASSERT_TRUE(parsed.ok()) << parsed.message();
    EXPECT_EQ(*parsed, problem) << print(problem);
  }
}

TEST(Problem, WhatAFormatCannotExpressIsNamed) {
  Problem problem = default_problem(Operation::a4w4_blockscale);
  problem.m = problem.n = 16;
  problem.k = 48;
  EXPECT_NE(check(problem).message().find("K = 48, expected a multiple of 32"), std::string::npos);
  problem = default_problem({Operation::a8w8, true});
  problem.m = problem.n = problem.k = 16;
  problem.weight_layout = WeightLayout::plain;
  EXPECT_NE(check_form({Operation::a8w8, true}, problem)
                .message()
                .find("expected a packed one for a8w8_bpreshuffle"),
            std::string::npos);
  problem = default_problem(Operation::fused_moe);
  problem.m = problem.n = problem.k = 16;
  problem.moe.experts = 4;
  problem.moe.topk = 5;
  EXPECT_NE(check(problem).message().find("topk = 5"), std::string::npos);
  EXPECT_FALSE(parse_problem("fused_moe experts=4294967297").ok());  // would be 1 in 32 bits
}

TEST(Problem, WorkOfAMixtureOfExperts) {
  Problem problem = default_problem(Operation::fused_moe);
  problem.m = 10;
  problem.n = 20;
  problem.k = 30;
  problem.moe.experts = 4;
  problem.moe.topk = 2;
  EXPECT_EQ(flops(problem), 3 * 2.0 * 10 * 20 * 30 * 2);
  EXPECT_EQ(weight_bytes(problem), 4 * 3 * 20 * 30 * 2);
  EXPECT_EQ(bytes(problem), 4 * 3 * 20 * 30 * 2 + 2 * 10 * 30 * 2);
  problem.moe.gated = false;
  EXPECT_EQ(flops(problem), 2 * 2.0 * 10 * 20 * 30 * 2);
}

TEST(Problem, AitersWordsOfExperts) {
  EXPECT_EQ(parse_quant_type("QuantType.per_1x128"), QuantType::per_1x128);
  EXPECT_EQ(parse_quant_type("per_token"), QuantType::per_token);
  EXPECT_EQ(to_string(QuantType::per_tensor), "per_Tensor");
  EXPECT_FALSE(parse_quant_type("QuantType.").has_value());
  EXPECT_EQ(parse_activation("ActivationType.Silu"), Activation::silu);
  EXPECT_EQ(parse_activation("swiglu"), Activation::swiglu);
  EXPECT_FALSE(parse_activation("Relu").has_value());
}

TEST(Problem, ParseNamesWhatIsWrong) {
  EXPECT_NE(parse_problem("gemm m=1").message().find("'gemm'"), std::string::npos);
  EXPECT_NE(parse_problem("a16w16 m=x").message().find("'x'"), std::string::npos);
  EXPECT_NE(parse_problem("a16w16 q=1").message().find("'q'"), std::string::npos);
  EXPECT_FALSE(parse_problem("").ok());
  EXPECT_FALSE(parse_problem("a16w16 m").ok());
}

TEST(Problem, CheckNamesFieldAndValue) {
  EXPECT_TRUE(check(valid()).ok());
  Problem problem = valid();
  problem.m = 0;
  EXPECT_NE(check(problem).message().find("M = 0"), std::string::npos);
  problem = valid();
  problem.k = std::int64_t{1} << 40;
  EXPECT_NE(check(problem).message().find("K = 1099511627776"), std::string::npos);
  problem = valid();
  problem.m = problem.n = problem.k = max_dimension;
  EXPECT_NE(check(problem).message().find("2^47"), std::string::npos);
  problem = valid();
  problem.w_type = DataType::f32;
  EXPECT_NE(check(problem).message().find("dtype of w is f32"), std::string::npos);
  problem = valid();
  problem.scale_ab = true;
  EXPECT_NE(check(problem).message().find("scaleAB"), std::string::npos);
  problem = valid();
  problem.batch = 2;
  EXPECT_NE(check(problem).message().find("batch = 2"), std::string::npos);
  problem = valid();
  problem.moe.experts = 8;
  EXPECT_NE(check(problem).message().find("experts = 8"), std::string::npos);
  problem = valid();
  problem.operation = Operation::a8w8;
  EXPECT_NE(check(problem).message().find("type of x is bf16"), std::string::npos);
}

TEST(Problem, OperationsParseWithAliases) {
  EXPECT_EQ(parse_operation("bf16"), OperationForm(Operation::a16w16));
  EXPECT_EQ(parse_operation("A8W8-Blockscale"), OperationForm(Operation::a8w8_blockscale));
  EXPECT_EQ(parse_operation("fmoe"), OperationForm(Operation::fused_moe));
  EXPECT_EQ(parse_operation("a4w4"), OperationForm(Operation::a4w4_blockscale));
  EXPECT_EQ(parse_operation("nonsense"), std::nullopt);
  for (const OperationForm operation : all_operation_forms()) {
    EXPECT_EQ(parse_operation(to_string(operation)), operation);
  }
}

TEST(Words, EachIsReadBackAndOfOneValue) {
  std::set<std::string_view> words;
  for (const QuantType type : all_quant_types()) {
    EXPECT_EQ(parse_quant_type(to_string(type)), type);
    EXPECT_TRUE(words.insert(to_string(type)).second) << to_string(type);
  }
  EXPECT_EQ(words.size(), static_cast<std::size_t>(QuantType::per_group) + 1);
  words.clear();
  for (const Activation activation : all_activations()) {
    EXPECT_EQ(parse_activation(to_string(activation)), activation);
    EXPECT_TRUE(words.insert(to_string(activation)).second) << to_string(activation);
  }
  EXPECT_EQ(words.size(), static_cast<std::size_t>(Activation::situv2) + 1);
}

TEST(Problem, CountsOperationsAndBytes) {
  EXPECT_EQ(flops(valid()), 2.0 * 3 * 2048 * 64);
  EXPECT_EQ(bytes(valid()), 2.0 * (3 * 64 + 2048 * 64 + 3 * 2048));
  EXPECT_EQ(weight_bytes(valid()), 2 * 2048 * 64);
}

TEST(OperationTraits, DefaultsAreLegal) {
  for (const OperationForm form : all_operation_forms()) {
    const OperationTraits& row = traits(form.operation);
    Problem problem = default_problem(form);
    problem.m = problem.n = problem.k = 128;
    if (row.mixture) problem.moe.experts = problem.moe.topk = 2;
    EXPECT_TRUE(check(problem).ok()) << check(problem).message();
    EXPECT_EQ(form_of(problem), form);
    EXPECT_EQ(problem.y_type, default_y_type(form.operation, problem.x_type)) << to_string(form);
    for (const DataType type : row.x_types) EXPECT_NE(traits(type).to_f32, nullptr) << to_string(form);
    for (const DataType type : row.y_types) EXPECT_GE(bits(type), 16) << to_string(form);
  }
}

TEST(OperationForms, APackedWeightIsOneOfItsOwnWhereWordsSaySo) {
  Problem problem = default_problem(Operation::a8w8);
  EXPECT_EQ(to_string(form_of(problem)), "a8w8");
  problem.weight_layout = WeightLayout::panel16;
  EXPECT_EQ(to_string(form_of(problem)), "a8w8_bpreshuffle");
  EXPECT_EQ(form_of(problem), parse_operation("bpreshuffle"));
  EXPECT_NE(check_form(Operation::a8w8, problem).message().find("panel16: expected plain for a8w8"),
            std::string::npos);
  EXPECT_FALSE(parse_problem("a8w8 m=1 n=16 k=16 x=i8 w=i8 y=bf16 layout=any").ok());
  EXPECT_FALSE(parse_problem("a8w8_bpreshuffle m=1 n=16 k=16 x=i8 w=i8 y=bf16 layout=plain").ok());
  problem = default_problem(Operation::a4w4_blockscale);
  problem.weight_layout = WeightLayout::panel16;
  EXPECT_EQ(to_string(form_of(problem)), "a4w4_blockscale");
  EXPECT_TRUE(check_form(Operation::a4w4_blockscale, problem).ok());
}

TEST(OperationTraits, CheckFollowsTheRow) {
  for (const OperationForm form : all_operation_forms()) {
    const OperationTraits& row = traits(form.operation);
    Problem problem = default_problem(form);
    problem.m = problem.n = problem.k = 128;
    if (row.mixture) problem.moe.experts = problem.moe.topk = 2;
    const auto with = [&problem](auto member, auto value) {
      Problem other = problem;
      other.*member = value;
      return check(other).ok();
    };
    EXPECT_EQ(with(&Problem::bias, true), row.bias) << to_string(form);
    EXPECT_EQ(with(&Problem::batch, std::int64_t{2}), row.batched) << to_string(form);
    for (const DataTypeTraits& type : all_data_types()) {
      const bool taken = std::find(row.y_types.begin(), row.y_types.end(), type.type) != row.y_types.end();
      EXPECT_EQ(with(&Problem::y_type, type.type), taken) << to_string(form) << ' ' << type.name;
    }
  }
}

TEST(DataTypes, EverySpelling) {
  for (const DataTypeTraits& row : all_data_types()) {
    const DataType type = row.type;
    EXPECT_EQ(parse_data_type(to_string(type)), type);
    EXPECT_EQ(parse_data_type(torch_name(type)), type);
  }
  EXPECT_EQ(parse_data_type("dtypes.bf16"), DataType::bf16);
  EXPECT_EQ(parse_data_type("FP16"), DataType::f16);
  EXPECT_EQ(parse_data_type("float32"), DataType::f32);
  EXPECT_EQ(parse_data_type("fp8"), DataType::f8_e4m3fn);
  EXPECT_EQ(parse_data_type("torch."), std::nullopt);
  EXPECT_EQ(parse_data_type("bfloat"), std::nullopt);
  EXPECT_EQ(bytes_of(DataType::f4_e2m1, 3), 2);
}

}  // namespace
}  // namespace gemmtune
