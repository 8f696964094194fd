#include "tuning/budget.h"

#include <cmath>
#include <unordered_map>
#include <utility>

#include "measure/statistics.h"
#include "tuned/key.h"

namespace gemmtune {
namespace {

constexpr std::size_t first_candidates = 16;  // of a first visit
constexpr double first_share = 0.5;           // of the problem's equal share that a first visit may take …
constexpr double min_first_share = 0.05;  // … or this share of all that is left: the compilers start cold
constexpr double halvings = 3;            // of the expected gain, over the rest of a search
constexpr double default_gain = 0.06;     // logarithm, before any was seen
constexpr double default_weight = 0.5;    // of it, against 1 for the gain of the same problem
constexpr double min_gain = 0.003;        // nothing is known so well that it gets no time
constexpr double gain_after_cut = 0.3;    // of the gain, where it was searched as its time allowed before
constexpr double sampling_share = 0.2;    // of a search: further samples of candidates that it has tried
constexpr double built_for_shortest = 4;  // candidates that are built again for the shortest finals …
constexpr double built_for_whole = 10;    // … and beyond these for whole ones
constexpr double rest_margin = 1.25;      // of the time of a visit that no other one waits for
constexpr std::size_t remembered = 64;    // of the latest figures

void remember(double value, std::deque<double>& values) {
  values.push_back(value);
  if (values.size() > remembered) values.pop_front();
}

double median_or_zero(const std::deque<double>& values) {
  return values.empty() ? 0 : median(std::vector<double>(values.begin(), values.end()));
}

double log_of(std::int64_t size) { return std::log(static_cast<double>(std::max<std::int64_t>(1, size))); }

}  // namespace

RunBudget::RunBudget(BudgetOptions options)
    : options_(std::move(options)),
      deadline_(options_.seconds > 0 ? Deadline::in(options_.seconds - options_.spent, options_.clock)
                                     : Deadline::never(options_.clock)) {}

void RunBudget::share_among(const std::vector<BudgetItem>& items) {
  std::vector<double> calls;  // of the groups
  std::unordered_map<GroupKey, std::size_t, GroupKeyHash> weights;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::size_t group = items[i].group;
    if (group >= groups_.size()) {
      groups_.resize(group + 1);
      calls.resize(group + 1);
    }
    items_.push_back({items[i]});
    if (!items[i].waits) continue;
    groups_[group].waiting.push_back(i);
    calls[group] += items[i].calls;
    ++unvisited_;
    const auto [at, is_new] =
        weights.try_emplace(GroupKey{{}, 0, weight_of(items[i].problem)}, weights_.size());
    if (is_new) weights_.emplace_back();
    items_.back().weight = at->second;
    weights_[at->second].waiting.push_back(i);
    weights_[at->second].calls += items[i].calls;
  }
  for (std::size_t group = 0; group < groups_.size(); ++group) {
    std::ranges::reverse(groups_[group].waiting);
    order_.push_back(group);
  }
  // Where the time ends before all had a visit, those that are called most had theirs.
  if (!is_limited() || !options_.goes_on) return;
  std::ranges::stable_sort(order_, [&](std::size_t a, std::size_t b) {
    const bool waits_a = !groups_[a].waiting.empty();
    const bool waits_b = !groups_[b].waiting.empty();
    return waits_a != waits_b ? waits_b : calls[a] > calls[b];
  });
}

double RunBudget::seconds_left() const {
  return std::max(0.0, deadline_.seconds_left()) * static_cast<double>(options_.evaluators);
}

std::optional<RunBudget::Visit> RunBudget::next(std::size_t evaluator) {
  std::unique_lock guard(lock_);
  for (;;) {
    if (ended_ || is_cut_off()) return std::nullopt;
    if (auto visit = next_unvisited(evaluator)) return visit;
    if (!is_limited() || (deadline_.over() && any_result_)) return std::nullopt;
    if (options_.goes_on) {
      if (auto visit = further_visit(evaluator)) return visit;
    }
    if (in_work_ == 0) return std::nullopt;
    changed_.wait(guard);
  }
}

void RunBudget::end() {
  const std::lock_guard guard(lock_);
  ended_ = true;
  changed_.notify_all();
}

