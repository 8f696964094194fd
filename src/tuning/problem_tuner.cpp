#include "tuning/problem_tuner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "measure/statistics.h"
#include "select/finalists.h"
#include "select/screened_ties.h"
#include "tuning/problem_search.h"
#include "tuning/transfer.h"

namespace gemmtune {
namespace {

constexpr double search_share = 0.5;  // of a problem's time; the rest goes to finals
constexpr double plain_share =
    0.6;  // of a problem's time, where dependent launches are compared on their own

/// Of a plain winner. What a dependent launch hides is the fixed cost of one, 2 to 4 µs: of a slower kernel
/// that is less than finals tell apart, and the comparison would take seconds.
constexpr double longest_with_dependent_microseconds = 150;

double round4(double value) { return std::round(value * 1e4) / 1e4; }

std::optional<double> round4(std::optional<double> value) {
  if (!value || !std::isfinite(*value)) return std::nullopt;
  return round4(*value);
}

std::string join(const std::vector<std::string>& texts) {
  std::string joined;
  for (const std::string& text : texts) joined += (joined.empty() ? "" : "; ") + text;
  return joined;
}

/// "12 candidates: 3 wrong, 9 build_failed; the first: …"
std::string failure_text(const std::vector<Trial>& trials) {
  std::map<OutcomeKind, int> counts;
  for (const Trial& trial : trials) ++counts[trial.outcome.kind];
  std::string text = fmt::format("{} candidates:", trials.size());
  for (const auto& [kind, count] : counts) text += fmt::format(" {} {},", count, to_string(kind));
  const Trial& first = trials.front();
  return text + fmt::format(" the first, {}: {}", first.candidate.kernel_name(), first.outcome.reason);
}

/// The order in which candidates name their layouts.
std::vector<WeightLayout> layouts_of(const std::vector<ListedCandidate>& candidates) {
  std::vector<WeightLayout> layouts;
  for (const ListedCandidate& listed : candidates) {
    if (std::find(layouts.begin(), layouts.end(), listed.layout) == layouts.end()) {
      layouts.push_back(listed.layout);
    }
  }
  return layouts;
}

/// The trials of candidates that read `layout`.
std::vector<Trial> of_layout(const std::vector<ListedCandidate>& candidates, const std::vector<Trial>& trials,
                             WeightLayout layout) {
  std::set<std::string> names;
  for (const ListedCandidate& listed : candidates) {
    if (listed.layout == layout) names.insert(listed.candidate.kernel_name());
  }
  std::vector<Trial> kept;
  for (const Trial& trial : trials) {
    if (names.count(trial.candidate.kernel_name()) > 0) kept.push_back(trial);
  }
  return kept;
}

/// Failures of finals replace what screening said of a candidate; new candidates are added.
void merge_trials(const std::vector<Trial>& finals, std::vector<Trial>& trials) {
  for (const Trial& trial : finals) {
    const auto known = std::find_if(trials.begin(), trials.end(),
                                    [&](const Trial& other) { return other.candidate == trial.candidate; });
    if (known == trials.end()) {
      trials.push_back(trial);
    } else if (trial.outcome.kind != OutcomeKind::ok || !trial.outcome.microseconds.empty()) {
      known->outcome = trial.outcome;
    }
  }
}

/// What tune_problem was given.
struct Turn {
  const Device& device;
  Evaluator& evaluator;
  const TuneRequest& request;
  const Problem& problem;
  const Deadline& deadline;
  const std::function<void(const Trial&)>& on_trial;
};

Result<std::vector<Trial>> screen(const Turn& turn, const std::vector<ListedCandidate>& candidates) {
  SearchLimits limits;
  limits.screening_samples = turn.request.policy.screening_samples;
  limits.seed = turn.request.policy.seed;
  auto strategy = make_strategy(turn.request.strategy, limits);
  if (!strategy.ok()) return strategy.status();
  return search_problem(turn.problem, candidates, turn.evaluator, **strategy,
                        turn.deadline.part(search_share), turn.on_trial);
}

/// A second search, of programmatic dependent launches with the plain winner as their default. The plain row
/// stands whatever becomes of it.
void add_dependent(const Turn& turn, LayoutResult& plain, std::vector<Trial>& trials) {
  if (plain.settled.microseconds > longest_with_dependent_microseconds) return;
  CandidateList list = list_candidates(turn.device, turn.problem, candidate_filter(turn.request, true));
  std::erase_if(list.candidates, [&](const auto& listed) { return listed.layout != plain.layout; });
  if (list.candidates.empty()) return;
  Candidate like_winner = plain.settled.winner->candidate;
  if (like_winner.config.find("pdl") != nullptr) like_winner.config.set("pdl", std::int64_t{1});
  mark_hints({like_winner}, list.candidates);
  auto screened = screen(turn, list.candidates);
  if (!screened.ok()) return;
  FinalsTask task{turn.problem, {}, {}, plain.layout, turn.request.policy};
  task.finalists = choose_finalists(list.candidates, *screened, plain.layout, turn.request.policy);
  trials.insert(trials.end(), screened->begin(), screened->end());
  if (task.finalists.empty()) return;
  task.baseline = task.finalists.size();
  task.finalists.push_back({*plain.settled.winner, plain.settled.microseconds});
  Settled settled = run_finals(task, turn.evaluator, turn.deadline);
  merge_trials(settled.trials, trials);
  if (settled.winner && is_dependent(settled.winner->candidate.config)) plain.dependent = std::move(settled);
}

}  // namespace

ProblemResult tune_problem(const Device& device, Evaluator& evaluator, const TuneRequest& request,
                           const Problem& problem, std::optional<WeightLayout> layout,
                           const Deadline& deadline, const std::function<void(const Trial&)>& on_trial,
                           const std::vector<Candidate>& hints) {
  ProblemResult result;
  CandidateList list = list_candidates(device, problem, candidate_filter(request));
  result.refusals = std::move(list.refusals);
  if (layout) std::erase_if(list.candidates, [&](const auto& listed) { return listed.layout != *layout; });
  if (list.candidates.empty()) {
    result.failure = ProblemState::unsupported;
    result.reason = join(result.refusals);
    if (layout && result.reason.empty()) {
      result.reason = fmt::format("no family reads the weight's layout, {}", to_string(*layout));
    }
    return result;
  }
  mark_hints(hints, list.candidates);
  const Deadline plain_deadline = request.pdl ? deadline.part(plain_share) : deadline;
  auto trials = screen({device, evaluator, request, problem, plain_deadline, on_trial}, list.candidates);
  if (!trials.ok()) {
    result.reason = trials.message();
    return result;
  }
  result.trials = std::move(*trials);
  const auto layouts = layouts_of(list.candidates);
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    FinalsTask task{problem, {}, {}, layouts[i], request.policy};
    task.finalists = choose_finalists(list.candidates, result.trials, layouts[i], request.policy);
    if (task.finalists.empty()) continue;
    add_baseline(device, result.trials, task);
    const double share = 1.0 / static_cast<double>(layouts.size() - i);
    Settled settled = run_finals(task, evaluator, plain_deadline.part(share));
    if (settled.winner) {
      auto screened = of_layout(list.candidates, result.trials, layouts[i]);
      const double limit = ratio_limits(request.policy, settled.noise_floor).declared_tie;
      add_screened_ties(screened, {limit, settled.drift}, settled);
      result.layouts.push_back({layouts[i], std::move(settled), std::move(screened)});
      merge_trials(result.layouts.back().settled.trials, result.trials);
    } else {
      merge_trials(settled.trials, result.trials);
      result.reason = settled.reason;
    }
  }
  if (request.pdl) {
    const Turn turn{device, evaluator, request, problem, deadline, on_trial};
    for (LayoutResult& plain : result.layouts) add_dependent(turn, plain, result.trials);
  }
  if (result.layouts.empty() && result.reason.empty()) result.reason = failure_text(result.trials);
  return result;
}

