#include "dispatch/weights.h"

namespace gemmtune {
namespace {

/// The problem of a weight alone, packed in `layout`.
Problem weight_problem(const Problem& problem, WeightLayout layout) {
  Problem weight = problem;
  weight.m = 1;
  weight.weight_layout = layout;
  return weight;
}

Status check_weight(const Problem& problem, WeightLayout layout) {
  if (layout == WeightLayout::plain || layout == WeightLayout::any) {
    return Status::invalid("weight layout {}, expected a packed one: a plain weight is used as it is",
                           to_string(layout));
  }
  const Problem weight = weight_problem(problem, layout);
  GEMMTUNE_RETURN_IF_ERROR(check_form(form_of(problem), weight));
  return check(weight);
}

}  // namespace

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
