#include "tuning/m_range_tuner.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <mutex>

#include "evaluate/worker/worker_pool.h"
#include "measure/statistics.h"
#include "tuning/m_range_group.h"
#include "resolve/bind.h"
#include "tuning/run_start.h"

namespace gemmtune {
namespace {

bool same_weight(const Problem& a, const Problem& b) {
  Problem same_m = a;
  same_m.m = b.m;
  return same_m == b;
}

class RangeRun {
 public:
  RangeRun(Device& device, std::size_t evaluators, const TuneRequest& request, MRangeObserver& observer,
           TuneObserver& problems)
      : device_(device),
        request_(request),
        observer_(observer),
        problems_(problems),
        environment_(row_environment(device, request.policy)),
        budget_(request.budget_seconds, request.clock, evaluators),
        publisher_(publisher_of(request, environment_)) {}

  Status prepare();
  std::size_t groups() const { return reports_.size(); }
  Status tune_group(std::size_t index, Evaluator& evaluator);
  Result<MRangeSummary> finish();

 private:
  const MRange& range() const { return request_.m_range->range; }
  /// The reason to leave a group out, in its report; false where it must be tuned.
  bool leave_out(MRangeReport& report) const;
  bool is_covered(const Problem& weight) const;
  std::optional<WeightLayout> decided_layout(const Problem& weight) const;
  MGroupTask task_of(const MRangeReport& report) const;
  MGroupEvents events_of(std::size_t index);
  Status publish(std::vector<TunedEntry>&& rows, double noise_floor);

