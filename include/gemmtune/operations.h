// The one-call functions: plan from the cache, workspace kept by the context. Included by gemmtune.h.
#pragma once

#include <gemmtune/c.h>

#include <cstdint>

namespace gemmtune {
inline namespace api {

/// What gemm_a16w16 takes beside the matrices.
struct GemmOptions {
  const void* bias = nullptr;  // [N] of y's type
  Layout weight_layout = Layout::plain;
  int alignment = 16;                // bytes, promised for all pointers
  const Context* context = nullptr;  // null: the process's context, made from the environment
  void* stream = nullptr;            // null on a CPU
};

/// y[m, n] = x[m, k] · w[n, k]ᵀ (+ bias[n]) with the kernel that the config folder's tuned files name. x and
/// w have one type of bf16, f16, f32; y any of them. The weight is dense. Errors as Plan::run.
inline Status gemm_a16w16(View x, View w, MutableView y, std::int64_t m, std::int64_t n, std::int64_t k,
                          const GemmOptions& options = {}) {
  Problem asked{m, n, k, x.type, y.type, options.bias != nullptr, options.weight_layout, options.alignment};
  asked.w_type = w.type;
  const gemmtune_problem problem = asked.to_c();
  const gemmtune_operands operands =
      Operands{x.data, w.data, options.bias, y.data, x.leading, y.leading}.to_c();
  return Status(gemmtune_gemm_a16w16(options.context == nullptr ? nullptr : options.context->get(), &problem,
                                     &operands, options.stream));
}

namespace detail {
using OneCall = gemmtune_status (*)(gemmtune_context*, const gemmtune_problem*, const gemmtune_operands*,
                                    void*);

inline OneCall one_call(Operation operation) {
  switch (operation) {
    case Operation::a8w8:
      return gemmtune_gemm_a8w8;
    case Operation::a8w8_bpreshuffle:
      return gemmtune_gemm_a8w8_bpreshuffle;
    case Operation::a8w8_blockscale:
      return gemmtune_gemm_a8w8_blockscale;
    case Operation::a8w8_blockscale_bpreshuffle:
      return gemmtune_gemm_a8w8_blockscale_bpreshuffle;
    case Operation::a4w4_blockscale:
      return gemmtune_gemm_a4w4_blockscale;
    case Operation::batched_bf16:
      return gemmtune_gemm_batched_bf16;
    case Operation::batched_a8w8:
      return gemmtune_gemm_batched_a8w8;
    case Operation::fused_moe:
      return gemmtune_fused_moe;
    case Operation::a16w16:
      break;
  }
  return gemmtune_gemm_a16w16;
}
}  // namespace detail

/// Any operation in one call, by problem.operation: plan from the cache, workspace kept by the context.
/// `context` null: the process's context, made from the environment. On a CPU `stream` is null. Errors as
/// Plan::run.
inline Status gemm(const Problem& problem, const Operands& operands, const Context* context = nullptr,
                   void* stream = nullptr) {
  const gemmtune_problem asked = problem.to_c();
  const gemmtune_operands given = operands.to_c();
  return Status(detail::one_call(problem.operation)(context == nullptr ? nullptr : context->get(), &asked,
                                                    &given, stream));
}

/// As gemm() with problem.operation set to the function's own.
inline Status gemm_a8w8(Problem problem, const Operands& operands, const Context* context = nullptr,
                        void* stream = nullptr) {
  problem.operation = Operation::a8w8;
  return gemm(problem, operands, context, stream);
}
inline Status gemm_a8w8_bpreshuffle(Problem problem, const Operands& operands,
                                    const Context* context = nullptr, void* stream = nullptr) {
  problem.operation = Operation::a8w8_bpreshuffle;
  return gemm(problem, operands, context, stream);
}
inline Status gemm_a8w8_blockscale(Problem problem, const Operands& operands,
                                   const Context* context = nullptr, void* stream = nullptr) {
  problem.operation = Operation::a8w8_blockscale;
  return gemm(problem, operands, context, stream);
}
inline Status gemm_a8w8_blockscale_bpreshuffle(Problem problem, const Operands& operands,
                                               const Context* context = nullptr, void* stream = nullptr) {
  problem.operation = Operation::a8w8_blockscale_bpreshuffle;
  return gemm(problem, operands, context, stream);
}
inline Status gemm_a4w4_blockscale(Problem problem, const Operands& operands,
                                   const Context* context = nullptr, void* stream = nullptr) {
  problem.operation = Operation::a4w4_blockscale;
  return gemm(problem, operands, context, stream);
}
inline Status gemm_batched_bf16(Problem problem, const Operands& operands, const Context* context = nullptr,
                                void* stream = nullptr) {
  problem.operation = Operation::batched_bf16;
  return gemm(problem, operands, context, stream);
}
inline Status gemm_batched_a8w8(Problem problem, const Operands& operands, const Context* context = nullptr,
                                void* stream = nullptr) {
  problem.operation = Operation::batched_a8w8;
  return gemm(problem, operands, context, stream);
}
inline Status fused_moe(Problem problem, const Operands& operands, const Context* context = nullptr,
                        void* stream = nullptr) {
  problem.operation = Operation::fused_moe;
  return gemm(problem, operands, context, stream);
}

}  // namespace api
}  // namespace gemmtune
