#include "backends/cuda/families/moe_decode/moe_decode_cost.h"

#include "backends/cuda/families/cards.h"
#include "backends/cuda/families/hopper.h"
#include "backends/gpu/moe/moe_layer.h"

namespace gemmtune::cuda {
namespace {

constexpr gpu::FittedRow<MoeDecodeCost> decode_rows[] = {
    // 98 kernels of 14 layers (bench/results/h200/cost_moe_decode.csv); of NVFP4 and int4
    // least squares of 44 kernels' relative errors (bench/results/h200/moe_decode_four_bits.csv): 4 %, at most 12 %.
    {h200,
     {.launched = 7.7,
      .from_memory = {4.06e6},
      .fp4_expert = 0.5,
      .fp4_expert_warps9 = 0.35,
      .fp4_expert_warps = 0.125,
      .fp4_expert_stages = 0.75,
      .fp4_shared_bytes = 92.8e3,
      .strips_launched = 4.58,
      .expert = 0.074,
      .strip = 0.172,
      .atom = 0.09,
      .expert_warps9 = 0.176,
      .expert_warps16 = 0.114,
      .warps6 = 0.321,
      .warps = 0.75,
      .fp8_shared_bytes = 250e3}},
    // By hand, to kernels of docs/lab/moe_decode.md; of NVFP4 and int4 those of the H200.
    {h100,
     {.launched = 5.5,
      .from_memory = {4.2e6},
      .fp4_expert = 0.2,
      .fp4_expert_warps9 = 0.35,
      .fp4_expert_warps = 0.05,
      .fp4_expert_stages = 0.3,
      .fp4_shared_bytes = 200e3,
      .strips_launched = 4.58,
      .expert = 0.074,
      .strip = 0.172,
      .atom = 0.09,
      .expert_warps9 = 0.176,
      .expert_warps16 = 0.114,
      .warps6 = 0.8,
      .warps = 0.3,
      .fp8_shared_bytes = 250e3}}};

/// Of NVFP4 and int4, of each expert: strips and atoms follow each other in a team, and bytes arrive meanwhile.
double microseconds_of_expert(const MoeDecodeLaunch& launch, const MoeDecodeCost& cost) {
  const double units = as_real(launch.groups) / as_real(launch.grid);
  const double teams = as_real(launch.teams), hidden_teams = as_real(launch.hidden_teams);
  const double atoms =
      units * as_real(launch.steps) / teams + as_real(launch.hidden_steps * launch.tiles) / hidden_teams;
  double sum = cost.expert + cost.strip * (units / teams + 1 / hidden_teams) + cost.atom * atoms;
  if (launch.warps == 9) sum += cost.expert_warps9 / teams;
  if (launch.warps == 16) sum += cost.expert_warps16;
  return sum;
}

}  // namespace

MoeDecodeCost moe_decode_cost(const gpu::Limits& device) { return gpu::constants_for(device, decode_rows); }

double predicted_moe_decode(const Problem& problem, const MoeDecodeLaunch& launch,
                            const MoeDecodeCost& cost) {
  const double experts = gpu::expected_moe_tiles(problem, max_decode_tokens).experts;
  const double elements = as_real(problem.k * problem.n * (problem.moe.gated ? 3 : 2));
  const double weights = experts * (elements * bits(problem.w_type) / 8 +
                                    (launch.strips ? launch.weight.scale_bytes(elements) : 0));
  const double from_memory = weights / cost.from_memory;
  const double of_stages = launch.num_stages < 3 ? cost.fp4_expert_stages * experts : 0;
  if (launch.strips && launch.weight.format != WeightFormat::mxfp4)
    return cost.strips_launched + from_memory + experts * microseconds_of_expert(launch, cost) + of_stages;
  double total = cost.launched + from_memory;
  if (launch.strips) {
    total += cost.fp4_expert * experts + (launch.warps == 9    ? cost.fp4_expert_warps9
                                          : launch.warps == 15 ? 0
                                                               : cost.fp4_expert_warps) *
                                             experts;
    total += launch.num_stages < 3 ? of_stages : as_real(launch.shared_bytes) / cost.fp4_shared_bytes;
    return total;
  }
  // Long rows of fp8 want the registers of eight warps, and a next launch finds room beside blocks with less shared memory.
  const bool long_rows = launch.fp8 && launch.row_bytes > 4096;
  total += launch.warps == 6 ? cost.warps6 : launch.warps == (long_rows ? 8 : 14) ? 0 : cost.warps;
  if (launch.fp8) total += as_real(launch.shared_bytes) / cost.fp8_shared_bytes;
  return total;
}

}  // namespace gemmtune::cuda
