#include "backends/cuda/families/wgmma/wgmma_cost.h"

#include <algorithm>
#include <cmath>

#include "backends/cuda/families/cards.h"
#include "backends/cuda/families/hopper.h"
#include "base/rounding.h"

namespace gemmtune::cuda {
namespace {

// 2,246 kernels of 234 problems (bench/results/h200/cost_wgmma.csv), with more weight on fast ones. Under sustained load the clock is a quarter below this one.
constexpr gpu::FittedRow<WgmmaCost> wgmma_rows[] = {{h200,
                                                     {.clock = {1860},
                                                      .refill = 2160,
                                                      .stages_under_way = 1.01,
                                                      .into_multiprocessor = 60.8,
                                                      .from_l2 = {1.81e7},
                                                      .distinct = {6.82e6},
                                                      .from_memory = {4.42e6},
                                                      .under_way = {6.5e6},
                                                      .few_under_way = 0.2,
                                                      .few_blocks = 0.484,
                                                      .few_blocks_of_scales = 0.491,
                                                      .narrow_instruction = 43.3,
                                                      .narrow_instruction_column = 0.0115,
                                                      .slowdown = 1.33,
                                                      .promotion = 30.6,
                                                      .promotion_of_scales = 65.8,
                                                      .two_sets = 226,
                                                      .two_sets_of_scales = 180,
                                                      .two_sets_column = 1.5,
                                                      .two_sets_scale = 12.5,
                                                      .energy_of_loads = 12,
                                                      .energy_of_choices = 0.0125,
                                                      .stored = 0.499,
                                                      .stored_elements = 96500,
                                                      .whole_staging = 1.33,
                                                      .exchanged = 0.36,
                                                      .exchanged_bytes = 25300,
                                                      .exchanged_block = 0.249,
                                                      .parts_of_tiles = 1.2,
                                                      .launched = 1.45,
                                                      .multicast = 1}}};

}  // namespace

WgmmaCost wgmma_cost(const gpu::Limits& device) { return gpu::constants_for(device, wgmma_rows); }

// The blocks of a wave advance by a k tile at the rate of their bottleneck: the latency of refilling a stage
// over the number of stages, the tensor cores, the bandwidth into a multiprocessor, or L2, which serves all
// blocks and reads from memory what differs between them. The epilogue and the split-K reduction are added.
double predicted_wgmma(const Problem& problem, const WgmmaLaunchConfig& launch, const HopperLimits& limits,
                       const WgmmaCost& cost) {
  const double processors = as_real(limits.multiprocessors);
  const double cluster = as_real(launch.cluster_size());
  const double blocks = as_real(launch.tiles()) * cluster;
  const double resident = std::min(as_real(launch.blocks_per_sm), std::ceil(blocks / processors));
  const double at_once =
      std::min(blocks, limits.clusters_at_once(launch.cluster_size()) * cluster * resident);
  const double waves = std::ceil(blocks / at_once);
  const double share = std::max(1.0, at_once / processors);  // blocks of a multiprocessor
  const double width = as_real(launch.block_n);
  // Half a cycle a column, but for narrow instructions.
  const double instruction_n = width / as_real(launch.n_slices);
  const double product =
      std::max(instruction_n / 2, cost.narrow_instruction + instruction_n * cost.narrow_instruction_column);
  const double steps = as_real(launch.n_slices * launch.k_atoms);  // of 64 rows in a k tile
  // With one set of partial sums a warp group waits for its products, adds them and waits for the next stage. With two it waits for the latencies of a
  // step, one after the other, even if its products take less.
  const double scales = launch.block_scales ? as_real(launch.scales_of_thread()) : 0;
  const double waits = launch.block_scales ? cost.promotion_of_scales : cost.promotion;
  const double latencies = (launch.block_scales ? cost.two_sets_of_scales : cost.two_sets) +
                           cost.two_sets_column * instruction_n + cost.two_sets_scale * scales;
  const double alone = (launch.promotion == 0   ? 4 * product
                        : launch.promotion == 1 ? cost.slowdown * (4 * product + waits + instruction_n / 2)
                                                : std::max(4 * product, latencies)) *
                       steps * as_real(launch.warpgroup_m() / 64);
  // Launches of many promoted tiles run at the power limit: what small tiles load costs energy, and so does choosing each column's block.
  const double loads =
      cost.energy_of_loads * std::max(0.0, 1 / as_real(launch.block_m) + 1 / width - 3.0 / 256);
  const double choices =
      launch.block_scales && !launch.swap_ab
          ? cost.energy_of_choices * as_real((WgmmaLaunchConfig::weight_blocks(launch.block_n) - 1) *
                                             launch.block_n / (launch.block_n & -launch.block_n))
          : 0;
  const double energy = launch.promotion > 0 && waves > 1 ? 1 + loads + choices : 1;
  const double products =
      std::max(cost.slowdown * product * as_real(launch.block_m / 64) * 4 * steps * share, alone) * energy;
  const double line = as_real(launch.k_atoms) * 128;
  const double load = as_real(launch.loaded_bytes(launch.x_box_rows)) / cost.into_multiprocessor * share;
  const double loaded = line * as_real(launch.x_box_rows + launch.weight_box_rows()) * at_once;
  const double rows = (std::min(as_real(launch.swap_ab ? problem.n : problem.m),
                                as_real(launch.tiles_m * launch.cluster_m * launch.block_m)) +
                       std::min(as_real(launch.swap_ab ? problem.m : problem.n),
                                as_real(launch.tiles_n * launch.cluster_n) * width)) *
                      as_real(launch.batches);
  const double l2 =
      (loaded / cost.from_l2 + line * rows * as_real(launch.split_k) / waves / cost.distinct) * cost.clock;
  const double latency = cost.refill / std::max(0.5, as_real(launch.num_stages) - cost.stages_under_way);
  // A smooth maximum.
  const double step =
      std::pow(std::pow(products, 8) + std::pow(load, 8) + std::pow(l2, 8) + std::pow(latency, 8), 0.125);
  const double looped = waves * as_real(ceil_div(launch.k_tiles, launch.split_k)) * step / cost.clock;
  const double in_flight = at_once * as_real(launch.num_stages * launch.stage_bytes);
  const double memory =
      bytes(problem) / cost.from_memory *
      std::pow(std::max(1.0, cost.under_way / in_flight), cost.few_under_way) *
      (launch.block_scales ? std::pow(std::max(1.0, processors / blocks), cost.few_blocks_of_scales)
                           : std::max(1.0, cost.few_blocks * processors / blocks));
  const double area = as_real(launch.block_m) * width;
  const double stored = (cost.stored + area / cost.stored_elements) *
                        (launch.whole_staging ? cost.whole_staging : 1) *
                        (launch.ping_pong || resident > 1 ? 1 : waves);
  const double exchanged =
      cost.exchanged + area * 4 / cost.exchanged_bytes + cost.exchanged_block * as_real(launch.split_k - 1);
  // Blocks that share x wait for the slowest of them: parts of a packed weight's tiles are loaded in runs
  // that complete at different times.
  const bool uneven = is_packed(problem) && launch.weight_box_rows() < 64 &&
                      (launch.swap_ab ? launch.cluster_m : launch.cluster_n) > 1;
  return cost.launched + std::max(looped, memory) * (uneven ? cost.parts_of_tiles : 1) +
         (launch.split_k > 1 ? exchanged * waves : stored) +
         (launch.cluster_m * launch.cluster_n > 1 ? cost.multicast : 0);
}

}  // namespace gemmtune::cuda
