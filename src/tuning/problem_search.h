// Search over one problem's candidates: a strategy asks, an evaluator answers.
#pragma once

#include <functional>
#include <vector>

#include "evaluate/evaluator.h"
#include "resolve/candidate_list.h"
#include "search/strategy.h"
#include "tuning/budget.h"

namespace gemmtune {

/// Screens candidates until the strategy has enough or the deadline is over. Answers one trial a candidate
/// that was looked at, in the order of the candidates, its samples of all steps together. `on_trial` is
/// called when a candidate is looked at for the first time. An error is the evaluator's: nothing of this
/// problem can be judged.
Result<std::vector<Trial>> search_problem(const Problem& problem,
                                          const std::vector<ListedCandidate>& candidates,
                                          Evaluator& evaluator, Strategy& strategy, const Deadline& deadline,
                                          const std::function<void(const Trial&)>& on_trial);

}  // namespace gemmtune
