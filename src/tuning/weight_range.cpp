#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "measure/statistics.h"
#include "tuned/key.h"
#include "tuning/layout_group.h"
#include "tuning/m_range_comparison.h"
#include "tuning/run.h"
#include "tuning/work_item.h"

namespace gemmtune {
namespace {

/// One row key but for M.
bool same_group(const Problem& a, const Problem& b) { return group_of(a) == group_of(b); }

constexpr std::size_t max_runners_up = 2;
constexpr double first_share = 0.6;  // of the item's time, for the first M
constexpr double later_share = 0.2;  // of what is left, for a search in between

/// Finalists that came within `regret` of the winner, best first.
std::vector<std::string> runners_up(const Settled& settled, double regret) {
  std::vector<std::pair<double, std::string>> close;
  const std::string winner = settled.winner->candidate.kernel_name();
  for (const Trial& trial : settled.trials) {
    const std::string name = trial.candidate.kernel_name();
    if (name == winner || trial.outcome.kind != OutcomeKind::ok || trial.outcome.microseconds.empty())
      continue;
    const double time = median(trial.outcome.microseconds);
    if (time <= settled.microseconds * (1 + regret)) close.emplace_back(time, name);
  }
  std::ranges::sort(close);
  std::vector<std::string> names;
  for (auto& [time, name] : close) {
    if (names.size() < max_runners_up) names.push_back(std::move(name));
  }
  return names;
}

std::int64_t nearest_of(const std::vector<std::int64_t>& ms, std::int64_t m) {
  const auto distance = [m](std::int64_t other) {
    return std::fabs(std::log(static_cast<double>(other)) - std::log(static_cast<double>(m)));
  };
  return *std::ranges::min_element(ms,
                                   [&](std::int64_t a, std::int64_t b) { return distance(a) < distance(b); });
}

class WeightRange final : public WorkItem {
 public:
  /// run.request().m_range is set; `item`: its report. `run` must outlive this.
  WeightRange(Run& run, std::size_t item);

  /// Until the axis is settled, the item's time is over or the run is stopped.
  Status visit(const RunBudget::Visit& visit, Evaluator& evaluator) override;
  Status finish() override;

 private:
  struct Search {
    std::vector<LayoutResult> layouts;
    ProblemState failure = ProblemState::failed;
    std::string reason;
  };
  /// What run() works with.
  struct Turn {
    Evaluator& evaluator;
    const Deadline& deadline;
  };

  const MRangeRequest& asked() const { return *run_.request().m_range; }
  ItemReport& report() { return run_.report(item_); }
  RangeFigures& figures() { return *run_.report(item_).range; }
  /// The members up to the layout.
  void read_shapes_and_rows();
  Problem problem_at(std::int64_t m) const;
  bool is_replaced(const TunedEntry& row) const;
  bool must_stop(const Turn& turn) const { return run_.ended() || turn.deadline.over(); }
  void announce(const MQuestion& question);
  /// False if it was interrupted: nothing is known then.
  bool search(std::int64_t m, const Turn& turn);
  bool choose_layout(const Turn& turn);
  bool answer(const MQuestion& question, const Turn& turn);
  bool answer_search(const MQuestion& question, const Turn& turn);
  bool answer_comparison(const MQuestion& question, const Turn& turn);
  bool answer_check(const MQuestion& question, Evaluator& evaluator);
  const Settled* settled_at(std::int64_t m) const;
  std::optional<TunedEntry> row_of(const MInterval& interval) const;
  Status tune_axis(const Turn& turn);
  Status publish(bool complete);
  void write_report(bool complete);

