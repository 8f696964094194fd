// The launch config of the skinny kernel for a problem: shares of k and of rows, shared memory, grid.
#pragma once

#include <cstdint>

#include "backends/gpu/runtime.h"
#include "candidates/config.h"
#include "problem/problem.h"

namespace gemmtune::cuda {

inline constexpr int skinny_threads = 160;

/// A is the weight, B is x. Shared memory in bytes.
struct SkinnyLaunchConfig {
  std::int64_t block_m = 64;  // rows of the weight
  std::int64_t block_n = 8;   // rows that x is padded to
  std::int64_t k_atoms = 1;   // block_k in units of 128 bytes
  std::int64_t split_k = 1;   // blocks of a cluster, which divide k
  bool dependent_launch = false;
  std::int64_t promotion = 0;  // sets of partial sums (promotion_parameter())
  std::int64_t smem_kib = 110;

  std::int64_t k_tiles = 1;
  std::int64_t num_stages = 0;
  std::int64_t tiles = 1;  // along the weight's rows, one for each cluster
  std::int64_t stage_bytes = 0;
  std::int64_t shared_bytes = 0;      // dynamic shared memory of a block
  std::int64_t blocks_per_sm = 1;     // by shared memory and registers
  std::int64_t prefetch_k_tiles = 0;  // of the weight, into L2, before it may be loaded
  std::int64_t prefetch_blocks = 0;   // blocks that run at once

  /// Groups of 8 weight rows that a block reduces, at most.
  std::int64_t max_row_groups() const;
  /// The first group that each block of a cluster reduces: 5 bits for each block, and the end.
  unsigned long long first_row_groups() const;
  /// Bytes after the pipeline in shared memory: partial sums from the blocks of the cluster, or a tile of y.
  std::int64_t exchange_bytes() const;
};

SkinnyLaunchConfig skinny_launch_config(const Problem& problem, const Config& config,
                                        const gpu::Limits& limits);

}  // namespace gemmtune::cuda
