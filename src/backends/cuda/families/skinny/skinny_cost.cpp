#include "backends/cuda/families/skinny/skinny_cost.h"

#include <algorithm>
#include <cmath>

#include "backends/cuda/families/cards.h"
#include "backends/cuda/families/hopper.h"
#include "base/rounding.h"

namespace gemmtune::cuda {
namespace {

// Kernels of eight (N, K); `promoted` also to 510 kernels with scales of blocks of six (N, K) at M = 16 and 64 on an H100.
constexpr gpu::FittedRow<SkinnyCost> skinny_rows[] = {{h200,
                                                       {.launched = 2.2,
                                                        .from_memory = {4.43e6},
                                                        .under_way = {1.15e7},
                                                        .few_under_way = 0.3,
                                                        .few_blocks = 71.1,
                                                        .into_multiprocessor = {847000},
                                                        .cluster_pause = 1.5,
                                                        .cluster_pause_loads = 4.48,
                                                        .pause_loads = 0.2,
                                                        .promoted = 0.298,
                                                        .promoted_of_scales = 0.265,
                                                        .promoted_column = 0.000485,
                                                        .promoted_beside = 0.8,
                                                        .exchanged = 0.1,
                                                        .exchanged_row = 0.0481,
                                                        .wrong_blocks = 0.185,
                                                        .right_blocks = 384}}};

}  // namespace

SkinnyCost skinny_cost(const gpu::Limits& device) { return gpu::constants_for(device, skinny_rows); }

// The bytes at the bandwidth of memory, more if few are under way or few blocks load them, or what a multiprocessor takes in; and a pause for
// each further wave of clusters.
double predicted_skinny(const Problem& problem, const SkinnyLaunchConfig& launch, const HopperLimits& limits,
                        const SkinnyCost& cost) {
  const double processors = as_real(limits.multiprocessors);
  const double clusters = as_real(launch.tiles * problem.batch);
  const double grid = clusters * as_real(launch.split_k);
  const double at_once = as_real(limits.clusters_at_once(launch.split_k) * launch.blocks_per_sm);
  const double share = as_real(ceil_div(launch.k_tiles, launch.split_k));  // k tiles of a block
  const double uneven = share * as_real(launch.split_k) / as_real(launch.k_tiles);
  const double in_flight =
      std::min(grid, at_once * as_real(launch.split_k)) * as_real(launch.num_stages * launch.stage_bytes);
  const double few_bytes = std::max(1.0, cost.under_way / std::max(in_flight, 1.0));
  const double memory = bytes(problem) / cost.from_memory;
  const double few_blocks = std::max(1.0, cost.few_blocks / grid);
  const double loaded = share * as_real(launch.stage_bytes) / cost.into_multiprocessor;  // by a block alone
  const double taken_in =
      loaded * std::ceil(std::min(clusters, at_once) * as_real(launch.split_k) / processors);
  // A cluster starts when as many multiprocessors of a group are free, and exchanges its sums; blocks without one follow each other without a pause.
  const double waves = std::ceil(clusters / at_once);
  const double pauses = launch.split_k > 1
                            ? (waves - 1) * (cost.cluster_pause + cost.cluster_pause_loads * loaded)
                            : (waves - clusters / at_once) / waves * cost.pause_loads * loaded;
  // Promoted sums: each k atom of a block waits for its products, and for scales of blocks, of which a thread has more the wider x is. There
  // blocks of one multiprocessor hide little of each other's waits.
  const bool block_scales = quantization(problem) == QuantType::per_1x128;
  const double atom = launch.promotion == 0 ? 0
                      : block_scales
                          ? cost.promoted_of_scales + cost.promoted_column * as_real(launch.block_n)
                          : cost.promoted;
  const double resident = std::min(as_real(launch.blocks_per_sm), std::ceil(grid / processors));
  const double chained =
      atom * share * as_real(launch.k_atoms) *
      (block_scales ? waves * std::pow(resident, cost.promoted_beside) : std::max(1.0, clusters / at_once));
  return cost.launched +
         std::max(
             {memory * uneven * std::pow(few_bytes, cost.few_under_way) * few_blocks, taken_in, chained}) +
         pauses +
         (launch.split_k > 1 ? cost.exchanged + cost.exchanged_row * as_real(launch.split_k + launch.block_n)
                             : 0) +
         cost.wrong_blocks * std::abs(std::log2(grid / cost.right_blocks));
}

}  // namespace gemmtune::cuda
