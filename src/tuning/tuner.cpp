#include "tuning/tuner.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <numeric>
#include <utility>

#include "backends/traits.h"
#include "evaluate/worker/worker_pool.h"
#include "measure/statistics.h"
#include "select/confirmation.h"
#include "tuning/layout_group.h"
#include "tuning/problem_tuner.h"
#include "resolve/bind.h"
#include "tuning/run_start.h"
#include "tuning/transfer.h"

namespace gemmtune {
namespace {

class TuneRun {
 public:
  TuneRun(Device& device, std::size_t evaluators, const TuneRequest& request, TuneObserver& observer)
      : device_(device),
        request_(request),
        observer_(observer),
        evaluators_(evaluators),
        environment_(row_environment(device, request.policy)),
        budget_(request.budget_seconds, request.clock, evaluators),
        publisher_(publisher_of(request, environment_)) {}

  Status prepare();
  /// Several groups at once, each with an evaluator of its own.
  Status tune_group(const std::vector<std::size_t>& group, Evaluator& evaluator);
  std::size_t settled() const { return settled_.size(); }
  /// The confirmation pass of the problem that was settled as number `which`. Several at once, as groups.
  /// `last`: rounds on a busy machine count too.
  Status confirm(std::size_t which, Evaluator& evaluator, bool last);
  /// Returns the rows whose confirmation pass did not count because the machine was busy, and clears the
  /// list.
  std::vector<std::size_t> take_disturbed() { return std::exchange(disturbed_, {}); }
  /// After the last confirmation pass: widens the ties by how far ratios moved between passes.
  Status widen_all_ties();
  Result<TuneSummary> finish();

 private:
  bool waits(std::size_t index) const { return waiting_[index]; }
  /// The reason to leave a shape out, recorded in its report; false where it must be tuned.
  bool leave_out(std::size_t index);
  bool is_done(const Problem& problem, std::string& reason) const;
  /// The layout that a group must use because a row that stays, or a shape, has one already.
  /// A row that may be confirmed.
  struct SettledRow {
    std::size_t index;
    LayoutResult result;
    double settled_at;  // of the request's clock
  };
  std::optional<WeightLayout> decided_layout(const std::vector<std::size_t>& group) const;
  ProblemResult tune_one(std::size_t index, std::optional<WeightLayout> layout, Evaluator& evaluator);
  void conclude(std::size_t index, ProblemResult&& result, std::optional<WeightLayout> layout);
  void set_row(std::size_t index, const LayoutResult& result);
  /// What was good nearby: in this run and in the rows that stay, then in earlier runs. Requires the lock.
  std::vector<Candidate> hints_for(const Problem& problem) const;
  void learn_from_row(const Problem& problem, const std::string& kernel_name);