std::optional<RunBudget::Visit> RunBudget::next_unvisited(std::size_t evaluator) {
  std::optional<std::size_t> item;
  if (is_short_of_time()) item = spread_item(evaluator);
  const auto group = item ? items_[*item].given.group : next_group(evaluator);
  if (!group) return std::nullopt;
  Group& chosen = groups_[*group];
  std::optional<TuningVisit> tuning;
  if (chosen.waiting.empty()) {
    tuning.emplace(Deadline::never(options_.clock));
  } else {
    tuning = first_visit();
    if (!tuning) return std::nullopt;
  }
  Visit visit{*group, std::nullopt, std::move(*tuning)};
  if (!chosen.waiting.empty()) {
    visit.item = item ? *item : chosen.waiting.back();
    leave(*visit.item);
    any_ = true;
  }
  begin_visit(*group, evaluator);
  return visit;
}

bool RunBudget::may_begin(const Group& group, std::size_t evaluator) const {
  return !group.in_work && !group.waiting.empty() && (!group.evaluator || *group.evaluator == evaluator);
}

std::optional<std::size_t> RunBudget::next_group(std::size_t evaluator) {
  // A group that this evaluator has begun, else the next one.
  const auto own = at_evaluator_.find(evaluator);
  if (own != at_evaluator_.end() && may_begin(groups_[own->second], evaluator)) return own->second;
  while (at_ < order_.size() && groups_[order_[at_]].evaluator) ++at_;
  if (at_ < order_.size()) return order_[at_];
  // Begun while time was short.
  const auto begun =
      std::ranges::find_if(order_, [&](std::size_t group) { return may_begin(groups_[group], evaluator); });
  return begun == order_.end() ? std::nullopt : std::optional(*begun);
}

double RunBudget::seconds_to_settle() const {
  return median_or_zero(first_seconds_) + median_or_zero(shortest_seconds_);
}

bool RunBudget::is_short_of_time() const {
  if (!is_limited() || !options_.goes_on || first_seconds_.empty()) return false;
  return seconds_to_settle() * static_cast<double>(unvisited_) > seconds_left() - reserved_;
}

std::optional<std::size_t> RunBudget::spread_item(std::size_t evaluator) const {
  std::optional<std::size_t> best;
  const auto share = [&](std::size_t index) {
    const Weight& weight = weights_[items_[index].weight];
    return weight.visited_calls / weight.calls;
  };
  for (const Weight& weight : weights_) {
    std::optional<std::size_t> farthest;
    for (const std::size_t i : weight.waiting) {
      const Item& item = items_[i];
      if (!may_begin(groups_[item.given.group], evaluator)) continue;
      const auto score = [&](std::size_t index) {
        return items_[index].given.calls * (1 + items_[index].distance);
      };
      if (!farthest || score(i) > score(*farthest)) farthest = i;
    }
    if (!farthest) continue;
    const bool is_better =
        !best || share(*farthest) < share(*best) ||
        (share(*farthest) == share(*best) && weight.calls > weights_[items_[*best].weight].calls);
    if (is_better) best = farthest;
  }
  return best;
}

void RunBudget::leave(std::size_t index) {
  Item& item = items_[index];
  std::erase(groups_[item.given.group].waiting, index);
  Weight& weight = weights_[item.weight];
  const bool is_first = weight.visited_calls == 0;
  std::erase(weight.waiting, index);
  weight.visited_calls += item.given.calls;
  for (const std::size_t i : weight.waiting) {
    const double apart = std::abs(log_of(items_[i].given.problem.m) - log_of(item.given.problem.m));
    items_[i].distance = is_first ? apart : std::min(items_[i].distance, apart);
  }
  --unvisited_;
}

void RunBudget::begin_visit(std::size_t group, std::size_t evaluator) {
  groups_[group].evaluator = evaluator;
  groups_[group].in_work = true;
  at_evaluator_[evaluator] = group;
  ++in_work_;
}

