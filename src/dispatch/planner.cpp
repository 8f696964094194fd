#include "dispatch/planner.h"

#include <utility>

#include "dispatch/empty_sum.h"
#include "problem/operands.h"
#include "resolve/row_kernel.h"

namespace gemmtune {
namespace {

PlanAccount account_of(const Device& device, const Answer& answer) {
  PlanAccount account;
  account.match = answer.hit.match;
  account.hit_m = answer.hit.hit_m;
  account.kernel_name = answer.kernel_name();
  account.family = answer.bound.candidate.family;
  account.rule = answer.rule();
  account.invalid_rows = answer.invalid_rows();
  account.fallback_erratum = answer.tables == nullptr && !answer.bound.passed.empty();
  for (const PassedRow& row : answer.passed) {
    // A row of a bit class answers at every M that its kernel takes; the next row has the others.
    if (row.hit.match == Match::range && !row.hit.entry->bits.empty()) continue;
    const std::string& file = row.tables->path_of(*row.hit.entry);
    if (row.refusal == Refusal::triton_only) {
      account.triton_only = file;
    } else if (row.refusal != Refusal::other_environment && account.passed_file.empty()) {
      account.passed_file = file;
    }
  }
  account.other_environment = answer.other_environment;
  if (answer.tables != nullptr) {
    account.file = answer.tables->path_of(*answer.hit.entry);
    account.line = answer.hit.entry->line;
    account.cu_num = answer.hit.entry->cu_num;
    account.callers_kernel = keeps_callers_kernel(device, *answer.hit.entry);
    // Rows of fewer threads do not carry it: it was not seen with these threads.
    if (answer.hit.match != Match::fewer_threads) account.bits = answer.hit.entry->bits.view();
  }
  return account;
}

/// The problem with the least legal size in place of each 0.
Problem with_least_sizes(const Problem& problem) {
  Problem least = problem;
  if (least.m == 0) least.m = 1;
  if (least.n == 0 && !is_mixture(problem)) least.n = 1;
  if (least.k != 0) return least;
  least.k = k_multiple(problem);
  const bool whole_rows = has_weight_groups(problem) && problem.w_group == 0;
  if (whole_rows) least.w_group = static_cast<std::int32_t>(least.k);
  return least;
}

PlanRef plan_nothing(const std::shared_ptr<const DispatchDevice>& device, const Problem& problem) {
  PlanAccount account;
  account.rule = "y has no elements: nothing runs";
  return PlanRef(new Plan(device, problem, std::move(account), nullptr));
}

/// Of a problem that no row answers, where the caller wants no fallback.
PlanRef plan_no_row(const std::shared_ptr<const DispatchDevice>& device, const Problem& problem) {
  PlanAccount account;
  account.rule = "no row";
  return PlanRef(new Plan(device, problem, std::move(account), nullptr));
}

/// Of K = 0.
Result<PlanRef> plan_empty_sum(const std::shared_ptr<const DispatchDevice>& device, const Problem& problem,
                               std::unique_ptr<Kernel> kernel, PlanAccount account) {
  account.rule = "K = 0: each row of y is the bias, or zero";
  return PlanRef(new Plan(device, problem, std::move(account), std::move(kernel)));
}

}  // namespace

Status check_runnable(const Problem& problem) { return check(with_least_sizes(problem)); }

Result<PlanRef> make_named_plan(const std::shared_ptr<const DispatchDevice>& device, std::string_view kernel,
                                const Problem& problem, LaunchPromises promises, bool verify) {
  GEMMTUNE_RETURN_IF_ERROR(check_runnable(problem));
  device->device->look_for_threads();
  if (writes_nothing(problem)) return plan_nothing(device, problem);
  if (problem.k == 0) return Status::unsupported("kernel '{}': K is 0, expected at least 1", kernel);
  GEMMTUNE_TRY(auto name, named_kernel_name(*device->device, kernel, problem));
  Binding binding = bind_name(*device->device, name, problem, promises.dependent());
  if (!binding.bound) return std::move(binding.status);
  PlanAccount account;
  account.kernel_name = std::move(name);
  account.family = binding.bound->candidate.family;
  account.rule = "named by the caller";
  std::unique_ptr<UntunedGuard> guard;
  if (verify) {
    guard = std::make_unique<UntunedGuard>(*device->device, problem, std::move(binding.bound->candidate),
                                           UntunedGuard::WrongResult::is_an_error);
  }
  return PlanRef(
      new Plan(device, problem, std::move(account), std::move(binding.bound->kernel), std::move(guard)));
}

Result<PlanRef> make_plan(const std::shared_ptr<const DispatchDevice>& device, const LookupTables& tables,
                          const Problem& problem, BindRules rules, int* invalid_rows, bool verify_untuned) {
  GEMMTUNE_RETURN_IF_ERROR(check_runnable(problem));
  device->device->look_for_threads();
  if (writes_nothing(problem)) return plan_nothing(device, problem);
  const bool on_host = traits_of(device->device->info()).runs_on_host;
  if (problem.k == 0 && on_host) return plan_empty_sum(device, problem, host_empty_sum(problem), {});
  Answer answer = answer_problem(*device->device, tables, with_least_sizes(problem), rules);
  if (!answer.status.ok()) {
    if (invalid_rows != nullptr) *invalid_rows = answer.invalid_rows();
    return answer.status;
  }
  if (rules.measured_only && answer.tables == nullptr) return plan_no_row(device, problem);
  PlanAccount account = account_of(*device->device, answer);
  if (problem.k == 0) {
    GEMMTUNE_TRY(auto kernel, device_empty_sum(*device->device, with_least_sizes(problem),
                                               std::move(answer.bound.kernel)));
    return plan_empty_sum(device, problem, std::move(kernel), std::move(account));
  }
  std::unique_ptr<UntunedGuard> guard;
  // A kernel was verified with the row's number of threads. An AITER row names a kernel by index: its first run is
  // verified, because another build of the library may have another kernel there.
  const bool foreign = answer.tables != nullptr && is_foreign(*answer.hit.entry);
  // A row of a bit class answers M at which its kernel was not verified; no other kernel may take its place.
  const bool other_m = answer.tables != nullptr && !answer.hit.entry->bits.empty() &&
                       answer.hit.match == Match::range && answer.hit.hit_m != problem.m;
  const bool other_threads = answer.tables != nullptr && answer.hit.match == Match::fewer_threads;
  if (foreign || other_threads || other_m || (verify_untuned && answer.tables == nullptr)) {
    guard = std::make_unique<UntunedGuard>(
        *device->device, problem, answer.bound.candidate,
        other_m ? UntunedGuard::WrongResult::is_an_error : UntunedGuard::WrongResult::runs_the_next_kernel,
        other_m ? UntunedGuard::Compared::one_block : UntunedGuard::Compared::all_columns);
  }
  return PlanRef(
      new Plan(device, problem, std::move(account), std::move(answer.bound.kernel), std::move(guard)));
}

}  // namespace gemmtune
