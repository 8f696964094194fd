// Problem: what is asked of a kernel. Plain data; checked by check().
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "numbers/weight_layout.h"
#include "problem/data_type.h"

namespace gemmtune {

enum class Operation {
  a16w16,
  a8w8,
  a8w8_bpreshuffle,
  a8w8_blockscale,
  a8w8_blockscale_bpreshuffle,
  a4w4_blockscale,
  batched_bf16,
  batched_a8w8,
  fused_moe,
};

std::string_view to_string(Operation operation);
/// Our names and AITER's aliases (bf16, a4w4, fmoe …), any case, '-' as '_'.
std::optional<Operation> parse_operation(std::string_view text);

/// T of tune_gemm's files: row-major; N: column-major.
enum class Order { row_major, column_major };

inline constexpr std::int64_t max_dimension = (std::int64_t{1} << 31) - 1;
inline constexpr std::int64_t max_tensor_bytes = std::int64_t{1} << 47;

/// y[M, N] = x[M, K] · w[N, K]ᵀ (+ bias[N]); see docs/guide.md for each operation's operands.
struct Problem {
  Operation operation = Operation::a16w16;
  std::int64_t m = 0;  // rows of x: tokens
  std::int64_t n = 0;  // rows of w: output features
  std::int64_t k = 0;  // reduction
  std::int64_t batch = 1;
  DataType x_type = DataType::bf16;  // of the weight too, for a16w16
  DataType w_type = DataType::bf16;
  DataType y_type = DataType::bf16;
  bool bias = false;         // [N], of y's type
  bool scale_ab = false;     // AITER's scaleAB: fp8 operands with one float32 scale each
  bool bpreshuffle = false;  // the weight was packed once; then `weight_layout` is not plain
  WeightLayout weight_layout =
      WeightLayout::plain;  // `any` while a pre-shuffled weight's layout is not decided
  Order x_order = Order::row_major;
  Order w_order = Order::row_major;
  Order y_order = Order::row_major;
  std::int32_t alignment = 16;  // bytes, promised for every operand pointer

  friend bool operator==(const Problem&, const Problem&) = default;
};

/// Sizes within the limits (dimensions ≥ 1 and ≤ 2³¹ − 1, tensors ≤ 2⁴⁷ bytes), types the operation allows,
/// layout and bpreshuffle in agreement. The text names the field, its value and what was expected.
Status check(const Problem& problem);

/// One line, stable: "a16w16 m=1 n=2048 k=2048 x=bf16 w=bf16 y=bf16 bias=0 scale_ab=0 layout=plain"; fields
/// at their default (batch, orders, alignment) are left out. parse_problem(print(p)) == p.
std::string print(const Problem& problem);
Result<Problem> parse_problem(std::string_view text);

/// Short form for tables and messages: "1x2048x2048 bf16" (+ "+bias", "→f32", "packed").
std::string short_name(const Problem& problem);

/// 2·M·N·K·batch.
double flops(const Problem& problem);
/// Bytes of x, w and y, each once, at their types; scales and bias are not counted.
double bytes(const Problem& problem);
/// Bytes of the plain weight.
std::int64_t weight_bytes(const Problem& problem);

}  // namespace gemmtune
