// Operands of a call: what must be there, then the run itself.
#include <array>

#include "capi/c_support.h"

namespace gemmtune::c {
namespace {

constexpr std::uintptr_t workspace_alignment = 64;

gemmtune_status fail_dimension(const char* name, std::int64_t value, std::int64_t least) noexcept {
  return guarded([&] {
    return fail(GEMMTUNE_INVALID_ARGUMENT,
                fmt::format("{} = {}, expected {} to {} elements", name, value, least, max_dimension));
  });
}

gemmtune_status fail_misaligned(const char* name, const void* pointer, std::int64_t alignment) noexcept {
  return guarded([&] {
    return fail(GEMMTUNE_MISALIGNED,
                fmt::format("{} = {}, expected a multiple of {} bytes", name, pointer, alignment));
  });
}

bool misaligned(const void* pointer, std::uintptr_t mask) {
  return (reinterpret_cast<std::uintptr_t>(pointer) & mask) != 0;
}

/// One operand that a call must bring; `aligned` as the problem promises.
struct Required {
  const char* name;
  const void* pointer;
  bool needed;
  bool aligned;
};

std::array<Required, 10> required_operands(const Plan& plan, const Operands& operands) {
  const OperandNeeds& needs = plan.needs();
  return {{{"x", operands.x, true, true},
           {"w", operands.w, true, true},
           {"y", operands.y, true, true},
           {"bias", operands.bias, plan.problem().bias, true},
           {"x_scale", operands.x_scale, needs.x_scale, false},
           {"w_scale", operands.w_scale, needs.w_scale, false},
           {"w2", operands.w2, needs.mixture, true},
           {"w2_scale", operands.w2_scale, needs.w2_scale, false},
           {"topk_ids", operands.topk_ids, needs.mixture, false},
           {"topk_weights", operands.topk_weights, needs.mixture, false}}};
}

gemmtune_status check_pointers(const Plan& plan, const Operands& operands) noexcept {
  const auto required = required_operands(plan, operands);
  const auto mask = static_cast<std::uintptr_t>(plan.problem().alignment) - 1;
  std::uintptr_t together = 0;
  bool null = false;
  for (const Required& one : required) {
    if (!one.needed) continue;
    null = null || one.pointer == nullptr;
    if (one.aligned) together |= reinterpret_cast<std::uintptr_t>(one.pointer);
  }
  if (!null && (together & mask) == 0) return GEMMTUNE_OK;
  for (const Required& one : required)
    if (one.needed && one.pointer == nullptr) return fail_null("gemmtune_operands", one.name);
  for (const Required& one : required)
    if (one.needed && one.aligned && misaligned(one.pointer, mask))
      return fail_misaligned(one.name, one.pointer, plan.problem().alignment);
  return GEMMTUNE_OK;
}

gemmtune_status check_operands(const Plan& plan, const Operands& operands) noexcept {
  const Problem& problem = plan.problem();
  const OperandNeeds& needs = plan.needs();
  if (const auto status = check_pointers(plan, operands); status != GEMMTUNE_OK) return status;
  if (operands.ldx < problem.k || operands.ldx > max_dimension)
    return fail_dimension("ldx", operands.ldx, problem.k);
  if (needs.halves && operands.ldx % 2 != 0)
    return fail(GEMMTUNE_INVALID_ARGUMENT, "ldx is odd, expected an even number: two elements share a byte");
  if (operands.ldy < needs.y_columns || operands.ldy > max_dimension)
    return fail_dimension("ldy", operands.ldy, needs.y_columns);
  if (!needs.per_tensor && (operands.x_scale_step == 0 || operands.w_scale_step == 0))
    return fail(
        GEMMTUNE_INVALID_ARGUMENT,
        "x_scale_per_tensor or w_scale_per_tensor is set, expected it with a8w8 and batched_a8w8 only");
  if (problem.batch == 1) return GEMMTUNE_OK;
  const std::int64_t least_x = (problem.m - 1) * operands.ldx + problem.k;
  const std::int64_t least_y = (problem.m - 1) * operands.ldy + needs.y_columns;
  if (operands.x_batch_stride < least_x || operands.x_batch_stride > max_tensor_bytes / problem.batch)
    return fail_dimension("x_batch_stride", operands.x_batch_stride, least_x);
  if (operands.y_batch_stride < least_y || operands.y_batch_stride > max_tensor_bytes / problem.batch)
    return fail_dimension("y_batch_stride", operands.y_batch_stride, least_y);
  return GEMMTUNE_OK;
}

gemmtune_status check_workspace(const Plan& plan, const void* workspace) noexcept {
  if (plan.workspace_bytes() == 0) return GEMMTUNE_OK;
  if (workspace == nullptr) return fail_null("gemmtune_plan_run", "workspace");
  if (misaligned(workspace, workspace_alignment - 1)) {
    return fail_misaligned("workspace", workspace, workspace_alignment);
  }
  return GEMMTUNE_OK;
}

Operands operands_of(const Plan& plan, const gemmtune_operands& given) {
  const Problem& problem = plan.problem();
  Operands operands;
  operands.x = given.x;
  operands.w = given.w;
  operands.bias = problem.bias ? given.bias : nullptr;
  operands.x_scale = given.x_scale;
  operands.w_scale = given.w_scale;
  operands.y = given.y;
  operands.ldx = given.ldx != 0 ? given.ldx : problem.k;
  operands.ldy = given.ldy != 0 ? given.ldy : plan.needs().y_columns;
  operands.x_scale_step = given.x_scale_per_tensor != 0 ? 0 : 1;
  operands.w_scale_step = given.w_scale_per_tensor != 0 ? 0 : 1;
  operands.x_batch_stride = given.x_batch_stride != 0 ? given.x_batch_stride : problem.m * operands.ldx;
  operands.y_batch_stride = given.y_batch_stride != 0 ? given.y_batch_stride : problem.m * operands.ldy;
  operands.w2 = given.w2;
  operands.w2_scale = given.w2_scale;
  operands.topk_ids = given.topk_ids;
  operands.topk_weights = given.topk_weights;
  return operands;
}

}  // namespace

gemmtune_status read_operands(const gemmtune_operands* given, gemmtune_operands& known) noexcept {
  return read_struct(given, known, "gemmtune_operands", offsetof(gemmtune_operands, y) + sizeof known.y);
}

gemmtune_status run_plan(const Plan& plan, const gemmtune_operands& given, void* workspace,
                         void* stream) noexcept {
  if (plan.kernel() == nullptr) return GEMMTUNE_OK;
  const Operands operands = operands_of(plan, given);
  if (const auto status = check_operands(plan, operands); status != GEMMTUNE_OK) return status;
  if (const auto status = check_workspace(plan, workspace); status != GEMMTUNE_OK) return status;
  Stream target{stream};
  if (plan.on_cpu()) {
    if (stream != nullptr) return fail(GEMMTUNE_INVALID_ARGUMENT, "stream is set, expected null on a CPU");
    target = plan.device().default_stream();
  }
  return guarded([&]() -> gemmtune_status {
    const Status status = plan.kernel()->run(operands, workspace, target);
    return status.ok() ? GEMMTUNE_OK : fail(status);
  });
}

}  // namespace gemmtune::c
