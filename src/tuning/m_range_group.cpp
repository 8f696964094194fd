#include "tuning/m_range_group.h"

#include <algorithm>
#include <cmath>

#include "measure/statistics.h"

namespace gemmtune {
namespace {

constexpr std::size_t most_runners_up = 2;
constexpr double first_share = 0.6;  // of the group's time, for the first M
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
  std::sort(close.begin(), close.end());
  std::vector<std::string> names;
  for (auto& [time, name] : close) {
    if (names.size() < most_runners_up) names.push_back(std::move(name));
  }
  return names;
}

std::int64_t nearest_of(const std::vector<std::int64_t>& ms, std::int64_t m) {
  const auto distance = [m](std::int64_t other) {
    return std::fabs(std::log(static_cast<double>(other)) - std::log(static_cast<double>(m)));
  };
  return *std::min_element(ms.begin(), ms.end(),
                           [&](std::int64_t a, std::int64_t b) { return distance(a) < distance(b); });
}

}  // namespace

MRangeGroup::MRangeGroup(const Device& device, Evaluator& evaluator, const TuneRequest& request,
                         MGroupTask task, MGroupEvents events)
    : device_(device),
      evaluator_(evaluator),
      request_(request),
      task_(std::move(task)),
      events_(std::move(events)),
      planner_(request.m_range->range, request.m_range->regret),
      clock_(request.clock),
      begin_(clock_()) {
  report_.shape = task_.shape;
  if (!task_.shape.problem.bpreshuffle) task_.layout = WeightLayout::plain;
}

Problem MRangeGroup::problem_at(std::int64_t m) const {
  Problem problem = task_.shape.problem;
  problem.m = m;
  return problem;
}

bool MRangeGroup::must_stop(const Deadline& deadline) const { return stopped() || deadline.over(); }

void MRangeGroup::say(const MQuestion& question) {
  MRangeMoment moment;
  moment.problem = problem_at(question.m);
  moment.kind = question.kind;
  moment.tuned = planner_.tuned_count();
  moment.first_ms = first_ms(request_.m_range->range).size();
  moment.group_seconds = clock_() - begin_;
  if (moment.tuned >= moment.first_ms) {
    moment.settled_share = planner_.settled_share();
    if (settling_begin_ == 0) settling_begin_ = moment.group_seconds;
  }
  moment.settling_begin = settling_begin_;
  events_.question(moment);
}

bool MRangeGroup::search(std::int64_t m, const Deadline& deadline) {
  if (searches_.contains(m)) return true;
  say({MQuestion::Kind::tune, m, {}, 0});
  const std::size_t first = first_ms(request_.m_range->range).size();
  const double share =
      searches_.size() < first ? first_share / static_cast<double>(first - searches_.size()) : later_share;
  ProblemReport searched;
  searched.shape = task_.shape;
  searched.shape.problem = problem_at(m);
  const double begin = clock_();
  events_.search_begins(searched.shape);
  ProblemResult result =
      tune_problem(device_, evaluator_, request_, searched.shape.problem, task_.layout, deadline.part(share),
                   events_.trial, transfer_.winners_near(searched.shape.problem));
  if (stopped()) return false;
  searched.seconds = clock_() - begin;
  searched.trials = std::move(result.trials);
  report_.refusals = searched.refusals = std::move(result.refusals);
  searched.state = result.layouts.empty() ? result.failure : ProblemState::tuned;
  searched.reason = result.reason;
  for (const LayoutResult& each : result.layouts) {
    transfer_.learn(searched.shape.problem, each.settled.winner->candidate);
  }
  if (!result.layouts.empty()) {
    const Settled& settled = result.layouts.front().settled;
    searched.entry = make_entry(device_.info(), searched.shape.problem, settled, task_.environment);
    if (settled.default_kernel == searched.entry->kernel_name) searched.state = ProblemState::kept_default;
  } else {
    report_.failures.push_back(fmt::format("M = {}: {}", m, result.reason));
  }
  searches_[m] = {std::move(result.layouts), result.failure, result.reason};
  events_.search_done(std::move(searched));
  return true;
}

/// One layout for the whole axis: over the first M, by the calls of the shapes nearest to each; without calls
/// in the range each M counts as one, by its time relative to its best.
bool MRangeGroup::choose_layout(const Deadline& deadline) {
  const auto ms = first_ms(request_.m_range->range);
  for (const std::int64_t m : ms) {
    if (must_stop(deadline) || !search(m, deadline)) return false;
  }
  std::map<std::int64_t, std::int64_t> calls;
  for (const auto& [m, count] : task_.calls) {
    if (m >= ms.front() && m <= ms.back()) calls[nearest_of(ms, m)] += count;
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
    if (calls.empty()) {
      for (LayoutTime& time : member.times) time.microseconds /= best;
    } else {
      member.calls = calls.contains(m) ? calls[m] : 0;
    }
  }
  task_.layout = gemmtune::choose_layout(members).value_or(WeightLayout::any);
  return true;
}

const Settled* MRangeGroup::settled_at(std::int64_t m) const {
  const auto found = searches_.find(m);
  if (found == searches_.end()) return nullptr;
  for (const LayoutResult& result : found->second.layouts) {
    if (result.layout == task_.layout) return &result.settled;
  }
  return nullptr;
}

bool MRangeGroup::answer_search(const MQuestion& question, const Deadline& deadline) {
  if (!search(question.m, deadline)) return false;
  const Settled* settled = settled_at(question.m);
  if (settled == nullptr) {
    planner_.tuned(question.m, {}, {});
  } else {
    noise_floors_.push_back(settled->noise_floor);
    planner_.tuned(question.m, settled->winner->candidate.kernel_name(),
                   runners_up(*settled, request_.m_range->regret));
  }
  return true;
}

