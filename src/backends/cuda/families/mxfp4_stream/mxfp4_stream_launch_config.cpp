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
constexpr std::int64_t slots_ahead = 3;          // of sums, more than stages
constexpr std::int64_t max_stream_stages = 24;
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
  launch.warp_units = std::min(config.number("ku", 3), launch.units);
  launch.warps = ceil_div(launch.units, launch.warp_units);
  launch.weight_rows = features * (launch.interleaved ? 2 : 1);
  launch.strips = launch.weight_rows / strip_rows;
  const StripRows rows(k);
  launch.row_bytes = rows.row_bytes;
  launch.scale_row = rows.scale_row;
  launch.pitch = rows.pitch;
  launch.scale_pitch = rows.scale_pitch;
  launch.stage_bytes = rows.bytes(strip_rows);
  // Of a strip: each warp's, and what the warps know of it.
  const std::int64_t sums = launch.warps * launch.groups * group_bytes + 16 + launch.groups * 32;
  const auto most = static_cast<std::int64_t>(limits.shared_bytes_per_block);
  const std::int64_t budget = (launch.blocks == 2 ? std::min(two_blocks, most) : most) - stream_reserve -
                              (launch.sorts ? gpu::sorted_bytes : 0);
  const std::int64_t stages = (budget - slots_ahead * sums) / (launch.stage_bytes + sums);
  launch.num_stages = std::clamp<std::int64_t>(
      stages, std::min<std::int64_t>(2, (budget - 2 * sums) / (launch.stage_bytes + sums)),
      max_stream_stages);
  launch.num_slots =
      std::min(launch.num_stages + slots_ahead, (budget - launch.num_stages * launch.stage_bytes) / sums);
  launch.shared_bytes = stream_reserve + launch.num_stages * launch.stage_bytes + launch.num_slots * sums;
  return launch;
}

std::string refuse_launch(const StreamLaunch& launch) {
  if (launch.warps > max_warps) return "ku makes more than 15 warps";
  // Registers are those of a quarter of a multiprocessor.
  const std::int64_t of_a_quarter = ceil_div(launch.blocks * (launch.warps + 1), std::int64_t{4});
  const std::int64_t registers = std::min<std::int64_t>(190, 512 / of_a_quarter / 8 * 8);
  const std::int64_t held =
      launch.warp_units * (launch.groups * 8 + 2) + (launch.groups == 1 ? 8 : launch.groups * 4);
  if (held + registers_beside + 5 * (launch.groups - 1) > registers) return "more of x than registers";
  if (launch.num_stages < 2) return "fewer than 2 stages fit into shared memory";
  return {};
}

}  // namespace

StreamLaunches stream_launches(const Problem& problem, const Config& config, const gpu::Limits& limits) {
  return {stream_launch(problem, config, limits, 1), stream_launch(problem, config, limits, 2)};
}

std::vector<Parameter> stream_parameters() {
  Parameter units{.key = "ku", .values = {}, .absent = "3", .meaning = "units of 64 of k that a warp has"};
  for (std::int64_t i = 1; i <= max_warp_units; ++i) units.values.push_back(std::to_string(i));
  std::vector<Parameter> parameters{
      {.key = "bm",
       .values = {"8", "16", "24", "32", "40"},
       .absent = "8",
       .meaning = "block_m: tokens of one expert that share a read of its weight"},
      std::move(units),
      {.key = "smem",
       .values = {"112", "226"},
       .absent = "226",
       .meaning = "KiB of shared memory, which the stages fill: two blocks a multiprocessor, or one"},
      {.key = "sort",
       .values = {"0", "1"},
       .absent = "0",
       .meaning = "1: each block sorts the pairs of token and expert: no kernel before the stages"}};
  return parameters;
}

std::string refuse_stream(const Problem& problem, const StreamLaunches& launches) {
  for (const StreamLaunch& launch : launches) {
    if (std::string refused = refuse_launch(launch); !refused.empty()) return refused;
    if (launch.sorts && routed_pairs(problem) > std::min(gpu::max_sorted_pairs, launch.threads()))
      return "more pairs of token and expert than a block sorts";
  }
  if (launches.front().sorts && problem.moe.shared_experts > 0)
    return "blocks that sort know no shared experts";
  if (launches.front().rows() >= round_up(problem.m, std::int64_t{8}) + 8)
    return "bm leaves eight rows empty";
  return {};
}

Config default_stream_config(const Problem& problem, const gpu::Limits& limits, const StreamCost& cost) {
  gpu::FastestConfig fastest;
  Config config;
  for (const std::int64_t bm : {8, 16, 24, 32, 40}) {
    for (std::int64_t units = 1; units <= max_warp_units; ++units) {
      for (const std::int64_t smem : {226, 112}) {
        config.set("bm", bm);
        config.set("ku", units);
        config.set("smem", smem);
        config.set("sort", std::int64_t{gpu::sorts_in_blocks(problem) ? 1 : 0});
        const StreamLaunches launches = stream_launches(problem, config, limits);
        if (refuse_stream(problem, launches).empty())
          fastest.consider(config, predicted_stream(problem, launches, limits, cost));
      }
    }
  }
  return fastest.config();
}

}  // namespace gemmtune::cuda
