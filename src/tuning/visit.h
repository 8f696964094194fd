// A visit: one time that a problem is worked on. Under a budget there are several (budget.h).
#pragma once

#include <cstddef>
#include <limits>
#include <utility>

#include "base/deadline.h"

namespace gemmtune {

/// The extent of one visit of a problem. As made from a deadline: all that is to be done, within the time.
struct TuningVisit {
  explicit TuningVisit(Deadline until) : deadline(std::move(until)) {}

  Deadline deadline;
  double search_share = 0.5;  // of its time; the rest goes to finals
  /// No more candidates are looked at for the first time.
  std::size_t max_candidates = std::numeric_limits<std::size_t>::max();
  bool settles = true;  // finals follow the search
  bool is_hard = true;  // nothing of it may end later; else the time is a share, and more is left behind it
};

/// What a visit showed of a problem's cost.
struct VisitFigures {
  std::size_t tried = 0;         // candidates, of all visits
  std::size_t expected = 0;      // that a search without a limit tries
  double microseconds = 0;       // a call of the fastest so far; 0: none
  double candidate_seconds = 0;  // as Searched
  double set_up_seconds = 0;
  double shortest_finals_seconds = 0;  // expected: that still reach a test
  double whole_finals_seconds = 0;     // expected without a limit, with the search of dependent launches
  bool is_cut = false;                 // search or finals would have gone on, had there been time
};

}  // namespace gemmtune
