// gemmtune_read_arrays: what arrays of each operation become, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "capi/c_support.h"

namespace gemmtune {
namespace {

using ::testing::HasSubstr;

alignas(64) float room[4096];

/// A contiguous array with sizes and strides of its own.
struct TestArray {
  TestArray(std::int32_t type, std::vector<std::int64_t> sizes) : sizes_(std::move(sizes)) {
    strides_.resize(sizes_.size());
    std::int64_t step = 1;
    for (std::size_t i = sizes_.size(); i-- > 0; step *= sizes_[i]) strides_[i] = step;
    array_.data = room;
    array_.type = type;
  }
  TestArray& with_strides(std::vector<std::int64_t> strides) {
    strides_ = std::move(strides);
    return *this;
  }
  TestArray& at(const void* data) {
    array_.data = data;
    return *this;
  }
  TestArray& read_only() {
    array_.read_only = 1;
    return *this;
  }
  const gemmtune_array* get() {
    array_.dimensions = static_cast<std::int32_t>(sizes_.size());
    array_.sizes = sizes_.data();
    array_.strides = strides_.data();
    return &array_;
  }

 private:
  std::vector<std::int64_t> sizes_;
  std::vector<std::int64_t> strides_;
  gemmtune_array array_{};
};

class CArrays : public ::testing::Test {
 protected:
  CArrays() {
    problem_.size = sizeof problem_;
    arrays_.size = sizeof arrays_;
    operands_.size = sizeof operands_;
    moe_.size = sizeof moe_;
    moe_operands_.size = sizeof moe_operands_;
    arrays_.moe = &moe_;
    arrays_.moe_operands = &moe_operands_;
  }

  gemmtune_status read(gemmtune_operation operation) {
    problem_.operation = operation;
    return gemmtune_read_arrays(&arrays_, &problem_, &operands_, nullptr);
  }
  void is_right(gemmtune_operation operation) {
    EXPECT_EQ(read(operation), GEMMTUNE_OK) << gemmtune_last_error();
  }
  void is_refused(gemmtune_operation operation, const std::string& sentence) {
    const gemmtune_problem before = problem_;
    operands_.ldy = -7;
    EXPECT_EQ(read(operation), GEMMTUNE_INVALID_ARGUMENT) << sentence;
    EXPECT_THAT(gemmtune_last_error(), HasSubstr(sentence));
    EXPECT_EQ(operands_.ldy, -7);
    EXPECT_EQ(problem_.m, before.m);
  }
  /// Refused, or copied by a caller that copies.
  void is_copied(gemmtune_operation operation, const gemmtune_array* array, const std::string& sentence) {
    is_refused(operation, sentence);
    const gemmtune_array* strided = nullptr;
    EXPECT_EQ(gemmtune_read_arrays(&arrays_, &problem_, &operands_, &strided), GEMMTUNE_OK)
        << gemmtune_last_error();
    EXPECT_EQ(strided, array);
    EXPECT_EQ(operands_.ldy, -7);
  }