std::optional<TuningVisit> RunBudget::first_visit() const {
  if (!is_limited()) return TuningVisit(Deadline::never(options_.clock));
  const double left = std::max(0.0, deadline_.seconds_left());
  if (left <= 0 && any_) return std::nullopt;
  const double all = seconds_left();
  const double equal = std::max(0.0, all - reserved_) / static_cast<double>(unvisited_);
  const auto within = [&](double seconds) { return Deadline::in(std::min(seconds, left), options_.clock); };
  if (!options_.goes_on) return TuningVisit(within(equal));
  if (unvisited_ == 1 && visited_ == 0 && in_work_ == 0) return TuningVisit(within(left));
  TuningVisit visit(within(std::max(first_share * equal, min_first_share * left)));
  visit.max_candidates = first_candidates;
  visit.settles = false;
  if (first_seconds_.empty()) return visit;
  const double usual = seconds_to_settle();
  if (visited_ > 0 && all - reserved_ < usual) return std::nullopt;
  if (equal > usual) return visit;
  // There will be no second visit: this one settles.
  visit.deadline = within(usual);
  visit.search_share = 1 - median_or_zero(shortest_seconds_) / usual;
  visit.settles = true;
  return visit;
}

double RunBudget::shortest_seconds(const VisitFigures& figures) const {
  return figures.set_up_seconds + built_for_shortest * figures.candidate_seconds +
         figures.shortest_finals_seconds + median_or_zero(overruns_);
}

double RunBudget::expected_gain(const Item& item) const {
  const Problem& problem = item.given.problem;
  double near = default_weight;
  double sum = default_weight * default_gain;
  for (const Gain& gain : gains_) {
    const double weight =
        std::exp(-std::abs(log_of(problem.m) - gain.log_m) - std::abs(log_of(problem.n) - gain.log_n) -
                 std::abs(log_of(problem.k) - gain.log_k));
    near += weight;
    sum += weight * gain.logarithm;
  }
  return std::max(min_gain, sum / near);
}

RunBudget::Prospect RunBudget::prospect_of(std::size_t index) const {
  const Item& item = items_[index];
  const VisitFigures& figures = item.figures;
  Prospect prospect;
  prospect.item = index;
  prospect.shortest = shortest_seconds(figures);
  if (figures.is_cut) {
    const double candidates =
        static_cast<double>(std::max(figures.expected, figures.tried + 1) - figures.tried);
    prospect.search = (1 + sampling_share) * candidates * figures.candidate_seconds;
  }
  prospect.finals = figures.whole_finals_seconds - figures.shortest_finals_seconds +
                    built_for_whole * figures.candidate_seconds;
  prospect.gain = std::max(1.0, item.given.calls) * expected_gain(item);
  prospect.gain *= std::pow(gain_after_cut, item.settled);
  return prospect;
}

/// Seconds beyond the shortest at which one more is expected to gain `price`: the gain of x of X seconds is
/// that of all of them times 1 − 2^(−halvings x/X).
double RunBudget::extra_seconds(const Prospect& prospect, double price) {
  const double rest = prospect.rest();
  if (price <= 0 || rest <= 0) return rest;
  const double at_first = prospect.gain * halvings * M_LN2 / rest;
  return std::clamp(rest / halvings * std::log2(at_first / price), 0.0, rest);
}

void RunBudget::plan() {
  planned_.clear();
  planned_changes_ = changes_;
  planned_state_ = visited_ > 0 ? State::visited : State::settled;
  std::erase_if(open_, [&](std::size_t i) { return items_[i].state == State::closed; });
  double shortest = 0;
  double rest = 0;
  for (const std::size_t i : open_) {
    if (items_[i].state != planned_state_ || groups_[items_[i].given.group].in_work) continue;
    planned_.push_back(prospect_of(i));
    shortest += planned_.back().shortest;
    rest += planned_.back().rest();
  }
  std::ranges::stable_sort(planned_, [](const Prospect& a, const Prospect& b) {
    return a.gain_per_second() > b.gain_per_second();
  });
  const double left = std::max(0.0, seconds_left() - shortest - allotted_);
  price_ = 0;
  if (rest > left) {
    double low = -60;  // logarithms of prices
    double high = 60;
    for (int step = 0; step < 40; ++step) {
      const double middle = (low + high) / 2;
      double sum = 0;
      for (const Prospect& prospect : planned_) sum += extra_seconds(prospect, std::exp(middle));
      (sum > left ? low : high) = middle;
    }
    price_ = std::exp(high);
  }
  planned_seconds_ = 0;
  for (const Prospect& prospect : planned_)
    planned_seconds_ += prospect.shortest + extra_seconds(prospect, price_);
}

