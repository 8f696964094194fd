// Problem: what is asked of a kernel. Plain data; checked by check().
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "numbers/data_type.h"
#include "numbers/weight_layout.h"
#include "problem/operation.h"

namespace gemmtune {

/// The function between the two GEMMs of a mixture of experts (ActivationType.Silu …).
enum class Activation { none, silu, gelu, swiglu, situv2 };
/// swiglu is gpt-oss's: gate and up are clamped, silu has a slope, 1 is added to up.
inline constexpr double swiglu_limit = 7;
inline constexpr double swiglu_alpha = 1.702;
std::span<const Activation> all_activations();
/// "No", "Silu" …: AITER's words without "ActivationType.".
std::string_view to_string(Activation activation);
/// With or without "ActivationType.", any case.
std::optional<Activation> parse_activation(std::string_view text);

/// What fused_moe has beside the sizes; all zero elsewhere.
struct MoeShape {
  std::int32_t experts = 0;
  std::int32_t topk = 0;  // experts a token is sent to
  // The last of the experts, which every token visits with the weight 1. They count in experts and topk, as in
  // AITER's rows; operands have ids and weights of the other slots alone.
  std::int32_t shared_experts = 0;
  Activation activation = Activation::none;
  QuantType quant_type = QuantType::none;
  bool gated = false;            // AITER's use_g1u1: w1 holds a gate and an up half
  bool doweight_stage1 = false;  // the routing weight is applied after the first GEMM
  std::int32_t routed_experts() const { return experts - shared_experts; }
  std::int32_t routed_topk() const { return topk - shared_experts; }
  friend bool operator==(const MoeShape&, const MoeShape&) = default;
};

/// How a matrix lies in memory. row_major: x is [M, K] and w [N, K], row by row; column_major: x is [K, M] and w
/// [K, N], row by row. T and N in texts, tune_gemm's letters of A.
enum class Order { row_major, column_major };
/// "T", "N".
std::string_view to_string(Order order);
std::optional<Order> parse_order(std::string_view text);

inline constexpr std::int64_t max_dimension = (std::int64_t{1} << 31) - 1;
inline constexpr std::int64_t max_tensor_bytes = std::int64_t{1} << 47;

/// y[M, N] = x[M, K] · w[N, K]ᵀ (+ bias[N]); see docs/operations.md for each operation's operands. Of fused_moe M
/// is the number of tokens, N inter_dim (of one half, where gated) and K model_dim.
struct Problem {
  Operation operation = Operation::a16w16;
  std::int64_t m = 0;                // rows of x: tokens
  std::int64_t n = 0;                // rows of w: output features
  std::int64_t k = 0;                // reduction
  std::int64_t batch = 1;            // of the batched operations; 1 elsewhere
  DataType x_type = DataType::bf16;  // of the weight too, but for fused_moe
  DataType w_type = DataType::bf16;
  DataType y_type = DataType::bf16;
  bool bias = false;         // [N], of y's type; of fused_moe both, bias1 and bias2
  bool scale_ab = false;     // AITER's scaleAB: fp8 operands with one float32 scale each
  bool e8m0_scales = false;  // of a8w8_blockscale: scales are powers of two, a byte each (ue8m0), not float32
  // Not plain: the weight was packed once, AITER's bpreshuffle; `any` while its layout is not decided.
  WeightLayout weight_layout = WeightLayout::plain;
  Order x_order = Order::row_major;
  Order w_order = Order::row_major;
  std::int32_t alignment = 16;  // bytes, promised for every operand pointer
  std::int32_t w_group = 0;     // of an int4 weight: elements of k that share a scale; K: has_whole_rows()
  bool zero_points = false;     // of an int4 weight: an int8 beside each scale
  MoeShape moe{};

