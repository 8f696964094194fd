// One problem of each operation, type and layout, for tests of kernels.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "backends/cpu/families/blocked/block_gemm.h"
#include "base/rounding.h"
#include "problem/operands.h"

namespace gemmtune::testing_problems {

struct Shape {
  std::int64_t m, n, k;
};

inline Problem problem_of(OperationForm operation, DataType type, const Shape& shape) {
  Problem p = default_problem(operation);
  p.m = shape.m;
  p.n = shape.n;
  p.k = shape.k;
  set_types(p, type);
  p.k = round_up(p.k, k_multiple(p));
  if (operation == Operation::a16w16) p.scale_ab = true;
  p.y_type = shape.n % 2 == 0 && operation != Operation::batched_bf16 && operation != Operation::batched_a8w8
                 ? DataType::f16
                 : DataType::bf16;
  return p;
}

/// An operation on int4 weights; a group of 0: whole rows, of even k.
inline Problem int4_problem(OperationForm operation, DataType type, const Shape& shape, std::int32_t group,
                            bool zero_points) {
  Problem p = problem_of(operation, type, shape);
  p.k = round_up(shape.k, std::max<std::int64_t>(group, 2));
  p.w_group = group == 0 ? static_cast<std::int32_t>(p.k) : group;
  p.zero_points = zero_points;
  return p;
}

/// NVFP4 and int4 weights: each operation with each type of x, groups of each size, with zero points and without.
inline std::vector<Problem> weight_format_problems(const Shape& shape) {
  using enum Operation;
  std::vector<Problem> all{
      problem_of(a16w4_nvfp4, DataType::bf16, shape), problem_of(a16w4_nvfp4, DataType::f16, shape),
      problem_of(a8w4_nvfp4, DataType::f8_e4m3fn, shape),
      problem_of(a8w4_nvfp4, DataType::f8_e4m3fnuz, shape), problem_of(a4w4_nvfp4, DataType::f4_e2m1, shape)};
  all[0].bias = all[2].bias = true;
  for (const std::int32_t group : {0, 32, 64, 128}) {
    const bool zero_points = group == 0 || group == 64;
    all.push_back(int4_problem(a16w4_int4, DataType::bf16, shape, group, zero_points));
    all.back().bias = zero_points;
    all.push_back(int4_problem(a8w4_int4, DataType::i8, shape, group, !zero_points));
  }
  all.push_back(int4_problem(a16w4_int4, DataType::f16, shape, 32, true));
  return all;
}

/// Every dense operation with each of its types.
inline std::vector<Problem> dense_problems(const Shape& shape) {
  std::vector<Problem> all;
  for (const DataType type : {DataType::f8_e4m3fn, DataType::f8_e4m3fnuz}) {
    all.push_back(problem_of(Operation::a16w16, type, shape));
    all.push_back(problem_of(Operation::a8w8, type, shape));
    all.push_back(problem_of(Operation::a8w8_blockscale, type, shape));
  }
  all.push_back(problem_of(Operation::a8w8, DataType::i8, shape));
  all.back().bias = true;
  all.push_back(problem_of(Operation::a4w4_blockscale, DataType::f4_e2m1, shape));
  all.push_back(problem_of(Operation::a16w4, DataType::bf16, shape));
  all.back().bias = true;
  all.push_back(problem_of(Operation::a16w4, DataType::f16, shape));
  all.push_back(problem_of(Operation::a8w4, DataType::f8_e4m3fn, shape));
  all.back().bias = true;
  all.push_back(problem_of(Operation::a8w4, DataType::f8_e4m3fnuz, shape));
  for (const Problem& problem : weight_format_problems(shape)) all.push_back(problem);
  all.push_back(problem_of(Operation::batched_bf16, DataType::bf16, shape));
  all.back().bias = true;
  all.push_back(problem_of(Operation::batched_a8w8, DataType::i8, shape));
  all.push_back(problem_of(Operation::batched_a8w8, DataType::f8_e4m3fnuz, shape));
  for (Problem& p : all)
    if (p.operation == Operation::batched_bf16 || p.operation == Operation::batched_a8w8) p.batch = 3;
  return all;
}

/// The same with a weight in a layout; false where the operation has none.
inline bool in_layout(Problem& p, WeightLayout layout) {
  if (layout == WeightLayout::plain) return true;
  p.weight_layout = layout;
  return cpu::check_layout(operand_shapes(p).w, layout).ok();
}

inline Problem moe_problem(DataType x, DataType w, QuantType quant, const Shape& shape) {
  Problem p = default_problem(Operation::fused_moe);
  const bool blocks = bits(x) == 4 || bits(w) == 4;
  p.m = shape.m;
  p.n = blocks ? (shape.n + 31) / 32 * 32 : shape.n;
  p.k = blocks ? (shape.k + 31) / 32 * 32 : shape.k;
  p.x_type = x;
  p.w_type = w;
  p.moe = {.experts = 5, .topk = 3, .activation = Activation::silu, .quant_type = quant, .gated = true};
  return p;
}

/// NVFP4 experts, or int4 ones with groups (0: whole rows), beside x of 16 bits.
inline Problem moe_of_weights_alone(DataType x, QuantType quant, const Shape& shape, std::int32_t group = 0,
                                    bool zero_points = false) {
  const bool int4 = quant == QuantType::per_group;
  Problem p = moe_problem(x, int4 ? DataType::i4 : DataType::f4_e2m1, quant, shape);
  p.y_type = x;
  p.zero_points = zero_points;
  if (int4) p.w_group = group == 0 ? static_cast<std::int32_t>(p.k) : group;
  p.n = round_up(shape.n, k_multiple(p));
  p.k = round_up(shape.k, k_multiple(p));
  if (int4 && group == 0) p.w_group = static_cast<std::int32_t>(p.k);
  return p;
}

/// Experts in the formats of weights alone: groups of each size and whole rows, with zero points and without.
inline std::vector<Problem> mixtures_of_weight_formats(const Shape& shape) {
  constexpr auto bf16 = DataType::bf16;
  constexpr auto f16 = DataType::f16;
  std::vector<Problem> all{moe_of_weights_alone(bf16, QuantType::per_1x16, shape),
                           moe_of_weights_alone(f16, QuantType::per_1x16, shape),
                           moe_of_weights_alone(bf16, QuantType::per_group, shape, 32),
                           moe_of_weights_alone(bf16, QuantType::per_group, shape, 128, true),
                           moe_of_weights_alone(f16, QuantType::per_group, shape, 64, true),
                           moe_of_weights_alone(bf16, QuantType::per_group, shape, 0, true)};
  all[0].bias = true;
  all[1].moe.gated = false;
  all[1].moe.activation = Activation::gelu;
  all[3].moe.shared_experts = 1;
  all[4].moe.doweight_stage1 = true;
  return all;
}

inline std::vector<Problem> mixtures(const Shape& shape) {
  constexpr auto bf16 = DataType::bf16;
  constexpr auto fn = DataType::f8_e4m3fn;
  constexpr auto fnuz = DataType::f8_e4m3fnuz;
  std::vector<Problem> all{moe_problem(bf16, bf16, QuantType::none, shape),
                           moe_problem(DataType::f16, DataType::f16, QuantType::none, shape),
                           moe_problem(DataType::i8, DataType::i8, QuantType::per_tensor, shape),
                           moe_problem(DataType::i8, DataType::i8, QuantType::per_token, shape),
                           moe_problem(fnuz, fnuz, QuantType::per_token, shape),
                           moe_problem(fn, fn, QuantType::per_1x128, shape),
                           moe_problem(fn, fn, QuantType::per_1x32, shape),
                           moe_problem(DataType::f4_e2m1, DataType::f4_e2m1, QuantType::per_1x32, shape),
                           moe_problem(bf16, DataType::f4_e2m1, QuantType::per_1x32, shape),
                           moe_problem(bf16, fn, QuantType::per_128x128, shape)};
  all[1].moe.gated = false;
  all[1].moe.activation = Activation::gelu;
  all[1].y_type = DataType::f16;
  all[3].moe.doweight_stage1 = true;
  all[3].moe.shared_experts = 1;
  all[4].moe.activation = Activation::gelu;
  all[5].moe.doweight_stage1 = true;
  all[6].moe.shared_experts = 2;
  all[8].moe.activation = Activation::swiglu;
  all[9].moe.activation = Activation::none;
  // MXFP4 weights with quantized tokens, and int4 weights.
  all.push_back(moe_problem(fn, DataType::f4_e2m1, QuantType::per_token, shape));
  all.push_back(moe_problem(fn, DataType::f4_e2m1, QuantType::per_1x32, shape));
  all.push_back(moe_problem(DataType::i8, DataType::f4_e2m1, QuantType::per_tensor, shape));
  all.push_back(moe_problem(bf16, DataType::i4, QuantType::per_token, shape));
  all.push_back(moe_problem(fn, DataType::i4, QuantType::per_token, shape));
  all[14].moe.gated = false;
  all[10].bias = true;
  all[11].moe.activation = Activation::swiglu;
  all[12].moe.doweight_stage1 = true;
  // With biases: without a gate, weights before the activation and a shared expert, scales of blocks, gpt-oss.
  for (const std::size_t biased : {1U, 3U, 5U, 8U}) {
    all.push_back(all[biased]);
    all.back().bias = true;
  }
  for (const Problem& problem : mixtures_of_weight_formats(shape)) all.push_back(problem);
  return all;
}

}  // namespace gemmtune::testing_problems
