// The C functions that plan and run in one call, one an operation.
#include "capi/c_support.h"

namespace gemmtune::c {
namespace {

struct OneCall {
  const char* function;
  const char* enumerator;
  Operation operation;
};

struct Asked {
  const gemmtune_problem* problem;
  const gemmtune_operands* operands;
};

struct Planned {
  const Problem& problem;
  LaunchPromises promises;
};

gemmtune_status run_short(Context& context, const Planned& asked, const gemmtune_operands& operands,
                          void* stream) {
  auto plan = context.plan(asked.problem, Stream{stream}, asked.promises);
  if (!plan.ok()) return fail(plan.status());
  auto workspace = context.workspaces().get((*plan)->workspace_bytes(), stream);
  if (!workspace.ok()) return fail(workspace.status());
  return run_plan(**plan, operands, *workspace, stream);
}

gemmtune_status run_operation(const OneCall& call, gemmtune_context* context, const Asked& asked,
                              void* stream) {
  Problem problem;
  LaunchPromises promises;
  if (const auto status = read_problem(asked.problem, problem, promises); status != GEMMTUNE_OK)
    return status;
  if (problem.operation != call.operation) {
    return guarded([&] {
      return fail(GEMMTUNE_INVALID_ARGUMENT, fmt::format("{}: operation {}, expected {}", call.function,
                                                         to_string(problem.operation), call.enumerator));
    });
  }
  if (problem.m == 0) return GEMMTUNE_OK;
  gemmtune_operands known;
  if (const auto status = read_operands(asked.operands, known); status != GEMMTUNE_OK) return status;
  if (context == nullptr) {
    if (const auto status = gemmtune_default_context(&context); status != GEMMTUNE_OK) return status;
  }
  const Planned planned{problem, promises};
  return guarded([&] { return run_short(*context->context, planned, known, stream); });
}

}  // namespace
}  // namespace gemmtune::c

namespace c = gemmtune::c;
using gemmtune::Operation;

extern "C" {

gemmtune_status gemmtune_gemm_a16w16(gemmtune_context* context, const gemmtune_problem* problem,
                                     const gemmtune_operands* operands, void* stream) {
  return c::run_operation({"gemmtune_gemm_a16w16", "GEMMTUNE_A16W16", Operation::a16w16}, context,
                          {problem, operands}, stream);
}

gemmtune_status gemmtune_gemm_a8w8(gemmtune_context* context, const gemmtune_problem* problem,
                                   const gemmtune_operands* operands, void* stream) {
  return c::run_operation({"gemmtune_gemm_a8w8", "GEMMTUNE_A8W8", Operation::a8w8}, context,
                          {problem, operands}, stream);
}

gemmtune_status gemmtune_gemm_a8w8_bpreshuffle(gemmtune_context* context, const gemmtune_problem* problem,
                                               const gemmtune_operands* operands, void* stream) {
  return c::run_operation(
      {"gemmtune_gemm_a8w8_bpreshuffle", "GEMMTUNE_A8W8_BPRESHUFFLE", Operation::a8w8_bpreshuffle}, context,
      {problem, operands}, stream);
}

gemmtune_status gemmtune_gemm_a8w8_blockscale(gemmtune_context* context, const gemmtune_problem* problem,
                                              const gemmtune_operands* operands, void* stream) {
  return c::run_operation(
      {"gemmtune_gemm_a8w8_blockscale", "GEMMTUNE_A8W8_BLOCKSCALE", Operation::a8w8_blockscale}, context,
      {problem, operands}, stream);
}

gemmtune_status gemmtune_gemm_a8w8_blockscale_bpreshuffle(gemmtune_context* context,
                                                          const gemmtune_problem* problem,
                                                          const gemmtune_operands* operands, void* stream) {
  return c::run_operation({"gemmtune_gemm_a8w8_blockscale_bpreshuffle",
                           "GEMMTUNE_A8W8_BLOCKSCALE_BPRESHUFFLE", Operation::a8w8_blockscale_bpreshuffle},
                          context, {problem, operands}, stream);
}

gemmtune_status gemmtune_gemm_a4w4_blockscale(gemmtune_context* context, const gemmtune_problem* problem,
                                              const gemmtune_operands* operands, void* stream) {
  return c::run_operation(
      {"gemmtune_gemm_a4w4_blockscale", "GEMMTUNE_A4W4_BLOCKSCALE", Operation::a4w4_blockscale}, context,
      {problem, operands}, stream);
}

gemmtune_status gemmtune_gemm_batched_bf16(gemmtune_context* context, const gemmtune_problem* problem,
                                           const gemmtune_operands* operands, void* stream) {
  return c::run_operation({"gemmtune_gemm_batched_bf16", "GEMMTUNE_BATCHED_BF16", Operation::batched_bf16},
                          context, {problem, operands}, stream);
}

gemmtune_status gemmtune_gemm_batched_a8w8(gemmtune_context* context, const gemmtune_problem* problem,
                                           const gemmtune_operands* operands, void* stream) {
  return c::run_operation({"gemmtune_gemm_batched_a8w8", "GEMMTUNE_BATCHED_A8W8", Operation::batched_a8w8},
                          context, {problem, operands}, stream);
}

gemmtune_status gemmtune_fused_moe(gemmtune_context* context, const gemmtune_problem* problem,
                                   const gemmtune_operands* operands, void* stream) {
  return c::run_operation({"gemmtune_fused_moe", "GEMMTUNE_FUSED_MOE", Operation::fused_moe}, context,
                          {problem, operands}, stream);
}

}  // extern "C"
