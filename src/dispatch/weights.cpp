#include "dispatch/weights.h"

#include <array>

#include "dispatch/planner.h"

namespace gemmtune {
namespace {

/// The problem of a weight alone, packed in `layout`.
Problem weight_problem(const Problem& problem, WeightLayout layout) {
  Problem weight = problem;
  weight.m = 1;
  weight.bpreshuffle = true;
  weight.weight_layout = layout;
  return weight;
}

Status check_weight(const Problem& problem, WeightLayout layout) {
  if (layout == WeightLayout::plain || layout == WeightLayout::any) {
    return Status::invalid("weight layout {}, expected a packed one: a plain weight is used as it is",
                           to_string(layout));
  }
  return check(weight_problem(problem, layout));
}

bool same_weight(const Problem& row, const Problem& asked) {
  return row.bpreshuffle && row.operation == asked.operation && row.n == asked.n && row.k == asked.k &&
         row.x_type == asked.x_type && row.w_type == asked.w_type && row.y_type == asked.y_type &&
         row.scale_ab == asked.scale_ab;
}

/// The layout that the row's kernel reads, `any` where the row cannot run here.
WeightLayout layout_of_row(const Device& device, const TunedEntry& row) {
  Problem problem = row.problem;
  problem.weight_layout = WeightLayout::any;
  const auto candidate = device.resolve(row.kernel_name, problem);
  if (!candidate.ok()) return WeightLayout::any;
  const KernelFamily* family = device.find_family(candidate->family);
  if (family == nullptr || !family->accepts(problem).ok()) return WeightLayout::any;
  return family->packed_layout(problem).value_or(WeightLayout::any);
}

}  // namespace

WeightLayout tuned_weight_layout(const Device& device, const TableSet& tables, const Problem& problem) {
  const DeviceInfo& info = device.info();
  constexpr std::size_t layouts = static_cast<std::size_t>(WeightLayout::tile64x128) + 1;
  std::array<int, layouts> rows{};
  for (const TunedEntry& row : tables.table.entries()) {
    if (row.gfx != info.gfx || row.cu_num != info.cu_num || !same_weight(row.problem, problem)) continue;
    if (!valid_time(row.us)) continue;
    ++rows[static_cast<std::size_t>(layout_of_row(device, row))];
  }
  rows[static_cast<std::size_t>(WeightLayout::any)] = 0;
  auto best = WeightLayout::plain;
  for (std::size_t layout = 0; layout < layouts; ++layout) {
    if (rows[layout] > rows[static_cast<std::size_t>(best)]) best = static_cast<WeightLayout>(layout);
  }
  return best;
}

Result<std::size_t> packed_weight_bytes(const Device& device, const Problem& problem, WeightLayout layout) {
  GEMMTUNE_RETURN_IF_ERROR(check_weight(problem, layout));
  return device.packed_bytes(weight_problem(problem, layout), layout);
}

Status pack_weight(Device& device, const Problem& problem, WeightLayout layout, const void* plain,
                   void* packed) {
  GEMMTUNE_RETURN_IF_ERROR(check_weight(problem, layout));
  return device.pack_weight(weight_problem(problem, layout), layout, plain, packed);
}

Status unpack_weight(const Device& device, const Problem& problem, WeightLayout layout, const void* packed,
                     void* plain) {
  GEMMTUNE_RETURN_IF_ERROR(check_weight(problem, layout));
  return device.unpack_weight(weight_problem(problem, layout), layout, packed, plain);
}

}  // namespace gemmtune