std::optional<RunBudget::Visit> RunBudget::further_visit(std::size_t evaluator) {
  constexpr std::size_t plans_per_run = 64;  // a plan looks at all problems
  const bool again = visited_ == 0;          // those that are left are settled
  if (planned_.empty() || (planned_state_ == State::settled) != again ||
      changes_ - planned_changes_ > planned_.size() / plans_per_run) {
    plan();
  }
  const double left = deadline_.seconds_left();
  const auto fits = [&](const Prospect& prospect) {
    return !groups_[items_[prospect.item].given.group].in_work && (!again || prospect.shortest < left);
  };
  const auto is_own = [&](const Prospect& prospect) {
    const auto& at = groups_[items_[prospect.item].given.group].evaluator;
    return fits(prospect) && (!at || *at == evaluator);
  };
  auto chosen = std::ranges::find_if(planned_, is_own);
  if (chosen == planned_.end()) chosen = std::ranges::find_if(planned_, fits);
  if (chosen == planned_.end()) return std::nullopt;
  const Prospect prospect = *chosen;
  const double extra = extra_seconds(prospect, price_);
  const double own = prospect.shortest + extra;
  planned_seconds_ -= own;
  planned_.erase(chosen);
  Item& item = items_[prospect.item];
  // What nobody else is going to need may be used up: expected seconds are medians, and a search whose candidates wait
  // for a compiler takes many times as long.
  double seconds = own + std::max(0.0, seconds_left() - own - planned_seconds_ - allotted_);
  if (again) {
    seconds = std::max(seconds, rest_margin * (prospect.shortest + prospect.rest()));
  } else {
    reserved_ = std::max(0.0, reserved_ - item.reserved);
    --visited_;
  }
  seconds = std::min(seconds, left);
  const double share = prospect.rest() > 0 ? extra / prospect.rest() : 1;
  const double finals = prospect.shortest - item.figures.set_up_seconds + share * prospect.finals;
  TuningVisit tuning(Deadline::in(seconds, options_.clock));
  tuning.search_share = std::clamp(1 - finals / seconds, 0.0, 1.0);
  item.allotted = seconds;
  allotted_ += seconds;
  begin_visit(item.given.group, evaluator);
  return Visit{item.given.group, prospect.item, std::move(tuning)};
}

bool RunBudget::done(const Visit& visit, const VisitFigures& figures) {
  const std::lock_guard guard(lock_);
  groups_[visit.group].in_work = false;
  --in_work_;
  ++changes_;
  changed_.notify_all();
  if (!visit.item) return false;
  Item& item = items_[*visit.item];
  allotted_ = std::max(0.0, allotted_ - std::exchange(item.allotted, 0));
  const State before = std::exchange(item.state, State::closed);
  any_result_ = any_result_ || !options_.goes_on;
  if (!is_limited() || !options_.goes_on || figures.tried == 0) return false;
  const bool first = before == State::unvisited;
  learn(item, figures, first);
  if (first) open_.push_back(*visit.item);
  const double seconds = visit.tuning.deadline.seconds_elapsed();
  if (!visit.tuning.settles) {
    item.state = State::visited;
    item.reserved = shortest_seconds(item.figures);
    reserved_ += item.reserved;
    ++visited_;
    remember(seconds, first_seconds_);
    remember(item.reserved, shortest_seconds_);
    return true;
  }
  ++item.settled;
  any_result_ = true;
  remember(std::max(0.0, -visit.tuning.deadline.seconds_left()), overruns_);
  if (figures.is_cut) item.state = State::settled;
  return figures.is_cut;
}

void RunBudget::learn(Item& item, const VisitFigures& figures, bool first) {
  const VisitFigures before = std::exchange(item.figures, figures);
  if (figures.candidate_seconds <= 0) {  // it tried no further ones
    item.figures.candidate_seconds = before.candidate_seconds;
    item.figures.set_up_seconds = before.set_up_seconds;
  }
  if (first || before.microseconds <= 0 || figures.microseconds <= 0) return;
  const Problem& problem = item.given.problem;
  gains_.push_back({log_of(problem.m), log_of(problem.n), log_of(problem.k),
                    std::max(0.0, std::log(before.microseconds / figures.microseconds))});
  if (gains_.size() > remembered) gains_.pop_front();
}

}  // namespace gemmtune
