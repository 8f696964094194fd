// From the answer of the tables to a plan.
#pragma once

#include <memory>
#include <string_view>

#include "base/status.h"
#include "dispatch/plan.h"
#include "resolve/answer.h"

namespace gemmtune {

/// The plan of a problem (m, n and k may be 0, see check_runnable()). May create a kernel and is then slow; not for two threads at once
/// on one device. If neither a row nor the fallback can run, `invalid_rows` (may be null) gets the number of
/// rows whose kernel cannot run here. With BindRules::measured_only the plan of a problem that no row answers is untuned and has no kernel.
/// `verify_untuned`: the fallback's first run is verified (UntunedGuard).
Result<PlanRef> make_plan(const std::shared_ptr<const DispatchDevice>& device, const LookupTables& tables,
                          const Problem& problem, BindRules rules, int* invalid_rows = nullptr,
                          bool verify_untuned = false);

/// The plan of a problem on the kernel that `kernel` names (named_kernel_name()), whatever the tables say. `verify`: its first
/// run is verified, and fails with `internal` where the result is wrong; nothing else runs in its place.
Result<PlanRef> make_named_plan(const std::shared_ptr<const DispatchDevice>& device, std::string_view kernel,
                                const Problem& problem, LaunchPromises promises, bool verify);

/// check(), and m, n and k may be 0; of a mixture of experts m and k.
Status check_runnable(const Problem& problem);
/// y has no elements.
inline bool writes_nothing(const Problem& problem) { return problem.m == 0 || output_columns(problem) == 0; }

}  // namespace gemmtune
