// One kernel for several M of a weight: the M of a bucket of a Triton config.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/deadline.h"
#include "measure/policy.h"
#include "select/finals.h"
#include "tuned/entry.h"

namespace gemmtune {

/// The M of a bucket; of one without a largest M some M far above the first.
struct BucketEnds {
  std::int64_t first = 1;
  std::int64_t last = 1;
};

struct BucketChoice {
  std::string kernel;
  // Summed over the M that were compared: the kernel's time over the fastest's there, minus 1. nullopt: the kernels of
  // the rows differ, and none was compared.
  std::optional<double> regret;
  std::size_t compared = 0;  // M with paired rounds; 0 where one kernel won at all
  bool is_cut = false;       // the time ended before all were compared
};

/// The kernel that answers a bucket: of the winners and the defaults of its rows (tuned rows of one
/// weight and of M of the bucket) the one with the least summed regret, by paired rounds of all of them at each row's M
/// (m_range_comparison.h). Of equals the one with the largest M. It takes both ends of the bucket and is right there. An
/// error if none is right and no slower than the default at every M. Requires a row.
///
/// If the deadline comes first, the regrets of the M compared by then decide, and without any the kernel that won at the most
/// M; it is verified at the M where it was neither compared nor the winner.
Result<BucketChoice> choose_for_bucket(const Device& device, Evaluator& evaluator,
                                       std::span<const TunedEntry> rows, const BucketEnds& ends,
                                       const Policy& policy, const Deadline& deadline);

}  // namespace gemmtune
