// The C function that plans and runs in one call.
#include "capi/c_support.h"
#include "dispatch/planner.h"

namespace gemmtune::c {
namespace {

struct Planned {
  const Problem& problem;
  LaunchPromises promises;
};

gemmtune_status plan_and_run(Context& context, const Planned& asked, const gemmtune_operands* operands,
                             void* stream) {
  auto plan = context.plan(asked.problem, Stream{stream}, asked.promises);
  if (!plan.ok()) return report(plan.status());
  const CallOperands call = read_operands(**plan, operands);  // before the workspace, which may be large
  if (call.status != GEMMTUNE_OK) return call.status;
  auto workspace = context.workspaces().get((*plan)->workspace_bytes(), stream);
  if (!workspace.ok()) return report(workspace.status());
  return run_plan(**plan, call.operands, *workspace, stream);
}

}  // namespace
}  // namespace gemmtune::c

namespace c = gemmtune::c;

extern "C" gemmtune_status gemmtune_gemm(gemmtune_context* context, const gemmtune_problem* problem,
                                         const gemmtune_operands* operands, void* stream) {
  gemmtune_problem known;
  gemmtune::Problem asked;
  if (const auto status = c::read_problem(problem, known, asked); status != GEMMTUNE_OK) return status;
  if (asked.weight_layout == gemmtune::WeightLayout::any) {
    return c::fail(GEMMTUNE_INVALID_ARGUMENT,
                   "gemmtune_gemm: weight_layout is any, expected the layout that w has "
                   "(gemmtune_weight_layout)");
  }
  if (gemmtune::writes_nothing(asked))
    return c::guarded([&] { return c::report(gemmtune::check_runnable(asked)); });
  if (context == nullptr) {
    if (const auto status = gemmtune_default_context(&context); status != GEMMTUNE_OK) return status;
  }
  const c::Planned planned{asked, c::promises_of(known)};
  return c::guarded([&] { return c::plan_and_run(*context->context, planned, operands, stream); });
}
