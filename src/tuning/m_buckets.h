// One kernel for several M of a weight: the M of a bucket of a Triton config.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "measure/policy.h"
#include "select/finals.h"
#include "tuned/entry.h"

namespace gemmtune {

struct BucketChoice {
  std::string kernel;
  double regret = 0;  // summed over the bucket's M: the kernel's time over the fastest's there, minus 1
  bool is_compared = false;  // in paired rounds; else one kernel won at every M
};

/// The winner of one of the rows, tuned rows of one weight and of all M of the bucket, that has the least summed regret,
/// by paired rounds of all winners at each M (m_range_comparison.h). Of equals the one with the largest M. An error
/// if none of them is right and no slower than the default at every M. Requires a row.
Result<BucketChoice> choose_for_bucket(const Device& device, Evaluator& evaluator,
                                       std::span<const TunedEntry> rows, const Policy& policy);

}  // namespace gemmtune
