#include "tuning/row_check.h"

#include "base/enumerators.h"
#include "resolve/bind.h"
#include "resolve/row_kernel.h"
#include "select/finals.h"

namespace gemmtune {
namespace {

RowCheck not_runnable(std::string reason) {
  RowCheck check;
  check.reason = std::move(reason);
  return check;
}

/// Why the kernel is not right at the other end of its bucket.
std::string other_end_failure(const TunedEntry& bucket, const Candidate& candidate, Evaluator& evaluator) {
  const std::int64_t m = bucket.m_from.value_or(bucket.problem.m);
  if (m == bucket.problem.m) return {};
  const Outcome outcome = evaluator.check_neighbour_m(bucket.problem, candidate, m);
  if (outcome.kind == OutcomeKind::ok) return {};
  return fmt::format("at M = {}, where its bucket begins: {}: {}", m, to_string(outcome.kind),
                     outcome.reason);
}

/// At the row's M, then at the other M that the row answers, or at the bucket's other end.
RowCheck check_candidate(const Device& device, Evaluator& evaluator, const TunedEntry& entry,
                         const Candidate& candidate) {
  const Problem& problem = entry.problem;
  RowCheck result;
  result.accuracy = device.accuracy(candidate, problem);
  const Outcome own = evaluator.check_neighbour_m(problem, candidate, problem.m);
  if (own.kind == OutcomeKind::refused) return not_runnable(own.reason);
  result.err_ratio = own.err_ratio;
  result.error = own.error;
  result.deterministic = own.deterministic;
  if (own.kind != OutcomeKind::ok) {
    result.reason = fmt::format("{}: {}", to_string(own.kind), own.reason);
  } else {
    result.reason = entry.bucket.empty() ? neighbour_failure(problem, candidate, evaluator)
                                         : other_end_failure(entry, candidate, evaluator);
  }
  result.state = result.reason.empty() ? RowCheckState::right : RowCheckState::wrong;
  return result;
}

/// Only the evaluator builds the kernel: a worker's may crash there too.
RowCheck check_kernel(const Device& device, Evaluator& evaluator, const TunedEntry& entry,
                      std::string_view name, bool dependent) {
  const auto candidate = resolve_name(device, name, entry.problem, dependent);
  if (!candidate.ok()) return not_runnable(candidate.message());
  if (const Status status = check_accuracy(device, entry, *candidate, entry.problem); !status.ok())
    return not_runnable(status.message());
  return check_candidate(device, evaluator, entry, *candidate);
}

RowCheck check_row(const Device& device, Evaluator& evaluator, const TunedEntry& entry) {
  if (const Status status = check(entry.problem); !status.ok()) return not_runnable(status.message());
  if (const Status own = check_row_is_of(entry, device.info()); !own.ok()) return not_runnable(own.message());
  if (const Status kernel = check_has_kernel(entry); !kernel.ok()) return not_runnable(kernel.message());
  const auto name = row_kernel_name(device, entry, entry.problem);
  if (!name.ok()) return not_runnable(name.message());
  RowCheck result = check_kernel(device, evaluator, entry, *name, false);
  if (result.state != RowCheckState::right || entry.pdl_kernel_name.empty()) return result;
  // Dispatch runs this kernel instead for callers who allow dependent launches.
  RowCheck second = check_kernel(device, evaluator, entry, entry.pdl_kernel_name, true);
  if (second.state == RowCheckState::right) return result;
  second.reason = fmt::format("pdl_kernelName {}: {}", entry.pdl_kernel_name, second.reason);
  return second;
}

}  // namespace

std::vector<RowCheck> check_rows(const Device& device, Evaluator& evaluator,
                                 std::span<const TunedEntry> entries,
                                 const std::function<void(std::size_t, const RowCheck&)>& on_row) {
  std::vector<RowCheck> checks;
  for (const TunedEntry& entry : entries) {
    checks.push_back(check_row(device, evaluator, entry));
    if (on_row) on_row(checks.size() - 1, checks.back());
  }
  return checks;
}

constexpr EnumeratorNames<RowCheckState, 3> check_state_names({{RowCheckState::right, "right"},
                                                               {RowCheckState::wrong, "wrong"},
                                                               {RowCheckState::not_runnable,
                                                                "not runnable"}});
std::string_view to_string(RowCheckState state) { return check_state_names.of(state); }

}  // namespace gemmtune
