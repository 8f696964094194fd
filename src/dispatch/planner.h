// Planner: problem → rows of the table, best level first → the first that can run here, else the fallback.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "backends/backend.h"
#include "base/status.h"
#include "dispatch/plan.h"
#include "dispatch/table_set.h"

namespace gemmtune {

struct BoundKernel {
  Candidate candidate;
  std::unique_ptr<Kernel> kernel;
};

/// The kernel that a table's row names, for this problem; else why it cannot run here (unknown name, missing
/// library, problem refused, another weight layout). `dependent`: whether the caller allows a programmatic
/// dependent launch; without that a kernel that is one is refused.
Result<BoundKernel> bind_kernel_name(const Device& device, std::string_view kernel_name,
                                     const Problem& problem, bool dependent = false);

/// Has the table a row for this problem (whether or not its kernel can run here)?
bool has_row(const TableSet& tables, const Device& device, const Problem& problem);

/// What runs where no row does.
Result<BoundKernel> bind_fallback(const Device& device, const Problem& problem);

/// "exact row, M = 16, tuned.csv:12".
std::string describe_hit(const TableSet& tables, const LookupHit& hit);
/// Why the fallback runs, in words.
std::string describe_fallback(const Problem& problem, const Candidate& candidate);

/// What is asked for a row, in this order. Both must outlive the call.
struct LookupTables {
  // Implicit: a table set alone is a whole answer. NOLINTNEXTLINE(google-explicit-constructor)
  LookupTables(const TableSet& tuned_files, const TableSet* online_rows = nullptr)
      : tuned(tuned_files), online(online_rows) {}
  const TableSet& tuned;
  const TableSet* online;  // null: none
};

/// How a problem is planned.
struct PlanRules {
  // Implicit: most callers promise nothing. NOLINTNEXTLINE(google-explicit-constructor)
  PlanRules(bool strict_environment, bool dependent_launches = false)
      : strict(strict_environment), dependent(dependent_launches) {}
  bool strict;     // rows of another environment do not answer
  bool dependent;  // a row's pdl_kernelName goes before its kernelName
};

/// The plan of a checked problem (m = 0 is legal). May create a kernel and is then slow; not for two threads
/// at once on one device. Where neither a row nor the fallback can run, `unanswered` (may be null) tells of
/// the rows that were passed over.
Result<PlanRef> make_plan(const std::shared_ptr<const DispatchDevice>& device, const LookupTables& tables,
                          const Problem& problem, PlanRules rules, PlanAccount* unanswered = nullptr);

/// check(), and zero rows are legal.
Status check_runnable(const Problem& problem);

}  // namespace gemmtune
