#include "tuning/run_start.h"

#include "resolve/candidate_list.h"

namespace gemmtune {

std::optional<WeightLayout> layout_of(const TunedEntry& row, const Device& device) {
  const auto candidate = device.resolve(row.kernel_name, row.problem);
  if (!candidate.ok()) return std::nullopt;
  const auto listed = describe(device, row.problem, *candidate);
  if (!listed.ok() || listed->layout == WeightLayout::any) return std::nullopt;
  return listed->layout;
}

}  // namespace gemmtune
