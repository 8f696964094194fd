// A weight over a range of M as a work item: the questions of an MRangePlanner answered on a device. `tune`
// as a shape is tuned, `compare` by paired rounds, `check` by the full check at the smallest M of a row.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "tuning/run.h"
#include "tuning/work_item.h"

namespace gemmtune {

/// The distinct weights of a list, their calls added up, with `m` rows.
std::vector<ShapeRow> weights_of(std::span<const ShapeRow> shapes, std::int64_t m);

/// The distinct weights of the run's request over its range of M, each with a report. `run` must outlive the
/// items; request.m_range is set.
std::vector<std::unique_ptr<WorkItem>> range_items(Run& run);

}  // namespace gemmtune
