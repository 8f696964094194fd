#include "dispatch/planner.h"

#include <utility>

#include "resolve/row_kernel.h"

namespace gemmtune {
namespace {

PlanAccount account_of(const Answer& answer) {
  PlanAccount account;
  account.match = answer.hit.match;
  account.hit_m = answer.hit.hit_m;
  account.kernel_name = answer.kernel_name();
  account.family = answer.bound.candidate.family;
  account.rule = answer.rule();
  account.invalid_rows = answer.invalid_rows();
  account.fallback_erratum = answer.tables == nullptr && !answer.bound.passed.empty();
  for (const PassedRow& row : answer.passed)
    if (row.refusal == Refusal::triton_only) account.triton_only = row.tables->path_of(*row.hit.entry);
  account.other_environment = answer.other_environment;
  if (answer.tables != nullptr) {
    account.file = answer.tables->path_of(*answer.hit.entry);
    account.line = answer.hit.entry->line;
  }
  return account;
}

}  // namespace

Status check_runnable(const Problem& problem) {
  if (problem.m != 0) return check(problem);
  Problem one = problem;
  one.m = 1;
  return check(one);
}

Result<PlanRef> make_plan(const std::shared_ptr<const DispatchDevice>& device, const LookupTables& tables,
                          const Problem& problem, BindRules rules, int* invalid_rows, bool verify_untuned) {
  GEMMTUNE_RETURN_IF_ERROR(check_runnable(problem));
  if (problem.m == 0) {
    PlanAccount account;
    account.rule = "zero rows: nothing runs";
    return PlanRef(new Plan(device, problem, std::move(account), nullptr));
  }
  Answer answer = answer_problem(*device->device, tables, problem, rules);
  if (!answer.status.ok()) {
    if (invalid_rows != nullptr) *invalid_rows = answer.invalid_rows();
    return answer.status;
  }
  PlanAccount account = account_of(answer);
  std::unique_ptr<UntunedGuard> guard;
  // Of AITER's rows only libtype and index are known, not that the kernel there is the one that was tuned.
  const bool foreign = answer.tables != nullptr && is_foreign(*answer.hit.entry);
  if (foreign || (verify_untuned && answer.tables == nullptr))
    guard = std::make_unique<UntunedGuard>(*device->device, problem, answer.bound.candidate);
  return PlanRef(
      new Plan(device, problem, std::move(account), std::move(answer.bound.kernel), std::move(guard)));
}

}  // namespace gemmtune
