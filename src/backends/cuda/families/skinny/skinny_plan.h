// A config of the skinny family worked out for a problem: shares of k and of rows, memory, grid.
#pragma once

#include <cstdint>

#include "backends/gpu/runtime.h"
#include "candidates/config.h"
#include "problem/problem.h"

namespace gemmtune::cuda {

struct SkinnyPlan {
  static constexpr std::int64_t piece_bytes = 128;  // of k, in one row

  std::int64_t rows = 64;  // of w, a block
  std::int64_t pieces = 1;
  std::int64_t blocks = 1;   // of a cluster
  std::int64_t columns = 8;  // what x is padded to
  bool dependent = false;    // a programmatic dependent launch

  std::int64_t steps = 1;  // of all of k
  std::int64_t stages = 0;
  std::int64_t tiles = 1;  // clusters
  std::int64_t stage_bytes = 0;
  std::int64_t shared_bytes = 0;
  std::int64_t resident = 1;      // blocks a multiprocessor, by shared memory and threads
  std::int64_t ahead = 0;         // steps that are called into the second-level cache early
  std::int64_t ahead_blocks = 0;  // that run at once

  /// Groups of 8 rows that a block adds up, at most.
  std::int64_t most_groups() const;
  /// The first group that each block of a cluster adds up: 5 bits a block, and the end.
  unsigned long long first_groups() const;
  /// What follows the ring in shared memory: parts of sums that other blocks of the cluster send, or a tile
  /// of y.
  std::int64_t exchange_bytes() const;
};

SkinnyPlan skinny_plan(const Problem& problem, const Config& config, const gpu::Limits& limits);

}  // namespace gemmtune::cuda
