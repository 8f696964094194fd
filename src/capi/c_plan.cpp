// The C functions of plans.
#include "capi/c_support.h"
#include "resolve/errata.h"

namespace gemmtune::c {
namespace {

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
  info.weight_layout =
      layout_to_c(plan.kernel() == nullptr ? plan.problem().weight_layout : plan.kernel()->weight_layout());
  info.fallback_erratum = account.fallback_erratum ? 1 : 0;
  info.bits = account.bits.c_str();
  return info;
}

/// `answer(context, problem, promises)` as the caller's plan.
template <typename Answer>
gemmtune_status answer_plan(const char* function, gemmtune_context* context, const gemmtune_problem* problem,
                            gemmtune_plan** plan, Answer&& answer) noexcept {
  if (context == nullptr) return fail_null(function, "context");
  if (plan == nullptr) return fail_null(function, "plan");
  *plan = nullptr;
  gemmtune_problem known;
  Problem asked;
  if (const auto status = read_problem(problem, known, asked); status != GEMMTUNE_OK) return status;
  return guarded([&]() -> gemmtune_status {
    auto made = answer(*context->context, asked, promises_of(known));
    if (!made.ok()) return report(made.status());
    *plan = plan_to_c(made->release());
    return GEMMTUNE_OK;
  });
}

}  // namespace
}  // namespace gemmtune::c

namespace c = gemmtune::c;

extern "C" {

gemmtune_status gemmtune_plan_create(gemmtune_context* context, const gemmtune_problem* problem,
                                     gemmtune_plan** plan) {
  return c::answer_plan("gemmtune_plan_create", context, problem, plan,
                        [](gemmtune::Context& opened, const gemmtune::Problem& asked,
                           gemmtune::LaunchPromises promises) { return opened.plan(asked, {}, promises); });
}

gemmtune_status gemmtune_plan_create_tuned(gemmtune_context* context, const gemmtune_problem* problem,
                                           gemmtune_plan** plan) {
  return c::answer_plan(
      "gemmtune_plan_create_tuned", context, problem, plan,
      [](gemmtune::Context& opened, const gemmtune::Problem& asked, gemmtune::LaunchPromises promises) {
        return opened.tuned_plan(asked, {}, promises);
      });
}

gemmtune_status gemmtune_plan_find(gemmtune_context* context, const gemmtune_problem* problem,
                                   gemmtune_plan** plan) {
  return c::answer_plan("gemmtune_plan_find", context, problem, plan,
                        [](gemmtune::Context& opened, const gemmtune::Problem& asked,
                           gemmtune::LaunchPromises promises) -> gemmtune::Result<gemmtune::PlanRef> {
                          auto found = opened.cached_plan(asked, promises);
                          if (!found)
                            return gemmtune::Status::not_found("no plan of {} was made yet", print(asked));
                          return found;
                        });
}

gemmtune_status gemmtune_plan_create_named(gemmtune_context* context, const gemmtune_problem* problem,
                                           const char* kernel, int32_t unverified, gemmtune_plan** plan) {
  if (kernel == nullptr) return c::fail_null("gemmtune_plan_create_named", "kernel");
  return c::answer_plan(
      "gemmtune_plan_create_named", context, problem, plan,
      [&](gemmtune::Context& opened, const gemmtune::Problem& asked, gemmtune::LaunchPromises promises) {
        return opened.named_plan(kernel, asked, promises, unverified == 0);
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
  return c::write_struct(c::info_of(*c::plan_of_c(plan)), info);
}

gemmtune_status gemmtune_kernel_erratum(const gemmtune_context* context, const gemmtune_problem* problem,
                                        const char* kernel_name, int32_t* erratum) {
  if (context == nullptr) return c::fail_null("gemmtune_kernel_erratum", "context");
  if (kernel_name == nullptr) return c::fail_null("gemmtune_kernel_erratum", "kernel_name");
  if (erratum == nullptr) return c::fail_null("gemmtune_kernel_erratum", "erratum");
  gemmtune_problem known;
  gemmtune::Problem asked;
  if (const auto status = c::read_problem(problem, known, asked); status != GEMMTUNE_OK) return status;
  return c::guarded([&]() -> gemmtune_status {
    if (const auto legal = gemmtune::check(asked); !legal.ok()) return c::report(legal);
    const gemmtune::Device& device = context->context->device();
    const auto candidate = device.resolve(kernel_name, asked);
    if (!candidate.ok()) return c::report(candidate.status());
    *erratum = gemmtune::DeviceErrata(device.info()).find(asked, *candidate) == nullptr ? 0 : 1;
    return GEMMTUNE_OK;
  });
}

gemmtune_status gemmtune_plan_run(const gemmtune_plan* plan, const gemmtune_operands* operands,
                                  void* workspace, void* stream) {
  if (plan == nullptr) return c::fail_null("gemmtune_plan_run", "plan");
  const gemmtune::Plan& bound = *c::plan_of_c(plan);
  if (bound.kernel() == nullptr) return GEMMTUNE_OK;  // y has no elements
  const c::CallOperands call = c::read_operands(bound, operands);
  return call.status != GEMMTUNE_OK ? call.status : c::run_plan(bound, call.operands, workspace, stream);
}

}  // extern "C"