  Run& run_;
  const std::size_t item_;
  const ShapeRow shape_;
  std::map<std::int64_t, std::int64_t> calls_;  // by M, of the shapes: for the choice of a layout
  std::set<std::int64_t> kept_ms_;              // M with a row that rows of one M do not replace
  std::optional<WeightLayout> layout_;
  MRangePlanner planner_;
  std::map<std::int64_t, Search> searches_;
  std::map<std::int64_t, std::map<std::string, Settled>> compared_;
  std::set<std::tuple<std::int64_t, std::int64_t, std::string>> published_;
  double begin_ = 0;
  double settling_begin_ = 0;
  bool is_reported_ = false;
};

WeightRange::WeightRange(Run& run, std::size_t item)
    : run_(run),
      item_(item),
      shape_(run.report(item).shape),
      planner_(run.request().m_range->range, run.request().m_range->regret) {}

void WeightRange::read_shapes_and_rows() {
  for (const ShapeRow& shape : run_.request().shapes) {
    if (shape.calls > 0 && same_group(shape.problem, shape_.problem) && shape.line != 0)
      calls_[shape.problem.m] += shape.calls;
  }
  for (const KnownRows::Row* row : run_.known().of_weight(shape_.problem)) {
    if (same_group(row->entry.problem, shape_.problem)) kept_ms_.insert(row->entry.problem.m);
  }
  const WeightLayout asked = shape_.problem.weight_layout;
  if (is_packed(shape_.problem) && asked != WeightLayout::any) {
    layout_ = asked;
  } else {
    layout_ = run_.decided_layout(shape_.problem, [&](const TunedEntry& row) { return is_replaced(row); });
  }
}

/// A row of another M stays, and a row of one M within the range.
bool WeightRange::is_replaced(const TunedEntry& row) const {
  const MRange& range = asked().range;
  return row.problem.m >= range.first && row.problem.m <= range.last && row.m_from &&
         *row.m_from >= range.first;
}

Problem WeightRange::problem_at(std::int64_t m) const {
  Problem problem = shape_.problem;
  problem.m = m;
  return problem;
}

void WeightRange::announce(const MQuestion& question) {
  RangeStep step;
  step.item = item_;
  step.items = run_.items();
  step.problem = problem_at(question.m);
  step.kind = question.kind;
  step.searched = planner_.tuned_count();
  step.first_ms = first_ms(asked().range).size();
  step.item_seconds = run_.request().clock() - begin_;
  if (step.searched >= step.first_ms) {
    step.settled_share = planner_.settled_share();
    if (settling_begin_ == 0) settling_begin_ = step.item_seconds;
  }
  step.settling_begin = settling_begin_;
  run_.range_step(step);
}

bool WeightRange::search(std::int64_t m, const Turn& turn) {
  if (searches_.contains(m)) return true;
  announce({MQuestion::Kind::tune, m, {}, 0});
  const std::size_t first = first_ms(asked().range).size();
  const double share =
      searches_.size() < first ? first_share / static_cast<double>(first - searches_.size()) : later_share;
  ItemReport searched;
  searched.shape = shape_;
  searched.shape.problem = problem_at(m);
  const double begin = run_.request().clock();
  const std::size_t index = run_.next_search();
  run_.problem_started(index, searched.shape);
  TuningVisit visit(turn.deadline.part(share));
  visit.is_hard = false;
  ProblemResult result = run_.search(index, searched.shape.problem, layout_, visit, turn.evaluator);
  if (run_.ended()) return false;
  searched.seconds = run_.request().clock() - begin;
  searched.trials = std::move(result.trials);
  report().refusals = searched.refusals = std::move(result.refusals);
  searched.state = result.layouts.empty() ? result.failure : ProblemState::tuned;
  searched.reason = result.reason;
  if (!result.layouts.empty()) {
    const Settled& settled = result.layouts.front().settled;
    searched.rows = {make_entry(run_.device().info(), searched.shape.problem, settled,
                                run_.environment_hash(), run_.request().policy)};
    if (settled.default_fault) searched.default_fault = settled.default_fault->reason;
    if (settled.default_kernel == searched.row()->kernel_name) searched.state = ProblemState::kept_default;
  } else {
    figures().failures.push_back(fmt::format("M = {}: {}", m, result.reason));
  }
  searches_[m] = {std::move(result.layouts), result.failure, result.reason};
  run_.problem_done(index, searched);
  return true;
}

/// One layout for the whole axis: over the first M, by the calls of the shapes nearest to each; without calls
/// in the range each M counts as one, by its time relative to its best.
bool WeightRange::choose_layout(const Turn& turn) {
  const auto ms = first_ms(asked().range);
  for (const std::int64_t m : ms) {
    if (must_stop(turn) || !search(m, turn)) return false;
  }
  std::map<std::int64_t, std::int64_t> near;
  for (const auto& [m, count] : calls_) {
    if (m >= ms.front() && m <= ms.back()) near[nearest_of(ms, m)] += count;
  }
  std::vector<GroupMember> members;
  for (const std::int64_t m : ms) {
    GroupMember& member = members.emplace_back();
    double best = 0;
    for (const LayoutResult& result : searches_[m].layouts) {
      const double time = result.settled.microseconds;
      best = best > 0 ? std::min(best, time) : time;
      member.times.push_back({result.layout, time});
    }
    if (near.empty()) {
      for (LayoutTime& time : member.times) time.microseconds /= best;
    } else {
      member.calls = near.contains(m) ? near[m] : 0;
    }
  }
  layout_ = gemmtune::choose_layout(members).value_or(WeightLayout::any);
  return true;
}

const Settled* WeightRange::settled_at(std::int64_t m) const {
  const auto found = searches_.find(m);
  if (found == searches_.end()) return nullptr;
  for (const LayoutResult& result : found->second.layouts) {
    if (result.layout == layout_) return &result.settled;
  }
  return nullptr;
}

bool WeightRange::answer_search(const MQuestion& question, const Turn& turn) {
  if (!search(question.m, turn)) return false;
  const Settled* settled = settled_at(question.m);
  if (settled == nullptr) {
    planner_.tuned(question.m, {}, {});
  } else {
    run_.note_machine(settled->noise_floor, settled->quietness.busy());
    planner_.tuned(question.m, settled->winner->candidate.kernel_name(),
                   runners_up(*settled, asked().regret));
  }
  return true;
}

bool WeightRange::answer_comparison(const MQuestion& question, const Turn& turn) {
  const MComparisonRequest asked_for{problem_at(question.m), question.kernels, *layout_,
                                     run_.request().policy, asked().regret};
  auto comparison = compare_kernels(run_.device(), turn.evaluator, asked_for, turn.deadline);
  if (run_.ended()) return false;
  ++figures().compared;
  if (!comparison.ok()) {
    // Nothing can be measured there by itself: the result of the search remains.
    std::vector<MRegret> regrets;
    if (const Settled* settled = settled_at(question.m))
      regrets.push_back({settled->winner->candidate.kernel_name(), 0, true});
    planner_.compared(question, regrets, 0);
    return true;
  }
  figures().finals_calls += comparison->finals_calls;
  run_.note_machine(comparison->noise_floor, false);
  for (auto& [kernel, settled] : comparison->rows) compared_[question.m][kernel] = std::move(settled);
  planner_.compared(question, comparison->regrets, comparison->noise_floor);
  return true;
}

bool WeightRange::answer_check(const MQuestion& question, Evaluator& evaluator) {
  const Problem problem = problem_at(question.m);
  const auto candidate = run_.device().resolve(question.kernels.front(), problem);
  std::optional<std::int64_t> wrong_at;
  if (!candidate.ok()) {
    wrong_at = question.m;
  } else {
    if (question.m_from < question.m) {
      const Outcome outcome = evaluator.check_neighbour_m(problem, *candidate, question.m_from);
      if (outcome.kind != OutcomeKind::ok) wrong_at = question.m_from;
    }
    for (const std::int64_t m : neighbour_ms(problem)) {
      if (wrong_at || m == question.m_from) continue;
      const Outcome outcome = evaluator.check_neighbour_m(problem, *candidate, m);
      const bool inside = m > question.m_from;
      const bool refused = outcome.kind == OutcomeKind::refused;  // dispatch then goes on to the next level
      if (outcome.kind != OutcomeKind::ok && (inside || !refused)) wrong_at = m;
    }
  }
  if (run_.ended()) return false;
  planner_.checked(question, wrong_at);
  return true;
}

bool WeightRange::answer(const MQuestion& question, const Turn& turn) {
  if (question.kind == MQuestion::Kind::tune) return answer_search(question, turn);
  announce(question);
  if (question.kind == MQuestion::Kind::compare) return answer_comparison(question, turn);
  return answer_check(question, turn.evaluator);
}

std::optional<TunedEntry> WeightRange::row_of(const MInterval& interval) const {
  const Settled* settled = settled_at(interval.last);
  if (settled == nullptr || settled->winner->candidate.kernel_name() != interval.kernel) {
    const auto comparison = compared_.find(interval.last);
    if (comparison == compared_.end()) return std::nullopt;
    const auto row = comparison->second.find(interval.kernel);
    if (row == comparison->second.end()) return std::nullopt;
    settled = &row->second;
  }
  TunedEntry entry = make_entry(run_.device().info(), problem_at(interval.last), *settled,
                                run_.environment_hash(), run_.request().policy);
  entry.m_from = interval.first;
  entry.regret = std::round(interval.regret * 1e4) / 1e4;
  return entry;
}

/// While the item is at work, what is new; at the end all rows, for other rows may have been written between.
Status WeightRange::publish(bool complete) {
  report().rows.clear();
  std::vector<TunedEntry> fresh;
  for (const MInterval& interval : planner_.intervals()) {
    auto row = row_of(interval);
    if (!row) continue;
    const bool one_m = interval.first == interval.last;
    if (one_m && !complete && kept_ms_.contains(interval.last)) continue;
    report().rows.push_back(*row);
    const bool is_new = published_.emplace(interval.first, interval.last, interval.kernel).second;
    if (is_new || complete) fresh.push_back(std::move(*row));
  }
  return run_.publish(fresh);
}

void WeightRange::write_report(bool complete) {
  ItemReport& all = report();
  figures().searched = planner_.tuned_count();
  figures().settled_share =
      figures().searched < first_ms(asked().range).size() ? 0 : planner_.settled_share();
  all.seconds = run_.request().clock() - begin_;
  if (!complete) {
    all.state = run_.stopped() ? ProblemState::interrupted : ProblemState::out_of_budget;
    all.reason =
        fmt::format("{} with {:.0f} % of the M axis settled",
                    run_.stopped() ? "interrupted" : "the time was over", 100 * figures().settled_share);
    return;
  }
  if (all.rows.empty()) {
    const Search& last = searches_.rbegin()->second;
    all.state = last.failure;
    all.reason = last.reason.empty() ? "no kernel stood the checks at any M" : last.reason;
    return;
  }
  const bool kept = std::ranges::all_of(
      all.rows, [](const TunedEntry& row) { return row.kernel_name == row.default_kernel; });
  all.state = kept ? ProblemState::kept_default : ProblemState::tuned;
}

Status WeightRange::tune_axis(const Turn& turn) {
  begin_ = run_.request().clock();
  read_shapes_and_rows();
  bool goes_on = layout_.has_value() || choose_layout(turn);
  while (goes_on) {
    const MQuestion question = planner_.next();
    if (question.kind == MQuestion::Kind::none) break;
    goes_on = !must_stop(turn) && answer(question, turn);
    if (goes_on) GEMMTUNE_RETURN_IF_ERROR(publish(false));
  }
  if (goes_on) GEMMTUNE_RETURN_IF_ERROR(publish(true));
  write_report(goes_on);
  return {};
}

Status WeightRange::visit(const RunBudget::Visit& visit, Evaluator& evaluator) {
  if (run_.waits(item_)) GEMMTUNE_RETURN_IF_ERROR(tune_axis({evaluator, visit.tuning.deadline}));
  run_.budget().done(visit, {});
  GEMMTUNE_RETURN_IF_ERROR(run_.flush());
  run_.range_done(item_);
  is_reported_ = true;
  return {};
}

Status WeightRange::finish() {
  if (is_reported_) return {};
  if (run_.waits(item_)) run_.set_unfinished(report(), false);
  run_.range_done(item_);
  return {};
}

/// True if known ranges answer every M of the request's range.
bool is_covered(const Run& run, const Problem& weight) {
  std::vector<MRange> answered;
  for (const KnownRows::Row* row : run.known().of_weight(weight)) {
    const TunedEntry& entry = row->entry;
    if (!entry.m_from || !same_group(entry.problem, weight) || !run.counts(entry)) continue;
    answered.push_back({*entry.m_from, entry.problem.m});
  }
  std::ranges::sort(answered, [](const MRange& a, const MRange& b) { return a.first < b.first; });
  const MRange& range = run.request().m_range->range;
  std::int64_t next = range.first;
  for (const MRange& each : answered) {
    if (each.first <= next) next = std::max(next, each.last + 1);
  }
  return next > range.last;
}

/// True if the weight needs no tuning; the report then has the reason.
bool leave_out(const Run& run, ItemReport& report) {
  const MRange& range = run.request().m_range->range;
  report.state = ProblemState::unsupported;
  for (const std::int64_t m : {range.first, range.last}) {
    Problem problem = report.shape.problem;
    problem.m = m;
    if (const Status status = run.check_problem(problem); !status.ok()) {
      report.reason = status.message();
      return true;
    }
  }
  if (is_mixture(report.shape.problem)) {
    report.reason = "fused_moe is looked up by token tiers, not by ranges of M";
    return true;
  }
  report.state = ProblemState::failed;
  if (const Status status = run.check_expressible(report.shape.problem); !status.ok()) {
    report.reason = status.message();
    return true;
  }
  if (!is_covered(run, report.shape.problem)) {
    const Status status = run.check_keeps_bits(report.shape.problem);
    report.reason = status.message();
    return !status.ok();
  }
  report.state = ProblemState::skipped_done;
  report.reason = fmt::format("done already: ranges of M cover {} to {}", range.first, range.last);
  report.range->settled_share = 1;
  return true;
}

}  // namespace

std::vector<ShapeRow> weights_of(std::span<const ShapeRow> shapes, std::int64_t m) {
  std::vector<ShapeRow> weights;
  std::unordered_map<GroupKey, std::size_t, GroupKeyHash> of_group;  // indices of `weights`
  for (const ShapeRow& shape : shapes) {
    const auto calls = std::max<std::int64_t>(1, shape.calls);
    const auto [known, is_new] = of_group.try_emplace({{}, 0, group_of(shape.problem)}, weights.size());
    if (!is_new) {
      weights[known->second].calls += calls;
      continue;
    }
    ShapeRow& weight = weights.emplace_back(shape);
    weight.problem.m = m;
    weight.calls = calls;
  }
  return weights;
}

std::vector<std::unique_ptr<WorkItem>> range_items(Run& run) {
  const MRange& range = run.request().m_range->range;
  for (ShapeRow& weight : weights_of(run.request().shapes, range.last)) {
    ItemReport report;
    report.shape = std::move(weight);
    report.range.emplace();
    const bool waits = !leave_out(run, report);
    run.add(std::move(report), run.items(), waits);
  }
  std::vector<std::unique_ptr<WorkItem>> items;
  for (std::size_t i = 0; i < run.items(); ++i) items.push_back(std::make_unique<WeightRange>(run, i));
  return items;
}

}  // namespace gemmtune
