// The C functions of plans: create, ask, run, and the one-call form.
#include <utility>

#include "dispatch/c_support.h"

namespace gemmtune::c {
namespace {

constexpr std::uintptr_t workspace_alignment = 64;

gemmtune_status fail_dimension(const char* name, std::int64_t value, std::int64_t least) noexcept {
  return guarded([&] {
    return fail(GEMMTUNE_INVALID_ARGUMENT,
                fmt::format("{} = {}, expected {} to {} elements", name, value, least, max_dimension));
  });
}

gemmtune_status fail_misaligned(const char* name, const void* pointer, std::int64_t alignment) noexcept {
  return guarded([&] {
    return fail(GEMMTUNE_MISALIGNED,
                fmt::format("{} = {}, expected a multiple of {} bytes", name, pointer, alignment));
  });
}

bool misaligned(const void* pointer, std::uintptr_t mask) {
  return (reinterpret_cast<std::uintptr_t>(pointer) & mask) != 0;
}

/// Names the operand at fault; called once something is known to be wrong.
gemmtune_status explain_pointers(const Problem& problem, const Operands& operands) noexcept {
  const std::pair<const char*, const void*> required[] = {
      {"x", operands.x},
      {"w", operands.w},
      {"y", operands.y},
      {"bias", problem.bias ? operands.bias : operands.x}};
  for (const auto& [name, pointer] : required) {
    if (pointer == nullptr) return fail_null("gemmtune_operands", name);
  }
  for (const auto& [name, pointer] : required) {
    if (misaligned(pointer, static_cast<std::uintptr_t>(problem.alignment) - 1)) {
      return fail_misaligned(name, pointer, problem.alignment);
    }
  }
  return fail_null("gemmtune_operands", "x_scale or w_scale");
}

gemmtune_status check_operands(const Problem& problem, const Operands& operands) noexcept {
  const void* bias = problem.bias ? operands.bias : operands.x;
  const auto together = reinterpret_cast<std::uintptr_t>(operands.x) |
                        reinterpret_cast<std::uintptr_t>(operands.w) |
                        reinterpret_cast<std::uintptr_t>(operands.y) | reinterpret_cast<std::uintptr_t>(bias);
  const bool null =
      operands.x == nullptr || operands.w == nullptr || operands.y == nullptr || bias == nullptr;
  const bool no_scale = problem.scale_ab && (operands.x_scale == nullptr || operands.w_scale == nullptr);
  if (null || no_scale || (together & (static_cast<std::uintptr_t>(problem.alignment) - 1)) != 0) {
    return explain_pointers(problem, operands);
  }
  if (operands.ldx < problem.k || operands.ldx > max_dimension) {
    return fail_dimension("ldx", operands.ldx, problem.k);
  }
  if (operands.ldy < problem.n || operands.ldy > max_dimension) {
    return fail_dimension("ldy", operands.ldy, problem.n);
  }
  return GEMMTUNE_OK;
}

gemmtune_status check_workspace(const Plan& plan, const void* workspace) noexcept {
  if (plan.workspace_bytes() == 0) return GEMMTUNE_OK;
  if (workspace == nullptr) return fail_null("gemmtune_plan_run", "workspace");
  if (misaligned(workspace, workspace_alignment - 1)) {
    return fail_misaligned("workspace", workspace, workspace_alignment);
  }
  return GEMMTUNE_OK;
}

Operands operands_of(const Problem& problem, const gemmtune_operands& given) {
  Operands operands;
  operands.x = given.x;
  operands.w = given.w;
  operands.bias = problem.bias ? given.bias : nullptr;
  operands.x_scale = given.x_scale;
  operands.w_scale = given.w_scale;
  operands.y = given.y;
  operands.ldx = given.ldx != 0 ? given.ldx : problem.k;
  operands.ldy = given.ldy != 0 ? given.ldy : problem.n;
  return operands;
}

gemmtune_status read_operands(const gemmtune_operands* given, gemmtune_operands& known) noexcept {
  return read_struct(given, known, "gemmtune_operands", offsetof(gemmtune_operands, y) + sizeof known.y);
}

gemmtune_plan_info info_of(const Plan& plan) {
  const PlanAccount& account = plan.account();
  gemmtune_plan_info info{};
  info.match = static_cast<gemmtune_match>(account.match);
  info.other_environment = account.other_environment.empty() ? 0 : 1;
  info.hit_m = account.hit_m;
  info.kernel_name = account.kernel_name.c_str();
  info.family = account.family.c_str();
  info.rule = account.rule.c_str();
  info.file = account.file.c_str();
  info.line = account.line;
  info.workspace_bytes = plan.workspace_bytes();
  return info;
}

gemmtune_status run_short(Context& context, const Problem& problem, const gemmtune_operands& operands,
                          void* stream) {
  auto plan = context.plan(problem, Stream{stream});
  if (!plan.ok()) return fail(plan.status());
  auto workspace = context.workspaces().get((*plan)->workspace_bytes(), stream);
  if (!workspace.ok()) return fail(workspace.status());
  return run_plan(**plan, operands, *workspace, stream);
}

}  // namespace

gemmtune_status run_plan(const Plan& plan, const gemmtune_operands& given, void* workspace,
                         void* stream) noexcept {
  if (plan.kernel() == nullptr) return GEMMTUNE_OK;
  const Operands operands = operands_of(plan.problem(), given);
  if (const auto status = check_operands(plan.problem(), operands); status != GEMMTUNE_OK) return status;
  if (const auto status = check_workspace(plan, workspace); status != GEMMTUNE_OK) return status;
  Stream target{stream};
  if (plan.on_cpu()) {
    if (stream != nullptr) return fail(GEMMTUNE_INVALID_ARGUMENT, "stream is set, expected null on a CPU");
    target = plan.device().default_stream();
  }
  return guarded([&]() -> gemmtune_status {
    const Status status = plan.kernel()->run(operands, workspace, target);
    return status.ok() ? GEMMTUNE_OK : fail(status);
  });
}

}  // namespace gemmtune::c

