// What the C functions of the run-time library share: handles, operands, running a plan.
#pragma once

#include <memory>

#include "capi/c_problem.h"
#include "capi/c_status.h"
#include "dispatch/context.h"

/// The C handle of a context, with the host's log callback.
struct gemmtune_context {
  gemmtune_log log = nullptr;
  void* log_context = nullptr;
  std::unique_ptr<gemmtune::Context> context;  // last: logs until it is gone
};

namespace gemmtune::c {

/// If the environment switches online tuning on: lets libgemmtune_tuning (linked, or beside this library)
/// take the context's misses, or logs that it is missing. A failure only for want of memory.
gemmtune_status attach_online_tuning(gemmtune_context* context) noexcept;

inline LaunchPromises promises_of(const gemmtune_problem& known) {
  return {known.constant_weights != 0, known.predecessor_triggers != 0};
}

inline gemmtune_plan* plan_to_c(const Plan* plan) {
  return reinterpret_cast<gemmtune_plan*>(const_cast<Plan*>(plan));
}
inline const Plan* plan_of_c(const gemmtune_plan* plan) { return reinterpret_cast<const Plan*>(plan); }

struct CallOperands {
  gemmtune_status status = GEMMTUNE_OK;
  Operands operands;  // if status is ok
};
/// Reads and checks the operands of a call. Requires a plan with a kernel, as the next one. They are returned, because
/// filling an empty Operands costs a call 13 ns for the zeros.
CallOperands read_operands(const Plan& plan, const gemmtune_operands* given) noexcept;
/// Runs the plan with checked operands (gemmtune_plan_run's contract).
gemmtune_status run_plan(const Plan& plan, const Operands& operands, void* workspace, void* stream) noexcept;

/// Rows of all batches; two batches at least, and rows.
struct BatchRows {
  std::int64_t batch;
  std::int64_t m;
  std::int64_t leading;
  std::int64_t columns;
};
/// With which no two rows overlap: one batch follows another, or, if the rows leave room for it, the same row of all batches
/// lies side by side. `stride` says which of both is meant.
std::int64_t min_batch_stride(const BatchRows& rows, std::int64_t stride) noexcept;
bool is_batch_stride(const BatchRows& rows, std::int64_t stride) noexcept;

/// GEMMTUNE_MISALIGNED, with the pointer, unless it is a multiple of `alignment`, a power of two of bytes.
gemmtune_status check_alignment(const char* name, const void* pointer, std::int64_t alignment) noexcept;
/// What workspaces and packed weights are multiples of.
inline constexpr std::int64_t workspace_alignment = 64;

}  // namespace gemmtune::c
