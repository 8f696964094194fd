// From the answer of the tables to a plan.
#pragma once

#include <memory>

#include "base/status.h"
#include "dispatch/plan.h"
#include "resolve/answer.h"

namespace gemmtune {

/// The plan of a problem (m = 0 is legal). May create a kernel and is then slow; not for two threads at once
/// on one device. If neither a row nor the fallback can run, `invalid_rows` (may be null) gets the number of
/// rows whose kernel cannot run here. `verify_untuned`: the fallback's first run is verified (UntunedGuard).
Result<PlanRef> make_plan(const std::shared_ptr<const DispatchDevice>& device, const LookupTables& tables,
                          const Problem& problem, BindRules rules, int* invalid_rows = nullptr,
                          bool verify_untuned = false);

/// check(), and zero rows are legal.
Status check_runnable(const Problem& problem);

}  // namespace gemmtune
