#include "backends/cuda/families/wgmma_moe/wgmma_moe_cost.h"

#include <algorithm>
#include <cmath>

#include "backends/cuda/families/cards.h"
#include "backends/gpu/moe/moe_layer.h"
#include "problem/operands.h"

namespace gemmtune::cuda {
namespace {

// By hand, to kernels of both cards (docs/lab/wgmma_moe.md); what is of fp8 and wide tiles at 4096 tokens of an H100.
constexpr WgmmaMoeCost wgmma_moe_constants{.clock = {1.7e3},
                                           .from_memory = {4.3e6},
                                           .from_l2 = {5.6e6},
                                           .into_multiprocessor = {62e3},
                                           .wide_loads = 0.7,
                                           .latency = 1.1,
                                           .launched = 5,
                                           .stage = 1.5,
                                           .sorting = 5,
                                           .sorted_pairs = 12e3,
                                           .block_sorting = 0.5,
                                           .block_sorted_pair = 0.03,
                                           .instruction = 16,
                                           .instruction_token = 0.25,
                                           .promoted_token = 1.5,
                                           .promotion = 60,
                                           .promotion_token = 1.2,
                                           .covered_promotion = 0.5,
                                           .decoded_by_three = 30,
                                           .decoded_by_two = 42,
                                           .decoded_two_tiles = 38,
                                           .decoded_alone = 40,
                                           .group_token = 0.0606,
                                           .group = 3,
                                           .group_factors = 16.1,
                                           .stored = 0.8,
                                           .stored_elements = 40e3,
                                           .stored_wide = 1.3,
                                           .stored_wide_elements = 25e3,
                                           .cluster = 1.15,
                                           .scales_read = 1.2,
                                           .lone_from_memory = 1.08,
                                           .quantized = 3,
                                           .quantizing = 2,
                                           .quantizing_bytes = 1.5};
constexpr gpu::FittedRow<WgmmaMoeCost> wgmma_moe_rows[] = {{h200, wgmma_moe_constants},
                                                           {h100, wgmma_moe_constants}};

}  // namespace

WgmmaMoeCost wgmma_moe_cost(const gpu::Limits& device) { return gpu::constants_for(device, wgmma_moe_rows); }

double predicted_wgmma_moe(const Problem& problem, const std::array<WgmmaMoeStage, 2>& stages,
                           const HopperLimits& limits, const WgmmaMoeCost& cost) {
  const double processors = limits.multiprocessors;
  const double pairs = as_real(routed_pairs(problem));
  double total = cost.launched + (stages[0].sorts ? cost.block_sorting + cost.block_sorted_pair * pairs
                                                  : cost.sorting + pairs / cost.sorted_pairs);
  for (const WgmmaMoeStage& stage : stages) {
    const gpu::ExpectedTiles work = gpu::expected_moe_tiles(problem, stage.sorted_tokens());
    const auto cluster = as_real(stage.cluster);
    const double blocks = as_real(stage.blocks_per_multiprocessor);
    const double items = work.tiles * cluster * as_real(stage.column_tiles);
    const double waves = std::ceil(items / (processors * blocks));
    const double k_tiles = as_real(stage.k_tiles);
    const bool wide = stage.tokens >= 96;
    // Of a tile's instructions: its tokens in steps of 16.
    const double tokens = std::clamp(pairs / work.tiles / cluster + as_real(width_step) / 2,
                                     as_real(stage.min_width()), as_real(stage.tokens));
    const double row_groups = as_real(stage.rows) / 64;
    const double instruction = std::max(tokens / 2, cost.instruction + tokens * cost.instruction_token);
    double cycles = row_groups * 4 * instruction;
    if (stage.promoted) {
      const double exposed = stage.warpgroups == 1 ? 1.0
                             : wide                ? cost.covered_promotion * as_real(stage.mma_tiles())
                                                   : cost.covered_promotion;
      cycles = std::max(cycles, row_groups * cost.promoted_token * tokens) +
               row_groups * exposed * (cost.promotion_token * tokens + cost.promotion);
    }
    if (stage.fp4) {
      // Three warp groups and more decode while others multiply.
      const double warpgroups = as_real(stage.warpgroups) * blocks;
      const double two = stage.mma_tiles() > 1 ? cost.decoded_two_tiles : cost.decoded_by_two;
      cycles = row_groups * 4 *
               (0.5 * tokens + (warpgroups > 2   ? cost.decoded_by_three
                                : warpgroups > 1 ? two
                                                 : two + cost.decoded_alone));
    }
    // Sums of groups are added, or factors of elements made.
    if (stage.weight.is_grouped())
      cycles += row_groups * 64 / as_real(stage.weight.group) *
                (stage.scaled ? cost.group_factors : cost.group_token * tokens + cost.group);
    const double products = as_real(stage.k_atoms) * cycles * blocks / cost.clock;
    const double fetched =
        as_real(atom_bytes) *
        (as_real((stage.fp4 ? 1 : stage.k_atoms) * stage.rows) / cluster + as_real(stage.k_atoms) * tokens);
    // Wide tiles, where all of the weight's bytes and few tokens may come.
    const double loads = wide ? fetched * blocks / (cost.wide_loads * cost.into_multiprocessor)
                              : as_real(stage.stage_bytes) * blocks / cost.into_multiprocessor;
    const double step =
        std::max({products, loads, cost.latency / as_real(std::max<std::int64_t>(1, stage.num_stages - 1))});
    // What a tile takes beside its products.
    const double epilogue = stage.promoted && stage.warpgroups == 2 && wide
                                ? cost.stored_wide + tokens * as_real(stage.rows) / cost.stored_wide_elements
                                : cost.stored + as_real(stage.tokens * stage.rows) / cost.stored_elements;
    // Blocks of a cluster of fp8 wait for each other, which costs more than the weight's bytes. Scales of tokens for which a thread has no registers
    // are read while the tensor core has nothing to do (HOLDS_SCALES).
    const std::int64_t of_scales = stage.mma_tiles() * stage.tokens / 2 + stage.tokens / 2 +
                                   stage.tokens / 4 + 40 - stage.consumer_registers();
    const double waits =
        (stage.promoted && stage.cluster > 1 ? cost.cluster : 1.0) *
        (stage.promoted && stage.reallocates_registers() && of_scales > 0 ? cost.scales_read : 1.0);
    const double busy = waves * (k_tiles * step + epilogue) * waits;
    const double weights = work.experts * as_real(stage.weight_rows * stage.weight_row_bytes) *
                           (stage.fp4 ? 1 + 2 * stage.weight.scale_bytes(1) : 1.0);
    const double results = pairs * as_real(stage.columns) * 2;
    const double memory = (weights + results) / cost.from_memory *
                          (stage.promoted && stage.warpgroups == 1 ? cost.lone_from_memory : 1.0);
    total += std::max({busy, memory, items * k_tiles * fetched / cost.from_l2}) + cost.stage;
    if (stage.promoted && stage.stage == 1)
      total += stage.quantizes ? cost.quantized
                               : cost.quantizing + results * cost.quantizing_bytes / cost.from_memory;
  }
  return total + pairs * as_real(problem.k) * 2 / cost.from_memory;
}

}  // namespace gemmtune::cuda
