#include "tuning/problem_tuner.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/text.h"
#include "measure/statistics.h"
#include "resolve/errata.h"
#include "select/energy.h"
#include "select/finalists.h"
#include "select/routings.h"
#include "select/screened_ties.h"
#include "tuning/problem_search.h"
#include "tuning/transfer.h"

namespace gemmtune {
namespace {

constexpr double plain_share =
    0.6;  // of a problem's time, where dependent launches are compared on their own

constexpr double min_finals_share =
    0.3;  // of the time for finals, rounds on other routings and energy batches

constexpr double full_checks = 3;         // what full verification takes, over the first look at a candidate
constexpr double shortest_finalists = 4;  // of FinalsExtent::shortest

/// Of a plain winner. What a dependent launch hides is the fixed cost of one, 2 to 4 µs: of a slower kernel
/// that is less than finals tell apart, and the comparison would take seconds.
constexpr double longest_with_dependent_microseconds = 150;

double round4(double value) { return std::round(value * 1e4) / 1e4; }

std::optional<double> round4(std::optional<double> value) {
  if (!value || !std::isfinite(*value)) return std::nullopt;
  return round4(*value);
}

/// "12 candidates: 3 wrong, 9 build_failed; the first: …"
std::string failure_text(const std::vector<Trial>& trials) {
  if (trials.empty()) return "interrupted before a candidate was measured";
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

/// What tune_problem was given.
struct Turn {
  const Device& device;
  Evaluator& evaluator;
  const TuneRequest& request;
  const Problem& problem;
  const TuningVisit& visit;
  const TuningWatch& watch;
};

/// Of checking the winner at the other M of its row.
double neighbour_seconds(const Problem& problem, double set_up_seconds, double candidate_seconds) {
  return static_cast<double>(neighbour_ms(problem).size()) *
         (set_up_seconds + full_checks * candidate_seconds);
}

/// Without which there is no row: the default and one more are verified, timed in a few rounds, and one is checked at the
/// other M.
double min_settling_seconds(const Problem& problem, double set_up_seconds, double candidate_seconds) {
  constexpr double finalists = 2;
  constexpr double margin = 1.1;
  return margin * (neighbour_seconds(problem, set_up_seconds, candidate_seconds) +
                   finalists * (full_checks + 1) * candidate_seconds);
}

/// Goes on from `screened`, which then holds what was found.
Result<Searched> screen(const Turn& turn, const Deadline& deadline,
                        const std::vector<ListedCandidate>& candidates, std::vector<Trial>& screened) {
  SearchLimits limits;
  limits.screening_samples = turn.request.policy.screening_samples;
  limits.seed = turn.request.policy.seed;
  GEMMTUNE_TRY(auto strategy, make_strategy(turn.request.strategy, limits));
  const bool is_last = turn.visit.settles;
  SearchBounds bounds{is_last ? deadline.part(turn.visit.search_share) : deadline, turn.visit.max_candidates,
                      is_last};
  bounds.until = deadline;
  if (is_last && turn.visit.is_hard && std::isfinite(deadline.seconds_left())) {
    bounds.settling_seconds = [&](double set_up_seconds, double candidate_seconds) {
      return min_settling_seconds(turn.problem, set_up_seconds, candidate_seconds);
    };
  }
  auto searched = search_problem(turn.problem, candidates, turn.evaluator, *strategy, bounds,
                                 turn.watch.on_trial, screened);
  if (searched.ok()) screened = std::move(searched->trials);
  return searched;
}

/// However short the search is, a kernel is looked at that an untuned call runs: as bind_fallback(), it passes over families whose
/// kernel cannot be built.
Status look_at_fallback(const Turn& turn, const std::vector<ListedCandidate>& candidates,
                        std::vector<Trial>& screened) {
  const auto is_built = [](const Trial& trial) {
    return trial.outcome.kind != OutcomeKind::build_failed && trial.outcome.kind != OutcomeKind::refused;
  };
  while (!screened.empty() && std::ranges::none_of(screened, is_built)) {
    const auto other_family = [&](const Candidate& candidate) {
      return std::ranges::none_of(
          screened, [&](const Trial& trial) { return trial.candidate.family == candidate.family; });
    };
    const auto fallback = usable_fallback(turn.device, turn.problem, other_family);
    if (!fallback.ok() || (turn.request.stop && turn.request.stop())) return {};
    const auto listed = std::ranges::find(candidates, fallback->candidate, &ListedCandidate::candidate);
    if (listed == candidates.end()) return {};
    GEMMTUNE_TRY(auto outcomes, turn.evaluator.screen(turn.problem, {&listed->candidate, 1},
                                                      turn.request.policy.screening_samples, {}));
    if (outcomes.empty()) return {};
    screened.push_back({listed->candidate, std::move(outcomes.front())});
    turn.watch.on_trial(screened.back());
  }
  return {};
}

/// Those of earlier finals that are not among the finalists take the last places.
void add_winners(const TuningProgress& progress, const std::vector<ListedCandidate>& candidates,
                 FinalsTask& task) {
  for (const Candidate& winner : progress.winners) {
    const auto is_winner = [&](const auto& finalist) { return finalist.listed.candidate == winner; };
    if (std::ranges::any_of(task.finalists, is_winner)) continue;
    const auto listed =
        std::ranges::find_if(candidates, [&](const auto& one) { return one.candidate == winner; });
    if (listed == candidates.end() || listed->layout != task.layout) continue;
    const auto trial =
        std::ranges::find_if(progress.screened, [&](const Trial& one) { return one.candidate == winner; });
    if (trial == progress.screened.end() || trial->outcome.microseconds.empty()) continue;
    task.finalists.push_back(as_finalist(*listed, trial->outcome.microseconds));
  }
}

double fastest_microseconds(const std::vector<Trial>& trials) {
  double fastest = 0;
  for (const Trial& trial : trials) {
    if (trial.outcome.kind != OutcomeKind::ok || trial.outcome.microseconds.empty()) continue;
    const double time = median(trial.outcome.microseconds);
    fastest = fastest > 0 ? std::min(fastest, time) : time;
  }
  return fastest;
}

VisitFigures figures_of(const Turn& turn, std::size_t candidates, const Searched& searched,
                        const std::vector<Trial>& screened) {
  const Policy& policy = turn.request.policy;
  VisitFigures figures;
  figures.tried = screened.size();
  figures.expected = expected_trials(turn.request.strategy, candidates);
  figures.microseconds = fastest_microseconds(screened);
  figures.candidate_seconds = searched.candidate_seconds;
  figures.set_up_seconds = searched.set_up_seconds;
  figures.shortest_finals_seconds =
      expected_finals_seconds(figures.microseconds, FinalsExtent::shortest, policy);
  figures.whole_finals_seconds = expected_finals_seconds(figures.microseconds, FinalsExtent::whole, policy) +
                                 expected_routing_seconds(turn.problem, figures.microseconds, policy);
  if (weighs_energy(turn.request)) {
    const double seconds = expected_energy_seconds(figures.microseconds, policy);
    figures.shortest_finals_seconds += seconds;
    figures.whole_finals_seconds += seconds;
  }
  if (turn.request.pdl) {
    figures.whole_finals_seconds =
        2 * figures.whole_finals_seconds + static_cast<double>(figures.expected) * figures.candidate_seconds;
  }
  const double checks = neighbour_seconds(turn.problem, figures.set_up_seconds, figures.candidate_seconds) +
                        shortest_finalists * (full_checks - 1) * figures.candidate_seconds;
  figures.shortest_finals_seconds += checks;
  figures.whole_finals_seconds += checks;
  figures.is_cut = searched.is_cut;
  return figures;
}

/// Of the time for finals and what follows them, what finals may take.
Deadline finals_deadline(const Turn& turn, const Deadline& deadline, double microseconds) {
  const double left = deadline.seconds_left();
  const Policy& policy = turn.request.policy;
  double after = expected_routing_seconds(turn.problem, microseconds, policy);
  if (weighs_energy(turn.request)) after += expected_energy_seconds(microseconds, policy);
  if (after <= 0 || !std::isfinite(left) || left <= 0) return deadline;
  return deadline.part(std::max(min_finals_share, 1 - after / left));
}

/// That the default is the fastest is not known where the time ended before so many kernels were tried as finals have places.
void doubt_default_of_short_search(std::size_t tried, const Policy& policy, Settled& settled) {
  if (settled.verdict != Verdict::keep_default || tried >= static_cast<std::size_t>(policy.finalists)) return;
  settled.verdict = Verdict::undecided;
  settled.doubt = fmt::format("the search ended after {} kernel{}", tried, tried == 1 ? "" : "s");
}

/// A second search, of programmatic dependent launches with the plain winner as their default. The plain row
/// stands whatever becomes of it.
void add_dependent(const Turn& turn, LayoutResult& plain, std::vector<Trial>& earlier,
                   ProblemResult& result) {
  if (plain.settled.microseconds > longest_with_dependent_microseconds) return;
  CandidateList list = list_candidates(turn.device, turn.problem, candidate_filter(turn.request, true));
  std::erase_if(list.candidates, [&](const auto& listed) { return listed.layout != plain.layout; });
  if (list.candidates.empty()) return;
  Candidate like_winner = plain.settled.winner->candidate;
  if (like_winner.config.find("pdl") != nullptr) like_winner.config.set("pdl", std::int64_t{1});
  mark_hints({like_winner}, list.candidates);
  const auto searched = screen(turn, turn.visit.deadline, list.candidates, earlier);
  if (!searched.ok()) return;
  std::vector<Trial>& trials = result.trials;
  FinalsTask task{turn.problem, {}, {}, plain.layout, turn.request.policy};
  task.finalists = choose_finalists(list.candidates, earlier, plain.layout, turn.request.policy);
  trials.insert(trials.end(), earlier.begin(), earlier.end());
  if (task.finalists.empty()) return;
  task.baseline = task.finalists.size();
  task.finalists.push_back({*plain.settled.winner, plain.settled.microseconds});
  Settled settled = run_finals(task, turn.evaluator, turn.visit.deadline);
  result.figures.is_cut = result.figures.is_cut || searched->is_cut || settled.is_cut;
  merge_trials(settled.trials, trials);
  if (settled.winner && is_dependent(settled.winner->candidate.config)) plain.dependent = std::move(settled);
}

/// The fastest screened kernel of each layout.
std::vector<LayoutResult> screened_layouts(const std::vector<ListedCandidate>& candidates,
                                           const std::vector<Trial>& trials, const Policy& policy) {
  std::vector<LayoutResult> results;
  for (const WeightLayout layout : layouts_of(candidates)) {
    const auto finalists = choose_finalists(candidates, trials, layout, policy);
    if (finalists.empty()) continue;
    LayoutResult& result = results.emplace_back();
    result.layout = layout;
    result.settled.winner = finalists.front().listed;
    result.settled.microseconds = finalists.front().screened_microseconds;
    result.screened = of_layout(candidates, trials, layout);
  }
  return results;
}

}  // namespace

void merge_trials(const std::vector<Trial>& finals, std::vector<Trial>& trials) {
  for (const Trial& trial : finals) {
    const auto known =
        std::ranges::find_if(trials, [&](const Trial& other) { return other.candidate == trial.candidate; });
    if (known == trials.end()) {
      trials.push_back(trial);
    } else if (trial.outcome.kind != OutcomeKind::ok || !trial.outcome.microseconds.empty()) {
      known->outcome = trial.outcome;
    }
  }
}

ProblemResult tune_problem(const Device& device, Evaluator& evaluator, const TuneRequest& request,
                           const Problem& problem, std::optional<WeightLayout> layout,
                           const TuningVisit& visit, const TuningWatch& watch,
                           const std::vector<Candidate>& hints, TuningProgress* progress) {
  TuningProgress own;
  if (progress == nullptr) progress = &own;
  ProblemResult result;
  CandidateList list = list_candidates(device, problem, candidate_filter(request));
  result.refusals = std::move(list.refusals);
  if (layout) std::erase_if(list.candidates, [&](const auto& listed) { return listed.layout != *layout; });
  if (list.candidates.empty()) {
    result.failure = ProblemState::unsupported;
    result.reason = joined(result.refusals, "; ");
    if (layout && result.reason.empty()) {
      result.reason = fmt::format("no family reads the weight's layout, {}", to_string(*layout));
    }
    return result;
  }
  mark_hints(hints, list.candidates);
  const Turn turn{device, evaluator, request, problem, visit, watch};
  const Deadline plain_deadline =
      request.pdl && visit.settles ? visit.deadline.part(plain_share) : visit.deadline;
  const auto searched = screen(turn, plain_deadline, list.candidates, progress->screened);
  if (!searched.ok()) {
    result.reason = searched.message();
    return result;
  }
  if (visit.settles) {
    if (const Status looked = look_at_fallback(turn, list.candidates, progress->screened); !looked.ok()) {
      result.reason = looked.message();
      return result;
    }
  }
  result.figures = figures_of(turn, list.candidates.size(), *searched, progress->screened);
  if (!visit.settles) return result;
  result.trials = progress->screened;
  if (request.invariant) {
    result.layouts = screened_layouts(list.candidates, result.trials, request.policy);
    if (result.layouts.empty()) result.reason = failure_text(result.trials);
    return result;
  }
  const auto layouts = layouts_of(list.candidates);
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    FinalsTask task{problem, {}, {}, layouts[i], request.policy};
    task.finalists = choose_finalists(list.candidates, result.trials, layouts[i], request.policy);
    if (task.finalists.empty()) continue;
    add_winners(*progress, list.candidates, task);
    add_opponents(device, list.candidates, result.trials, task);
    task.screening_deviation = screening_deviation(result.trials);
    if (visit.is_hard) {
      task.check_seconds = full_checks * result.figures.candidate_seconds;
      task.set_up_seconds = result.figures.set_up_seconds;
    }
    task.on_ratio = watch.on_ratio;
    const double share = 1.0 / static_cast<double>(layouts.size() - i);
    const Deadline deadline = plain_deadline.part(share);
    Settled settled =
        run_finals(task, evaluator, finals_deadline(turn, deadline, result.figures.microseconds));
    settled = keep_safer(
        hold_on_routings(problem, layouts[i], request.policy, std::move(settled), evaluator, deadline),
        progress->safer[layouts[i]]);
    if (searched->is_cut) doubt_default_of_short_search(result.figures.tried, request.policy, settled);
    result.figures.is_cut = result.figures.is_cut || settled.is_cut;
    if (!settled.routing_reason.empty() && request.stop && request.stop()) {
      // A row that its own routing alone chose would count as done.
      result.reason = "interrupted before other routings were measured";
      merge_trials(settled.trials, result.trials);
      continue;
    }
    if (settled.winner) {
      auto screened = of_layout(list.candidates, result.trials, layouts[i]);
      const double limit = ratio_limits(request.policy, settled.noise_floor).declared_tie;
      add_screened_ties(screened, {limit, deviation_of_runs(settled.drift)}, settled);
      if (weighs_energy(request)) {
        settled = weigh_energy(problem, layouts[i], request.policy, std::move(settled), evaluator, deadline);
        result.figures.is_cut = result.figures.is_cut || settled.is_cut;
        if (settled.chosen_by != request.policy.objective && request.stop && request.stop()) {
          // A row that time alone chose would count as done.
          result.reason = "interrupted before its joules were measured";
          merge_trials(settled.trials, result.trials);
          continue;
        }
      }
      result.layouts.push_back({layouts[i], std::move(settled), std::move(screened)});
      merge_trials(result.layouts.back().settled.trials, result.trials);
    } else {
      merge_trials(settled.trials, result.trials);
      result.reason = settled.reason;
    }
  }
  if (request.pdl) {
    for (LayoutResult& plain : result.layouts)
      add_dependent(turn, plain, progress->dependent_screened[plain.layout], result);
  }
  progress->winners.clear();
  for (const LayoutResult& each : result.layouts) progress->winners.push_back(each.settled.winner->candidate);
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
                      const std::string& environment_hash, const Policy& policy) {
  const Candidate& winner = settled.winner->candidate;
  TunedEntry entry;
  entry.gfx = device.gfx;
  entry.cu_num = device.cu_num;
  entry.problem = problem;
  if (is_packed(problem)) entry.problem.weight_layout = settled.winner->layout;
  entry.libtype = winner.family;
  entry.split_k = winner.config.number("sk", 0);
  entry.solidx = winner.config.number("sol", 0);  // by which AITER runs a row of hipblaslt
  entry.us = round4(settled.microseconds);
  entry.kernel_name = winner.kernel_name();
  entry.err_ratio = round4(settled.err_ratio);
  entry.spread = round4(std::optional(settled.spread));
  entry.default_us = round4(settled.default_microseconds);
  entry.default_kernel = settled.default_kernel;
  entry.speedup = round4(settled.speedup);
  if (settled.speedup_interval) {
    entry.speedup_low = round4(std::optional(settled.speedup_interval->low));
    entry.speedup_high = round4(std::optional(settled.speedup_interval->high));
  }
  entry.verdict = settled.verdict;
  if (!settled.ties.empty()) entry.ties = static_cast<std::int64_t>(settled.ties.size()) - 1;
  entry.env = environment_hash;
  entry.accuracy = settled.winner->accuracy;
  if (is_mixture(problem)) {
    entry.stages = stages_of(winner.config, entry.us, entry.err_ratio);
    entry.routing = policy.routing_of(policy.routing).text();
  }
  return entry;
}

void set_dependent(const Settled& dependent, TunedEntry& entry) {
  entry.pdl_kernel_name = dependent.winner->candidate.kernel_name();
  entry.accuracy = std::min(entry.accuracy.value_or(Accuracy::fp32), dependent.winner->accuracy);
  const bool met = dependent.speedup && dependent.default_kernel == entry.kernel_name;
  entry.pdl_us = round4(met ? entry.us / *dependent.speedup : dependent.microseconds);
}

}  // namespace gemmtune