  gemmtune_problem problem_{};
  gemmtune_arrays arrays_{};
  gemmtune_operands operands_{};
  gemmtune_moe moe_{};
  gemmtune_moe_operands moe_operands_{};
};

TEST_F(CArrays, ALinearLayerIsItsSizesAndDistances) {
  TestArray x(GEMMTUNE_F32, {2, 3, 8});
  TestArray w(GEMMTUNE_F32, {5, 8});
  TestArray bias(GEMMTUNE_F32, {5});
  TestArray out(GEMMTUNE_F32, {2, 3, 5});
  arrays_.x = x.with_strides({60, 20, 1}).get();
  arrays_.w = w.get();
  arrays_.bias = bias.get();
  is_right(GEMMTUNE_A16W16);
  EXPECT_EQ(problem_.y_type, GEMMTUNE_F32);
  EXPECT_EQ(operands_.y, nullptr);
  EXPECT_EQ(operands_.ldy, 5);
  arrays_.out = out.with_strides({21, 7, 1}).get();
  is_right(GEMMTUNE_A16W16);
  EXPECT_EQ(problem_.m, 6);
  EXPECT_EQ(problem_.n, 5);
  EXPECT_EQ(problem_.k, 8);
  EXPECT_EQ(problem_.batch, 1);
  EXPECT_EQ(problem_.bias, 1);
  EXPECT_EQ(problem_.alignment, 16);
  EXPECT_EQ(operands_.ldx, 20);
  EXPECT_EQ(operands_.ldy, 7);
  EXPECT_EQ(operands_.y, room);
  arrays_.bias = bias.at(room + 1).get();
  is_right(GEMMTUNE_A16W16);
  EXPECT_EQ(problem_.alignment, 4);
}

TEST_F(CArrays, OneRowWhoseElementsLieApartIsNoRow) {
  TestArray x(GEMMTUNE_F32, {1, 8});
  TestArray w(GEMMTUNE_F32, {5, 8});
  arrays_.x = x.with_strides({1, 4}).get();
  arrays_.w = w.get();
  is_copied(GEMMTUNE_A16W16, arrays_.x, "x has strides [1, 4] and shape [1, 8], expected contiguous rows");
}

TEST_F(CArrays, StridesOfSizesOfOneMeanNothing) {
  TestArray x(GEMMTUNE_F32, {1, 3, 1, 8});
  TestArray w(GEMMTUNE_F32, {1, 8});
  TestArray out(GEMMTUNE_F32, {1, 3, 1, 1});
  arrays_.x = x.with_strides({-7, 9, 0, 1}).get();
  arrays_.w = w.with_strides({123, 1}).get();
  arrays_.out = out.with_strides({0, 2, -1, 17}).get();
  is_right(GEMMTUNE_A16W16);
  EXPECT_EQ(problem_.m, 3);
  EXPECT_EQ(operands_.ldx, 9);
  EXPECT_EQ(operands_.ldy, 2);
  EXPECT_EQ(problem_.w_order, GEMMTUNE_ROW_MAJOR);
}

TEST_F(CArrays, TransposedViewsOfAnA16W16HaveAnOrder) {
  TestArray x(GEMMTUNE_BF16, {6, 8});
  TestArray w(GEMMTUNE_BF16, {5, 8});
  arrays_.x = x.with_strides({1, 10}).get();
  arrays_.w = w.with_strides({1, 5}).get();
  is_right(GEMMTUNE_A16W16);
  EXPECT_EQ(problem_.x_order, GEMMTUNE_COLUMN_MAJOR);
  EXPECT_EQ(problem_.w_order, GEMMTUNE_COLUMN_MAJOR);
  EXPECT_EQ(operands_.ldx, 10);
  arrays_.x = x.with_strides({1, 5}).get();  // columns overlap
  is_copied(GEMMTUNE_A16W16, arrays_.x, "x has strides [1, 5]");
  arrays_.x = x.with_strides({8, 1}).get();
  arrays_.w = w.with_strides({1, 6}).get();
  is_refused(GEMMTUNE_A16W16,
             "w has strides [1, 6] and shape [5, 8], expected a contiguous matrix or its transpose");
  arrays_.w = w.with_strides({16, 1}).get();
  is_refused(GEMMTUNE_A16W16, "w has strides [16, 1]");
}

TEST_F(CArrays, ATransposedFp8XIsCopied) {
  TestArray x(GEMMTUNE_F8_E4M3FN, {6, 8});
  TestArray w(GEMMTUNE_F8_E4M3FN, {5, 8});
  TestArray one(GEMMTUNE_F32, {});
  arrays_.x = x.with_strides({1, 6}).get();
  arrays_.w = w.get();
  arrays_.x_scale = arrays_.w_scale = one.get();
  is_copied(GEMMTUNE_A16W16, arrays_.x, "x has strides [1, 6]");
}

TEST_F(CArrays, WhatOtherOperationsCannotReadIsCopiedOrRefused) {
  TestArray x(GEMMTUNE_I8, {6, 8});
  TestArray w(GEMMTUNE_I8, {5, 8});
  TestArray x_scale(GEMMTUNE_F32, {6});
  TestArray w_scale(GEMMTUNE_F32, {5});
  arrays_.x = x.with_strides({1, 6}).get();
  arrays_.w = w.get();
  arrays_.x_scale = x_scale.get();
  arrays_.w_scale = w_scale.get();
  is_copied(GEMMTUNE_A8W8, arrays_.x, "x has strides [1, 6]");
  for (const std::int64_t stride : {0, -8, 4}) {
    arrays_.x = x.with_strides({stride, 1}).get();
    is_copied(GEMMTUNE_A8W8, arrays_.x, "expected contiguous rows");
  }
  arrays_.x = x.with_strides({8, 1}).get();
  arrays_.w = w.with_strides({1, 5}).get();
  is_refused(GEMMTUNE_A8W8, "w has strides [1, 5] and shape [5, 8], expected a contiguous weight");
  arrays_.w = w.with_strides({8, 1}).get();
  arrays_.x_scale = x_scale.with_strides({2}).get();
  is_copied(GEMMTUNE_A8W8, arrays_.x_scale, "x_scale has strides [2]");
  arrays_.x_scale = x_scale.with_strides({1}).at(reinterpret_cast<const char*>(room) + 1).get();
  is_copied(GEMMTUNE_A8W8, arrays_.x_scale, "of whole elements");
  arrays_.x_scale = x_scale.at(room).get();
  arrays_.w_scale = w_scale.with_strides({0}).get();
  is_refused(GEMMTUNE_A8W8, "w_scale has strides [0]");
}

TEST_F(CArrays, OutputsThatCannotBeWrittenAreRefused) {
  TestArray x(GEMMTUNE_F32, {4, 8});
  TestArray w(GEMMTUNE_F32, {5, 8});
  TestArray out(GEMMTUNE_F32, {4, 5});
  arrays_.x = x.get();
  arrays_.w = w.get();
  arrays_.out = out.with_strides({1, 4}).get();
  is_refused(GEMMTUNE_A16W16, "out has strides [1, 4] and shape [4, 5]");
  for (const std::int64_t stride : {0, -5, 4}) {
    arrays_.out = out.with_strides({stride, 1}).get();
    is_refused(GEMMTUNE_A16W16, "expected contiguous rows at one distance");
  }
  arrays_.out = out.with_strides({5, 1}).read_only().get();
  is_refused(GEMMTUNE_A16W16, "out is read-only");
  TestArray flat(GEMMTUNE_F32, {20});
  arrays_.out = flat.get();
  is_refused(GEMMTUNE_A16W16, "out has shape [20], expected [4, 5]");
}

TEST_F(CArrays, ABiasIsContiguousAndOfTheResultsType) {
  TestArray x(GEMMTUNE_F32, {4, 8});
  TestArray w(GEMMTUNE_F32, {5, 8});
  TestArray bias(GEMMTUNE_F32, {5});
  TestArray other(GEMMTUNE_BF16, {5});
  arrays_.x = x.get();
  arrays_.w = w.get();
  arrays_.bias = bias.with_strides({2}).get();
  is_refused(GEMMTUNE_A16W16, "bias has strides [2] and shape [5], expected a contiguous array");
  arrays_.bias = bias.with_strides({0}).get();
  is_refused(GEMMTUNE_A16W16, "bias has strides [0]");
  arrays_.bias = other.get();
  is_refused(GEMMTUNE_A16W16, "dtype of bias is bf16, expected the result's type f32");
}

/// By count alone each of these would pass.
TEST_F(CArrays, ScalesHaveTheirShape) {
  constexpr auto fp8 = GEMMTUNE_F8_E4M3FN;
  TestArray x(fp8, {6, 384});
  TestArray w(fp8, {256, 384});
  TestArray x_scale(GEMMTUNE_F32, {6, 3});
  TestArray w_scale(GEMMTUNE_F32, {2, 3});
  TestArray turned_x(GEMMTUNE_F32, {3, 6});
  TestArray turned_w(GEMMTUNE_F32, {3, 2});
  TestArray flat(GEMMTUNE_F32, {18});
  arrays_.x = x.get();
  arrays_.w = w.get();
  arrays_.x_scale = x_scale.get();
  arrays_.w_scale = w_scale.get();
  is_right(GEMMTUNE_A8W8_BLOCKSCALE);
  arrays_.x_scale = turned_x.get();
  is_refused(GEMMTUNE_A8W8_BLOCKSCALE, "x_scale has shape [3, 6], expected [6, 3]");
  arrays_.x_scale = flat.get();
  is_refused(GEMMTUNE_A8W8_BLOCKSCALE, "x_scale has shape [18], expected [6, 3]");
  arrays_.x_scale = x_scale.with_strides({1, 6}).get();  // as DeepGEMM holds it
  is_copied(GEMMTUNE_A8W8_BLOCKSCALE, arrays_.x_scale, "x_scale has strides [1, 6] and shape [6, 3]");
  arrays_.x_scale = x_scale.with_strides({3, 1}).get();
  arrays_.w_scale = turned_w.get();
  is_refused(GEMMTUNE_A8W8_BLOCKSCALE, "w_scale has shape [3, 2], expected [2, 3]");
  arrays_.w_scale = w_scale.with_strides({1, 2}).get();
  is_refused(GEMMTUNE_A8W8_BLOCKSCALE, "w_scale has strides [1, 2]");
  TestArray fp4(GEMMTUNE_U8, {64, 48});
  TestArray fp4_scale(GEMMTUNE_U8, {64, 3});
  TestArray turned(GEMMTUNE_U8, {3, 64});
  TestArray wide(GEMMTUNE_BF16, {6, 96});
  arrays_.x = wide.get();
  arrays_.w = fp4.get();
  arrays_.x_scale = nullptr;
  arrays_.w_scale = fp4_scale.get();
  is_right(GEMMTUNE_A16W4);
  EXPECT_EQ(problem_.w_type, GEMMTUNE_F4_E2M1);
  arrays_.w_scale = turned.get();
  is_refused(GEMMTUNE_A16W4, "w_scale has shape [3, 64], expected [64, 3]");
}

TEST_F(CArrays, TheScalesOfAnInt4WeightSayItsGroup) {
  TestArray x(GEMMTUNE_F16, {6, 256});
  TestArray w(GEMMTUNE_U8, {64, 128});
  TestArray zero_points(GEMMTUNE_I8, {64, 2});
  arrays_.x = x.get();
  arrays_.w = w.get();
  for (const auto& [columns, group] :
       {std::pair(8, 32), std::pair(4, 64), std::pair(2, 128), std::pair(1, 256)}) {
    TestArray scales(GEMMTUNE_F16, {64, columns});
    arrays_.w_scale = scales.get();
    is_right(GEMMTUNE_A16W4_INT4);
    EXPECT_EQ(problem_.w_type, GEMMTUNE_I4);
    EXPECT_EQ(problem_.w_group, group);
    EXPECT_EQ(problem_.zero_points, 0);
  }
  TestArray row(GEMMTUNE_F16, {64});
  arrays_.w_scale = row.get();
  is_right(GEMMTUNE_A16W4_INT4);
  EXPECT_EQ(problem_.w_group, 256);
  TestArray scales(GEMMTUNE_F16, {64, 2});
  arrays_.w_scale = scales.get();
  arrays_.w_zero_points = zero_points.get();
  is_right(GEMMTUNE_A16W4_INT4);
  EXPECT_EQ(problem_.zero_points, 1);
  EXPECT_EQ(operands_.w_zero_points, static_cast<const void*>(room));
  TestArray few(GEMMTUNE_I8, {64, 1});
  arrays_.w_zero_points = few.get();
  is_refused(GEMMTUNE_A16W4_INT4, "w_zero_points has shape [64, 1], expected [64, 2] as the scales have");
  arrays_.w_zero_points = nullptr;
  TestArray odd(GEMMTUNE_F16, {64, 16});
  arrays_.w_scale = odd.get();
  is_refused(GEMMTUNE_A16W4_INT4, "group = 16, expected 32, 64, 128 or row");
  TestArray other(GEMMTUNE_BF16, {64, 2});
  arrays_.w_scale = other.get();
  is_refused(GEMMTUNE_A16W4_INT4, "dtype of w_scale is bf16, expected f16");
}

TEST_F(CArrays, Nvfp4OperandsHaveAScaleOfTheTensor) {
  TestArray x(GEMMTUNE_U8, {6, 24});
  TestArray w(GEMMTUNE_F4_E2M1, {64, 24});
  TestArray x_scale(GEMMTUNE_U8, {6, 3});
  TestArray w_scale(GEMMTUNE_F8_E4M3FN, {64, 3});
  TestArray one(GEMMTUNE_F32, {});
  arrays_.x = x.get();
  arrays_.w = w.get();
  arrays_.x_scale = x_scale.get();
  arrays_.w_scale = w_scale.get();
  arrays_.x_global_scale = one.get();
  EXPECT_EQ(read(GEMMTUNE_A4W4_NVFP4), GEMMTUNE_NULL_POINTER);
  EXPECT_THAT(gemmtune_last_error(), HasSubstr("w_global_scale is missing"));
  arrays_.w_global_scale = one.get();
  is_right(GEMMTUNE_A4W4_NVFP4);
  EXPECT_EQ(problem_.k, 48);
  EXPECT_EQ(operands_.x_global_scale, room);
  EXPECT_EQ(operands_.w_global_scale, room);
  TestArray rows(GEMMTUNE_F32, {64});
  arrays_.w_global_scale = rows.get();
  is_refused(GEMMTUNE_A4W4_NVFP4, "w_global_scale has shape [64] and dtype f32, expected one element of f32");
  arrays_.w_global_scale = one.get();
  TestArray wide(GEMMTUNE_BF16, {6, 48});
  arrays_.x = wide.get();
  arrays_.x_scale = nullptr;
  is_refused(GEMMTUNE_A16W4_NVFP4, "x_global_scale is given, expected none: this operand is not NVFP4");
}

TEST_F(CArrays, DimensionsOfOneMayBeThereOrNot) {
  TestArray x(GEMMTUNE_I8, {2, 3, 8});
  TestArray w(GEMMTUNE_I8, {5, 8});
  arrays_.x = x.get();
  arrays_.w = w.get();
  for (const auto& x_sizes : std::vector<std::vector<std::int64_t>>{{6}, {6, 1}, {2, 3}, {2, 3, 1}, {1}, {}})
    for (const auto& w_sizes : std::vector<std::vector<std::int64_t>>{{5}, {5, 1}, {1, 5}, {1, 1}}) {
      TestArray x_scale(GEMMTUNE_F32, x_sizes);
      TestArray w_scale(GEMMTUNE_F32, w_sizes);
      arrays_.x_scale = x_scale.get();
      arrays_.w_scale = w_scale.get();
      is_right(GEMMTUNE_A8W8);
      EXPECT_EQ(operands_.x_scale_per_tensor, x_sizes.empty() || x_sizes.front() == 1 ? 1 : 0);
      EXPECT_EQ(operands_.w_scale_per_tensor, w_sizes.front() * w_sizes.back() == 1 ? 1 : 0);
    }
  TestArray wrong(GEMMTUNE_F32, {3, 2});
  TestArray right(GEMMTUNE_F32, {5});
  arrays_.x_scale = wrong.get();
  arrays_.w_scale = right.get();
  is_refused(GEMMTUNE_A8W8, "x_scale has shape [3, 2], expected [6] or one element");
}

TEST_F(CArrays, BatchesMayLieSideBySide) {
  TestArray x(GEMMTUNE_BF16, {3, 4, 8});
  TestArray w(GEMMTUNE_BF16, {3, 5, 8});
  TestArray out(GEMMTUNE_BF16, {3, 4, 5});
  arrays_.x = x.with_strides({8, 24, 1}).get();
  arrays_.w = w.get();
  arrays_.out = out.get();
  is_right(GEMMTUNE_BATCHED_BF16);
  EXPECT_EQ(problem_.batch, 3);
  EXPECT_EQ(operands_.ldx, 24);
  EXPECT_EQ(operands_.x_batch_stride, 8);
  arrays_.x = x.with_strides({0, 8, 1}).get();  // one for all
  is_copied(GEMMTUNE_BATCHED_BF16, arrays_.x, "x has strides [0, 8, 1]");
  arrays_.x = x.with_strides({32, 8, 1}).get();
  arrays_.out = out.with_strides({0, 5, 1}).get();
  is_refused(GEMMTUNE_BATCHED_BF16, "out has strides [0, 5, 1]");
  arrays_.out = nullptr;
  arrays_.w = w.with_strides({8, 24, 1}).get();
  is_refused(GEMMTUNE_BATCHED_BF16, "w has strides [8, 24, 1]");
  TestArray none(GEMMTUNE_BF16, {0, 4, 8});
  TestArray no_weights(GEMMTUNE_BF16, {0, 5, 8});
  arrays_.x = none.get();
  arrays_.w = no_weights.get();
  is_right(GEMMTUNE_BATCHED_BF16);
  EXPECT_EQ(problem_.m, 0) << "0 batches are 1 for C";
}

TEST_F(CArrays, AMixtureHasItsExpertsAndRoutes) {
  TestArray x(GEMMTUNE_F8_E4M3FN, {4, 64});
  TestArray w1(GEMMTUNE_U8, {3, 64, 32});
  TestArray w2(GEMMTUNE_U8, {3, 64, 16});
  TestArray ids(GEMMTUNE_ARRAY_I32, {4, 2});
  TestArray weights(GEMMTUNE_F32, {4, 2});
  TestArray x_scale(GEMMTUNE_F32, {4, 1});
  TestArray w1_scale(GEMMTUNE_U8, {3, 64, 2});
  TestArray w2_scale(GEMMTUNE_U8, {192, 1});  // experts and rows as one
  moe_.activation = GEMMTUNE_ACTIVATION_SILU;
  moe_.quant_type = GEMMTUNE_QUANT_PER_TOKEN;
  moe_.gated = 1;
  arrays_.x = x.get();
  arrays_.w = w1.get();
  arrays_.w2 = w2.get();
  arrays_.topk_ids = ids.get();
  arrays_.topk_weights = weights.get();
  arrays_.x_scale = x_scale.get();
  arrays_.w_scale = w1_scale.get();
  arrays_.w2_scale = w2_scale.get();
  is_right(GEMMTUNE_FUSED_MOE);
  EXPECT_EQ(moe_.experts, 3);
  EXPECT_EQ(moe_.topk, 2);
  EXPECT_EQ(problem_.n, 32);
  EXPECT_EQ(problem_.k, 64);
  EXPECT_EQ(operands_.ldy, 64);
  EXPECT_EQ(operands_.moe, &moe_operands_);
  arrays_.topk_weights = weights.with_strides({4, 1}).get();
  is_copied(GEMMTUNE_FUSED_MOE, arrays_.topk_weights, "topk_weights has strides [4, 1]");
  arrays_.topk_weights = weights.with_strides({2, 1}).get();
  TestArray turned(GEMMTUNE_U8, {3, 2, 64});
  arrays_.w_scale = turned.get();
  is_refused(GEMMTUNE_FUSED_MOE, "w1_scale has shape [3, 2, 64], expected [3, 64, 2]");
  arrays_.w_scale = w1_scale.get();
  TestArray floats(GEMMTUNE_F32, {4, 2});
  arrays_.topk_ids = floats.get();
  is_refused(GEMMTUNE_FUSED_MOE, "dtype of topk_ids is f32, expected int32");
}

TEST_F(CArrays, ExpertsOfInt4HaveGroupsAndZeroPointsOfBothWeights) {
  TestArray x(GEMMTUNE_BF16, {4, 256});
  TestArray w1(GEMMTUNE_U8, {3, 128, 128});
  TestArray w2(GEMMTUNE_U8, {3, 256, 32});
  TestArray ids(GEMMTUNE_ARRAY_I32, {4, 2});
  TestArray weights(GEMMTUNE_F32, {4, 2});
  moe_.activation = GEMMTUNE_ACTIVATION_SILU;
  moe_.quant_type = GEMMTUNE_QUANT_PER_GROUP;
  moe_.gated = 1;
  arrays_.x = x.get();
  arrays_.w = w1.get();
  arrays_.w2 = w2.get();
  arrays_.topk_ids = ids.get();
  arrays_.topk_weights = weights.get();
  TestArray w1_scale(GEMMTUNE_BF16, {3, 128, 8});
  TestArray w2_scale(GEMMTUNE_BF16, {3 * 256, 2});  // experts and rows as one
  TestArray w1_zero_points(GEMMTUNE_I8, {3, 128, 8});
  TestArray w2_zero_points(GEMMTUNE_I8, {3, 256, 2});
  arrays_.w_scale = w1_scale.get();
  arrays_.w2_scale = w2_scale.get();
  is_right(GEMMTUNE_FUSED_MOE);
  EXPECT_EQ(problem_.w_type, GEMMTUNE_I4);
  EXPECT_EQ(problem_.w_group, 32);
  EXPECT_EQ(problem_.zero_points, 0);
  arrays_.w_zero_points = w1_zero_points.get();
  is_refused(GEMMTUNE_FUSED_MOE,
             "w2_zero_points is missing, expected zero points of both weights or of neither");
  arrays_.w2_zero_points = w2_zero_points.get();
  is_right(GEMMTUNE_FUSED_MOE);
  EXPECT_EQ(problem_.zero_points, 1);
  EXPECT_NE(operands_.w_zero_points, nullptr);
  EXPECT_NE(moe_operands_.w2_zero_points, nullptr);
  TestArray few(GEMMTUNE_I8, {3, 256, 1});
  arrays_.w2_zero_points = few.get();
  is_refused(GEMMTUNE_FUSED_MOE,
             "w2_zero_points has shape [3, 256, 1], expected [3, 256, 2] as the scales have");
  arrays_.w_zero_points = arrays_.w2_zero_points = nullptr;
  TestArray rows1(GEMMTUNE_BF16, {3, 128});
  TestArray rows2(GEMMTUNE_BF16, {3, 256});
  arrays_.w_scale = rows1.get();
  is_refused(GEMMTUNE_FUSED_MOE, "w2_scale has shape [768, 2], expected [3, 256]");
  arrays_.w2_scale = rows2.get();
  is_right(GEMMTUNE_FUSED_MOE);
  EXPECT_EQ(problem_.w_group, 256) << "whole rows, of either weight";
  TestArray odd(GEMMTUNE_BF16, {3, 127, 8});
  arrays_.w_scale = odd.get();
  is_refused(GEMMTUNE_FUSED_MOE, "w1_scale has shape [3, 127, 8], expected [E, rows of w1, 256 / group]");
}

TEST_F(CArrays, ExpertsOfNvfp4HaveAScaleMoreEach) {
  TestArray x(GEMMTUNE_F16, {4, 48});
  TestArray w1(GEMMTUNE_U8, {3, 16, 24});
  TestArray w2(GEMMTUNE_U8, {3, 48, 8});
  TestArray ids(GEMMTUNE_ARRAY_I32, {4, 2});
  TestArray weights(GEMMTUNE_F32, {4, 2});
  TestArray w1_scale(GEMMTUNE_F8_E4M3FN, {3, 16, 3});
  TestArray w2_scale(GEMMTUNE_U8, {3, 48, 1});
  TestArray global(GEMMTUNE_F32, {3});
  moe_.activation = GEMMTUNE_ACTIVATION_GELU;
  moe_.quant_type = GEMMTUNE_QUANT_PER_1X16;
  arrays_.x = x.get();
  arrays_.w = w1.get();
  arrays_.w2 = w2.get();
  arrays_.topk_ids = ids.get();
  arrays_.topk_weights = weights.get();
  arrays_.w_scale = w1_scale.get();
  arrays_.w2_scale = w2_scale.get();
  arrays_.w_global_scale = global.get();
  EXPECT_EQ(read(GEMMTUNE_FUSED_MOE), GEMMTUNE_NULL_POINTER);
  EXPECT_THAT(gemmtune_last_error(), HasSubstr("w2_global_scale is missing"));
  arrays_.w2_global_scale = global.get();
  is_right(GEMMTUNE_FUSED_MOE);
  EXPECT_EQ(problem_.w_type, GEMMTUNE_F4_E2M1);
  EXPECT_NE(operands_.w_global_scale, nullptr);
  EXPECT_EQ(moe_operands_.w2_global_scale, operands_.w_global_scale);
  TestArray one(GEMMTUNE_F32, {1});
  arrays_.w_global_scale = one.get();
  is_refused(GEMMTUNE_FUSED_MOE, "w1_global_scale has shape [1] and dtype f32, expected [3] of f32");
  arrays_.w_global_scale = global.get();
  TestArray bytes(GEMMTUNE_U8, {4, 24});
  arrays_.x = bytes.get();
  is_refused(GEMMTUNE_FUSED_MOE, "dtype of x with q_type = per_1x16 is f4_e2m1, expected one of bf16, f16");
  arrays_.x = x.get();
  TestArray dense(GEMMTUNE_F16, {16, 48});
  arrays_.w = dense.get();
  is_refused(GEMMTUNE_A16W16, "w2 is given, expected none with a16w16");
}

TEST_F(CArrays, WhatAnOperationDoesNotHaveIsRefused) {
  TestArray x(GEMMTUNE_BF16, {4, 8});
  TestArray w(GEMMTUNE_BF16, {5, 8});
  TestArray unknown(GEMMTUNE_TYPE_UNSET, {5, 8});
  TestArray batches(GEMMTUNE_BF16, {1, 5, 8});
  TestArray batch(GEMMTUNE_BF16, {1, 4, 8});
  TestArray scale(GEMMTUNE_F32, {4});
  arrays_.x = batch.get();
  arrays_.w = batches.get();
  arrays_.x_scale = scale.get();
  is_refused(GEMMTUNE_BATCHED_BF16, "x_scale is given, expected none");
  arrays_.x_scale = nullptr;
  arrays_.w2 = w.get();
  is_refused(GEMMTUNE_BATCHED_BF16, "w2 is given, expected none with batched_bf16");
  arrays_.w2 = nullptr;
  arrays_.x = x.get();
  arrays_.w = unknown.get();
  is_refused(GEMMTUNE_A16W16, "dtype of w is one that gemmtune does not know");
}

TEST_F(CArrays, ArraysWithoutElementsHaveNoStrides) {
  TestArray x(GEMMTUNE_F32, {4, 0});
  TestArray w(GEMMTUNE_F32, {5, 0});
  arrays_.x = x.with_strides({-3, 7}).at(nullptr).get();
  arrays_.w = w.with_strides({99, 99}).at(nullptr).get();
  is_right(GEMMTUNE_A16W16);
  EXPECT_EQ(problem_.k, 0);
  EXPECT_EQ(problem_.n, 5);
  problem_.y_type = GEMMTUNE_TYPE_UNSET;
  TestArray rows(GEMMTUNE_I8, {0, 8});
  TestArray weight(GEMMTUNE_I8, {5, 8});
  TestArray x_scale(GEMMTUNE_F32, {0, 1});
  TestArray w_scale(GEMMTUNE_F32, {5});
  arrays_.x = rows.get();
  arrays_.w = weight.get();
  arrays_.x_scale = x_scale.get();
  arrays_.w_scale = w_scale.get();
  is_right(GEMMTUNE_A8W8);
  EXPECT_EQ(problem_.m, 0);
}

TEST_F(CArrays, AbsurdSizesAreRefusedWithoutOverflow) {
  constexpr std::int64_t huge = std::int64_t{1} << 46;
  TestArray x(GEMMTUNE_F32, {2});
  TestArray w(GEMMTUNE_F32, {5, 8});
  TestArray wide(GEMMTUNE_F32, {1, 1, 8});
  arrays_.w = w.get();
  for (const auto& sizes :
       std::vector<std::vector<std::int64_t>>{{huge, huge, 8}, {huge, huge}, {-1, 8}, {huge * 8, 8}}) {
    TestArray absurd(GEMMTUNE_F32, std::vector<std::int64_t>(sizes.size(), 1));
    gemmtune_array array = *absurd.get();
    array.sizes = sizes.data();
    arrays_.x = &array;
    EXPECT_EQ(read(GEMMTUNE_A16W16), GEMMTUNE_INVALID_ARGUMENT);
  }
  gemmtune_array none = *x.get();
  none.dimensions = 65;
  arrays_.x = &none;
  is_refused(GEMMTUNE_A16W16, "x has 65 dimensions");
  arrays_.x = nullptr;
  EXPECT_EQ(read(GEMMTUNE_A16W16), GEMMTUNE_NULL_POINTER);
  EXPECT_THAT(gemmtune_last_error(), HasSubstr("x is missing"));
  EXPECT_EQ(gemmtune_read_arrays(nullptr, &problem_, &operands_, nullptr), GEMMTUNE_NULL_POINTER);
  EXPECT_EQ(gemmtune_read_arrays(&arrays_, nullptr, &operands_, nullptr), GEMMTUNE_NULL_POINTER);
  EXPECT_EQ(gemmtune_read_arrays(&arrays_, &problem_, nullptr, nullptr), GEMMTUNE_NULL_POINTER);
}

}  // namespace
}  // namespace gemmtune
