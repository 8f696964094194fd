// A dense GEMM for tests of kernel families.
#pragma once

#include <cstdint>
#include <vector>

#include "problem/problem.h"

namespace gemmtune {

/// fp8 operands have a scale each.
inline Problem dense(std::int64_t m, std::int64_t n, std::int64_t k, DataType x = DataType::bf16,
                     DataType y = DataType::bf16, bool bias = false) {
  Problem problem;
  problem.m = m;
  problem.n = n;
  problem.k = k;
  problem.x_type = problem.w_type = x;
  problem.y_type = y;
  problem.bias = bias;
  problem.scale_ab = x == DataType::f8_e4m3fn;
  return problem;
}

/// A dense operation on 8-bit operands with scales.
inline Problem quantized(Operation operation, std::int64_t m, std::int64_t n, std::int64_t k, DataType type,
                         bool bias = false) {
  Problem problem = default_problem({operation, false});
  problem.m = m;
  problem.n = n;
  problem.k = k;
  problem.x_type = problem.w_type = type;
  problem.bias = bias;
  return problem;
}

/// An operation on an MXFP4 weight (a4w4_blockscale, a16w4, a8w4) or an NVFP4 one. y has the operation's default type.
inline Problem of_fp4(Operation operation, std::int64_t m, std::int64_t n, std::int64_t k,
                      bool bias = false) {
  Problem problem = default_problem({operation, false});
  problem.m = m;
  problem.n = n;
  problem.k = k;
  problem.bias = bias;
  return problem;
}

/// An operation on an int4 weight. `group`: elements with a scale; k: whole rows.
inline Problem of_int4(Operation operation, std::int64_t m, std::int64_t n, std::int64_t k,
                       std::int64_t group, bool zero_points = false, bool bias = false) {
  Problem problem = of_fp4(operation, m, n, k, bias);
  problem.w_group = static_cast<std::int32_t>(group);
  problem.zero_points = zero_points;
  return problem;
}

/// The groups of an int4 weight that k is a multiple of, and whole rows.
inline std::vector<std::int64_t> groups_of(std::int64_t k) {
  std::vector<std::int64_t> groups;
  for (const std::int64_t group : weight_groups)
    if (k % group == 0 && group != k) groups.push_back(group);
  groups.push_back(k);
  return groups;
}

/// a16w4_nvfp4, and a16w4_int4 of every group; bias and zero points by turns.
inline std::vector<Problem> nvfp4_and_int4(std::int64_t m, std::int64_t n, std::int64_t k) {
  std::vector<Problem> problems{of_fp4(Operation::a16w4_nvfp4, m, n, k, m % 2 == 0)};
  for (const std::int64_t group : groups_of(k))
    problems.push_back(of_int4(Operation::a16w4_int4, m, n, k, group, (group / 32 + m) % 2 == 0, m % 2 == 1));
  return problems;
}

/// a8w8_blockscale of fp8 with scales that are powers of two.
inline Problem with_e8m0_scales(std::int64_t m, std::int64_t n, std::int64_t k) {
  Problem problem = quantized(Operation::a8w8_blockscale, m, n, k, DataType::f8_e4m3fn);
  problem.e8m0_scales = true;
  return problem;
}

/// batched_bf16, or batched_a8w8 of 8-bit operands.
inline Problem batched(std::int64_t batch, std::int64_t m, std::int64_t n, std::int64_t k,
                       DataType type = DataType::bf16, bool bias = false) {
  Problem problem = quantized(type == DataType::bf16 ? Operation::batched_bf16 : Operation::batched_a8w8, m,
                              n, k, type, bias);
  problem.batch = batch;
  return problem;
}

}  // namespace gemmtune
