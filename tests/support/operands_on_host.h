// The operands of a call on a CPU.
#pragma once

#include <cstddef>
#include <vector>

#include "backends/backend.h"
#include "problem/operands.h"
#include "verify/inputs.h"

namespace gemmtune::testing {

/// Dense rows of `host`, which must outlive it; null where the problem has no such operand. The weight is plain.
inline Operands operands_on_host(const Problem& problem, const HostOperands& host, void* y) {
  const auto or_null = [](const std::vector<std::byte>& bytes) -> const void* {
    return bytes.empty() ? nullptr : bytes.data();
  };
  const std::int64_t columns = output_columns(problem);
  return {.x = host.x.data(),
          .w = host.w.data(),
          .bias = or_null(host.bias),
          .x_scale = or_null(host.x_scale),
          .w_scale = or_null(host.w_scale),
          .y = y,
          .ldx = problem.k,
          .ldy = columns,
          .x_batch_stride = problem.m * problem.k,
          .y_batch_stride = problem.m * columns,
          .w2 = or_null(host.w2),
          .w2_scale = or_null(host.w2_scale),
          .bias2 = static_cast<const float*>(or_null(host.bias2)),
          .topk_ids = host.topk_ids.data(),
          .topk_weights = host.topk_weights.data(),
          .x_global_scale = or_null(host.x_global_scale),
          .w_global_scale = or_null(host.w_global_scale),
          .w_zero_points = or_null(host.w_zero_points),
          .w2_global_scale = or_null(host.w2_global_scale),
          .w2_zero_points = or_null(host.w2_zero_points)};
}

}  // namespace gemmtune::testing