namespace {

/// What a fused MoE row has beside the others: one call of ours does both stages, so its time and its error
/// stand as the first stage's.
std::shared_ptr<const MoeStages> stages_of(const Config& config, double microseconds, double err_ratio) {
  auto stages = std::make_shared<MoeStages>();
  stages->block_m = config.number("bm", 0);
  stages->us1 = microseconds;
  stages->err1 = err_ratio;
  stages->run_1stage = true;
  return stages;
}

}  // namespace

TunedEntry make_entry(const DeviceInfo& device, const Problem& problem, const Settled& settled,
                      const std::string& environment_hash) {
  const Candidate& winner = settled.winner->candidate;
  TunedEntry entry;
  entry.gfx = device.gfx;
  entry.cu_num = device.cu_num;
  entry.problem = problem;
  if (problem.bpreshuffle) entry.problem.weight_layout = settled.winner->layout;
  entry.libtype = winner.family;
  entry.split_k = winner.config.number("sk", 0);
  entry.us = round4(settled.microseconds);
  entry.kernel_name = winner.kernel_name();
  entry.err_ratio = round4(settled.err_ratio);
  entry.spread = round4(std::optional(settled.spread));
  entry.default_us = round4(settled.default_microseconds);
  entry.default_kernel = settled.default_kernel;
  entry.speedup = round4(settled.speedup);
  entry.verdict = settled.verdict;
  if (!settled.ties.empty()) entry.ties = static_cast<std::int64_t>(settled.ties.size()) - 1;
  entry.env = environment_hash;
  entry.accuracy = settled.winner->accuracy;
  if (is_mixture(problem)) entry.stages = stages_of(winner.config, entry.us, entry.err_ratio);
  return entry;
}

void set_dependent(const Settled& dependent, TunedEntry& entry) {
  entry.pdl_kernel_name = dependent.winner->candidate.kernel_name();
  entry.accuracy = std::min(entry.accuracy.value_or(Accuracy::fp32), dependent.winner->accuracy);
  const bool met = dependent.speedup && dependent.default_kernel == entry.kernel_name;
  entry.pdl_us = round4(met ? entry.us / *dependent.speedup : dependent.microseconds);
}

}  // namespace gemmtune
