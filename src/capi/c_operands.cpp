// Operands of a call: what must be there, then the run itself.
#include "capi/c_support.h"
#include "dispatch/planner.h"
#include "problem/operands.h"
#include "problem/overlap.h"

namespace gemmtune::c {
namespace {

gemmtune_status fail_dimension(const char* name, std::int64_t value, std::int64_t least) noexcept {
  return guarded([&] {
    return fail(GEMMTUNE_INVALID_ARGUMENT,
                fmt::format("{} = {}, expected {} to {} elements", name, value, least, max_dimension));
  });
}

/// Calls visit(name, pointer, needed, aligned) for each operand that a call may have to bring; `aligned` as the problem
/// promises. Inlined into its callers: an array of these cost a call 15 ns.
template <typename Visit>
void visit_pointers(const Plan& plan, const Operands& operands, Visit visit) {
  const OperandNeeds& needs = plan.needs();
  visit("x", operands.x, needs.reads, true);
  visit("w", operands.w, needs.reads, true);
  visit("y", operands.y, true, true);
  visit("bias", operands.bias, plan.problem().bias, true);
  visit("x_scale", operands.x_scale, needs.x_scale && needs.reads, false);
  visit("w_scale", operands.w_scale, needs.w_scale && needs.reads, false);
  visit("w2", operands.w2, needs.mixture, true);
  visit("w2_scale", operands.w2_scale, needs.w2_scale, false);
  visit("bias2", operands.bias2, needs.bias2, true);
  visit("topk_ids", operands.topk_ids, needs.mixture, false);
  visit("topk_weights", operands.topk_weights, needs.mixture, false);
  visit("x_global_scale", operands.x_global_scale, needs.x_global_scale && needs.reads, false);
  visit("w_global_scale", operands.w_global_scale, needs.w_global_scale && needs.reads, false);
  visit("w_zero_points", operands.w_zero_points, needs.w_zero_points && needs.reads, false);
  visit("w2_global_scale", operands.w2_global_scale, needs.w2_global_scale, false);
  visit("w2_zero_points", operands.w2_zero_points, needs.w2_zero_points, false);
}

/// The error of the first operand that is missing, else of the first that is not aligned.
gemmtune_status name_wrong_pointer(const Plan& plan, const Operands& operands) noexcept {
  auto status = GEMMTUNE_OK;
  visit_pointers(plan, operands, [&](const char* name, const void* pointer, bool needed, bool) {
    if (status == GEMMTUNE_OK && needed && pointer == nullptr) status = fail_null("gemmtune_operands", name);
  });
  visit_pointers(plan, operands, [&](const char* name, const void* pointer, bool needed, bool aligned) {
    if (status == GEMMTUNE_OK && needed && aligned)
      status = check_alignment(name, pointer, plan.problem().alignment);
  });
  return status;
}

gemmtune_status check_pointers(const Plan& plan, const Operands& operands) noexcept {
  const auto mask = static_cast<std::uintptr_t>(plan.problem().alignment) - 1;
  std::uintptr_t together = 0;
  bool null = false;
  visit_pointers(plan, operands, [&](const char*, const void* pointer, bool needed, bool aligned) {
    null |= needed && pointer == nullptr;
    if (needed && aligned) together |= reinterpret_cast<std::uintptr_t>(pointer);
  });
  return !null && (together & mask) == 0 ? GEMMTUNE_OK : name_wrong_pointer(plan, operands);
}

/// `lines` rows `columns` wide (of a column-major x its columns), `leading` elements apart, in batches `stride`
/// elements apart.
struct Extent {
  const char* name;
  DataType type;
  std::int64_t lines;
  std::int64_t leading;
  std::int64_t columns;
  std::int64_t stride;
};

/// Dimensions are below 2^31 and strides at most max_tensor_bytes / batch, so that no product overflows.
gemmtune_status check_extent(const Problem& problem, const Extent& extent) noexcept {
  if (extent.lines == 0) return GEMMTUNE_OK;  // of a column-major x with K = 0
  const std::int64_t matrix = (extent.lines - 1) * extent.leading + extent.columns;
  const std::int64_t elements = (problem.batch - 1) * extent.stride + matrix;
  constexpr std::int64_t max_element_bytes = 8;  // no type has more: most calls need no division
  if (elements <= max_tensor_bytes / max_element_bytes) return GEMMTUNE_OK;
  if (elements <= max_tensor_bytes / bits(extent.type) * 8) return GEMMTUNE_OK;
  return guarded([&] {
    return fail(
        GEMMTUNE_INVALID_ARGUMENT,
        fmt::format("{} extends over {} elements with its leading dimension {}, expected at most 2^47 bytes",
                    extent.name, elements, extent.leading));
  });
}

gemmtune_status check_extents(const Problem& problem, const OperandNeeds& needs,
                              const Operands& operands) noexcept {
  const Extent x{"x",          problem.x_type,        needs.x_lines,
                 operands.ldx, needs.x_line_elements, operands.x_batch_stride};
  if (const auto status = check_extent(problem, x); status != GEMMTUNE_OK) return status;
  return check_extent(
      problem, {"y", problem.y_type, problem.m, operands.ldy, needs.y_columns, operands.y_batch_stride});
}

/// Calls visit(name, pointer, bytes) for each contiguous operand that a call may read.
template <typename Visit>
void visit_contiguous_inputs(const OperandNeeds& needs, const Operands& operands, Visit visit) {
  constexpr std::int64_t one = sizeof(float);
  visit("w", operands.w, needs.w_bytes);
  visit("bias", operands.bias, needs.bias_bytes);
  visit("x_scale", operands.x_scale, operands.x_scale_step == 0 ? one : needs.x_scale_bytes);
  visit("w_scale", operands.w_scale, operands.w_scale_step == 0 ? one : needs.w_scale_bytes);
  visit("x_global_scale", operands.x_global_scale, needs.x_global_bytes);
  visit("w_global_scale", operands.w_global_scale, needs.w_global_bytes);
  visit("w_zero_points", operands.w_zero_points, needs.zero_point_bytes);
  if (!needs.mixture) return;
  visit("w2", operands.w2, needs.w2_bytes);
  visit("w2_scale", operands.w2_scale, needs.w2_scale_bytes);
  visit("w2_global_scale", operands.w2_global_scale, needs.w2_global_bytes);
  visit("w2_zero_points", operands.w2_zero_points, needs.w2_zero_point_bytes);
  visit("bias2", operands.bias2, needs.bias2_bytes);
  visit("topk_ids", operands.topk_ids, needs.route_bytes);
  visit("topk_weights", operands.topk_weights, needs.route_bytes);
}

std::uintptr_t address_of(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

gemmtune_status fail_overlap(const char* name) noexcept {
  return guarded([&] {
    return fail(GEMMTUNE_INVALID_ARGUMENT,
                fmt::format("y overlaps {} in memory, expected an output apart from every input", name));
  });
}

/// Refuses a y that has a byte in common with an input. Requires checked extents.
gemmtune_status check_overlap(const Problem& problem, const OperandNeeds& needs,
                              const Operands& operands) noexcept {
  const MemoryLines y{address_of(operands.y),
                      needs.y_columns * needs.y_bits / 8,
                      problem.m,
                      operands.ldy * needs.y_bits / 8,
                      problem.batch,
                      operands.y_batch_stride * needs.y_bits / 8};
  const MemoryLines x{address_of(operands.x), needs.x_line_elements * needs.x_bits / 8,
                      needs.x_lines,          operands.ldx * needs.x_bits / 8,
                      problem.batch,          operands.x_batch_stride * needs.x_bits / 8};
  if (share_a_byte(x, y)) return fail_overlap("x");
  const std::uintptr_t begin = y.begin;
  const std::uintptr_t end = y.end();
  const char* found = nullptr;
  visit_contiguous_inputs(needs, operands, [&](const char* name, const void* pointer, std::int64_t bytes) {
    const std::uintptr_t first = address_of(pointer);
    if (first >= end || first + static_cast<std::uintptr_t>(bytes) <= begin || pointer == nullptr) return;
    const MemoryLines input{first, bytes};
    if (found == nullptr && share_a_byte(input, y)) found = name;
  });
  return found == nullptr ? GEMMTUNE_OK : fail_overlap(found);
}

gemmtune_status check_operands(const Plan& plan, const Operands& operands) noexcept {
  const Problem& problem = plan.problem();
  const OperandNeeds& needs = plan.needs();
  if (const auto status = check_pointers(plan, operands); status != GEMMTUNE_OK) return status;
  if (operands.ldx < needs.x_line_elements || operands.ldx > max_dimension)
    return fail_dimension("ldx", operands.ldx, needs.x_line_elements);
  if (needs.halves && operands.ldx % 2 != 0)
    return fail(GEMMTUNE_INVALID_ARGUMENT, "ldx is odd, expected an even number: two elements share a byte");
  if (operands.ldy < needs.y_columns || operands.ldy > max_dimension)
    return fail_dimension("ldy", operands.ldy, needs.y_columns);
  if (!needs.x_or_one && operands.x_scale_step == 0)
    return fail(GEMMTUNE_INVALID_ARGUMENT,
                "x_scale_per_tensor is set, expected it where rows of x have a scale each only");
  if (!needs.w_or_one && operands.w_scale_step == 0)
    return fail(GEMMTUNE_INVALID_ARGUMENT,
                "w_scale_per_tensor is set, expected it where rows of w have a scale each only");
  if (problem.batch > 1) {
    const BatchRows x{problem.batch, problem.m, operands.ldx, problem.k};
    const BatchRows y{problem.batch, problem.m, operands.ldy, needs.y_columns};
    if (!is_batch_stride(x, operands.x_batch_stride))
      return fail_dimension("x_batch_stride", operands.x_batch_stride,
                            min_batch_stride(x, operands.x_batch_stride));
    if (!is_batch_stride(y, operands.y_batch_stride))
      return fail_dimension("y_batch_stride", operands.y_batch_stride,
                            min_batch_stride(y, operands.y_batch_stride));
  }
  if (const auto status = check_extents(problem, needs, operands); status != GEMMTUNE_OK) return status;
  return check_overlap(problem, needs, operands);
}

gemmtune_status check_workspace(const Plan& plan, const void* workspace) noexcept {
  if (plan.workspace_bytes() == 0) return GEMMTUNE_OK;
  if (workspace == nullptr) return fail_null("gemmtune_plan_run", "workspace");
  return check_alignment("workspace", workspace, workspace_alignment);
}

/// 0 stands for dense. A leading dimension that is out of range has no product: check_operands() refuses it.
std::int64_t batch_stride(std::int64_t given, std::int64_t m, std::int64_t leading) {
  return given != 0 || leading < 0 || leading > max_dimension ? given : m * leading;
}

Operands operands_of(const Plan& plan, const gemmtune_operands& given) {
  const Problem& problem = plan.problem();
  Operands operands;
  operands.x = given.x;
  operands.w = given.w;
  operands.bias = problem.bias ? given.bias : nullptr;
  operands.x_scale = given.x_scale;
  operands.w_scale = given.w_scale;
  const OperandNeeds& needs = plan.needs();
  operands.x_global_scale = needs.x_global_scale ? given.x_global_scale : nullptr;
  operands.w_global_scale = needs.w_global_scale ? given.w_global_scale : nullptr;
  operands.w_zero_points = needs.w_zero_points ? given.w_zero_points : nullptr;
  operands.y = given.y;
  operands.ldx = given.ldx != 0 ? given.ldx : plan.needs().x_line_elements;
  operands.ldy = given.ldy != 0 ? given.ldy : plan.needs().y_columns;
  operands.x_scale_step = given.x_scale_per_tensor != 0 ? 0 : 1;
  operands.w_scale_step = given.w_scale_per_tensor != 0 ? 0 : 1;
  operands.x_batch_stride = batch_stride(given.x_batch_stride, problem.m, operands.ldx);
  operands.y_batch_stride = batch_stride(given.y_batch_stride, problem.m, operands.ldy);
  return operands;
}

gemmtune_status read_moe_operands(const gemmtune_moe_operands* given, const OperandNeeds& needs,
                                  Operands& operands) noexcept {
  if (given == nullptr) return fail_null("gemmtune_operands", "moe");
  gemmtune_moe_operands known;
  if (const auto status = read_struct(given, known); status != GEMMTUNE_OK) return status;
  operands.w2 = known.w2;
  operands.w2_scale = known.w2_scale;
  operands.bias2 = known.bias2;
  operands.w2_global_scale = needs.w2_global_scale ? known.w2_global_scale : nullptr;
  operands.w2_zero_points = needs.w2_zero_points ? known.w2_zero_points : nullptr;
  operands.topk_ids = known.topk_ids;
  operands.topk_weights = known.topk_weights;
  return GEMMTUNE_OK;
}

std::int64_t scales_of(const MatrixShape& matrix, gemmtune_type& type) {
  const ScaleShape& scale = matrix.scale;
  if (matrix.count == 0 || scale.type == ScaleType::none) return 0;
  type = type_of(scale.type);
  return matrix.count * scale.elements();
}

}  // namespace

std::int64_t min_batch_stride(const BatchRows& rows, std::int64_t stride) noexcept {
  const bool side_by_side =
      stride < rows.leading && stride <= (rows.leading - rows.columns) / (rows.batch - 1);
  return side_by_side ? rows.columns : (rows.m - 1) * rows.leading + rows.columns;
}

bool is_batch_stride(const BatchRows& rows, std::int64_t stride) noexcept {
  return stride >= min_batch_stride(rows, stride) && stride <= max_tensor_bytes / rows.batch;
}

gemmtune_status check_alignment(const char* name, const void* pointer, std::int64_t alignment) noexcept {
  if ((reinterpret_cast<std::uintptr_t>(pointer) & (static_cast<std::uintptr_t>(alignment) - 1)) == 0)
    return GEMMTUNE_OK;
  return guarded([&] {
    return fail(GEMMTUNE_MISALIGNED,
                fmt::format("{} = {}, expected a multiple of {} bytes", name, pointer, alignment));
  });
}

CallOperands read_operands(const Plan& plan, const gemmtune_operands* given) noexcept {
  gemmtune_operands known;
  if (const auto status = read_struct(given, known); status != GEMMTUNE_OK) return {status, {}};
  CallOperands call{GEMMTUNE_OK, operands_of(plan, known)};
  if (plan.needs().mixture) call.status = read_moe_operands(known.moe, plan.needs(), call.operands);
  if (call.status == GEMMTUNE_OK) call.status = check_operands(plan, call.operands);
  return call;
}

gemmtune_status run_plan(const Plan& plan, const Operands& operands, void* workspace, void* stream) noexcept {
  if (const auto status = check_workspace(plan, workspace); status != GEMMTUNE_OK) return status;
  Stream target{stream};
  if (plan.on_cpu()) {
    if (stream != nullptr) return fail(GEMMTUNE_INVALID_ARGUMENT, "stream is set, expected null on a CPU");
    target = plan.device().default_stream();
  }
  return guarded([&] { return report(plan.run(operands, workspace, target)); });
}

}  // namespace gemmtune::c

gemmtune_status gemmtune_problem_scales(const gemmtune_problem* problem, gemmtune_scales* scales) {
  namespace c = gemmtune::c;
  gemmtune_problem known;
  gemmtune::Problem asked;
  if (const auto status = c::read_problem(problem, known, asked); status != GEMMTUNE_OK) return status;
  return c::guarded([&]() -> gemmtune_status {
    if (const gemmtune::Status legal = gemmtune::check_runnable(asked); !legal.ok()) return c::report(legal);
    const gemmtune::OperandShapes shapes = gemmtune::operand_shapes(asked);
    gemmtune_scales found{};
    found.x = c::scales_of(shapes.x, found.x_type);
    found.w = c::scales_of(shapes.w, found.w_type);
    found.w2 = c::scales_of(shapes.w2, found.w2_type);
    const gemmtune::OperandNeeds needs(asked, shapes);
    found.x_or_one = needs.x_or_one ? 1 : 0;
    found.w_or_one = needs.w_or_one ? 1 : 0;
    found.x_global = needs.x_global_scale ? 1 : 0;
    found.w_global = needs.w_global_scale ? 1 : 0;
    found.w_zero_points = needs.zero_point_bytes;
    found.w2_global = needs.w2_global_scale ? 1 : 0;
    found.w2_zero_points = needs.w2_zero_point_bytes;
    return c::write_struct(found, scales);
  });
}
