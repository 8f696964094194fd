#include "tuning/problem_search.h"

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "measure/statistics.h"

namespace gemmtune {
namespace {

struct State {
  std::vector<SearchPoint> points;
  std::vector<std::optional<Outcome>> outcomes;
};

State state_of(const std::vector<ListedCandidate>& candidates, std::span<const Trial> earlier) {
  State state;
  state.outcomes.resize(candidates.size());
  std::unordered_map<std::string, const Outcome*> known;
  for (const Trial& trial : earlier) known.emplace(trial.candidate.kernel_name(), &trial.outcome);
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const ListedCandidate& listed = candidates[i];
    SearchPoint& point =
        state.points.emplace_back(SearchPoint{listed.candidate, listed.predicted, listed.hint, {}, false});
    if (known.empty()) continue;
    const auto found = known.find(listed.candidate.kernel_name());
    if (found == known.end()) continue;
    state.outcomes[i] = *found->second;
    point.samples = found->second->microseconds;
    point.failed = found->second->kind != OutcomeKind::ok;
  }
  return state;
}

/// Of one answer to a step.
enum class Learnt {
  nothing,  // a strategy that asks again may get the same answer
  further,  // of a candidate that was looked at before
  of_a_new_one,
};

/// Adds what a step learnt of candidate `i`.
Learnt learn(State& state, std::size_t i, Outcome&& outcome) {
  SearchPoint& point = state.points[i];
  auto& samples = point.samples;
  // A kernel that has times is not too slow to be timed: the machine was.
  if (outcome.kind == OutcomeKind::too_slow && !samples.empty()) return Learnt::nothing;
  if (outcome.kind == OutcomeKind::ok && outcome.microseconds.empty() && state.outcomes[i].has_value())
    return Learnt::nothing;
  samples.insert(samples.end(), outcome.microseconds.begin(), outcome.microseconds.end());
  point.failed = outcome.kind != OutcomeKind::ok;
  const bool first = !state.outcomes[i].has_value();
  state.outcomes[i] = std::move(outcome);
  state.outcomes[i]->microseconds = samples;
  return first ? Learnt::of_a_new_one : Learnt::further;
}

/// After so many steps without an answer that teaches anything the search is over.
constexpr int max_idle_steps = 3;

/// What candidates take that are looked at for the first time: the median of all but the first, which waits for the
/// problem's operands; others wait for a compiler that all problems share.
class CandidateSeconds {
 public:
  void add(double seconds) { seconds_.push_back(seconds); }
  bool empty() const { return seconds_.empty(); }
  double candidate() const {
    // Of a single one, most is set-up.
    constexpr double share_of_single = 0.1;
    return seconds_.size() > 1 ? median(std::span(seconds_).subspan(1)) : share_of_single * seconds_.front();
  }
  double set_up() const { return std::max(0.0, seconds_.front() - candidate()); }
  void write_to(Searched& searched) const {
    if (seconds_.empty()) return;
    searched.candidate_seconds = candidate();
    searched.set_up_seconds = set_up();
  }

 private:
  std::vector<double> seconds_;
};

}  // namespace

Result<Searched> search_problem(const Problem& problem, const std::vector<ListedCandidate>& candidates,
                                Evaluator& evaluator, Strategy& strategy, const SearchBounds& bounds,
                                const std::function<void(const Trial&)>& on_trial,
                                std::span<const Trial> earlier) {
  const Deadline& deadline = bounds.deadline;
  State state = state_of(candidates, earlier);
  Searched searched;
  CandidateSeconds candidate_seconds;
  std::size_t looked_at = 0;
  int idle_steps = 0;
  // One candidate is always looked at: a problem whose turn came gets an answer.
  bool any = !earlier.empty();
  const auto is_over = [&] {
    if (deadline.over()) return true;
    if (!bounds.settling_seconds || candidate_seconds.empty()) return false;
    return bounds.until.seconds_left() <
           bounds.settling_seconds(candidate_seconds.set_up(), candidate_seconds.candidate());
  };
  const auto seconds_left = [&] {
    if (any && is_over()) return 0.0;
    if (!bounds.is_last) return std::numeric_limits<double>::infinity();
    return any ? deadline.seconds_left() : std::max(deadline.seconds_left(), 1e-3);
  };
  for (SearchStep step = strategy.next(state.points, seconds_left()); !step.candidates.empty();
       step = strategy.next(state.points, seconds_left())) {
    const auto is_new = [&](std::size_t i) { return !state.outcomes[i].has_value(); };
    if (std::ranges::any_of(step.candidates, is_new)) {
      // Those for which the bound leaves room; where it leaves none, the search is over.
      std::size_t room = bounds.max_candidates - std::min(bounds.max_candidates, looked_at);
      const auto over = std::ranges::find_if(step.candidates, [&](std::size_t i) {
        if (!is_new(i)) return false;
        return room == 0 || room-- == 0;
      });
      searched.is_cut = searched.is_cut || over != step.candidates.end();
      step.candidates.erase(over, step.candidates.end());
      if (step.candidates.empty()) break;
    }
    std::vector<Candidate> batch;
    for (const std::size_t i : step.candidates) batch.push_back(candidates[i].candidate);
    if (evaluator.compiles_ahead()) {
      std::vector<Candidate> ahead = batch;
      for (const std::size_t i : strategy.likely_next(state.points)) ahead.push_back(candidates[i].candidate);
      evaluator.announce(problem, ahead);
    }
    std::size_t begun = 0;  // of the step
    double begin = 0;       // of the latest of them
    const auto end_latest = [&] {
      if (begun > 0 && is_new(step.candidates[begun - 1]))
        candidate_seconds.add(deadline.seconds_elapsed() - begin);
    };
    auto outcomes = evaluator.screen(problem, batch, step.samples, [&] {
      end_latest();
      const bool stopping = any && is_over();
      any = true;
      if (stopping) return true;
      ++begun;
      begin = deadline.seconds_elapsed();
      return false;
    });
    if (!outcomes.ok() || outcomes->size() < batch.size()) evaluator.announce(problem, {});
    if (!outcomes.ok()) return outcomes.status();
    any = true;
    if (outcomes->size() == begun && begun == batch.size()) end_latest();
    searched.is_cut = searched.is_cut || outcomes->size() < batch.size();
    bool idle = true;
    for (std::size_t i = 0; i < outcomes->size(); ++i) {
      const std::size_t index = step.candidates[i];
      const Learnt learnt = learn(state, index, std::move((*outcomes)[i]));
      idle = idle && learnt == Learnt::nothing;
      if (learnt != Learnt::of_a_new_one) continue;
      ++looked_at;
      on_trial({candidates[index].candidate, *state.outcomes[index]});
    }
    idle_steps = idle ? idle_steps + 1 : 0;
    searched.is_cut = searched.is_cut || idle_steps == max_idle_steps;
    if (idle_steps == max_idle_steps || (looked_at >= bounds.max_candidates && searched.is_cut)) break;
  }
  searched.is_cut = searched.is_cut || strategy.is_cut();
  candidate_seconds.write_to(searched);
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (state.outcomes[i])
      searched.trials.push_back({candidates[i].candidate, std::move(*state.outcomes[i])});
  }
  return searched;
}

}  // namespace gemmtune
