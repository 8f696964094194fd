// Problems and operands: what is multiplied. Included by gemmtune.h.
#pragma once

#include <gemmtune/c.h>

#include <cstdint>

namespace gemmtune {
inline namespace api {

// The values of gemmtune_type, gemmtune_operation and so on.
enum class Type { unset, bf16, f16, f32, f8_e4m3fn, f8_e4m3fnuz, i8, f4_e2m1, u8, i4 };
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
enum class QuantType { none, per_tensor, per_token, per_1x32, per_1x128, per_128x128 };
enum class Activation { none, silu, gelu, swiglu, situv2 };
enum class Layout { plain, panel16, onednn, aiter16x16, tile64x128 };
enum class Match { exact, range, fine, coarse, untuned };

/// An input on the context's device: its pointer, its type, and how far its rows lie apart in elements (0:
/// dense).
struct View {
  const void* data = nullptr;
  Type type = Type::unset;
  std::int64_t leading = 0;
};

/// An output, likewise; it may serve as an input, too.
struct MutableView {
  void* data = nullptr;
  Type type = Type::unset;
  std::int64_t leading = 0;

  operator View() const { return {data, type, leading}; }  // NOLINT(google-explicit-constructor)
};

inline View bf16(const void* data, std::int64_t leading = 0) { return {data, Type::bf16, leading}; }
inline View f16(const void* data, std::int64_t leading = 0) { return {data, Type::f16, leading}; }
inline View f32(const float* data, std::int64_t leading = 0) { return {data, Type::f32, leading}; }
inline MutableView bf16(void* data, std::int64_t leading = 0) { return {data, Type::bf16, leading}; }
inline MutableView f16(void* data, std::int64_t leading = 0) { return {data, Type::f16, leading}; }
inline MutableView f32(float* data, std::int64_t leading = 0) { return {data, Type::f32, leading}; }

/// What a mixture of experts has beside the sizes.
struct MoeShape {
  int experts = 0;
  int topk = 0;  // experts that a token is sent to
  Activation activation = Activation::none;
  QuantType quant_type = QuantType::none;
  bool gated = false;            // w1 holds a gate and an up half
  bool doweight_stage1 = false;  // the routing weight is applied after the first GEMM
};

/// y[M, N] = x[M, K] · w[N, K]ᵀ (+ bias[N]), row-major, accumulated in float32. Sizes in elements; m = 0 is
/// legal. What else an operation has is said in gemmtune/c.h.
struct Problem {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  Type x_type = Type::bf16;
  Type y_type = Type::unset;  // unset: x_type of a16w16 and batched_bf16, bf16 of the others
  bool bias = false;          // of y's type
  Layout weight_layout = Layout::plain;
  int alignment = 16;  // bytes, a power of two, promised for all four pointers
  Operation operation = Operation::a16w16;
  Type w_type = Type::unset;      // unset: x_type
  bool scale_ab = false;          // fp8 operands of a16w16
  std::int64_t batch = 1;         // of the batched operations
  MoeShape moe{};                 // of fused_moe
  bool constant_weights = false;  // these two together allow a programmatic dependent launch: gemmtune/c.h
  bool predecessor_triggers = false;

  gemmtune_problem to_c() const {
    gemmtune_problem problem{};
    problem.size = sizeof problem;
    problem.operation = static_cast<gemmtune_operation>(operation);
    problem.x_type = static_cast<gemmtune_type>(x_type);
    problem.w_type = static_cast<gemmtune_type>(w_type);
    problem.y_type = static_cast<gemmtune_type>(y_type);
    problem.m = m;
    problem.n = n;
    problem.k = k;
    problem.bias = bias ? 1 : 0;
    problem.weight_layout = static_cast<gemmtune_layout>(weight_layout);
    problem.alignment = alignment;
    problem.scale_ab = scale_ab ? 1 : 0;
    problem.batch = batch;
    problem.constant_weights = constant_weights ? 1 : 0;
    problem.predecessor_triggers = predecessor_triggers ? 1 : 0;
    problem.experts = moe.experts;
    problem.topk = moe.topk;
    problem.activation = static_cast<gemmtune_activation>(moe.activation);
    problem.quant_type = static_cast<gemmtune_quant_type>(moe.quant_type);
    problem.gated = moe.gated ? 1 : 0;
    problem.doweight_stage1 = moe.doweight_stage1 ? 1 : 0;
    return problem;
  }
};

/// Pointers of one call. Leading dimensions in elements, 0: dense; the weight is dense. What each operation
/// has is said at gemmtune_operands in gemmtune/c.h.
struct Operands {
  const void* x = nullptr;
  const void* w = nullptr;
  const void* bias = nullptr;
  void* y = nullptr;
  std::int64_t ldx = 0;
  std::int64_t ldy = 0;
  const void* x_scale = nullptr;
  const void* w_scale = nullptr;
  bool x_scale_per_tensor = false;
  bool w_scale_per_tensor = false;
  std::int64_t x_batch_stride = 0;
  std::int64_t y_batch_stride = 0;
  const void* w2 = nullptr;
  const void* w2_scale = nullptr;
  const std::int32_t* topk_ids = nullptr;
  const float* topk_weights = nullptr;

  gemmtune_operands to_c() const {
    gemmtune_operands operands{};
    operands.size = sizeof operands;
    operands.x = x;
    operands.w = w;
    operands.bias = bias;
    operands.y = y;
    operands.ldx = ldx;
    operands.ldy = ldy;
    operands.x_scale = x_scale;
    operands.w_scale = w_scale;
    operands.x_scale_per_tensor = x_scale_per_tensor ? 1 : 0;
    operands.w_scale_per_tensor = w_scale_per_tensor ? 1 : 0;
    operands.x_batch_stride = x_batch_stride;
    operands.y_batch_stride = y_batch_stride;
    operands.w2 = w2;
    operands.w2_scale = w2_scale;
    operands.topk_ids = topk_ids;
    operands.topk_weights = topk_weights;
    return operands;
  }
};

}  // namespace api
}  // namespace gemmtune
