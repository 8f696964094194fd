#include "dispatch/planner.h"

#include <algorithm>
#include <utility>

namespace gemmtune {
namespace {

LookupKey key_of(const Device& device, const Problem& problem) {
  return {device.info().gfx, device.info().cu_num, problem};
}

PlanAccount account_of(const TableSet& tables, const LookupHit& hit, const Candidate& candidate) {
  PlanAccount account;
  account.match = hit.match;
  account.hit_m = hit.hit_m;
  const bool dependent = is_dependent(candidate.config);
  account.kernel_name = dependent ? hit.entry->pdl_kernel_name : hit.entry->kernel_name;
  account.family = candidate.family;
  account.rule = describe_hit(tables, hit) + (dependent ? ", programmatic dependent launch" : "");
  account.file = tables.path_of(*hit.entry);
  account.line = hit.entry->line;
  return account;
}

/// The kernel of a row: that of dependent launches where they are allowed, the row has one and it can run
/// here, else the plain one.
Result<BoundKernel> bind_row(const Device& device, const TunedEntry& row, const Problem& problem,
                             bool dependent) {
  if (dependent && !row.pdl_kernel_name.empty()) {
    auto bound = bind_kernel_name(device, row.pdl_kernel_name, problem, true);
    if (bound.ok()) return bound;
  }
  return bind_kernel_name(device, row.kernel_name, problem);
}

/// The first row that runs; `account.rule` and `invalid_rows` tell of those passed over, also where none
/// runs.
PlanRef plan_from_rows(const std::shared_ptr<const DispatchDevice>& device, const TableSet& tables,
                       const Problem& problem, PlanRules rules, PlanAccount& passed) {
  for (const LookupHit& hit : tables.table.lookup(key_of(*device->device, problem))) {
    if (tables.exact_only && hit.match != Match::exact) continue;
    std::string other = tables.other_environment(*hit.entry, device->device->info());
    if (rules.strict && !other.empty()) {
      passed.rule += fmt::format("; passed over {}: {}", describe_hit(tables, hit), other);
      continue;
    }
    auto bound = bind_row(*device->device, *hit.entry, problem, rules.dependent);
    if (!bound.ok()) {
      passed.rule += fmt::format("; passed over {}, kernel '{}': {}", describe_hit(tables, hit),
                                 hit.entry->kernel_name, bound.message());
      ++passed.invalid_rows;
      continue;
    }
    PlanAccount account = account_of(tables, hit, bound->candidate);
    account.rule += passed.rule;
    account.invalid_rows = passed.invalid_rows;
    account.other_environment = std::move(other);
    return PlanRef(new Plan(device, problem, std::move(account), std::move(bound->kernel)));
  }
  return {};
}

}  // namespace

Status check_runnable(const Problem& problem) {
  if (problem.m != 0) return check(problem);
  Problem one = problem;
  one.m = 1;
  return check(one);
}

Result<BoundKernel> bind_kernel_name(const Device& device, std::string_view kernel_name,
                                     const Problem& problem, bool dependent) {
  auto candidate = device.resolve(kernel_name, problem);
  if (!candidate.ok()) return candidate.status();
  if (!dependent && is_dependent(candidate->config)) {
    return Status::unsupported(
        "a programmatic dependent launch, which only constant_weights and predecessor_triggers "
        "together allow");
  }
  const KernelFamily* family = device.find_family(candidate->family);
  if (family == nullptr)
    return Status::not_found("family {} is not on {}", candidate->family, device.info().name);
  GEMMTUNE_RETURN_IF_ERROR(family->accepts(problem));
  auto kernel = device.build(*candidate, problem);
  if (!kernel.ok()) return kernel.status();
  const WeightLayout layout = (*kernel)->weight_layout();
  if (problem.weight_layout != WeightLayout::any && layout != problem.weight_layout) {
    return Status::unsupported("the kernel reads weight layout {}, the weight has {}", to_string(layout),
                               to_string(problem.weight_layout));
  }
  return BoundKernel{std::move(candidate).value(), std::move(kernel).value()};
}

bool has_row(const TableSet& tables, const Device& device, const Problem& problem) {
  const std::vector<LookupHit> hits = tables.table.lookup(key_of(device, problem));
  return std::any_of(hits.begin(), hits.end(),
                     [&](const LookupHit& hit) { return !tables.exact_only || hit.match == Match::exact; });
}

Result<BoundKernel> bind_fallback(const Device& device, const Problem& problem) {
  auto candidate = device.fallback(problem);
  if (!candidate.ok()) return candidate.status();
  auto kernel = device.build(*candidate, problem);
  if (!kernel.ok()) return kernel.status();
  return BoundKernel{std::move(candidate).value(), std::move(kernel).value()};
}

std::string describe_hit(const TableSet& tables, const LookupHit& hit) {
  return fmt::format("{} row, M = {}, {}:{}", to_string(hit.match), hit.hit_m, tables.path_of(*hit.entry),
                     hit.entry->line);
}

std::string describe_fallback(const Problem& problem, const Candidate& candidate) {
  return fmt::format("no row: the device's fallback for a {} weight is {}", to_string(problem.weight_layout),
                     candidate.family);
}

Result<PlanRef> make_plan(const std::shared_ptr<const DispatchDevice>& device, const LookupTables& tables,
                          const Problem& problem, PlanRules rules, PlanAccount* unanswered) {
  GEMMTUNE_RETURN_IF_ERROR(check_runnable(problem));
  PlanAccount account;
  if (problem.m == 0) {
    account.rule = "zero rows: nothing runs";
    return PlanRef(new Plan(device, problem, std::move(account), nullptr));
  }
  if (PlanRef plan = plan_from_rows(device, tables.tuned, problem, rules, account)) return plan;
  if (tables.online != nullptr) {
    if (PlanRef plan = plan_from_rows(device, *tables.online, problem, rules, account)) return plan;
  }
  auto bound = bind_fallback(*device->device, problem);
  if (!bound.ok()) {
    if (unanswered != nullptr) *unanswered = account;
    return Status(bound.code(), fmt::format("{}: no row and no fallback: {}{}", short_name(problem),
                                            bound.message(), account.rule));
  }
  account.kernel_name = bound->candidate.kernel_name();
  account.family = bound->candidate.family;
  account.rule = describe_fallback(problem, bound->candidate) + account.rule;
  return PlanRef(new Plan(device, problem, std::move(account), std::move(bound->kernel)));
}

}  // namespace gemmtune