namespace c = gemmtune::c;

extern "C" {

gemmtune_status gemmtune_plan_create(gemmtune_context* context, const gemmtune_problem* problem,
                                     gemmtune_plan** plan) {
  if (context == nullptr) return c::fail_null("gemmtune_plan_create", "context");
  if (plan == nullptr) return c::fail_null("gemmtune_plan_create", "plan");
  *plan = nullptr;
  gemmtune::Problem asked;
  if (const auto status = c::read_problem(problem, asked); status != GEMMTUNE_OK) return status;
  return c::guarded([&]() -> gemmtune_status {
    auto made = context->context->plan(asked);
    if (!made.ok()) return c::fail(made.status());
    *plan = c::plan_to_c(made->release());
    return GEMMTUNE_OK;
  });
}

void gemmtune_plan_retain(gemmtune_plan* plan) {
  if (plan != nullptr) c::plan_of_c(plan)->retain();
}

void gemmtune_plan_release(gemmtune_plan* plan) {
  if (plan != nullptr) c::plan_of_c(plan)->release();
}

gemmtune_status gemmtune_plan_get_info(const gemmtune_plan* plan, gemmtune_plan_info* info) {
  if (plan == nullptr) return c::fail_null("gemmtune_plan_get_info", "plan");
  return c::write_struct(c::info_of(*c::plan_of_c(plan)), info, "gemmtune_plan_info");
}

gemmtune_status gemmtune_plan_run(const gemmtune_plan* plan, const gemmtune_operands* operands,
                                  void* workspace, void* stream) {
  if (plan == nullptr) return c::fail_null("gemmtune_plan_run", "plan");
  gemmtune_operands known;
  if (const auto status = c::read_operands(operands, known); status != GEMMTUNE_OK) return status;
  return c::run_plan(*c::plan_of_c(plan), known, workspace, stream);
}

gemmtune_status gemmtune_gemm_a16w16(gemmtune_context* context, const gemmtune_problem* problem,
                                     const gemmtune_operands* operands, void* stream) {
  gemmtune::Problem asked;
  if (const auto status = c::read_problem(problem, asked); status != GEMMTUNE_OK) return status;
  if (asked.operation != gemmtune::Operation::a16w16) {
    return c::fail(GEMMTUNE_INVALID_ARGUMENT, "gemmtune_gemm_a16w16: operation, expected GEMMTUNE_A16W16");
  }
  if (asked.m == 0) return GEMMTUNE_OK;
  gemmtune_operands known;
  if (const auto status = c::read_operands(operands, known); status != GEMMTUNE_OK) return status;
  if (context == nullptr) {
    if (const auto status = gemmtune_default_context(&context); status != GEMMTUNE_OK) return status;
  }
  return c::guarded([&] { return c::run_short(*context->context, asked, known, stream); });
}

}  // extern "C"
