// A work item: a part of a run that one evaluator at a time works on.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "evaluate/evaluator.h"
#include "formats/shapes/shape_list.h"
#include "tuning/budget.h"

namespace gemmtune {

class ConfirmationPass;
class Run;

/// Implementations: shapes that share a weight (shape_group.cpp), a weight over a range of M (weight_range.cpp). They add their reports, with
/// the expected cost of each, to a Run when they are made.
class WorkItem {
 public:
  virtual ~WorkItem() = default;
  /// Tunes the visit's problem, publishes rows and reports through the run, and ends the visit there. Several
  /// items at the same time, each with an evaluator of its own. Errors are those that end the run.
  virtual Status visit(const RunBudget::Visit& visit, Evaluator& evaluator) = 0;
  /// After the last visit of all: reports what was not reported. From one thread.
  virtual Status finish() = 0;
};

/// Shapes as work items: those that share a packed weight together, every other one alone. All shapes of the run's request, each
/// with a report in its order. Rows go to `confirmation` too. Both must outlive the items.
std::vector<std::unique_ptr<WorkItem>> shape_items(Run& run, ConfirmationPass& confirmation);

/// The distinct weights of a list, their calls added up, with `m` rows.
std::vector<ShapeRow> weights_of(std::span<const ShapeRow> shapes, std::int64_t m);
/// Weights over a range of M as work items: the questions of an MRangePlanner answered on a device. `tune` as a shape is tuned,
/// `compare` by paired rounds, `check` by the full check at the smallest M of a row. The distinct weights of the run's request,
/// each with a report. `run` must outlive the items; request.m_range is set.
std::vector<std::unique_ptr<WorkItem>> range_items(Run& run);

}  // namespace gemmtune
