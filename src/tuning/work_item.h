// A work item: a part of a run that one evaluator at a time works on.
#pragma once

#include "base/status.h"
#include "evaluate/evaluator.h"
#include "tuning/budget.h"

namespace gemmtune {

/// Implementations: shapes that share a weight (shape_group.h), a weight over a range of M (weight_range.h).
/// They add their reports, with the expected cost of each, to a Run when they are made.
class WorkItem {
 public:
  virtual ~WorkItem() = default;
  /// Tunes the visit's problem, publishes rows and reports through the run, and ends the visit there. Several
  /// items at the same time, each with an evaluator of its own. Errors are those that end the run.
  virtual Status visit(const RunBudget::Visit& visit, Evaluator& evaluator) = 0;
  /// After the last visit of all: reports what was not reported. From one thread.
  virtual Status finish() = 0;
};

}  // namespace gemmtune
