// A dense GEMM for tests of kernel families.
#pragma once

#include <cstdint>

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
  Problem problem = default_problem(operation);
  problem.m = m;
  problem.n = n;
  problem.k = k;
  problem.x_type = problem.w_type = type;
  problem.bias = bias;
  return problem;
}

/// An operation on an MXFP4 weight: a4w4_blockscale, a16w4, a8w4. y has the operation's default type.
inline Problem of_fp4(Operation operation, std::int64_t m, std::int64_t n, std::int64_t k,
                      bool bias = false) {
  Problem problem = default_problem(operation);
  problem.m = m;
  problem.n = n;
  problem.k = k;
  problem.bias = bias;
  return problem;
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
