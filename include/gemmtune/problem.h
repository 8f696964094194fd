// Problems and operands: what is multiplied. Included by gemmtune.h.
#pragma once

#include <gemmtune/c.h>

#define GEMMTUNE_CPP_INTERFACE  // the C++ forms too, whoever included c.h before
#include <gemmtune/enumerations.h>

#include <cstdint>

namespace gemmtune {
inline namespace api {

/// The values of gemmtune_match.
enum class Match { exact, range, fine, coarse, untuned, bucket, fewer_threads };

/// An input on the context's device: its pointer, its type, and its leading dimension in elements (0: dense).
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
  int shared_experts =
      0;  // the last of the experts, counted in experts and topk; every token visits them with the weight 1
};

/// y[M, N] = x[M, K] · w[N, K]ᵀ (+ bias[N]), y row-major, accumulated in float32. Sizes in elements; m = 0 is
/// legal. gemmtune/c.h lists what each operation has.
struct Problem {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  Type x_type = Type::bf16;
  Type y_type = Type::unset;  // unset: x_type of a16w16 and batched_bf16, bf16 of the others
  bool bias = false;          // of y's type; of fused_moe two of float
  Layout weight_layout = Layout::plain;
  int alignment = 16;  // bytes, a power of two, promised for x, w, w2, biases and y
  Operation operation = Operation::a16w16;
  Type w_type = Type::unset;      // unset: x_type
  bool scale_ab = false;          // fp8 operands of a16w16
  std::int64_t batch = 1;         // of the batched operations
  MoeShape moe{};                 // of fused_moe
  bool constant_weights = false;  // these two together allow a programmatic dependent launch: gemmtune/c.h
  bool predecessor_triggers = false;
  Order x_order = Order::row_major;  // of a16w16; column_major: x is [K, M] row by row
  Order w_order = Order::row_major;  // column_major: w is [K, N] row by row
  bool e8m0_scales = false;          // of a8w8_blockscale: scales are powers of two, a byte each
  int w_group = 0;                   // of int4 weights: 32, 64, 128 or k elements of k share a scale; 0: k
  bool zero_points = false;          // of int4 weights
};

/// Pointers of one call. Leading dimensions in elements, 0: dense (ldx: k, of a column-major x m); the weight is dense. The table at
/// gemmtune_operands in gemmtune/c.h lists what each operation has.
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
  // These of fused_moe.
  const void* w2 = nullptr;
  const void* w2_scale = nullptr;
  const std::int32_t* topk_ids = nullptr;  // -1: an empty slot, which adds nothing
  const float* topk_weights = nullptr;
  const float* bias2 = nullptr;
  const float* x_global_scale = nullptr;  // of NVFP4 operands
  const float* w_global_scale = nullptr;
  const std::int8_t* w_zero_points = nullptr;  // of int4 weights that have them
  const float* w2_global_scale = nullptr;      // of fused_moe
  const std::int8_t* w2_zero_points = nullptr;
};

namespace detail {

/// A problem as the C functions take it.
class CProblem {
 public:
  explicit CProblem(const Problem& given) {
    problem_.size = sizeof problem_;
    problem_.operation = static_cast<gemmtune_operation>(given.operation);
    problem_.x_type = static_cast<gemmtune_type>(given.x_type);
    problem_.w_type = static_cast<gemmtune_type>(given.w_type);
    problem_.y_type = static_cast<gemmtune_type>(given.y_type);
    problem_.m = given.m;
    problem_.n = given.n;
    problem_.k = given.k;
    problem_.batch = given.batch;
    problem_.bias = given.bias ? 1 : 0;
    problem_.scale_ab = given.scale_ab ? 1 : 0;
    problem_.weight_layout = static_cast<gemmtune_layout>(given.weight_layout);
    problem_.alignment = given.alignment;
    problem_.constant_weights = given.constant_weights ? 1 : 0;
    problem_.predecessor_triggers = given.predecessor_triggers ? 1 : 0;
    problem_.x_order = static_cast<gemmtune_order>(given.x_order);
    problem_.w_order = static_cast<gemmtune_order>(given.w_order);
    problem_.e8m0_scales = given.e8m0_scales ? 1 : 0;
    problem_.w_group = given.w_group;
    problem_.zero_points = given.zero_points ? 1 : 0;
    if (given.operation != Operation::fused_moe) return;
    problem_.moe = &moe_;
    moe_.size = sizeof moe_;
    moe_.experts = given.moe.experts;
    moe_.topk = given.moe.topk;
    moe_.activation = static_cast<gemmtune_activation>(given.moe.activation);
    moe_.quant_type = static_cast<gemmtune_quant_type>(given.moe.quant_type);
    moe_.gated = given.moe.gated ? 1 : 0;
    moe_.doweight_stage1 = given.moe.doweight_stage1 ? 1 : 0;
    moe_.shared_experts = given.moe.shared_experts;
  }
  CProblem(const CProblem&) = delete;
  CProblem& operator=(const CProblem&) = delete;
  const gemmtune_problem* get() const noexcept { return &problem_; }

 private:
  gemmtune_problem problem_{};
  gemmtune_moe moe_{};
};

/// Operands as the C functions take them.
class COperands {
 public:
  explicit COperands(const Operands& given) {
    operands_.size = sizeof operands_;
    operands_.x = given.x;
    operands_.w = given.w;
    operands_.bias = given.bias;
    operands_.y = given.y;
    operands_.ldx = given.ldx;
    operands_.ldy = given.ldy;
    operands_.x_scale = given.x_scale;
    operands_.w_scale = given.w_scale;
    operands_.x_scale_per_tensor = given.x_scale_per_tensor ? 1 : 0;
    operands_.w_scale_per_tensor = given.w_scale_per_tensor ? 1 : 0;
    operands_.x_batch_stride = given.x_batch_stride;
    operands_.y_batch_stride = given.y_batch_stride;
    operands_.x_global_scale = given.x_global_scale;
    operands_.w_global_scale = given.w_global_scale;
    operands_.w_zero_points = given.w_zero_points;
    operands_.moe = &moe_;
    moe_.size = sizeof moe_;
    moe_.w2 = given.w2;
    moe_.w2_scale = given.w2_scale;
    moe_.topk_ids = given.topk_ids;
    moe_.topk_weights = given.topk_weights;
    moe_.bias2 = given.bias2;
    moe_.w2_global_scale = given.w2_global_scale;
    moe_.w2_zero_points = given.w2_zero_points;
  }
  COperands(const COperands&) = delete;
  COperands& operator=(const COperands&) = delete;
  const gemmtune_operands* get() const noexcept { return &operands_; }

 private:
  gemmtune_operands operands_{};
  gemmtune_moe_operands moe_{};
};

}  // namespace detail

}  // namespace api
}  // namespace gemmtune