  Device& device_;
  const TuneRequest& request_;
  TuneObserver& observer_;
  const std::size_t evaluators_;  // at once
  RowEnvironment environment_;
  RunBudget budget_;
  Publisher publisher_;
  KnownRows known_;
  Transfer transfer_;
  std::vector<bool> waiting_;
  std::vector<double> noise_floors_;
  std::vector<SettledRow> settled_;
  std::vector<std::size_t> disturbed_;
  std::vector<double> changes_;  // Confirmation::changes of all rows
  int busy_rows_ = 0;            // measured while the machine was disturbed
  TuneSummary summary_;
  std::mutex lock_;  // of the observer, the budget, the publisher and what counts over all problems
};

Status TuneRun::prepare() {
  auto known = start_run(device_, request_, publisher_);
  if (!known.ok()) return known.status();
  known_ = std::move(*known);
  std::vector<BudgetItem> items;
  summary_.problems.resize(request_.shapes.size());
  for (std::size_t i = 0; i < request_.shapes.size(); ++i) {
    const ShapeRow& shape = request_.shapes[i];
    summary_.problems[i].shape = shape;
    waiting_.push_back(!leave_out(i));
    const auto calls = static_cast<double>(std::max<std::int64_t>(1, shape.calls));
    items.push_back({shape.problem, waits(i) ? calls * expected_microseconds(shape.problem) : 0});
  }
  budget_.share_among(std::move(items));
  std::vector<std::size_t> waiting;
  for (std::size_t i = 0; i < waiting_.size(); ++i) {
    if (waiting_[i]) waiting.push_back(i);
  }
  observer_.run_started(waiting, evaluators_);
  return {};
}

bool TuneRun::is_done(const Problem& problem, std::string& reason) const {
  if (request_.all) return false;
  const KnownRows::Row* row = known_.find(problem);
  if (row == nullptr) return false;
  if (request_.stale && row->entry.env != environment_.hash) return false;
  reason =
      fmt::format("done already: {}:{} has {} at {} us{}", row->path, row->entry.line, row->entry.kernel_name,
                  row->entry.us, request_.stale ? " of today's environment" : "");
  return true;
}

bool TuneRun::leave_out(std::size_t index) {
  ProblemReport& report = summary_.problems[index];
  const Problem& problem = report.shape.problem;
  if (const Status status = check(problem); !status.ok()) {
    report.state = ProblemState::unsupported;
    report.reason = status.message();
    return true;
  }
  const Operation operation = request_.shapes.front().problem.operation;
  if (problem.operation != operation) {
    report.state = ProblemState::unsupported;
    report.reason = fmt::format("{}: a tuned file is of one operation, and this list begins with {}",
                                to_string(problem.operation), to_string(operation));
    return true;
  }
  for (std::size_t i = 0; i < index; ++i) {
    if (!same_key(request_.shapes[i].problem, problem)) continue;
    report.state = ProblemState::skipped_done;
    report.reason = fmt::format("the same problem is number {} of this list", i + 1);
    return true;
  }
  if (!is_done(problem, report.reason)) return false;
  report.state = ProblemState::skipped_done;
  learn_from_row(problem, known_.find(problem)->entry.kernel_name);
  return true;
}

void TuneRun::learn_from_row(const Problem& problem, const std::string& kernel_name) {
  for (const Candidate& winner : candidates_named({kernel_name}, device_, problem)) {
    transfer_.learn(problem, winner);
  }
}

std::vector<Candidate> TuneRun::hints_for(const Problem& problem) const {
  std::vector<Candidate> hints = transfer_.winners_near(problem);
  if (!request_.earlier_winners) return hints;
  for (Candidate& earlier : candidates_named(request_.earlier_winners(problem), device_, problem)) {
    hints.push_back(std::move(earlier));
  }
  return hints;
}

std::optional<WeightLayout> TuneRun::decided_layout(const std::vector<std::size_t>& group) const {
  const Problem& first = request_.shapes[group.front()].problem;
  if (!first.bpreshuffle) return WeightLayout::plain;
  for (const std::size_t i : group) {
    const WeightLayout asked = request_.shapes[i].problem.weight_layout;
    if (asked != WeightLayout::any) return asked;
  }
  for (const KnownRows::Row& row : known_.rows()) {
    if (!share_weight(row.entry.problem, first)) continue;
    const bool replaced = std::any_of(group.begin(), group.end(), [&](std::size_t i) {
      return waits(i) && same_key(request_.shapes[i].problem, row.entry.problem);
    });
    if (replaced) continue;
    if (const auto layout = weight_layout_of(device_, row.entry)) return layout;
  }
  return std::nullopt;
}

ProblemResult TuneRun::tune_one(std::size_t index, std::optional<WeightLayout> layout, Evaluator& evaluator) {
  const Deadline clock = Deadline::never(request_.clock);
  ProblemReport& report = summary_.problems[index];
  std::optional<Deadline> own;
  std::vector<Candidate> hints;
  {
    const std::lock_guard guard(lock_);
    observer_.problem_started(index, request_.shapes.size(), report.shape);
    own = budget_.take(index);
    hints = hints_for(report.shape.problem);
  }
  ProblemResult result;
  if (!own) {
    result.failure = ProblemState::out_of_budget;
    result.reason = fmt::format("the budget of {} s was spent before its turn", request_.budget_seconds);
    return result;
  }
  const auto on_trial = [&](const Trial& trial) {
    const std::lock_guard guard(lock_);
    observer_.candidate_done(index, trial, ++summary_.candidates);
  };
  result = tune_problem(device_, evaluator, request_, report.shape.problem, layout, *own, on_trial, hints);
  const std::lock_guard guard(lock_);
  for (const LayoutResult& decided : result.layouts) {
    transfer_.learn(report.shape.problem, decided.settled.winner->candidate);
    if (decided.settled.speedup) budget_.learn(index, *decided.settled.speedup);
  }
  report.seconds = clock.seconds_elapsed();
  return result;
}

void TuneRun::conclude(std::size_t index, ProblemResult&& result, std::optional<WeightLayout> layout) {
  ProblemReport& report = summary_.problems[index];
  report.trials = std::move(result.trials);
  report.refusals = std::move(result.refusals);
  const auto chosen = std::find_if(result.layouts.begin(), result.layouts.end(),
                                   [&](const LayoutResult& candidate) { return candidate.layout == layout; });
  if (chosen == result.layouts.end()) {
    report.state = result.failure;
    report.reason = result.reason;
    if (!result.layouts.empty()) {
      report.reason = fmt::format("no kernel for layout {}, which the other M of this weight use",
                                  to_string(layout.value_or(WeightLayout::any)));
    }
    return;
  }
  set_row(index, *chosen);
  const Settled& settled = chosen->settled;
  noise_floors_.push_back(settled.noise_floor);
  busy_rows_ += settled.quietness.busy() ? 1 : 0;
  std::map<std::string, double> observations = device_.observe();
  observations["noise_floor"] = median(noise_floors_);
  observations["busy_rows"] = static_cast<double>(busy_rows_);
  publisher_.set_environment(row_environment(device_, request_.policy, observations).json);
  if (request_.confirmations > 1) settled_.push_back({index, std::move(*chosen), request_.clock()});
}

void TuneRun::set_row(std::size_t index, const LayoutResult& result) {
  ProblemReport& report = summary_.problems[index];
  const Settled& settled = result.settled;
  report.entry = make_entry(device_.info(), report.shape.problem, settled, environment_.hash);
  if (result.dependent) set_dependent(*result.dependent, *report.entry);
  const bool kept = !settled.default_kernel.empty() && settled.default_kernel == report.entry->kernel_name;
  report.state = kept ? ProblemState::kept_default : ProblemState::tuned;
  report.quietness = settled.quietness;
  report.ties = settled.ties;
}

Status TuneRun::confirm(std::size_t which, Evaluator& evaluator, bool last) {
  SettledRow& row = settled_[which];
  const ShapeRow& shape = request_.shapes[row.index];
  const double begin = request_.clock();
  std::optional<Deadline> deadline;
  {
    const std::lock_guard guard(lock_);
    if (begin - row.settled_at < request_.seconds_before_confirmation || budget_.rest().over()) return {};
    observer_.confirmation_started(row.index, which, settled_.size());
    deadline = budget_.rest();
  }
  Confirmation pass = gemmtune::confirm(shape.problem, row.result.layout, request_.policy, row.result.settled,
                                        evaluator, *deadline);
  const std::lock_guard guard(lock_);
  if (pass.changes.empty()) return {};
  if (pass.quietness.busy() && !last) {
    disturbed_.push_back(which);
    return {};
  }
  changes_.insert(changes_.end(), pass.changes.begin(), pass.changes.end());
  ++summary_.confirmed;
  if (!(pass.settled.winner->candidate == row.result.settled.winner->candidate)) ++summary_.revised;
  row.result.settled = std::move(pass.settled);
  set_row(row.index, row.result);
  ProblemReport& report = summary_.problems[row.index];
  report.seconds += request_.clock() - begin;
  GEMMTUNE_RETURN_IF_ERROR(publisher_.add(*report.entry));
  observer_.problem_revised(row.index, report);
  return {};
}

Status TuneRun::widen_all_ties() {
  const double deviation = summary_.pass_deviation = pass_deviation(changes_);
  if (deviation == 0) return {};
  for (SettledRow& row : settled_) {
    widen_ties(row.result.screened, request_.policy, deviation, row.result.settled);
    ProblemReport& report = summary_.problems[row.index];
    if (report.ties.size() == row.result.settled.ties.size()) continue;
    set_row(row.index, row.result);
    GEMMTUNE_RETURN_IF_ERROR(publisher_.add(*report.entry));
  }
  return {};
}

Status TuneRun::tune_group(const std::vector<std::size_t>& group, Evaluator& evaluator) {
  const auto decided = decided_layout(group);
  std::vector<ProblemResult> results(group.size());
  std::vector<GroupMember> members;
  for (std::size_t i = 0; i < group.size(); ++i) {
    if (!waits(group[i])) continue;
    results[i] = tune_one(group[i], decided, evaluator);
    GroupMember& member = members.emplace_back();
    member.calls = std::max<std::int64_t>(1, request_.shapes[group[i]].calls);
    for (const LayoutResult& candidate : results[i].layouts) {
      member.times.push_back({candidate.layout, candidate.settled.microseconds});
    }
  }
  const auto layout = decided ? decided : choose_layout(members);
  const std::lock_guard guard(lock_);
  for (std::size_t i = 0; i < group.size(); ++i) {
    const std::size_t index = group[i];
    if (waits(index)) {
      conclude(index, std::move(results[i]), layout);
    } else {
      observer_.problem_started(index, request_.shapes.size(), request_.shapes[index]);
    }
    const ProblemReport& report = summary_.problems[index];
    if (report.entry) {
      if (const Status status = publisher_.add(*report.entry); !status.ok()) return status;
    }
    observer_.problem_done(index, report);
  }
  return {};
}

Result<TuneSummary> TuneRun::finish() {
  GEMMTUNE_RETURN_IF_ERROR(publisher_.flush());
  double logarithms = 0;
  int rows = 0;
  for (const ProblemReport& report : summary_.problems) {
    if (!report.entry || !report.entry->speedup || *report.entry->speedup <= 0) continue;
    logarithms += std::log(*report.entry->speedup);
    ++rows;
  }
  if (rows > 0) summary_.geometric_mean_speedup = std::exp(logarithms / rows);
  return std::move(summary_);
}

}  // namespace

int default_confirmations(const DeviceInfo& device) { return traits_of(device).confirmation_passes; }

Policy default_policy(const DeviceInfo& device) {
  Policy policy;
  policy.sample_microseconds = traits_of(device).sample_microseconds;
  return policy;
}

std::string_view to_string(ProblemState state) {
  switch (state) {
    case ProblemState::tuned:
      return "tuned";
    case ProblemState::kept_default:
      return "default";
    case ProblemState::skipped_done:
      return "done already";
    case ProblemState::unsupported:
      return "unsupported";
    case ProblemState::failed:
      return "failed";
    case ProblemState::out_of_budget:
      return "out of budget";
  }
  return "unknown";
}

namespace {

/// Runs the confirmation pass of every row; those that were measured on a busy machine once more at the end.
Status confirm_rows(TuneRun& run, std::span<Evaluator* const> evaluators) {
  std::vector<std::size_t> rows(run.settled());
  std::iota(rows.begin(), rows.end(), std::size_t{0});
  for (int tries = 2; tries > 0 && !rows.empty(); --tries) {
    GEMMTUNE_RETURN_IF_ERROR(
        share_out(rows.size(), evaluators.size(), [&](std::size_t worker, std::size_t i) {
          return run.confirm(rows[i], *evaluators[worker], tries == 1);
        }));
    rows = run.take_disturbed();
  }
  return run.widen_all_ties();
}

}  // namespace

Result<TuneSummary> tune(Device& device, std::span<Evaluator* const> evaluators, const TuneRequest& request,
                         TuneObserver& observer) {
  const Deadline clock = Deadline::never(request.clock);
  if (evaluators.empty()) return Status::invalid("no evaluator: expected at least one");
  const auto at_once = static_cast<std::size_t>(std::max(1, request.shapes_at_once));
  const std::size_t workers = std::min(evaluators.size(), at_once);
  TuneRun run(device, workers, request, observer);
  GEMMTUNE_RETURN_IF_ERROR(run.prepare());
  const auto groups = layout_groups(request.shapes);
  GEMMTUNE_RETURN_IF_ERROR(share_out(groups.size(), workers, [&](std::size_t worker, std::size_t group) {
    return run.tune_group(groups[group], *evaluators[worker]);
  }));
  if (request.confirmations > 1) GEMMTUNE_RETURN_IF_ERROR(confirm_rows(run, evaluators.first(workers)));
  auto summary = run.finish();
  if (summary.ok()) summary->seconds = clock.seconds_elapsed();
  return summary;
}

Result<TuneSummary> tune(Device& device, Evaluator& evaluator, const TuneRequest& request,
                         TuneObserver& observer) {
  Evaluator* const evaluators[] = {&evaluator};
  return tune(device, evaluators, request, observer);
}

}  // namespace gemmtune
