// Shapes as work items: those that share a packed weight together, every other one alone.
#pragma once

#include <memory>
#include <vector>

#include "tuning/confirmation_pass.h"
#include "tuning/run.h"
#include "tuning/work_item.h"

namespace gemmtune {

/// All shapes of the run's request, each with a report in its order. Rows go to `confirmation` too. Both must
/// outlive the items.
std::vector<std::unique_ptr<WorkItem>> shape_items(Run& run, ConfirmationPass& confirmation);

}  // namespace gemmtune
