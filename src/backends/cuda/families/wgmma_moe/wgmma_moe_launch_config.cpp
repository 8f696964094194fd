#include "backends/cuda/families/wgmma_moe/wgmma_moe_launch_config.h"

#include <algorithm>

#include "backends/cuda/families/wgmma_moe/wgmma_moe_cost.h"
#include "backends/gpu/families/fastest_config.h"
#include "backends/gpu/moe/moe_layer.h"
#include "base/rounding.h"
#include "problem/operands.h"

namespace gemmtune::cuda {
namespace {

constexpr std::int64_t max_moe_stages = 24;
constexpr std::int64_t min_moe_stages = 3;
constexpr std::int64_t instruction_rows = 64;
constexpr std::int64_t min_quantized_tokens = 64;  // of a tile that quantizes the hidden layer
constexpr std::int64_t fp4_block_k = 256;          // of a weight of 4 bits: 128 bytes
constexpr std::int64_t min_scaled_tokens = 16;     // an expert, in groups of 128
constexpr std::int64_t kibibyte = 1024;
constexpr std::int64_t moe_items = 32;  // ITEM_SLOTS
// Alignment of the pipeline, of items the work and a barrier with an index, and of each stage two barriers.
constexpr std::int64_t moe_reserve = 1024 + moe_items * (32 + 16) + max_moe_stages * 16;
static_assert(moe_items >= max_moe_stages + 2, "the producer is at most the stages ahead");

}  // namespace

bool WgmmaMoeStage::reallocates_registers() const {
  const std::int64_t held = mma_tiles() * tokens / 2;
  if (fp4) return warpgroups == 4 && tokens > 16 && !sorts;
  // Of fp8 partial sums and scales of the tokens too.
  return warpgroups == 2 && held + (promoted ? tokens / 2 + tokens / 4 : 0) > 128;
}

std::int64_t WgmmaMoeStage::min_width() const {
  // Narrower than half a tile the weight's rows take longer to load than to multiply.
  return round_up(ceil_div(tokens, std::int64_t{2}), width_step);
}

std::int64_t WgmmaMoeStage::staged_tokens() const {
  if (fp4 && warpgroups == 4 && stage == 1) return 16;  // no registers for more beside biases
  const std::int64_t most = promoted ? 32 : tokens > 160 ? 16 : 64;
  for (const std::int64_t count : {64, 48, 32})
    if (count <= most && tokens % count == 0) return count;
  return 16;
}

std::int64_t WgmmaMoeStage::producer_registers() const {
  if (!reallocates_registers()) return 0;
  if (fp4) return 32;  // a thread that loads
  return mma_tiles() * tokens / 2 + (promoted ? tokens / 2 : 0) > 160 ? 56 : 72;
}

std::int64_t WgmmaMoeStage::consumer_registers() const {
  if (!reallocates_registers()) return 0;
  return (registers_at_start() - 128 * producer_registers()) / (128 * warpgroups) / 8 * 8;
}

std::array<WgmmaMoeStage, 2> wgmma_moe_stages(const Problem& problem, const Config& config,
                                              const HopperLimits& limits) {
  const bool fp4 = has_weight_format(problem);
  const std::int64_t element = fp4 ? 2 : bits(problem.x_type) / 8;
  const bool small = config.number("smem", 226) <= 112;
  std::array<WgmmaMoeStage, 2> stages;
  for (const int number : {1, 2}) {
    WgmmaMoeStage& stage = stages[static_cast<std::size_t>(number) - 1];
    stage.stage = number;
    stage.tokens = config.number("bm", 16);
    stage.rows = config.number(number == 1 ? "bn" : "bo", 128);
    // At most one for each instruction's rows, of which all have the same number.
    stage.warpgroups = std::clamp<std::int64_t>(config.number("wg", 1), 1, stage.rows / instruction_rows);
    while (stage.rows / instruction_rows % stage.warpgroups != 0) --stage.warpgroups;
    stage.cluster = std::max<std::int64_t>(1, config.number("cm", 1));
    stage.fp4 = fp4;
    if (fp4) stage.weight = weight_traits(problem);
    stage.scaled = config.number("scaled", 0) != 0;
    stage.sorts = config.number("sort", 0) != 0;
    stage.k_atoms = fp4 ? fp4_block_k / 64 : k_atoms_of(config, problem.w_type);
    stage.blocks_per_multiprocessor = small ? 2 : 1;
    stage.interleaved = number == 1 && problem.moe.gated;
    stage.promoted = accumulates_fewer_bits(problem.w_type);
    const std::int64_t k = number == 1 ? problem.k : problem.n;
    stage.weight_row_bytes = bytes_of(problem.w_type, k);
    stage.k_bytes = (fp4 ? round_up(k, fp4_unit) : k) * element;
    stage.k_tiles = ceil_div(stage.k_bytes, stage.k_atoms * atom_bytes);
    const std::int64_t features = number == 1 ? problem.n : problem.k;
    stage.columns = number == 1 && fp4 ? round_up(features, fp4_unit) : features;
    stage.weight_rows = features * (stage.interleaved ? 2 : 1);
    stage.column_tiles = ceil_div(stage.columns * (stage.interleaved ? 2 : 1), stage.rows);
    stage.stage_bytes = ((fp4 ? 1 : stage.k_atoms) * stage.rows + stage.k_atoms * stage.tokens) * atom_bytes;
    // A stage has scales of its tokens and of each 8 rows where these change with k.
    const bool block_scales = scales_by_block(problem);
    const std::int64_t scales = block_scales ? stage.k_atoms * (stage.tokens + stage.rows / 8) * 4 : 0;
    const auto most = static_cast<std::int64_t>(limits.shared_bytes_per_block);
    // Each of two warp groups has 64 of a group's columns. They pass each other the largest magnitude of each token, of two tiles.
    stage.quantizes = number == 1 && stage.promoted && block_scales && stage.tokens >= min_quantized_tokens &&
                      stage.warpgroups == 2 && problem.n % scale_block == 0 &&
                      stage.rows == scale_block * (stage.interleaved ? 2 : 1);
    const std::int64_t budget = std::min(small ? 112 * kibibyte : most, most) - moe_reserve -
                                (stage.sorts ? gpu::sorted_bytes : 0) -
                                (stage.quantizes ? 2 * 2 * stage.tokens * 4 : 0);
    const std::int64_t warpgroup_staging =
        stage.quantizes ? stage.tokens * 64 * 2 : stage.staged_tokens() * (stage.interleaved ? 32 : 64) * 2;
    // Of a weight of 4 bits the output is staged in the tile's last stage.
    const std::int64_t staging = fp4 ? 0 : stage.warpgroups * warpgroup_staging;
    stage.num_stages =
        std::clamp<std::int64_t>((budget - staging) / (stage.stage_bytes + scales), 0, max_moe_stages);
    stage.storage_bytes = round_up(stage.num_stages * (stage.stage_bytes + scales) + staging, 16);
    stage.shared_bytes = stage.storage_bytes + moe_reserve;
  }
  return stages;
}

bool scales_by_block(const Problem& problem) {
  const QuantType type = quantization(problem);
  return type == QuantType::per_1x128 || type == QuantType::per_128x128;
}

std::vector<Parameter> wgmma_moe_parameters(const Problem& problem) {
  const bool fp4 = bits(problem.w_type) == 4;
  return {
      Parameter{"bm",
                {"16", "32", "48", "64", "96", "128", "144", "160", "192", "256"},
                "16",
                "block_m: tokens of one expert in a tile"},
      Parameter{"bn",
                {"64", "128", "256"},
                "128",
                "block_n: rows of w1 in a tile, of a gated one half of them of the gate"},
      Parameter{"bo",
                fp4 ? std::vector<std::string>{"64", "128", "192", "256"}
                    : std::vector<std::string>{"64", "128", "256"},
                "128", "block_n of the second stage: columns of its output, rows of w2, in a tile"},
      Parameter{"wg", fp4 ? std::vector<std::string>{"1", "2", "4"} : std::vector<std::string>{"1", "2"}, "1",
                "consumer warp groups, at most one for 64 rows of a tile"},
      Parameter{
          "cm", {"1", "2"}, "1", "cluster_m: blocks of bm tokens each that share the weight by multicast"},
      fp4 ? Parameter{"bk",
                      {std::to_string(fp4_block_k)},
                      std::to_string(fp4_block_k),
                      "block_k: elements of k in a stage"}
          : block_k_parameter(problem.w_type, {1, 2}),
      Parameter{"smem",
                {"112", "226"},
                "226",
                "KiB of shared memory, which the stages fill: two blocks a multiprocessor, or one"},
      Parameter{"sort",
                {"0", "1"},
                "0",
                "1: each block sorts the pairs of token and expert: no kernel before the stages"},
      scaled_parameter(problem)};
}

namespace {

/// Of a thread beside what decodes a weight of 4 bits: fragments in two buffers, with four warp groups or two blocks in one.
std::int64_t fp4_accumulators(const WgmmaMoeStage& stage) {
  const std::int64_t resident = stage.threads() * stage.blocks_per_multiprocessor;
  if (stage.reallocates_registers()) return (stage.consumer_registers() - 64) / 2;
  if (stage.warpgroups == 4) return 8;
  const std::int64_t registers = std::min<std::int64_t>(255, registers_per_multiprocessor / resident / 8 * 8);
  if (stage.blocks_per_multiprocessor == 2) return stage.warpgroups == 1 ? 16 : 0;
  return stage.mma_tiles() > 1 ? 48 : (registers - 80) / 2;
}

/// Accumulators whose registers the sums of groups of int4 take, or factors of elements, as the compiler was found to need beside those that decoding leaves; sums of 128 of k find room
/// there.
std::int64_t group_accumulators(const WgmmaMoeStage& stage) {
  if (stage.scaled) {
    const bool is_full = stage.reallocates_registers() || (stage.weight.zero_points && stage.mma_tiles() > 1);
    const bool of_groups = stage.weight.group == 32 || (stage.weight.group == 64 && stage.warpgroups == 4);
    return of_groups && is_full ? 8 : 0;
  }
  const std::int64_t held = stage.mma_tiles() * stage.tokens / 2;
  switch (stage.weight.group) {
    case 32:
      return held;
    case 64:
      return stage.mma_tiles() > 1 || stage.reallocates_registers() || held > 48 ? held : 0;
    default:
      return 0;
  }
}

}  // namespace

std::string refuse_wgmma_moe(const WgmmaMoeStage& stage) {
  if (stage.cluster > 1 && (stage.rows < 128 || stage.sorts))
    return "no cluster of tiles of 64 rows, or of blocks that sort";
  const std::int64_t held = stage.mma_tiles() * stage.tokens / 2;
  const std::int64_t partial = stage.promoted ? stage.tokens / 2 : 0;
  if (held > (stage.promoted ? 128 : stage.reallocates_registers() || stage.warpgroups == 1 ? 192 : 128))
    return "more accumulators than registers";
  const bool two_blocks = stage.blocks_per_multiprocessor == 2;
  if (two_blocks && !stage.fp4 && (stage.warpgroups > 1 || held + partial > 64))
    return "two blocks of a multiprocessor have too few registers";
  if (stage.fp4 && stage.stage == 1 && !stage.interleaved && stage.rows > fp4_unit)
    return "no tile of 256 rows of a 4-bit w1 without gate";
  if (stage.fp4 && stage.cluster > 1) return "no cluster of a weight of 4 bits";
  if (stage.fp4 && held + group_accumulators(stage) > fp4_accumulators(stage))
    return "more accumulators than registers";
  if (stage.promoted && (stage.tokens > 160 || held + partial > 192))
    return "more partial sums than registers";
  // Without a gate the producer of such a tile lacks a register or two.
  if (!stage.promoted && stage.stage == 1 && !stage.interleaved && stage.warpgroups == 2 && held > 160)
    return "more accumulators than registers";
  if (stage.promoted && stage.stage == 1 && !stage.interleaved && stage.tokens > 96 && held > 64)
    return "more accumulators than registers";
  if (stage.num_stages < min_moe_stages) return "fewer than 3 stages fit into shared memory";
  return {};
}

Config default_wgmma_moe_config(const Problem& problem, const HopperLimits& limits,
                                const WgmmaMoeCost& cost) {
  gpu::FastestConfig fastest;
  const bool fp4 = has_weight_format(problem);
  const bool scalable = may_scale_elements(problem);
  // Sums of wide groups are few: with few tokens an expert elements gain nothing.
  const bool scales =
      problem.m > max_exact_rows &&
      (problem.w_group < 128 || routed_pairs(problem) >= min_scaled_tokens * problem.moe.experts);
  const auto consider = [&](std::int64_t tokens, std::int64_t rows, std::int64_t rows2,
                            std::int64_t warpgroups, std::int64_t shared, std::int64_t cluster) {
    Config config{{"bm", tokens}, {"bn", rows}, {"bo", rows2}, {"wg", warpgroups}, {"cm", cluster}};
    const bool deep = tokens <= 32 && std::max(rows, rows2) <= 128;
    config.set("bk", fp4 ? fp4_block_k : block_k_of(problem.w_type, deep ? 2 : 1));
    config.set("smem", shared);
    config.set("sort", std::int64_t{gpu::sorts_in_blocks(problem) ? 1 : 0});
    if (scalable) config.set("scaled", std::int64_t{scales ? 1 : 0});
    const auto stages = wgmma_moe_stages(problem, config, limits);
    if (refuse_wgmma_moe(stages[0]).empty() && refuse_wgmma_moe(stages[1]).empty())
      fastest.consider(config, predicted_wgmma_moe(problem, stages, limits, cost));
  };
  for (const std::int64_t tokens : {16, 32, 48, 64, 96, 128, 144, 160, 192}) {
    for (const std::int64_t rows : {64, 128, 256}) {
      for (const std::int64_t rows2 : {64, 128, 256}) {
        for (const std::int64_t shared : {226, 112}) {
          const std::int64_t narrow = std::min(rows, rows2);
          consider(tokens, rows, rows2, narrow > 64 && (fp4 || shared > 112) ? 2 : 1, shared, 1);
          if (fp4 && narrow > 64) consider(tokens, rows, rows2, narrow > 128 ? 4 : 1, shared, 1);
          if (fp4 && narrow > 128) consider(tokens, rows, 192, 4, shared, 1);
          // Of many tokens.
          if (!fp4 && tokens >= 96 && narrow > 128 && shared > 112)
            consider(tokens, rows, rows2, 2, shared, 2);
        }
      }
    }
  }
  return fastest.config();
}

}  // namespace gemmtune::cuda