  friend bool operator==(const Problem&, const Problem&) = default;
};

/// Sizes within the limits (dimensions ≥ 1 and ≤ 2³¹ − 1, tensors ≤ 2⁴⁷ bytes), types the operation allows,
/// column-major operands of a16w16 alone, and none of a packed weight. The text names the field, its value and what was
/// expected.
Status check(const Problem& problem);

inline bool is_packed(const Problem& problem) { return problem.weight_layout != WeightLayout::plain; }
/// What words, files and variables call the problem's operation.
inline OperationForm form_of(const Problem& problem) { return {problem.operation, is_packed(problem)}; }
/// ok where `form` is the problem's; else its layout is not what was expected.
Status check_form(OperationForm form, const Problem& problem);

/// x and w lie in memory row by row, as y always does, and as most kernels and file formats take for granted.
inline bool all_row_major(const Problem& problem) {
  return problem.x_order == Order::row_major && problem.w_order == Order::row_major;
}

/// The problem of an operation's form with the types and the layout that its tables mean where they do not say: bf16
/// for a16w16 and batched_bf16, fp8 e4m3fn for the block-scaled ones and a8w4, int8 for the other a8w8, fp4 for a4w4,
/// y bf16; layout `any` for the pre-shuffled ones; groups of 128 without zero points for int4 weights.
Problem default_problem(OperationForm form);
/// The same for a device: fp8 is the one that it computes with (device_fp8).
Problem default_problem(OperationForm form, std::string_view architecture);

/// One line, stable: "a16w16 m=1 n=2048 k=2048 x=bf16 w=bf16 y=bf16 bias=0 scale_ab=0 layout=plain"; fields
/// at their default (batch, orders, alignment, those of fused_moe) are left out; int4 weights have group=128, or group=row
/// for whole rows. parse_problem(print(p)) == p.
std::string print(const Problem& problem);
Result<Problem> parse_problem(std::string_view text);
/// The same where words of types are those of a device (data_type_on); print() writes none of them.
Result<Problem> parse_problem(std::string_view text, std::string_view architecture);

/// Short form for tables and messages: "1x2048x2048 bf16" (+ "→f32", "x:N" and "w:N" of column-major operands,
/// "+bias", "packed").
std::string short_name(const Problem& problem);

/// True for a mixture of experts: `moe` holds.
inline bool is_mixture(const Problem& problem) { return traits(problem.operation).mixture; }
/// How x and w are quantized: the operation's way, per_tensor with scaleAB, a mixture's own. Where w has a format of its own
/// (a16w4, a8w4_int4 …) how x is.
QuantType quantization(const Problem& problem);
QuantType weight_quantization(const Problem& problem);
/// Some operand has scales.
inline bool is_quantized(const Problem& problem) {
  return quantization(problem) != QuantType::none || traits(problem.operation).w_quantization.has_value();
}
/// x's type, and w's where the operation has none of its own for it.
inline void set_types(Problem& problem, DataType type) {
  problem.x_type = type;
  if (!traits(problem.operation).own_w_type()) problem.w_type = type;
}
/// The weight has groups (Problem::w_group), and may have zero points.
inline bool has_weight_groups(const Problem& problem) {
  return weight_quantization(problem) == QuantType::per_group;
}
/// Each row of the weight has one scale, of w1 and w2 of a mixture. Where K is itself one of weight_groups, its groups are of
/// so many elements, which is another thing for w2 alone.
bool has_whole_rows(const Problem& problem);
/// A group as texts have it: "128", or "row" for K elements.
std::string group_text(const Problem& problem);
/// Of such a text; "row" is problem.k, which is set before. False for other texts.
bool parse_group(std::string_view text, Problem& problem);

/// 2·M·N·K·batch; of fused_moe both GEMMs of every (token, expert) pair.
double flops(const Problem& problem);
/// Bytes of x, w and y, each once, at their types; scales and bias are not counted. Of fused_moe all experts'
/// weights.
double bytes(const Problem& problem);
/// Bytes of the plain weight (of both weights of all experts).
std::int64_t weight_bytes(const Problem& problem);

}  // namespace gemmtune
