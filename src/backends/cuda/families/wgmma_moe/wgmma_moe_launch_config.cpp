#include "backends/cuda/families/wgmma_moe/wgmma_moe_launch_config.h"

#include <algorithm>
#include <cmath>

#include "backends/gpu/moe/moe_layer.h"
#include "base/rounding.h"
#include "problem/operands.h"

namespace gemmtune::cuda {
namespace {

constexpr std::int64_t max_moe_stages = 24;
constexpr std::int64_t min_moe_stages = 3;
constexpr std::int64_t instruction_rows = 64;
constexpr std::int64_t kibibyte = 1024;
constexpr std::int64_t accumulators =
    256;  // tokens of a tile times instructions of a warp group, halved: registers

double as_real(std::int64_t value) { return static_cast<double>(value); }

}  // namespace

bool WgmmaMoeStage::reallocates_registers() const {
  return warpgroups == 2 && promoted && mma_tiles() * tokens >= 192;
}

std::array<WgmmaMoeStage, 2> wgmma_moe_stages(const Problem& problem, const Config& config,
                                              const HopperLimits& limits) {
  const std::int64_t element = bits(problem.w_type) / 8;
  const bool small = config.number("smem", 226) <= 112;
  std::array<WgmmaMoeStage, 2> stages;
  for (const int number : {1, 2}) {
    WgmmaMoeStage& stage = stages[static_cast<std::size_t>(number) - 1];
    stage.stage = number;
    stage.tokens = config.number("bm", 16);
    stage.rows = config.number(number == 1 ? "bn" : "bn2", 128);
    stage.warpgroups = std::clamp<std::int64_t>(config.number("wg", 1), 1, stage.rows / instruction_rows);
    stage.k_atoms = k_atoms_of(config, problem.w_type);
    stage.blocks_per_multiprocessor = small ? 2 : 1;
    stage.interleaved = number == 1 && problem.moe.gated;
    stage.promoted = accumulates_fewer_bits(problem.w_type);
    stage.k_bytes = (number == 1 ? problem.k : problem.n) * element;
    stage.k_tiles = ceil_div(stage.k_bytes, stage.k_atoms * atom_bytes);
    stage.columns = number == 1 ? problem.n : problem.k;
    stage.weight_rows = stage.columns * (stage.interleaved ? 2 : 1);
    stage.column_tiles = ceil_div(stage.weight_rows, stage.rows);
    stage.stage_bytes = stage.k_atoms * (stage.rows + stage.tokens) * atom_bytes;
    const std::int64_t staged = stage.tokens % 32 == 0 ? 32 : 16;
    const std::int64_t staging = stage.warpgroups * staged * ((stage.interleaved ? 32 : 64) * 2 + 16);
    // A stage has scales of its tokens where these change with k.
    const bool block_scales = scales_by_block(problem);
    const std::int64_t scales = block_scales ? stage.k_atoms * stage.tokens * 4 : 0;
    const auto most = static_cast<std::int64_t>(limits.shared_bytes_per_block);
    const std::int64_t budget = std::min(small ? 112 * kibibyte : most, most) - shared_reserve - staging;
    stage.num_stages = std::clamp<std::int64_t>(budget / (stage.stage_bytes + scales), 0, max_moe_stages);
    stage.storage_bytes = round_up(stage.num_stages * (stage.stage_bytes + scales) + staging, 16);
    stage.shared_bytes = stage.storage_bytes + shared_reserve;
  }
  return stages;
}

bool scales_by_block(const Problem& problem) {
  const QuantType type = quantization(problem);
  return type == QuantType::per_1x128 || type == QuantType::per_128x128;
}

std::vector<Parameter> wgmma_moe_parameters(DataType element) {
  return {Parameter{.key = "bm",
                    .values = {"16", "32", "64", "96", "128", "256"},
                    .absent = "16",
                    .meaning = "block_m: tokens of one expert in a tile"},
          Parameter{.key = "bn",
                    .values = {"64", "128", "256"},
                    .absent = "128",
                    .meaning = "block_n: rows of w1 in a tile, of a gated one half of them of the gate"},
          Parameter{.key = "bn2",
                    .values = {"64", "128", "256"},
                    .absent = "128",
                    .meaning = "block_n of the second stage: rows of w2 in a tile"},
          Parameter{.key = "wg",
                    .values = {"1", "2"},
                    .absent = "1",
                    .meaning = "consumer warp groups, at most one for 64 rows of a tile"},
          block_k_parameter(element, {1, 2}),
          Parameter{
              .key = "smem",
              .values = {"112", "226"},
              .absent = "226",
              .meaning = "KiB of shared memory, which the stages fill: two blocks a multiprocessor, or one"}};
}

std::string refuse_wgmma_moe(const WgmmaMoeStage& stage) {
  if (stage.mma_tiles() * stage.tokens > accumulators) return "more accumulators than registers";
  if (stage.blocks_per_multiprocessor == 2 &&
      (stage.warpgroups > 1 || stage.mma_tiles() * stage.tokens > (stage.promoted ? 32 : 128)))
    return "two blocks of a multiprocessor have too few registers";
  if (stage.promoted && (stage.mma_tiles() * stage.tokens > 256 || stage.tokens > 128))
    return "more partial sums than registers";
  if (stage.num_stages < min_moe_stages) return "fewer than 3 stages fit into shared memory";
  return {};
}

double predicted_wgmma_moe(const Problem& problem, const std::array<WgmmaMoeStage, 2>& stages,
                           const HopperLimits& limits) {
  constexpr double bytes_per_microsecond = 4.3e6;  // of device memory
  constexpr double l2_bytes_per_microsecond = 5.5e6;
  constexpr double multiprocessor_bytes = 62e3;  // per microsecond, into one
  constexpr double clock = 1.7e3;                // cycles per microsecond
  const double processors = limits.multiprocessors;
  const double element = bits(problem.w_type) / 8.0;
  double total = 8;  // sort, sum and launches
  for (const WgmmaMoeStage& stage : stages) {
    const gpu::ExpectedTiles work = gpu::expected_moe_tiles(problem, stage.tokens);
    const double items = work.tiles * as_real(stage.column_tiles);
    const double at_once = processors * as_real(stage.blocks_per_multiprocessor);
    const double waves = std::ceil(items / at_once);
    const double k_tiles = as_real(stage.k_tiles);
    // An instruction of 64 rows x n x 32 bytes takes n / 8 cycles of a multiprocessor's four tensor cores, twice where both operands change.
    const double products = as_real(stage.k_atoms * 4 * (stage.rows / 64)) *
                            std::max(16.0, as_real(stage.tokens) / 2) * (stage.promoted ? 1.5 : 1.0) *
                            as_real(stage.blocks_per_multiprocessor) / clock;
    const double loads = as_real(stage.stage_bytes * stage.blocks_per_multiprocessor) / multiprocessor_bytes;
    const double latency = 1.0 / std::max(1.0, as_real(stage.num_stages) - 1);
    const double busy = waves * (k_tiles * std::max({products, loads, latency}) + 0.6 +
                                 as_real(stage.tokens * stage.rows) / 40e3);
    const double weights = work.experts * as_real(stage.weight_rows * stage.k_bytes);
    const double results = as_real(routed_pairs(problem) * stage.columns) * 2;
    const double l2 = items * k_tiles * as_real(stage.stage_bytes) / l2_bytes_per_microsecond;
    total += std::max({busy, (weights + results) / bytes_per_microsecond, l2}) + element;
  }
  return total + as_real(routed_pairs(problem) * problem.k) * 4 / bytes_per_microsecond;
}

Config default_wgmma_moe_config(const Problem& problem, const HopperLimits& limits) {
  Config best;
  double least = 0;
  for (const std::int64_t tokens : {16, 32, 64, 128}) {
    for (const std::int64_t rows : {64, 128, 256}) {
      for (const std::int64_t rows2 : {64, 128, 256}) {
        Config config;
        config.set("bm", tokens);
        config.set("bn", rows);
        config.set("bn2", rows2);
        config.set("wg", std::int64_t{std::min(rows, rows2) > 64 ? 2 : 1});
        config.set("bk", block_k_of(problem.w_type, tokens <= 32 && std::max(rows, rows2) <= 128 ? 2 : 1));
        config.set("smem", std::int64_t{226});
        const auto stages = wgmma_moe_stages(problem, config, limits);
        if (!refuse_wgmma_moe(stages[0]).empty() || !refuse_wgmma_moe(stages[1]).empty()) continue;
        const double time = predicted_wgmma_moe(problem, stages, limits);
        if (least != 0 && time >= least) continue;
        least = time;
        best = config;
      }
    }
  }
  return best;
}

}  // namespace gemmtune::cuda
