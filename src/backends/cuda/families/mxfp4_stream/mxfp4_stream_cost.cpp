#include "backends/cuda/families/mxfp4_stream/mxfp4_stream_cost.h"

#include <algorithm>
#include <cmath>

#include "backends/cuda/families/cards.h"
#include "backends/cuda/families/hopper.h"
#include "backends/gpu/moe/moe_layer.h"
#include "problem/operands.h"

namespace gemmtune::cuda {
namespace {

constexpr gpu::FittedRow<StreamCost> stream_rows[] = {
    // 175 kernels of 26 problems (bench/results/h200/cost_mxfp4_stream.csv).
    {h200,
     {.clock = {1630},
      .from_memory = {4.48e6},
      .launched = 2.14,
      .stage = 3.28,
      .unhidden = 0.325,
      .sorting = 6.88,
      .sorted_pairs = 12e3,
      .block_sorting = 1.5,
      .block_sorted_pair = 0.002,
      .strip = 998,
      .strip_unit = 128,
      .strip_group = 113,
      .rows_apart = 154,
      .two_blocks = 1.31,
      .team_slab = 1200,
      .team_strip = 105,
      .team_unit = 85.7,
      .issued_strip = 53.3,
      .issued_unit = 14.2,
      .loaded_slab = 300}},
    // Kernels of docs/lab/mxfp4_stream.md.
    {h100,
     {.clock = {1755},
      .from_memory = {3.5e6},
      .launched = 4,
      .stage = 3,
      .unhidden = 0.1,
      .sorting = 4,
      .sorted_pairs = 12e3,
      .block_sorting = 1.5,
      .block_sorted_pair = 0.002,
      .strip = 1250,
      .strip_unit = 165,
      .strip_group = 340,
      .rows_apart = 1500,
      .two_blocks = 1.7,
      .team_slab = 800,
      .team_strip = 250,
      .team_unit = 130,
      .issued_strip = 40,
      .issued_unit = 20,
      .loaded_slab = 300}}};

/// Of a slab, by one block of a multiprocessor.
double cycles_of_slab(const StreamLaunch& launch, const StreamCost& cost) {
  const double units = as_real(launch.warp_units), further = as_real(launch.groups - 1);
  if (!launch.has_teams())
    return cost.strip + cost.strip_unit * units + cost.strip_group * further +
           (launch.rows_apart() ? cost.rows_apart : 0);
  const double strips = as_real(launch.strips);
  const double of_team = cost.team_slab + strips * (cost.team_strip + cost.team_unit * units) +
                         cost.strip_group * strips * further + (launch.rows_apart() ? cost.rows_apart : 0);
  const double issued = strips * (cost.issued_strip * as_real(launch.team_warps()) +
                                  cost.issued_unit * as_real(launch.units) * (1 + further / 4));
  return std::max({of_team / as_real(launch.teams), issued, cost.loaded_slab});
}

}  // namespace

StreamCost stream_cost(const gpu::Limits& device) { return gpu::constants_for(device, stream_rows); }

double predicted_stream(const Problem& problem, const StreamLaunches& launches, const gpu::Limits& limits,
                        const StreamCost& cost) {
  const double pairs = as_real(routed_pairs(problem));
  double total = cost.launched + (launches.front().sorts ? cost.block_sorting + cost.block_sorted_pair * pairs
                                                         : cost.sorting + pairs / cost.sorted_pairs);
  for (const StreamLaunch& launch : launches) {
    const double slabs = launch.tiles * as_real(launch.slabs);
    const double shared = launch.blocks == 1 ? 1 : cost.two_blocks;
    const double bytes =
        as_real((launch.row_bytes + launch.scale_row + launch.zero_row) * launch.strips * strip_rows);
    const double busy = std::ceil(slabs / as_real(limits.multiprocessors * launch.blocks)) *
                        cycles_of_slab(launch, cost) * shared / cost.clock;
    const double loading = slabs * bytes / cost.from_memory;
    total += std::max(busy, loading) + cost.unhidden * std::min(busy, loading) + cost.stage;
  }
  return total;
}

}  // namespace gemmtune::cuda
