#include "backends/cuda/families/mxfp4_stream/mxfp4_stream_launch_config.h"

#include <algorithm>
#include <utility>

#include "backends/cuda/families/hopper.h"
#include "backends/cuda/families/hopper_strip.h"
#include "backends/cuda/families/mxfp4_stream/mxfp4_stream_cost.h"
#include "backends/gpu/families/fastest_config.h"
#include "backends/gpu/moe/moe_layer.h"
#include "base/rounding.h"
#include "problem/operands.h"

namespace gemmtune::cuda {
namespace {

constexpr std::int64_t max_warps = 15;  // with the one that loads 128 registers a thread
constexpr std::int64_t max_warp_units = 10;
constexpr std::int64_t group_bytes = 512;        // of 16 x 8 sums
constexpr std::int64_t two_blocks = 112 * 1024;  // bytes of shared memory each
constexpr std::int64_t slots_ahead = 2;          // of sums, more than stages and teams
constexpr std::int64_t max_stream_stages = 24;
constexpr std::int64_t max_slab_strips = 8;
constexpr std::int64_t stream_reserve = 1024;  // alignment, barriers
constexpr std::int64_t registers_beside = 30;  // of a thread, beside its part of x, scales and sums

StreamLaunch stream_launch(const Problem& problem, const Config& config, const gpu::Limits& limits,
                           int stage) {
  StreamLaunch launch;
  const std::int64_t k = stage == 2 ? problem.n : problem.k;
  const std::int64_t features = stage == 2 ? problem.k : problem.n;
  launch.stage = stage;
  launch.groups = config.number("bm", 8) / 8;
  launch.blocks = config.number("smem", 226) <= 112 ? 2 : 1;
  launch.interleaved = stage == 1 && problem.moe.gated;
  launch.sorts = config.number("sort", 0) != 0;
  launch.units = k / stream_unit;
  launch.weight = weight_traits(problem);
  launch.warp_units = std::min(config.number("ku", 3), launch.units);
  const std::int64_t team_warps = ceil_div(launch.units, launch.warp_units);
  if (launch.has_teams()) {
    // As many of each warp; of an atom's two units both.
    launch.warp_units =
        std::min(launch.warp_units, round_up(ceil_div(launch.units, team_warps), launch.wide() ? 2 : 1));
    launch.teams = std::max<std::int64_t>(1, config.number("warps", max_warps) / team_warps);
  }
  launch.weight_rows = features * (launch.interleaved ? 2 : 1);
  const StripRows rows(k, launch.weight);
  launch.row_bytes = rows.row_bytes;
  launch.scale_row = rows.scale_row;
  launch.zero_row = rows.zero_row;
  launch.pitch = rows.pitch;
  launch.scale_pitch = rows.scale_pitch;
  launch.zero_pitch = rows.zero_pitch;
  if (launch.has_teams()) {
    const std::int64_t most = config.number("slab", 16) * 1024 / (strip_rows * launch.row_bytes);
    while (launch.strips * 2 <= std::min(most, max_slab_strips) &&
           launch.weight_rows % (launch.strips * 2 * strip_rows) == 0)
      launch.strips *= 2;
  }
  launch.slabs = launch.weight_rows / (launch.strips * strip_rows);
  // Where few experts have several tiles each is computed whole: a tile's tokens are loaded once, and few weights twice.
  constexpr double few_tiles = 1.1;
  const gpu::ExpectedTiles expected = gpu::expected_moe_tiles(problem, launch.rows());
  launch.tiles = expected.tiles;
  launch.chunk =
      expected.tiles <= few_tiles * expected.experts ? launch.slabs : ceil_div(stream_chunk, launch.strips);
  launch.stage_bytes = rows.bytes(launch.strips * strip_rows);
  // Of a slab: each warp's of a team, which one warp alone keeps in registers, and what the warps know of it.
  const std::int64_t sums = (team_warps > 1 ? team_warps * launch.strips * launch.groups * group_bytes : 0) +
                            16 + launch.groups * 32;
  const auto most = static_cast<std::int64_t>(limits.shared_bytes_per_block);
  const std::int64_t budget = (launch.blocks == 2 ? std::min(two_blocks, most) : most) - stream_reserve -
                              (launch.sorts ? gpu::sorted_bytes : 0);
  // A team waits for its slab before, which its warps have read, when it has read another one: in another stage, so that the parity of a barrier's phase
  // says enough. With one stage a team it would wait for ever.
  const auto stages_of = [&](std::int64_t teams, std::int64_t ahead) {
    return (budget - (ahead + teams) * sums) / (launch.stage_bytes + sums);
  };
  const std::int64_t team_stages = team_warps > 1 ? 2 : 1;
  while (launch.teams > 1 && stages_of(launch.teams, slots_ahead) < team_stages * launch.teams)
    --launch.teams;
  launch.warps = launch.teams * team_warps;
  // A third stage of long rows is worth more than slots: two are one that loads and one that is read.
  const std::int64_t ahead = stages_of(launch.teams, slots_ahead) < 3 * launch.teams ? 0 : slots_ahead;
  launch.num_stages =
      std::clamp<std::int64_t>(stages_of(launch.teams, ahead),
                               std::min<std::int64_t>(2, (budget - 2 * sums) / (launch.stage_bytes + sums)),
                               std::max(max_stream_stages, 2 * launch.teams));
  // What lay in a stage before is of the same team.
  launch.num_stages -= launch.num_stages % launch.teams;
  launch.num_slots = std::min(launch.num_stages + slots_ahead + launch.teams,
                              (budget - launch.num_stages * launch.stage_bytes) / sums);
  launch.shared_bytes = stream_reserve + launch.num_stages * launch.stage_bytes + launch.num_slots * sums;
  return launch;
}

/// Registers of a thread, as the compiler was found to need: x, beside it scales, factors of groups and sums.
std::int64_t stream_registers(const StreamLaunch& launch) {
  const std::int64_t x = launch.warp_units * launch.groups * 8;
  if (launch.weight.format == WeightFormat::mxfp4)
    return x + launch.warp_units * 2 + (launch.groups == 1 ? 8 : launch.groups * 4) + registers_beside +
           5 * (launch.groups - 1);
  const std::int64_t of_tokens = launch.groups > 2 ? 20 + 10 * (launch.groups - 3) : 0;
  if (launch.weight.format == WeightFormat::nvfp4) return x + (launch.groups == 1 ? 56 : 62) + of_tokens;
  const bool one = launch.groups == 1;
  std::int64_t of_int4 = one ? 74 : 92;
  if (launch.weight.group == 64) of_int4 = 92;
  if (launch.weight.group == 32) of_int4 = one ? 60 : 74;
  if (one && launch.wide() && launch.strips == 1) of_int4 = 64;
  const std::int64_t of_zero_points =
      launch.zero_row == 0 ? 0 : launch.groups * (launch.weight.group == 32 ? 8 : 28);
  return x + of_int4 + of_tokens + of_zero_points;
}

std::string refuse_launch(const StreamLaunch& launch) {
  if (launch.warps > max_warps) return "ku makes more than 15 warps";
  // Registers are those of a quarter of a multiprocessor.
  const std::int64_t of_a_quarter = ceil_div(launch.blocks * (launch.warps + 1), std::int64_t{4});
  const std::int64_t registers = std::min<std::int64_t>(190, 512 / of_a_quarter / 8 * 8);
  if (stream_registers(launch) > registers) return "more of x than registers";
  if (launch.num_stages < 2) return "fewer than 2 stages, or one a team, fit into shared memory";
  if (launch.num_slots <= launch.teams) return "more teams than shared memory has sums for";
  return {};
}

}  // namespace

StreamLaunches stream_launches(const Problem& problem, const Config& config, const gpu::Limits& limits) {
  return {stream_launch(problem, config, limits, 1), stream_launch(problem, config, limits, 2)};
}

std::vector<Parameter> stream_parameters(const Problem& problem) {
  Parameter units{"ku", {}, "3", "units of 64 of k that a warp has"};
  for (std::int64_t i = 1; i <= max_warp_units; ++i) units.values.push_back(std::to_string(i));
  std::vector<Parameter> parameters{
      {"bm",
       {"8", "16", "24", "32", "40"},
       "8",
       "block_m: tokens of one expert that share a read of its weight"},
      std::move(units),
      {"smem",
       {"112", "226"},
       "226",
       "KiB of shared memory, which the stages fill: two blocks a multiprocessor, or one"},
      {"sort",
       {"0", "1"},
       "0",
       "1: each block sorts the pairs of token and expert: no kernel before the stages"}};
  if (weight_traits(problem).format != WeightFormat::mxfp4) {
    parameters.push_back({"warps",
                          {"8", "11", "15"},
                          "15",
                          "that multiply, at most: as many teams as fit, each of other slabs"});
    parameters.push_back({"slab",
                          {"4", "8", "16", "32"},
                          "16",
                          "KiB of the weight in a stage, at most, but 16 rows at least"});
  }
  return parameters;
}

std::string refuse_stream(const Problem& problem, const StreamLaunches& launches) {
  for (const StreamLaunch& launch : launches) {
    if (std::string refused = refuse_launch(launch); !refused.empty()) return refused;
    if (!launch.sorts) continue;
    if (std::string refused =
            gpu::refuse_sort(problem, launch.threads(), launch.num_stages * launch.stage_bytes);
        !refused.empty())
      return refused;
  }
  if (launches.front().rows() >= round_up(problem.m, std::int64_t{8}) + 8)
    return "bm leaves eight rows empty";
  return {};
}

bool runs_stream_untuned(const Problem& problem) {
  if (weight_quantization(problem) == QuantType::per_1x32) return true;
  // Of more tokens for each expert wgmma_moe is faster (docs/lab/mxfp4_stream.md).
  constexpr std::int64_t max_halves_of_tokens = 11;
  return 2 * routed_pairs(problem) <= max_halves_of_tokens * problem.moe.experts;
}

Config default_stream_config(const Problem& problem, const gpu::Limits& limits, const StreamCost& cost) {
  gpu::FastestConfig fastest;
  Config config;
  using Values = std::vector<std::int64_t>;
  const bool teams = weight_traits(problem).format != WeightFormat::mxfp4;
  const Values all_warps = teams ? Values{15, 11, 8} : Values{0},
               slabs = teams ? Values{16, 8, 32, 4} : Values{0};
  for (const std::int64_t bm : {8, 16, 24, 32, 40}) {
    for (std::int64_t units = 1; units <= max_warp_units; ++units) {
      for (const std::int64_t smem : {226, 112}) {
        for (const std::int64_t warps : all_warps) {
          for (const std::int64_t slab : slabs) {
            for (const std::int64_t sort : {1, 0}) {
              config.set("bm", bm);
              config.set("ku", units);
              config.set("smem", smem);
              config.set("sort", sort);
              if (teams) config.set("warps", warps);
              if (teams) config.set("slab", slab);
              const StreamLaunches launches = stream_launches(problem, config, limits);
              if (refuse_stream(problem, launches).empty())
                fastest.consider(config, predicted_stream(problem, launches, limits, cost));
            }
          }
        }
      }
    }
  }
  return fastest.config();
}

}  // namespace gemmtune::cuda
