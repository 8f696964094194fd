#include "backends/cuda/families/moe_decode/moe_decode_launch_config.h"

#include <algorithm>
#include <cmath>

#include "backends/cuda/families/hopper.h"
#include "backends/gpu/families/fastest_config.h"
#include "backends/gpu/moe/moe_layer.h"
#include "base/rounding.h"
#include "problem/operands.h"

namespace gemmtune::cuda {
namespace {

constexpr std::int64_t max_decode_stages = 64;
constexpr std::int64_t min_decode_stages = 3;
// Alignment to 128 bytes, entries (moe_decode.cu: Tables, 6176 bytes), two barriers for each stage and two more.
constexpr std::int64_t decode_reserve = 8 * 1024 + 64;
constexpr std::int64_t decode_barrier_lanes = 32;
constexpr std::int64_t decode_registers_beside_x = 84;  // of a thread
constexpr std::int64_t decode_tile_rows = 16;
constexpr std::int64_t decode_gap = 16;  // bytes between rows that are copied one by one

/// Of a thread, with so many warps.
std::int64_t decode_registers(std::int64_t warps) {
  return std::min<std::int64_t>(255, 512 / ceil_div(warps + 2, std::int64_t{4}) / 8 * 8);
}

}  // namespace

MoeDecodeLaunch moe_decode_launch(const Problem& problem, const Config& config, const gpu::Limits& limits) {
  MoeDecodeLaunch launch;
  launch.warps = config.number("warps", 8);
  launch.grid = limits.multiprocessors;
  launch.fp8 = bits(problem.w_type) == 8;
  launch.block_scales = launch.fp8 && operand_shapes(problem).x.scale.columns > 1;
  launch.row_bytes = bytes_of(problem.w_type, problem.k);
  // Slabs of about equal size, in whole units of each warp.
  const std::int64_t atoms = ceil_div(launch.row_bytes, atom_bytes);
  const std::int64_t slabs = ceil_div(launch.row_bytes, config.number("bk", 2048));
  launch.slab = round_up(ceil_div(atoms, slabs), launch.warps);
  launch.steps = ceil_div(atoms, launch.warps);
  launch.groups = ceil_div(problem.n, std::int64_t{problem.moe.gated ? 8 : 16});
  launch.hidden_bytes = bytes_of(problem.w_type, problem.n);
  const std::int64_t hidden_atoms = ceil_div(launch.hidden_bytes, atom_bytes);
  const std::int64_t of_w1 = decode_tile_rows * (launch.slab * atom_bytes + decode_gap);
  const std::int64_t max_atoms = (launch.fp8 || launch.warps > 8 ? 1 : 2) * launch.warps;
  if (hidden_atoms <= max_atoms) {
    launch.hidden_slab = hidden_atoms;
    launch.entries = std::clamp<std::int64_t>(of_w1 / (decode_tile_rows * launch.hidden_bytes), 1,
                                              max_atoms / hidden_atoms);
    launch.stage_bytes = std::max(of_w1, launch.entries * decode_tile_rows * launch.hidden_bytes);
  } else {
    launch.hidden_slab = std::min(max_atoms, std::max(launch.slab, launch.warps));
    launch.entries = 1;
    launch.stage_bytes = std::max(of_w1, decode_tile_rows * (launch.hidden_slab * atom_bytes + decode_gap));
  }
  launch.stage_bytes =
      round_up(launch.stage_bytes + atom_bytes, atom_bytes);  // what is read past a row's end
  launch.tiles = ceil_div(ceil_div(ceil_div(problem.k, std::int64_t{8}), launch.grid), std::int64_t{2});
  const std::int64_t sums = std::max<std::int64_t>(launch.tiles, 2) * launch.warps * 512;
  const std::int64_t budget =
      std::min(config.number("smem", 226) * 1024, static_cast<std::int64_t>(limits.shared_bytes_per_block)) -
      decode_reserve - sums;
  launch.num_stages = std::clamp<std::int64_t>(budget / launch.stage_bytes, 0, max_decode_stages);
  launch.shared_bytes = decode_reserve + sums + launch.num_stages * launch.stage_bytes;
  launch.counters = decode_barrier_lanes + 2 * round_up(launch.grid, decode_barrier_lanes);
  return launch;
}

std::vector<Parameter> moe_decode_parameters() {
  return {Parameter{.key = "warps",
                    .values = {"6", "8", "14"},
                    .absent = "8",
                    .meaning = "consumer warps, which divide k"},
          Parameter{.key = "bk",
                    .values = {"1024", "2048", "4096"},
                    .absent = "2048",
                    .meaning = "block_k: most bytes of a row of w1 in a stage"},
          Parameter{.key = "smem",
                    .values = {"112", "168", "226"},
                    .absent = "226",
                    .meaning = "KiB of shared memory, which the stages fill"}};
}

std::string refuse_moe_decode(const MoeDecodeLaunch& launch) {
  // x, beside it all else; with scales of blocks also those of a stage, as the compiler was found to need.
  const std::int64_t registers = decode_registers(launch.warps);
  const bool fits = launch.block_scales ? launch.steps * 9 + launch.slab / launch.warps * 8 + 80 <=
                                              std::min<std::int64_t>(registers, 216)
                                        : launch.steps * 8 + decode_registers_beside_x <= registers;
  if (!fits) return "more of x than registers";
  if (launch.tiles > 8) return "more rows of w2 than registers";
  if (launch.num_stages < min_decode_stages) return "fewer than 3 stages fit into shared memory";
  return {};
}

double predicted_moe_decode(const Problem& problem, const MoeDecodeLaunch& launch, const gpu::Limits&) {
  constexpr double from_memory = 4.2e6;  // bytes a microsecond
  const double experts = gpu::expected_moe_tiles(problem, max_decode_tokens).experts;
  const double weights = experts * as_real(problem.k * problem.n * (problem.moe.gated ? 3 : 2)) *
                         as_real(bits(problem.w_type)) / 8;
  double total = 5.5 + weights / from_memory;
  // As measured; kernels differ by little. Long rows of fp8 want the registers of eight warps, and a next launch finds room beside blocks with less shared memory.
  const bool long_rows = launch.fp8 && launch.row_bytes > 4096;
  total += launch.warps == 6 ? 0.8 : launch.warps == (long_rows ? 8 : 14) ? 0 : 0.3;
  if (launch.fp8) total += as_real(launch.shared_bytes) / 250e3;
  return total;
}

Config default_moe_decode_config(const Problem& problem, const gpu::Limits& limits) {
  gpu::FastestConfig fastest;
  for (const std::int64_t warps : {14, 8, 6}) {
    for (const std::int64_t bytes : {2048, 4096, 1024}) {
      for (const std::int64_t smem : {226, 168, 112}) {
        Config config;
        config.set("warps", warps);
        config.set("bk", bytes);
        config.set("smem", smem);
        const MoeDecodeLaunch launch = moe_decode_launch(problem, config, limits);
        if (refuse_moe_decode(launch).empty())
          fastest.consider(config, predicted_moe_decode(problem, launch, limits));
      }
    }
  }
  return fastest.config();
}

}  // namespace gemmtune::cuda
