#include "tuning/problem_search.h"

#include <optional>

namespace gemmtune {
namespace {

struct State {
  std::vector<SearchPoint> points;
  std::vector<std::optional<Outcome>> outcomes;
};

/// Adds what a step learnt of candidate `i`. True where it was looked at for the first time.
bool learn(State& state, std::size_t i, Outcome&& outcome) {
  SearchPoint& point = state.points[i];
  auto& samples = point.samples;
  samples.insert(samples.end(), outcome.microseconds.begin(), outcome.microseconds.end());
  point.failed = outcome.kind != OutcomeKind::ok;
  const bool first = !state.outcomes[i].has_value();
  state.outcomes[i] = std::move(outcome);
  state.outcomes[i]->microseconds = samples;
  return first;
}

}  // namespace

Result<std::vector<Trial>> search_problem(const Problem& problem,
                                          const std::vector<ListedCandidate>& candidates,
                                          Evaluator& evaluator, Strategy& strategy, const Deadline& deadline,
                                          const std::function<void(const Trial&)>& on_trial) {
  State state;
  state.outcomes.resize(candidates.size());
  for (const ListedCandidate& listed : candidates) {
    state.points.push_back({listed.candidate, listed.predicted, listed.hint, {}, false});
  }
  // One candidate is always looked at: a problem whose turn came gets an answer.
  bool any = false;
  const auto stop = [&] { return any && deadline.over(); };
  const auto seconds_left = [&] {
    return any ? deadline.seconds_left() : std::max(deadline.seconds_left(), 1e-3);
  };
  for (SearchStep step = strategy.next(state.points, seconds_left()); !step.candidates.empty();
       step = strategy.next(state.points, seconds_left())) {
    std::vector<Candidate> batch;
    for (const std::size_t i : step.candidates) batch.push_back(candidates[i].candidate);
    if (evaluator.compiles_ahead()) {
      std::vector<Candidate> ahead = batch;
      for (const std::size_t i : strategy.likely_next(state.points)) ahead.push_back(candidates[i].candidate);
      evaluator.announce(problem, ahead);
    }
    auto outcomes = evaluator.screen(problem, batch, step.samples, [&] {
      const bool stopping = stop();
      any = true;
      return stopping;
    });
    if (!outcomes.ok() || outcomes->size() < batch.size()) evaluator.announce(problem, {});
    if (!outcomes.ok()) return outcomes.status();
    any = true;
    for (std::size_t i = 0; i < outcomes->size(); ++i) {
      const std::size_t index = step.candidates[i];
      if (learn(state, index, std::move((*outcomes)[i]))) {
        on_trial({candidates[index].candidate, *state.outcomes[index]});
      }
    }
  }
  std::vector<Trial> trials;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (state.outcomes[i]) trials.push_back({candidates[i].candidate, std::move(*state.outcomes[i])});
  }
  return trials;
}

}  // namespace gemmtune
