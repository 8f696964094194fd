#include "backends/cuda/families/moe_decode/moe_decode_launch_config.h"

#include <algorithm>

#include "backends/cuda/families/hopper.h"
#include "backends/cuda/families/hopper_strip.h"
#include "backends/cuda/families/moe_decode/moe_decode_cost.h"
#include "backends/gpu/families/fastest_config.h"
#include "base/rounding.h"
#include "problem/operands.h"

namespace gemmtune::cuda {
namespace {

constexpr std::int64_t max_decode_stages = 64;
constexpr std::int64_t min_decode_stages = 3;
// Alignment to 128 bytes, entries (moe_decode.cu: Tables, 6176 bytes), two barriers for each stage and two more.
constexpr std::int64_t decode_reserve = 8 * 1024 + 64;
constexpr std::int64_t decode_registers_beside_x = 84;  // of a thread
constexpr std::int64_t strip_atom_bytes = 32;           // of a row of 4-bit elements: 64 of k
constexpr std::int64_t global_bytes =
    2 * max_decode_pairs * 4;  // of NVFP4, of each entry (moe_decode_producer.cuh)
constexpr std::int64_t decode_tile_rows = 16;
constexpr std::int64_t decode_gap = 16;  // bytes between rows that are copied one by one

/// Of a thread, with so many warps.
std::int64_t decode_registers(std::int64_t warps) {
  if (warps == 16) return 112;  // of which the producer's warp group gave some
  return std::min<std::int64_t>(255, 512 / ceil_div(warps + 2, std::int64_t{4}) / 8 * 8);
}

/// Registers of a thread, as the compiler was found to need: for x and scales or, in the second product, the hidden layer of two entries, scales and sums.
std::int64_t strip_registers(const MoeDecodeLaunch& launch) {
  const bool int4 = launch.weight.format == WeightFormat::int4;
  std::int64_t of_x = launch.steps * 9 + 70;
  if (launch.weight.format == WeightFormat::mxfp4)
    of_x = launch.steps * 10 + 48;
  else if (launch.weight.group == 32)
    of_x = launch.steps * 8 + (launch.teams > 1 ? 60 : 48);
  else if (!int4 && launch.teams > 1)
    of_x = launch.steps * 8 + 60;
  const std::int64_t of_hidden =
      launch.hidden_steps * (launch.hidden_ahead() ? 26 : 18) + launch.tiles * 4 + 8;
  // Beside the hidden layer, factors of groups; most with biases.
  const bool most = launch.hidden_steps > 7;
  std::int64_t of_groups = !int4 ? 0 : most ? 32 : 12;
  if (launch.weight.zero_points) of_groups = most ? 36 : 20;
  if (launch.weight.group == 32 && !launch.hidden_ahead()) of_groups = 28;
  return std::max(of_x, of_hidden + of_groups);
}

/// As many as have a warp for every atom of k, at most four, and a multiple of the first product's.
std::int64_t hidden_teams_of(const MoeDecodeLaunch& launch, std::int64_t hidden_atoms) {
  constexpr std::int64_t max_teams = 4;
  for (std::int64_t teams = max_teams; teams > launch.teams; --teams)
    if (teams % launch.teams == 0 && launch.warps % teams == 0 && launch.warps / teams >= hidden_atoms)
      return teams;
  return launch.teams;
}

/// Atoms of x of a thread of 16 warps: before registers change hands x has those of 20 warps.
std::int64_t max_steps_of_16_warps(const MoeDecodeLaunch& launch) {
  switch (launch.weight.format) {
    case WeightFormat::mxfp4:
      return launch.hidden_slab == 3 * launch.warps ? 2 : 3;
    case WeightFormat::nvfp4:
      return launch.teams > 1 ? 3 : 5;
    case WeightFormat::int4:
      return 2;
  }
  return 0;
}

/// Values of `warps`, from the largest.
std::vector<std::int64_t> strip_warps(const Problem& problem) {
  std::vector<std::int64_t> warps{16, 15, 12, 9};
  if (weight_quantization(problem) != QuantType::per_1x32) warps.push_back(6);
  return warps;
}

}  // namespace

MoeDecodeLaunch moe_decode_launch(const Problem& problem, const Config& config, const gpu::Limits& limits) {
  MoeDecodeLaunch launch;
  launch.strips = has_weight_format(problem);
  if (launch.strips) launch.weight = weight_traits(problem);
  launch.warps = config.number("warps", launch.strips ? 15 : 8);
  launch.teams = config.number("teams", 1);
  launch.grid = limits.multiprocessors;
  launch.fp8 = bits(problem.w_type) == 8;
  launch.block_scales = launch.fp8 && operand_shapes(problem).x.scale.columns > 1;
  launch.row_bytes = bytes_of(problem.w_type, problem.k);
  // Slabs of about equal size, in whole units of each warp.
  const std::int64_t w_atom_bytes = launch.strips ? strip_atom_bytes : atom_bytes;
  const std::int64_t atoms = ceil_div(launch.row_bytes, w_atom_bytes);
  const std::int64_t slabs = launch.strips ? 1 : ceil_div(launch.row_bytes, config.number("bk", 2048));
  const std::int64_t team_warps = std::max<std::int64_t>(1, launch.warps / launch.teams);
  launch.slab = round_up(ceil_div(atoms, slabs), team_warps);
  launch.steps = ceil_div(atoms, team_warps);
  launch.groups = ceil_div(problem.n, std::int64_t{problem.moe.gated ? 8 : 16});
  launch.hidden_bytes = bytes_of(problem.w_type, problem.n);
  const std::int64_t hidden_atoms = ceil_div(launch.hidden_bytes, w_atom_bytes);
  launch.hidden_teams = launch.strips ? hidden_teams_of(launch, hidden_atoms) : 1;
  launch.hidden_steps = ceil_div(hidden_atoms, launch.warps / launch.hidden_teams);
  const std::int64_t of_w1 = decode_tile_rows * (launch.slab * atom_bytes + decode_gap);
  const std::int64_t max_atoms = (launch.fp8 || launch.warps > 8 ? 1 : 2) * launch.warps;
  if (launch.strips) {
    launch.hidden_slab = hidden_atoms;
    launch.entries = 1;
    launch.slots = std::max<std::int64_t>(4, 2 * launch.teams);  // a strip is short beside the sum over warps
    // Of w2 all rows that the block has.
    const std::int64_t rows = ceil_div(ceil_div(problem.k, std::int64_t{8}), launch.grid) * 8;
    launch.stage_bytes = std::max(StripRows(problem.k, launch.weight).bytes(decode_tile_rows),
                                  StripRows(problem.n, launch.weight).bytes(rows));
  } else if (hidden_atoms <= max_atoms) {
    launch.hidden_slab = hidden_atoms;
    launch.entries = std::clamp<std::int64_t>(of_w1 / (decode_tile_rows * launch.hidden_bytes), 1,
                                              max_atoms / hidden_atoms);
    launch.stage_bytes = std::max(of_w1, launch.entries * decode_tile_rows * launch.hidden_bytes);
  } else {
    launch.hidden_slab = std::min(max_atoms, std::max(launch.slab, launch.warps));
    launch.entries = 1;
    launch.stage_bytes = std::max(of_w1, decode_tile_rows * (launch.hidden_slab * atom_bytes + decode_gap));
  }
  if (!launch.strips)
    launch.stage_bytes =
        round_up(launch.stage_bytes + atom_bytes, atom_bytes);  // what is read past a row's end
  launch.tiles = ceil_div(ceil_div(ceil_div(problem.k, std::int64_t{8}), launch.grid), std::int64_t{2});
  // Of 16 rows by eight tokens: of each warp, and biases.
  const std::int64_t sums =
      (std::max(launch.tiles * launch.warps, launch.slots * team_warps) + (problem.bias ? launch.tiles : 0)) *
          512 +
      (launch.weight.format == WeightFormat::nvfp4 ? global_bytes : 0);
  const std::int64_t budget =
      std::min(config.number("smem", 226) * 1024, static_cast<std::int64_t>(limits.shared_bytes_per_block)) -
      decode_reserve - sums;
  launch.num_stages = std::clamp<std::int64_t>(budget / launch.stage_bytes, 0, max_decode_stages);
  // What was in a stage before is of the same team (moe_decode_producer.cuh).
  launch.num_stages -= launch.num_stages % launch.hidden_teams;
  launch.shared_bytes = decode_reserve + sums + launch.num_stages * launch.stage_bytes;
  launch.counters = grid_barrier_words(launch.grid);
  return launch;
}

std::vector<Parameter> moe_decode_parameters(const Problem& problem) {
  const bool strips = has_weight_format(problem);
  Parameter warps{"warps", {"6", "8", "14"}, strips ? "15" : "8", "consumer warps, which divide k"};
  if (strips) {
    warps.values.clear();
    for (const std::int64_t count : strip_warps(problem))
      warps.values.insert(warps.values.begin(), std::to_string(count));
  }
  std::vector<Parameter> parameters{std::move(warps)};
  if (strips)
    parameters.push_back(
        {"teams", {"1", "2", "3"}, "1", "that the warps are divided into, each of other rows and experts"});
  if (!strips)
    parameters.push_back(
        {"bk", {"1024", "2048", "4096"}, "2048", "block_k: most bytes of a row of w1 in a stage"});
  parameters.push_back(pipeline_parameter(strips ? std::vector<std::string>{"112", "144", "168", "226"}
                                                 : std::vector<std::string>{"112", "168", "226"},
                                          "226", 64));
  return parameters;
}

std::string refuse_moe_decode(const MoeDecodeLaunch& launch) {
  if (launch.warps % launch.teams != 0)
    return fmt::format("{} warps are not {} teams", launch.warps, launch.teams);
  if (launch.groups < launch.teams)
    return fmt::format("{} groups of rows are fewer than {} teams", launch.groups, launch.teams);
  // x, beside it all else; with scales of blocks also those of a stage, as the compiler was found to need.
  const std::int64_t registers = decode_registers(launch.warps);
  const bool fits = launch.strips         ? strip_registers(launch) <= registers
                    : launch.block_scales ? launch.steps * 9 + launch.slab / launch.warps * 8 + 80 <=
                                                std::min<std::int64_t>(registers, 216)
                                          : launch.steps * 8 + decode_registers_beside_x <= registers;
  if (!fits || (launch.warps == 16 && launch.steps > max_steps_of_16_warps(launch)))
    return "more of x than registers";
  if (launch.tiles > 8) return "more rows of w2 than registers";
  if (launch.num_stages < (launch.strips ? 2 : min_decode_stages))
    return fmt::format("fewer than {} stages fit into shared memory", launch.strips ? 2 : min_decode_stages);
  return {};
}

bool runs_decode_untuned(const Problem& problem) {
  // mxfp4_stream is faster from there on, and does not take every NVFP4 and int4 layer of a larger K (docs/lab/mxfp4_stream.md).
  constexpr std::int64_t max_mxfp4_tokens = 2, max_tokens = 5, surely_streamed_k = 4096;
  if (weight_quantization(problem) == QuantType::per_1x32) return problem.m <= max_mxfp4_tokens;
  return !has_weight_format(problem) || problem.k > surely_streamed_k || problem.m <= max_tokens;
}

Config default_moe_decode_config(const Problem& problem, const gpu::Limits& limits,
                                 const MoeDecodeCost& cost) {
  gpu::FastestConfig fastest;
  using Values = std::vector<std::int64_t>;
  const bool strips = has_weight_format(problem);
  for (const std::int64_t warps : strips ? strip_warps(problem) : Values{14, 8, 6}) {
    for (const std::int64_t bytes : strips ? Values{0} : Values{2048, 4096, 1024}) {
      for (const std::int64_t teams : strips ? Values{1, 2, 3} : Values{1}) {
        for (const std::int64_t smem : strips ? Values{226, 168, 144, 112} : Values{226, 168, 112}) {
          Config config;
          config.set("warps", warps);
          if (strips) config.set("teams", teams);
          if (!strips) config.set("bk", bytes);
          config.set("smem", smem);
          const MoeDecodeLaunch launch = moe_decode_launch(problem, config, limits);
          if (refuse_moe_decode(launch).empty())
            fastest.consider(config, predicted_moe_decode(problem, launch, cost));
        }
      }
    }
  }
  return fastest.config();
}

}  // namespace gemmtune::cuda
