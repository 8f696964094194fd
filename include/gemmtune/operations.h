// The one-call functions: plan from the cache, workspace kept by the context. Included by gemmtune.h.
#pragma once

#include <gemmtune/c.h>

#include <cstdint>

namespace gemmtune {
inline namespace api {

/// Any operation in one call, by problem.operation: plan from the cache, workspace kept by the context.
/// `context` null: the process's context, created from the environment. On a CPU `stream` is null. Errors as
/// Plan::run.
inline Status gemm(const Problem& problem, const Operands& operands, const Context* context = nullptr,
                   void* stream = nullptr) {
  return Status(gemmtune_gemm(context == nullptr ? nullptr : context->get(), detail::CProblem(problem).get(),
                              detail::COperands(operands).get(), stream));
}

/// The scales of one operand: how many, 0 if it has none, and f32, u8 (e8m0), f8_e4m3fn, bf16 or f16.
struct ScaleCount {
  std::int64_t count = 0;
  Type type = Type::unset;
  bool or_one = false;           // one for all rows is enough (Operands::x_scale_per_tensor)
  bool global = false;           // a float more is required (Operands::x_global_scale)
  std::int64_t zero_points = 0;  // how many
};

/// The scales of a problem's operands; w2 of fused_moe.
struct Scales {
  ScaleCount x;
  ScaleCount w;
  ScaleCount w2;
};

/// By the table at gemmtune_operands in gemmtune/c.h. Errors of a problem that no kernel may have.
inline Result<Scales> scales(const Problem& problem) {
  gemmtune_scales known{};
  known.size = sizeof known;
  if (Status status(gemmtune_problem_scales(detail::CProblem(problem).get(), &known)); !status.ok())
    return status;
  return Scales{
      {known.x, static_cast<Type>(known.x_type), known.x_or_one != 0, known.x_global != 0},
      {known.w, static_cast<Type>(known.w_type), known.w_or_one != 0, known.w_global != 0,
       known.w_zero_points},
      {known.w2, static_cast<Type>(known.w2_type), false, known.w2_global != 0, known.w2_zero_points}};
}

/// What gemm of views takes beside the matrices.
struct GemmOptions {
  const void* bias = nullptr;  // [N] of y's type
  Layout weight_layout = Layout::plain;
  int alignment = 16;                // bytes, promised for all pointers
  const Context* context = nullptr;  // null: the process's context, created from the environment
  void* stream = nullptr;            // null on a CPU
  Order x_order = Order::row_major;  // column_major: x is [k, m] row by row
  Order w_order = Order::row_major;  // column_major: w is [k, n] row by row
};

/// a16w16: y[m, n] = x[m, k] · w[n, k]ᵀ (+ bias[n]) with the kernel that the tuned files name. x and w have
/// one type of bf16, f16, f32; y any of them. The weight is dense. Errors as Plan::run.
inline Status gemm(View x, View w, MutableView y, std::int64_t m, std::int64_t n, std::int64_t k,
                   const GemmOptions& options = {}) {
  Problem problem{m, n, k, x.type, y.type, options.bias != nullptr, options.weight_layout, options.alignment};
  problem.w_type = w.type;
  problem.x_order = options.x_order;
  problem.w_order = options.w_order;
  return gemm(problem, {x.data, w.data, options.bias, y.data, x.leading, y.leading}, options.context,
              options.stream);
}

}  // namespace api
}  // namespace gemmtune
