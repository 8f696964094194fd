// A config of the wgmma family worked out for a problem: tiles, memory, grid, and what is refused before it
// is compiled.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backends/cuda/hopper_launch.h"
#include "backends/gpu/runtime.h"
#include "base/rounding.h"
#include "candidates/space.h"
#include "problem/problem.h"

namespace gemmtune::cuda {

/// The product is D = A · Bᵀ with A = x, B = w, or, swapped, A = w, B = x.
struct WgmmaPlan {
  bool swapped = false;
  std::int64_t a_rows = 128;  // of a tile
  std::int64_t b_rows = 128;
  std::int64_t warpgroups = 2;  // that multiply
  bool turns = false;           // each takes whole tiles, in turn
  std::int64_t pieces = 1;      // of 128 bytes of k a stage
  std::int64_t ca = 1;          // blocks of a cluster along A, which share rows of B
  std::int64_t cb = 1;          // along B, which share rows of A
  std::int64_t split = 1;       // parts of k, of other blocks of the cluster
  bool dependent = false;       // a programmatic dependent launch

  std::int64_t steps = 1;  // of all of k
  std::int64_t stages = 0;
  std::int64_t stage_bytes = 0;
  std::int64_t memory_bytes = 0;  // of the ring and what is on its way out, or to other blocks
  std::int64_t shared_bytes = 0;
  std::int64_t tiles_a = 1;  // of clusters
  std::int64_t tiles_b = 1;
  std::int64_t band = 1;      // tiles along A that are worked on together
  std::int64_t resident = 1;  // blocks a multiprocessor, by shared memory and threads
  std::int64_t blocks = 1;    // of the grid
  bool once = false;          // the weight is read by one tile alone
  bool lone = false;          // a block has one tile alone, and its results leave from the ring

  std::int64_t cluster() const { return ca * cb * split; }
  /// Rows of x and of the weight that a block loads of a tile; blocks that share load a part each.
  std::int64_t x_rows() const { return swapped ? b_rows / ca : a_rows / cb; }
  std::int64_t weight_rows() const { return swapped ? a_rows / cb : b_rows / ca; }
  std::int64_t tiles() const { return tiles_a * tiles_b; }
  std::int64_t threads() const { return 128 * warpgroups + 32; }
  /// How many say of a stage that they have read it: warps, or for each block that writes into it a thread of
  /// each warpgroup that reads it.
  std::int64_t arrivals() const {
    const std::int64_t readers = turns ? 1 : warpgroups;
    return ca * cb == 1 ? 4 * readers : readers * (ca + cb - 1);
  }
  /// Rows of y that are stored at a time.
  std::int64_t stored_rows() const { return !swapped ? 16 : b_rows % 32 == 0 ? 32 : 16; }
  /// Columns of a tile behind those that make whole lines of 128 bytes. y's elements have `bytes`.
  std::int64_t rest_columns(std::int64_t bytes) const { return swapped ? 0 : b_rows % (128 / bytes); }
  /// Boxes in which a warp's (swapped: a warpgroup's) results of a tile leave. y's elements have `bytes`.
  std::int64_t buffers(std::int64_t bytes) const {
    const std::int64_t wide = swapped ? stored_rows() : 128 / bytes;
    return (turns ? a_rows : a_rows / warpgroups) / 64 * ceil_div(b_rows, wide);
  }
  /// Sums that a thread holds.
  std::int64_t accumulators() const { return (turns ? a_rows : a_rows / warpgroups) / 64 * b_rows / 2; }
};

WgmmaPlan wgmma_plan(const Problem& problem, const Config& config, const HopperLimits& limits);

std::vector<Parameter> wgmma_parameters();
// Each empty, or why such a kernel cannot be built or run: for what sw, ta, tb, wg and turn say, for ca, cb
// and c, and for the rest.
std::string refuse_wgmma_tile(const WgmmaPlan& plan);
std::string refuse_wgmma_cluster(const WgmmaPlan& plan);
std::string refuse_wgmma(const WgmmaPlan& plan, const HopperLimits& limits);
// Each empty, or why it is not worth a try: for sw, ta and tb, for the whole config, for its ring.
std::string refuse_wgmma_tile_waste(const Problem& problem, const WgmmaPlan& plan);
std::string refuse_wgmma_waste(const Problem& problem, const WgmmaPlan& plan, const HopperLimits& limits);
std::string refuse_wgmma_ring(const Problem& problem, const Config& config, const HopperLimits& limits);
Config default_wgmma_config(const Problem& problem, const HopperLimits& limits);
/// A rank, not a time.
double predicted_wgmma(const Problem& problem, const WgmmaPlan& plan, const HopperLimits& limits);

/// The definitions of MULTIPLY for b_rows rows of B, one instruction and its operands, and of SETTLE.
std::string multiply_source(DataType element, std::int64_t b_rows);

}  // namespace gemmtune::cuda
