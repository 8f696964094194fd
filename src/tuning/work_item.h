// A work item: a part of a run that one evaluator works on from begin to end.
#pragma once

#include "base/status.h"
#include "evaluate/evaluator.h"

namespace gemmtune {

/// Implementations: shapes that share a weight (shape_group.h), a weight over a range of M (weight_range.h).
/// They add their reports, with the expected cost of each, to a Run when they are made.
class WorkItem {
 public:
  virtual ~WorkItem() = default;
  /// Tunes what waits, takes its time from the run's budget, publishes rows and reports through the run.
  /// Called once; several items at the same time, each with an evaluator of its own. Errors are those that
  /// end the run.
  virtual Status run(Evaluator& evaluator) = 0;
};

}  // namespace gemmtune
