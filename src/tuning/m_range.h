// What is asked of a tuning over the M axis.
#pragma once

#include <cstdint>

namespace gemmtune {

/// Every M from `first` to `last`, both included.
struct MRange {
  std::int64_t first = 0;
  std::int64_t last = 0;
};

struct MRangeRequest {
  MRange range;
  double regret = 0.02;  // what a range may cost at an M, as a share of the best time there
};

}  // namespace gemmtune
