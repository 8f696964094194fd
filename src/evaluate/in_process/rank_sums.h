// Ranks of tensor parallelism: whether parts of a weight, each multiplied by itself, give the bits of the whole one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "candidates/config.h"

namespace gemmtune {

struct RankSums {
  std::vector<int>
      by_n;  // 2, 4, 8: so many ranks, each with equal, consecutive rows of w, gave the whole weight's bits
  std::vector<int> by_k;   // the same with columns of x and w, and sums that were added in pairs
  std::string difference;  // which ranks gave other bits, with the first row and element; empty: none did
};

/// Of a kernel of `problem` that adds_in_pairs(), with a y of float32 and no bias (docs/tensor_parallel.md). Ranks that have no such kernel with the
/// whole weight's order of sums are left out. `unsupported` for column-major operands; an error if the kernel of the whole weight cannot run.
Result<RankSums> check_ranks(Device& device, Problem problem, const Candidate& candidate, std::uint64_t seed,
                             int threads);

}  // namespace gemmtune
