// Search over one problem's candidates: a strategy asks, an evaluator answers.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "base/deadline.h"
#include "evaluate/evaluator.h"
#include "resolve/candidate_list.h"
#include "search/strategy.h"

namespace gemmtune {

struct SearchBounds {
  Deadline deadline;
  /// No more candidates are looked at for the first time.
  std::size_t max_candidates = std::numeric_limits<std::size_t>::max();
  bool is_last = true;  // no search goes on from this one: the strategy plans for the deadline
  /// When the problem must be settled, and what settling it takes at least, by the seconds of setting it up and of a
  /// candidate: the search leaves so much. Empty: it need not.
  Deadline until = Deadline::never();
  std::function<double(double set_up_seconds, double candidate_seconds)> settling_seconds = {};
};

struct Searched {
  /// One a candidate that was looked at, in the order of the candidates, its samples of all steps together.
  std::vector<Trial> trials;
  bool is_cut = false;           // time or bounds ended it, not the strategy
  double candidate_seconds = 0;  // median, of those that were looked at first in this search; 0: none were
  double set_up_seconds = 0;     // that the first one took longer
};

/// Screens candidates until the strategy has enough or a bound is reached; one candidate is looked at in any
/// case. `earlier`: the trials of a search of this problem that was cut; it goes on from there, and nothing of
/// them is measured again. `on_trial` is called when a candidate is looked at for the first time. An error is
/// the evaluator's: nothing of this problem can be judged.
Result<Searched> search_problem(const Problem& problem, const std::vector<ListedCandidate>& candidates,
                                Evaluator& evaluator, Strategy& strategy, const SearchBounds& bounds,
                                const std::function<void(const Trial&)>& on_trial,
                                std::span<const Trial> earlier = {});

}  // namespace gemmtune
