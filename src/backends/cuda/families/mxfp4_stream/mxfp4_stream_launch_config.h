// Shared memory, warps and grids of mxfp4_stream.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "backends/cuda/families/weight_format.h"
#include "backends/gpu/driver.h"
#include "candidates/space.h"
#include "problem/problem.h"

namespace gemmtune::cuda {

inline constexpr std::int64_t stream_unit = 64;        // elements of k
inline constexpr std::int64_t strip_rows = 16;         // of the weight
inline constexpr std::int64_t stream_chunk = 30;       // strips
inline constexpr std::int64_t max_stream_tokens = 16;  // of an expert, on average

/// One stage of a mixture: slabs of one or more strips of 16 rows of the weight.
struct StreamLaunch {
  int stage = 1;            // or 2
  std::int64_t blocks = 1;  // of a multiprocessor
  std::int64_t groups = 1;  // of eight rows of x
  std::int64_t teams = 1;   // that the warps are divided into, each of other slabs
  std::int64_t warps = 1;   // of a team they divide k
  std::int64_t warp_units = 1;
  std::int64_t units = 1;        // of 64 of k
  bool interleaved = false;      // half of a slab is of the gate, and the same rows of the up half
  bool sorts = false;            // each block sorts all pairs
  std::int64_t weight_rows = 0;  // of an expert
  std::int64_t strips = 1;       // of a slab, which a stage has
  std::int64_t slabs = 0;        // of an expert
  double tiles = 0;              // expected for the problem
  std::int64_t chunk = 0;        // slabs of an expert that each of its tiles computes before the next one
  WeightTraits weight;
  std::int64_t row_bytes = 0;
  std::int64_t pitch = 0;  // of rows in shared memory
  std::int64_t scale_row = 0;
  std::int64_t scale_pitch = 0;
  std::int64_t zero_row = 0;
  std::int64_t zero_pitch = 0;
  std::int64_t stage_bytes = 0;
  std::int64_t num_stages = 0;
  std::int64_t num_slots = 0;  // for the warps' sums of a slab
  std::int64_t shared_bytes = 0;

  std::int64_t rows() const { return groups * 8; }
  std::int64_t threads() const { return (warps + 1) * 32; }
  std::int64_t team_warps() const { return warps / teams; }
  bool tail() const { return team_warps() * warp_units != units; }
  bool rows_apart() const { return pitch != row_bytes; }
  bool scales_apart() const { return scale_pitch != scale_row; }
  bool zeros_apart() const { return zero_pitch != zero_row; }
  /// Warps multiply two units at once, of which a thread has 16 bytes of a row.
  bool wide() const {
    return (weight.format == WeightFormat::nvfp4 || weight.group == 128) && units % 2 == 0 &&
           warp_units % 2 == 0;
  }
  /// Without MXFP4, whose launches are of one team and of strips.
  bool has_teams() const { return weight.format != WeightFormat::mxfp4; }
};

using StreamLaunches = std::array<StreamLaunch, 2>;  // of the two stages
StreamLaunches stream_launches(const Problem& problem, const Config& config, const gpu::Limits& limits);
std::vector<Parameter> stream_parameters(const Problem& problem);
/// Empty, or why it cannot be built.
std::string refuse_stream(const Problem& problem, const StreamLaunches& launches);
/// Whether untuned layers run it where it takes the problem and moe_decode does not.
bool runs_stream_untuned(const Problem& problem);
/// The config that the cost model prefers; empty if none fits.
struct StreamCost;
Config default_stream_config(const Problem& problem, const gpu::Limits& limits, const StreamCost& cost);

}  // namespace gemmtune::cuda
