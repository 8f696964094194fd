#include "interpose/call.h"

#include <algorithm>

namespace gemmtune::interpose {
namespace {

namespace api = cuda::api;

constexpr std::int64_t alignment = 16;  // bytes; that of tuned rows

/// Unset for types that gemmtune has no kernels of.
gemmtune_type type_of(int code) {
  switch (code) {
    case api::type_f32:
      return GEMMTUNE_F32;
    case api::type_f16:
      return GEMMTUNE_F16;
    case api::type_bf16:
      return GEMMTUNE_BF16;
    case api::type_e4m3:
      return GEMMTUNE_F8_E4M3FN;
    default:
      return GEMMTUNE_TYPE_UNSET;
  }
}

bool is_aligned(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % alignment == 0; }

/// Rows of `columns` elements do not meet: one batch follows another, or the same row of all batches lies side by side.
bool are_apart(const Call& call, std::int64_t stride, std::int64_t leading, std::int64_t columns) {
  return stride >= call.n * leading ||
         (stride >= columns && stride <= leading && leading - columns >= (call.batch - 1) * stride);
}

/// batched_bf16 takes dense weights one behind the other, all row-major, of 16-byte rows.
bool is_batch_of_ours(const Call& call) {
  return call.a_type == api::type_bf16 && call.d_type == api::type_bf16 && call.transpose_a &&
         !call.transpose_b && call.bias == nullptr && call.stride_a == call.m * call.k &&
         are_apart(call, call.stride_b, call.ldb, call.k) &&
         are_apart(call, call.stride_d, call.ldd, call.m) && call.stride_b % 8 == 0 && call.stride_d % 8 == 0;
}

}  // namespace

Posed pose(const Call& call) {
  Posed posed;
  const auto refuse = [&](Outcome why) {
    posed.outcome = why;
    return posed;
  };
  const gemmtune_type x_type = type_of(call.b_type);
  const gemmtune_type y_type = type_of(call.d_type);
  const bool fp8 = x_type == GEMMTUNE_F8_E4M3FN;
  if (x_type == GEMMTUNE_TYPE_UNSET || call.a_type != call.b_type || y_type == GEMMTUNE_TYPE_UNSET ||
      y_type == GEMMTUNE_F8_E4M3FN)
    return refuse(Outcome::types);
  if (fp8 != (call.a_scale != nullptr && call.b_scale != nullptr) ||
      (!fp8 && (call.a_scale != nullptr || call.b_scale != nullptr)))
    return refuse(Outcome::scales);
  const std::int64_t least = std::min({call.m, call.n, call.k, call.batch});
  const std::int64_t most = std::max({call.m, call.n, call.k, call.lda, call.ldb, call.ldd});
  if (least < 1 || most > INT32_MAX) return refuse(Outcome::layout);
  // The weight is dense; rows of x and y may be farther apart.
  const std::int64_t x_row = call.transpose_b ? call.n : call.k;
  if (call.lda != (call.transpose_a ? call.k : call.m) || call.ldb < x_row || call.ldd < call.m)
    return refuse(Outcome::layout);
  if (call.batch > 1 && !is_batch_of_ours(call)) return refuse(Outcome::batch);
  if (!is_aligned(call.a) || !is_aligned(call.b) || !is_aligned(call.d) || !is_aligned(call.bias))
    return refuse(Outcome::alignment);

  gemmtune_problem& problem = posed.problem;
  problem.size = sizeof problem;
  problem.operation = call.batch > 1 ? GEMMTUNE_BATCHED_BF16 : GEMMTUNE_A16W16;
  problem.x_type = problem.w_type = x_type;
  problem.y_type = y_type;
  problem.m = call.n;
  problem.n = call.m;
  problem.k = call.k;
  problem.batch = call.batch;
  problem.bias = call.bias != nullptr ? 1 : 0;
  problem.scale_ab = fp8 ? 1 : 0;
  problem.alignment = alignment;
  problem.x_order = call.transpose_b ? GEMMTUNE_COLUMN_MAJOR : GEMMTUNE_ROW_MAJOR;
  problem.w_order = call.transpose_a ? GEMMTUNE_ROW_MAJOR : GEMMTUNE_COLUMN_MAJOR;
  gemmtune_operands& operands = posed.operands;
  operands.size = sizeof operands;
  operands.x = call.b;
  operands.w = call.a;
  operands.bias = call.bias;
  operands.y = call.d;
  operands.ldx = call.ldb;
  operands.ldy = call.ldd;
  operands.x_scale = call.b_scale;
  operands.w_scale = call.a_scale;
  if (call.batch > 1) {
    operands.x_batch_stride = call.stride_b;
    operands.y_batch_stride = call.stride_d;
  }
  return posed;
}

}  // namespace gemmtune::interpose