  Device& device_;
  const TuneRequest& request_;
  MRangeObserver& observer_;
  TuneObserver& problems_;
  RowEnvironment environment_;
  RunBudget budget_;
  Publisher publisher_;
  KnownRows known_;
  std::vector<MRangeReport> reports_;
  std::vector<bool> waiting_;
  std::vector<double> noise_floors_;
  std::int64_t candidates_ = 0;
  std::size_t searches_ = 0;
  std::mutex lock_;  // of the observers, the budget, the publisher and what counts over all groups
};

Status RangeRun::prepare() {
  auto known = start_run(device_, request_, publisher_);
  if (!known.ok()) return known.status();
  known_ = std::move(*known);
  std::vector<BudgetItem> items;
  for (ShapeRow& shape : weights_of(request_.shapes, range().last)) {
    MRangeReport& report = reports_.emplace_back();
    report.shape = std::move(shape);
    waiting_.push_back(!leave_out(report));
    double microseconds = 0;
    for (const std::int64_t m : first_ms(range())) {
      Problem problem = report.shape.problem;
      problem.m = m;
      microseconds += expected_microseconds(problem);
    }
    items.push_back(
        {report.shape.problem, waiting_.back() ? static_cast<double>(report.shape.calls) * microseconds : 0});
  }
  budget_.share_among(std::move(items));
  return {};
}

bool RangeRun::is_covered(const Problem& weight) const {
  if (request_.all) return false;
  std::vector<MRange> answered;
  for (const KnownRows::Row& row : known_.rows()) {
    const TunedEntry& entry = row.entry;
    if (!entry.m_from || !(group_of(entry.problem) == group_of(weight))) continue;
    if (request_.stale && entry.env != environment_.hash) continue;
    answered.push_back({*entry.m_from, entry.problem.m});
  }
  std::sort(answered.begin(), answered.end(),
            [](const MRange& a, const MRange& b) { return a.first < b.first; });
  std::int64_t next = range().first;
  for (const MRange& each : answered) {
    if (each.first <= next) next = std::max(next, each.last + 1);
  }
  return next > range().last;
}

bool RangeRun::leave_out(MRangeReport& report) const {
  report.state = ProblemState::unsupported;
  for (const std::int64_t m : {range().first, range().last}) {
    Problem problem = report.shape.problem;
    problem.m = m;
    if (const Status status = check(problem); !status.ok()) {
      report.reason = status.message();
      return true;
    }
  }
  const Operation operation = request_.shapes.front().problem.operation;
  if (report.shape.problem.operation != operation) {
    report.reason = fmt::format("{}: a tuned file is of one operation, and this list begins with {}",
                                to_string(report.shape.problem.operation), to_string(operation));
    return true;
  }
  if (traits(operation).mixture) {
    report.reason = "fused_moe is looked up by token tiers, not by ranges of M";
    return true;
  }
  if (!is_covered(report.shape.problem)) return false;
  report.state = ProblemState::skipped_done;
  report.reason = fmt::format("done already: ranges of M cover {} to {}", range().first, range().last);
  report.settled_share = 1;
  return true;
}

/// A layout that the weight has in a row which stays: of another M, or a plain row within.
std::optional<WeightLayout> RangeRun::decided_layout(const Problem& weight) const {
  if (!weight.bpreshuffle) return WeightLayout::plain;
  if (weight.weight_layout != WeightLayout::any) return weight.weight_layout;
  for (const KnownRows::Row& row : known_.rows()) {
    const TunedEntry& entry = row.entry;
    if (!share_weight(entry.problem, weight)) continue;
    const bool inside = entry.problem.m >= range().first && entry.problem.m <= range().last;
    if (inside && entry.m_from && *entry.m_from >= range().first) continue;
    if (const auto layout = weight_layout_of(device_, entry)) return layout;
  }
  return std::nullopt;
}

MGroupTask RangeRun::task_of(const MRangeReport& report) const {
  MGroupTask task;
  task.shape = report.shape;
  task.layout = decided_layout(report.shape.problem);
  task.environment = environment_.hash;
  for (const ShapeRow& shape : request_.shapes) {
    if (shape.calls > 0 && same_weight(shape.problem, report.shape.problem) && shape.line != 0)
      task.calls[shape.problem.m] += shape.calls;
  }
  for (const KnownRows::Row& row : known_.rows()) {
    if (group_of(row.entry.problem) == group_of(report.shape.problem))
      task.kept_ms.insert(row.entry.problem.m);
  }
  return task;
}

MGroupEvents RangeRun::events_of(std::size_t index) {
  MGroupEvents events;
  events.question = [this, index](const MRangeMoment& moment) {
    MRangeMoment whole = moment;
    whole.group = index;
    whole.groups = reports_.size();
    const std::lock_guard guard(lock_);
    observer_.question(whole);
  };
  // A group's searches come one after the other; those of several groups are numbered as they begin.
  const auto search = std::make_shared<std::size_t>(0);
  events.trial = [this, search](const Trial& trial) {
    const std::lock_guard guard(lock_);
    problems_.candidate_done(*search, trial, ++candidates_);
  };
  events.search_begins = [this, search](const ShapeRow& shape) {
    const std::lock_guard guard(lock_);
    *search = searches_++;
    problems_.problem_started(*search, 0, shape);
  };
  events.search_done = [this, search](ProblemReport&& report) {
    const std::lock_guard guard(lock_);
    problems_.problem_done(*search, report);
  };
  events.publish = [this](std::vector<TunedEntry>&& rows, double noise_floor) {
    const std::lock_guard guard(lock_);
    return publish(std::move(rows), noise_floor);
  };
  return events;
}

Status RangeRun::publish(std::vector<TunedEntry>&& rows, double noise_floor) {
  noise_floors_.push_back(noise_floor);
  publisher_.set_environment(
      row_environment(device_, request_.policy, {{"noise_floor", median(noise_floors_)}}).json);
  for (TunedEntry& row : rows) GEMMTUNE_RETURN_IF_ERROR(publisher_.add(std::move(row)));
  return {};
}

Status RangeRun::tune_group(std::size_t index, Evaluator& evaluator) {
  MRangeReport& report = reports_[index];
  if (waiting_[index]) {
    std::optional<Deadline> own;
    {
      const std::lock_guard guard(lock_);
      own = budget_.take(index);
    }
    if (own) {
      MRangeGroup group(device_, evaluator, request_, task_of(report), events_of(index));
      GEMMTUNE_RETURN_IF_ERROR(group.run(*own));
      report = group.take_report();
    } else {
      report.state = ProblemState::out_of_budget;
      report.reason = fmt::format("the budget of {} s was spent before its turn", request_.budget_seconds);
    }
  }
  const std::lock_guard guard(lock_);
  GEMMTUNE_RETURN_IF_ERROR(publisher_.flush());
  observer_.group_done(index, reports_.size(), report);
  return {};
}

Result<MRangeSummary> RangeRun::finish() {
  MRangeSummary summary;
  summary.groups = std::move(reports_);
  summary.candidates = candidates_;
  double logarithms = 0;
  int rows = 0;
  for (const MRangeReport& report : summary.groups) {
    for (const TunedEntry& row : report.rows) {
      if (!row.speedup || *row.speedup <= 0) continue;
      logarithms += std::log(*row.speedup);
      ++rows;
    }
  }
  if (rows > 0) summary.geometric_mean_speedup = std::exp(logarithms / rows);
  return summary;
}

}  // namespace

std::vector<ShapeRow> weights_of(std::span<const ShapeRow> shapes, std::int64_t m) {
  std::vector<ShapeRow> weights;
  for (const ShapeRow& shape : shapes) {
    const auto calls = std::max<std::int64_t>(1, shape.calls);
    const auto known = std::find_if(weights.begin(), weights.end(), [&](const ShapeRow& weight) {
      return same_weight(weight.problem, shape.problem);
    });
    if (known != weights.end()) {
      known->calls += calls;
      continue;
    }
    ShapeRow& weight = weights.emplace_back(shape);
    weight.problem.m = m;
    weight.calls = calls;
  }
  return weights;
}

Result<MRangeSummary> tune_m_ranges(Device& device, std::span<Evaluator* const> evaluators,
                                    const TuneRequest& request, MRangeObserver& observer,
                                    TuneObserver& problems) {
  const Deadline clock = Deadline::never(request.clock);
  if (evaluators.empty()) return Status::invalid("no evaluator: expected at least one");
  if (!request.m_range) return Status::invalid("no range of M");
  const MRange& range = request.m_range->range;
  if (range.first < 1 || range.last < range.first || range.last > max_dimension) {
    return Status::invalid("range of M {}:{}: expected 1 <= first <= last <= {}", range.first, range.last,
                           max_dimension);
  }
  RangeRun run(device, evaluators.size(), request, observer, problems);
  GEMMTUNE_RETURN_IF_ERROR(run.prepare());
  GEMMTUNE_RETURN_IF_ERROR(share_out(
      run.groups(), evaluators.size(),
      [&](std::size_t worker, std::size_t group) { return run.tune_group(group, *evaluators[worker]); }));
  auto summary = run.finish();
  if (summary.ok()) summary->seconds = clock.seconds_elapsed();
  return summary;
}

}  // namespace gemmtune