bool MRangeGroup::answer_comparison(const MQuestion& question, const Deadline& deadline) {
  const MComparisonRequest contest{problem_at(question.m), question.kernels, *task_.layout, request_.policy,
                                   request_.m_range->regret};
  auto comparison = compare_kernels(device_, evaluator_, contest, deadline);
  if (stopped()) return false;
  ++report_.compared;
  if (!comparison.ok()) {
    // Nothing can be measured there by itself: what the search found stands.
    std::vector<MRegret> regrets;
    if (const Settled* settled = settled_at(question.m))
      regrets.push_back({settled->winner->candidate.kernel_name(), 0, true});
    planner_.compared(question, regrets, 0);
    return true;
  }
  report_.finals_calls += comparison->finals_calls;
  noise_floors_.push_back(comparison->noise_floor);
  for (auto& [kernel, settled] : comparison->rows) compared_[question.m][kernel] = std::move(settled);
  planner_.compared(question, comparison->regrets, comparison->noise_floor);
  return true;
}

bool MRangeGroup::answer_check(const MQuestion& question) {
  const Problem problem = problem_at(question.m);
  const auto candidate = device_.resolve(question.kernels.front(), problem);
  std::optional<std::int64_t> wrong_at;
  if (!candidate.ok()) {
    wrong_at = question.m;
  } else {
    if (question.m_from < question.m) {
      const Outcome outcome = evaluator_.check_neighbour_m(problem, *candidate, question.m_from);
      if (outcome.kind != OutcomeKind::ok) wrong_at = question.m_from;
    }
    for (const std::int64_t m : neighbour_ms(problem)) {
      if (wrong_at || m == question.m_from) continue;
      const Outcome outcome = evaluator_.check_neighbour_m(problem, *candidate, m);
      const bool inside = m > question.m_from;
      const bool refused = outcome.kind == OutcomeKind::refused;  // dispatch then goes on to the next level
      if (outcome.kind != OutcomeKind::ok && (inside || !refused)) wrong_at = m;
    }
  }
  if (stopped()) return false;
  planner_.checked(question, wrong_at);
  return true;
}

bool MRangeGroup::answer(const MQuestion& question, const Deadline& deadline) {
  if (question.kind == MQuestion::Kind::tune) return answer_search(question, deadline);
  say(question);
  if (question.kind == MQuestion::Kind::compare) return answer_comparison(question, deadline);
  return answer_check(question);
}

std::optional<TunedEntry> MRangeGroup::row_of(const MInterval& interval) const {
  const Settled* settled = settled_at(interval.last);
  if (settled == nullptr || settled->winner->candidate.kernel_name() != interval.kernel) {
    const auto comparison = compared_.find(interval.last);
    if (comparison == compared_.end()) return std::nullopt;
    const auto row = comparison->second.find(interval.kernel);
    if (row == comparison->second.end()) return std::nullopt;
    settled = &row->second;
  }
  TunedEntry entry = make_entry(device_.info(), problem_at(interval.last), *settled, task_.environment);
  entry.m_from = interval.first;
  entry.regret = std::round(interval.regret * 1e4) / 1e4;
  return entry;
}

/// While it is at work, what is new; at the end all of it, in case that something else stood in between.
Status MRangeGroup::publish(bool complete) {
  report_.rows.clear();
  std::vector<TunedEntry> fresh;
  for (const MInterval& interval : planner_.intervals()) {
    auto entry = row_of(interval);
    if (!entry) continue;
    const bool one_m = interval.first == interval.last;
    if (one_m && !complete && task_.kept_ms.contains(interval.last)) continue;
    report_.rows.push_back(*entry);
    const bool is_new = published_.emplace(interval.first, interval.last, interval.kernel).second;
    if (is_new || complete) fresh.push_back(std::move(*entry));
  }
  if (fresh.empty()) return {};
  return events_.publish(std::move(fresh), noise_floors_.empty() ? 0 : median(noise_floors_));
}

void MRangeGroup::finish(bool complete) {
  report_.tuned = planner_.tuned_count();
  report_.settled_share =
      report_.tuned < first_ms(request_.m_range->range).size() ? 0 : planner_.settled_share();
  report_.seconds = clock_() - begin_;
  if (!complete) {
    report_.state = ProblemState::out_of_budget;
    report_.reason =
        fmt::format("{} with {:.0f} % of the M axis settled", stopped() ? "interrupted" : "the time was over",
                    100 * report_.settled_share);
    return;
  }
  if (report_.rows.empty()) {
    const Search& last = searches_.rbegin()->second;
    report_.state = last.failure;
    report_.reason = last.reason.empty() ? "no kernel stood the checks at any M" : last.reason;
    return;
  }
  const bool kept = std::all_of(report_.rows.begin(), report_.rows.end(),
                                [](const TunedEntry& row) { return row.kernel_name == row.default_kernel; });
  report_.state = kept ? ProblemState::kept_default : ProblemState::tuned;
}

Status MRangeGroup::run(const Deadline& deadline) {
  bool goes_on = task_.layout.has_value() || choose_layout(deadline);
  while (goes_on) {
    const MQuestion question = planner_.next();
    if (question.kind == MQuestion::Kind::none) break;
    goes_on = !must_stop(deadline) && answer(question, deadline);
    if (goes_on) GEMMTUNE_RETURN_IF_ERROR(publish(false));
  }
  if (goes_on) GEMMTUNE_RETURN_IF_ERROR(publish(true));
  finish(goes_on);
  return {};
}

}  // namespace gemmtune
