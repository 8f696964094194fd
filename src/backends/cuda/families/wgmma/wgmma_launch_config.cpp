#include "backends/cuda/families/wgmma/wgmma_launch_config.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "backends/cuda/families/hopper.h"
#include "backends/cuda/families/wgmma/wgmma_cost.h"
#include "backends/gpu/families/fastest_config.h"

namespace gemmtune::cuda {
namespace {

constexpr std::int64_t max_accumulators = 128;
constexpr std::int64_t max_accumulators_of_two_tiles = 80;
// With promotion, of a block of two warp groups and of one: 168 and 255 registers a thread.
constexpr std::int64_t max_promoted_accumulators = 152;
constexpr std::int64_t max_promoted_accumulators_of_one_group = 192;
// Registers that a consumer needs beside its accumulators after a reallocation: if its partial sums are as wide as the tile, if they are
// not, and if it has no partial sums and two tiles of 64 rows.
constexpr std::int64_t beside_accumulators = 16;
constexpr std::int64_t beside_accumulators_of_parts = 56;
constexpr std::int64_t beside_accumulators_of_two_tiles = 72;
constexpr std::int64_t beside_accumulators_for_scales = 16;             // more than these
constexpr std::int64_t beside_accumulators_for_scales_of_batches = 16;  // and more
// What the producer keeps: parts of a packed weight and boxes of batches have addresses of their own, and a warp loads
// scales of blocks.
constexpr std::int64_t producer_registers = 24;
constexpr std::int64_t producer_registers_of_parts = 40;
constexpr std::int64_t widest_plain_integers = 176;  // block_n
constexpr std::int64_t max_promoted_steps =
    2;  // of a stage; with more the compiler runs out of registers early
constexpr std::int64_t max_stages = 32;
constexpr std::int64_t stages_worth_whole_staging = 3;  // beside buffers for a whole tile
constexpr std::int64_t small_smem = 112;                // KiB: two blocks per multiprocessor
constexpr std::int64_t large_smem = 226;

/// Registers that a consumer needs beside its accumulators after a reallocation.
std::int64_t beside_accumulators_of(const WgmmaLaunchConfig& launch) {
  // Partial sums of a whole tile's width share their registers from step to step.
  const std::int64_t beside = launch.warpgroup_m() > 64 && launch.promotion == 0
                                  ? beside_accumulators_of_two_tiles
                              : launch.n_slices > 1 ? beside_accumulators_of_parts
                                                    : beside_accumulators;
  return beside + (launch.row_scales || launch.block_scales ? beside_accumulators_for_scales : 0);
}

std::int64_t max_accumulators_of_one_matrix(const WgmmaLaunchConfig& launch) {
  if (launch.producer_registers > 0) return launch.consumer_registers() - beside_accumulators_of(launch);
  if (launch.promotion > 0)
    return launch.consumer_warpgroups == 1 ? max_promoted_accumulators_of_one_group -
                                                 (launch.block_scales ? beside_accumulators_for_scales : 0)
                                           : max_promoted_accumulators;
  // Two tiles of 64 rows need addresses of their own: some epilogues then spill.
  return launch.warpgroup_m() > 64 ? max_accumulators_of_two_tiles : max_accumulators;
}

std::int64_t max_accumulators_of(const WgmmaLaunchConfig& launch) {
  // Sums with scales of rows that are sent to other blocks are scaled first: beside the widest tiles that spills with a bias.
  const bool sent = launch.split_k > 1 && launch.swap_ab && launch.row_scales && launch.promotion == 0;
  return max_accumulators_of_one_matrix(launch) -
         ((launch.batched && launch.row_scales) || sent ? beside_accumulators_for_scales_of_batches : 0);
}

/// The widest instructions whose partial sums fit beside the sums. Two sets are of whole tiles.
std::int64_t n_slices_of(WgmmaLaunchConfig launch) {
  if (launch.promotion != 1 || launch.accumulators() <= max_accumulators_of(launch)) return 1;
  return 2;
}

std::string refuse_accumulators(const WgmmaLaunchConfig& launch) {
  const std::int64_t steps = launch.k_atoms * launch.n_slices * (launch.warpgroup_m() / 64);
  if (launch.promotion > 1 && steps > 1) return "prom 2 is for stages of 128 of k and warp groups of 64 rows";
  if (launch.promotion > 0 && steps > max_promoted_steps) return "prom 1 makes too many steps of a stage";
  return launch.accumulators() > max_accumulators_of(launch) ? "tile needs more registers than a thread has"
                                                             : "";
}

/// Bytes of the staging buffers, or of the partial sums that other blocks send with split-K, as laid out in the kernel.
std::int64_t staging_bytes(const WgmmaLaunchConfig& launch, std::int64_t output_bytes) {
  if (launch.split_k > 1) {
    const std::int64_t units = launch.warpgroup_m() / 64 * launch.block_n / 8;
    return (launch.split_k - 1) * ceil_div(units, launch.split_k) * launch.consumer_warpgroups * 128 * 16;
  }
  if (launch.single_tile) return 0;
  // Of each warp group with swap_ab, else of each warp.
  return launch.staging_buffers_at_once * launch.consumer_warpgroups * launch.staged_rows() *
         (launch.swap_ab ? 64 * output_bytes : 4 * 128);
}

/// The group size with which a wave of clusters covers about a square of y.
std::int64_t group_m_of(const WgmmaLaunchConfig& launch, std::int64_t clusters_at_once) {
  const double shape = static_cast<double>(launch.block_n * launch.cluster_n) /
                       static_cast<double>(launch.block_m * launch.cluster_m);
  const double group = std::sqrt(static_cast<double>(clusters_at_once) * shape);
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(std::lround(group)), 1, launch.tiles_m);
}

/// For a tile with `rows` rows of x: no more than these, in multiples of the eight that a swizzle atom holds.
std::int64_t x_box_rows_of(std::int64_t rows, const WgmmaLaunchConfig& launch, bool column_major) {
  const std::int64_t sharers = launch.x_sharers();
  const std::int64_t most = launch.x_rows() / sharers;
  return column_major ? most : std::min(most, round_up(ceil_div(rows, sharers), std::int64_t{8}));
}

void choose_grid(const Problem& problem, const HopperLimits& limits, WgmmaLaunchConfig& launch) {
  const std::int64_t rows_a = launch.swap_ab ? problem.n : problem.m;
  const std::int64_t rows_b = launch.swap_ab ? problem.m : problem.n;
  launch.tiles_m = ceil_div(rows_a, launch.block_m * launch.cluster_m);
  launch.tiles_n = ceil_div(rows_b, launch.block_n * launch.cluster_n);
  launch.weight_read_once =
      (launch.swap_ab ? launch.tiles_n * launch.cluster_n : launch.tiles_m * launch.cluster_m) == 1;
  const std::int64_t by_memory =
      static_cast<std::int64_t>(limits.shared_bytes_per_multiprocessor) / (launch.shared_bytes + 1024);
  // Accumulators, and the registers that the rest of the kernel needs.
  const std::int64_t by_registers =
      registers_per_multiprocessor / (launch.threads() * (launch.accumulators() + 72));
  launch.blocks_per_sm = std::max<std::int64_t>(1, std::min(by_memory, by_registers));
  const std::int64_t at_once =
      std::max<std::int64_t>(1, limits.clusters_at_once(launch.cluster_size()) * launch.blocks_per_sm);
  const std::int64_t clusters = launch.split_k > 1 ? launch.tiles() : std::min(launch.tiles(), at_once);
  launch.num_blocks = clusters * launch.cluster_size();
  launch.group_m = group_m_of(launch, at_once);
}

/// Places for groups of scales of blocks beside so many stages. The producer writes a group when the stage of its first k tile is free, num_stages k
/// tiles on from what was read there; scales are read up to two k tiles later than operands.
std::int64_t scale_groups_of(const WgmmaLaunchConfig& launch, std::int64_t stages) {
  if (!launch.block_scales) return 0;
  const std::int64_t share = ceil_div(launch.k_tiles, launch.split_k);
  const std::int64_t groups = ceil_div(share, launch.group_stages());  // of a tile
  const bool one_tile = launch.split_k > 1 || launch.single_tile;
  // The fewest k tiles of so many groups in a row: the last group of a tile may have fewer than the others.
  const auto fewest = [&](std::int64_t count) {
    const std::int64_t missing = groups * launch.group_stages() - share;
    if (one_tile) return count * launch.group_stages();
    return count / groups * share +
           (count % groups == 0 ? 0 : count % groups * launch.group_stages() - missing);
  };
  std::int64_t between = 1;
  while (fewest(between) < stages + 1) ++between;
  return one_tile ? std::min(between + 1, groups + (launch.split_k > 1 ? 1 : 0)) : between + 1;
}

std::int64_t stages_beside(const WgmmaLaunchConfig& launch, std::int64_t fixed, std::int64_t smem_bytes,
                           const HopperLimits& limits) {
  const std::int64_t pipeline =
      std::min(smem_bytes, static_cast<std::int64_t>(limits.shared_bytes_per_block)) - fixed;
  std::int64_t stages = std::min(std::max<std::int64_t>(pipeline, 0) / launch.stage_bytes, max_stages);
  while (stages > 0 &&
         stages * launch.stage_bytes + scale_groups_of(launch, stages) * launch.group_scales_bytes() >
             pipeline)
    --stages;
  return stages;
}

void lay_out(WgmmaLaunchConfig& launch, std::int64_t smem_bytes, std::int64_t output_bytes,
             const HopperLimits& limits) {
  // The epilogue of a block's only tile reuses the pipeline's memory.
  const auto stages = [&] {
    return stages_beside(launch, shared_reserve + staging_bytes(launch, output_bytes), smem_bytes, limits);
  };
  launch.staging_buffers_at_once = 2;
  launch.num_stages = stages();
  launch.whole_staging = launch.single_tile;
  // Both warp groups of a promoted tile end at the same time, and its epilogue is in front of nothing: it must not wait for its own stores. (With a bias
  // the widest tiles would spill.)
  if (launch.promotion > 0 && !launch.bias && !launch.single_tile && launch.split_k == 1) {
    const std::int64_t most = launch.num_stages;
    launch.staging_buffers_at_once = launch.staging_buffers(output_bytes);
    launch.num_stages = stages();
    launch.whole_staging = launch.num_stages >= std::min(most, stages_worth_whole_staging);
    if (!launch.whole_staging) {
      launch.staging_buffers_at_once = 2;
      launch.num_stages = most;
    }
  }
  const std::int64_t staging = staging_bytes(launch, output_bytes);
  // A block with one tile needs no more stages than k tiles.
  if (launch.split_k > 1)
    launch.num_stages = std::min(launch.num_stages, ceil_div(launch.k_tiles, launch.split_k));
  launch.scale_groups = scale_groups_of(launch, launch.num_stages);
  launch.storage_bytes = launch.num_stages * launch.stage_bytes + staging;
  launch.shared_bytes =
      launch.storage_bytes + launch.scale_groups * launch.group_scales_bytes() + shared_reserve;
}

/// 0 if the producer is a warp. Partial sums make two warp groups need more than a third of the registers each, and so do wide tiles
/// of int32 sums, which are converted, and two tiles of 64 rows. The block has the multiprocessor for itself.
std::int64_t producer_registers_of(const Problem& problem, const WgmmaLaunchConfig& launch) {
  const bool wide_integers = problem.x_type == DataType::i8 && launch.block_n > widest_plain_integers;
  // (Sums of int32 are converted beside addresses of both tiles, unless a tile is a warp group's own.)
  const bool two_tiles =
      (accumulates_fewer_bits(problem.x_type) || (problem.x_type == DataType::i8 && launch.ping_pong)) &&
      launch.warpgroup_m() > 64 && launch.accumulators() > max_accumulators_of_two_tiles;
  if (launch.consumer_warpgroups == 1 || (launch.promotion == 0 && !wide_integers && !two_tiles)) return 0;
  return is_packed(problem) || wide_integers || launch.block_scales || launch.batched
             ? producer_registers_of_parts
             : producer_registers;
}

}  // namespace

std::int64_t WgmmaLaunchConfig::loaded_bytes(std::int64_t box_rows) const {
  return stage_bytes - k_atoms * (x_rows() - box_rows * x_sharers()) * atom_bytes;
}

WgmmaLaunchConfig wgmma_launch_config(const Problem& problem, const Config& config,
                                      const HopperLimits& limits) {
  WgmmaLaunchConfig launch;
  launch.swap_ab = config.number("swap", 0) != 0;
  const bool x_columns = problem.x_order == Order::column_major;
  const bool w_columns = problem.w_order == Order::column_major;
  launch.a_mn_major = launch.swap_ab ? w_columns : x_columns;
  launch.b_mn_major = launch.swap_ab ? x_columns : w_columns;
  launch.block_m = config.number("bm", 128);
  launch.block_n = config.number("bn", 128);
  launch.consumer_warpgroups = config.number("wg", 2);
  launch.ping_pong = config.number("pp", 0) != 0;
  launch.k_atoms = k_atoms_of(config, problem.x_type);
  launch.cluster_m = config.number("cm", 1);
  launch.cluster_n = config.number("cn", 1);
  launch.split_k = config.number("csk", 1);
  launch.dependent_launch = is_dependent(config);
  launch.promotion = config.number("prom", 0);
  launch.row_scales = quantization(problem) == QuantType::per_token;
  launch.block_scales = quantization(problem) == QuantType::per_1x128;
  launch.bias = problem.bias;
  launch.batches = problem.batch;
  launch.batched = traits(problem.operation).batched;
  const std::int64_t smem_kib = config.number("smem", large_smem);
  launch.producer_registers = smem_kib > small_smem ? producer_registers_of(problem, launch) : 0;
  launch.n_slices = n_slices_of(launch);
  launch.k_tiles = ceil_div(bytes_of(problem.x_type, problem.k), atom_bytes * launch.k_atoms);
  launch.stage_bytes = launch.k_atoms * (launch.block_m + launch.block_n) * atom_bytes;
  launch.x_tiles = ceil_div(problem.m, launch.x_rows());
  launch.x_box_rows = x_box_rows_of(problem.m, launch, x_columns);
  launch.last_x_box_rows =
      x_box_rows_of(problem.m - (launch.x_tiles - 1) * launch.x_rows(), launch, x_columns);
  const std::int64_t smem = smem_kib * 1024;
  const std::int64_t output_bytes = bits(problem.y_type) / 8;
  launch.single_tile = launch.split_k == 1 && !launch.ping_pong;
  lay_out(launch, smem, output_bytes, limits);
  choose_grid(problem, limits, launch);
  if (!launch.single_tile) return launch;
  // More tiles than blocks, or too few stages to stage the results of one.
  if (launch.num_blocks < launch.tiles() * launch.cluster_size() ||
      launch.staging_buffers(output_bytes) > launch.num_stages) {
    launch.single_tile = false;
    lay_out(launch, smem, output_bytes, limits);
    choose_grid(problem, limits, launch);
  }
  return launch;
}

std::vector<Parameter> wgmma_parameters(DataType element) {
  return {
      {"swap", {"0", "1"}, "0", "swap_ab, 1: A is the weight, B is x"},
      {"bm", {"64", "128", "256"}, "128", "block_m: rows of A in a tile"},
      {"bn",
       {"16", "32", "48", "64", "80", "96", "112", "128", "144", "160", "176", "192", "208", "224", "240",
        "256"},
       "128",
       "block_n: rows of B in a tile"},
      {"wg", {"1", "2"}, "2", "consumer warp groups"},
      {"pp", {"0", "1"}, "0", "1: ping-pong schedule, 0: cooperative"},
      block_k_parameter(element, {1, 2}),
      {"cm", {"1", "2", "4", "8"}, "1", "cluster_m: blocks along A's rows, which share B by multicast"},
      {"cn", {"1", "2", "4", "8"}, "1", "cluster_n: blocks along B's rows, which share A by multicast"},
      cluster_split_parameter(),
      pipeline_parameter({"112", "226"}, "226", 32),
      dependent_parameter(),
      promotion_parameter(element, {1, 2}),
  };
}

std::string refuse_wgmma_order(const WgmmaLaunchConfig& launch) {
  return launch.block_n % launch.block_n_step() == 0
             ? ""
             : "bn is no multiple of 64, which a column-major B needs";
}

std::string refuse_wgmma_tile(const WgmmaLaunchConfig& launch) {
  if (launch.ping_pong && launch.consumer_warpgroups < 2) return "pp needs two warp groups";
  const std::int64_t rows = launch.warpgroup_m();
  if (rows % 64 != 0 || rows == 0) return "bm leaves a warp group less than 64 rows";
  return refuse_accumulators(launch);
}

std::string refuse_wgmma_cluster(const WgmmaLaunchConfig& launch) {
  if (launch.cluster_size() > max_cluster) return "cm, cn and csk make a cluster of more than eight blocks";
  // The swizzle repeats after eight rows.
  if (launch.block_m / launch.cluster_n % 8 != 0 || launch.block_n / launch.cluster_m % 8 != 0 ||
      launch.block_m % launch.cluster_n != 0 || launch.block_n % launch.cluster_m != 0)
    return "cm or cn leaves a block a part of eight rows to load";
  return {};
}

std::string refuse_wgmma(const WgmmaLaunchConfig& launch, const HopperLimits& limits) {
  if (std::string refusal = refuse_accumulators(launch); !refusal.empty()) return refusal;  // by prom
  if (launch.block_scales && launch.promotion == 0) return "prom 0 adds no scales of blocks";
  if (launch.split_k > 1 && launch.ping_pong) return "pp does not go with csk";
  if (launch.split_k > launch.k_tiles) return "csk is more than the k tiles";
  if (launch.split_k * 8 > (launch.swap_ab ? launch.block_n : launch.block_m))
    return "csk leaves a block less than eight rows of y";
  const std::int64_t share = ceil_div(launch.k_tiles, launch.split_k);
  if (launch.num_stages < std::min<std::int64_t>(2, share) || launch.num_stages < 1)
    return "smem holds less than two stages";
  if (launch.shared_bytes > static_cast<std::int64_t>(limits.shared_bytes_per_block))
    return "smem is more shared memory than a block may have";
  return {};
}

std::string refuse_wgmma_tile_waste(const Problem& problem, const WgmmaLaunchConfig& launch) {
  const std::int64_t rows_a = launch.swap_ab ? problem.n : problem.m;
  const std::int64_t rows_b = launch.swap_ab ? problem.m : problem.n;
  if (launch.block_m > 64 && rows_a <= launch.block_m / 2) return "bm is more than twice the rows there are";
  const std::int64_t step = launch.block_n_step();
  if (launch.block_n > step && rows_b <= launch.block_n / 2)
    return "bn is more than twice the rows there are";
  // (Rows that are not there cost little: TMA reads none, and with scales of blocks a tile of 64 rows waits for latencies, not for its products.)
  if (!launch.swap_ab && problem.m < 48 && !(launch.block_scales && launch.block_m == 64))
    return "swap 0 leaves most rows of a tile empty";
  if (launch.swap_ab && problem.m > 768) return "swap 1 is for few rows";
  if (launch.swap_ab && launch.block_n < 64 && problem.m > 2 * launch.block_n)
    return "bn reads the weight too often";
  if (!launch.swap_ab && launch.block_n < 64 && problem.m > 256) return "bn is small for so many rows";
  if (launch.block_m == 256 && launch.block_n < 64) return "bm 256 needs a wider bn";
  // A block_n smaller by a step makes as many tiles.
  const std::int64_t across = ceil_div(rows_b, launch.block_n);
  if (launch.block_n > step && launch.block_n - step >= ceil_div(rows_b, across))
    return "bn makes as many tiles as a narrower one";
  return {};
}

std::string refuse_wgmma_waste(const Problem& problem, const WgmmaLaunchConfig& launch,
                               const HopperLimits& limits) {
  const std::int64_t processors = limits.multiprocessors;
  const std::int64_t tiles = launch.tiles() * launch.cluster_m * launch.cluster_n;
  const std::int64_t alone = ceil_div(launch.swap_ab ? problem.n : problem.m, launch.block_m) *
                             ceil_div(launch.swap_ab ? problem.m : problem.n, launch.block_n) *
                             launch.batches;
  // Between 64 and 128 there is no block_n for an MN-major B. Smaller tiles load more for a product: that is worth it if no tile waits
  // for another.
  const std::int64_t least = launch.b_mn_major ? 64 : 112;
  if (problem.m > 768 && launch.block_m * launch.block_n < 128 * least && alone > processors)
    return "tile is small for so many rows";
  if (launch.consumer_warpgroups == 1 && launch.block_m > 64) return "wg 1 is for small tiles";
  if (launch.k_atoms > 1 && launch.block_m + launch.block_n > 192) return "bk is for small tiles";
  if (launch.k_atoms > 1 && launch.k_tiles < launch.split_k * 3)
    return "bk leaves a block less than three k tiles";
  // A second wave also waits for the first one's reduction: at best 1.1 times the fastest kernel's time.
  if (launch.split_k > 1 &&
      launch.tiles() > limits.clusters_at_once(launch.cluster_size()) * launch.blocks_per_sm)
    return "csk makes more clusters than run at once";
  if (launch.split_k > 1 && launch.k_tiles < launch.split_k * 3)
    return "csk leaves a block less than three k tiles";
  if (tiles * launch.split_k * 4 < processors && launch.k_tiles >= launch.split_k * 16)
    return "most multiprocessors stay idle";
  if (launch.ping_pong && tiles <= processors) return "pp needs more tiles than multiprocessors";
  if (launch.cluster_m * launch.cluster_n > 1 && tiles * launch.split_k < processors / 2)
    return "multicast is for many blocks";
  if (tiles * 8 > alone * 9) return "cm or cn leaves blocks of clusters idle";
  return {};
}

std::string refuse_wgmma_smem(const Problem& problem, const Config& config, const WgmmaLaunchConfig& launch,
                              const HopperLimits& limits) {
  Config other = config;
  const bool large = config.number("smem", large_smem) > small_smem;
  other.set("smem", large ? small_smem : large_smem);
  const WgmmaLaunchConfig compared = wgmma_launch_config(problem, other, limits);
  if (large && launch.num_stages == compared.num_stages) return "smem makes as many stages as a smaller one";
  if (!large && launch.blocks_per_sm < 2 && compared.num_stages > launch.num_stages)
    return "smem is small for one block per multiprocessor";
  return {};
}

namespace {

Config config_of(const Problem& problem, bool swap_ab, std::int64_t block_m, std::int64_t block_n,
                 std::int64_t split_k, std::int64_t cluster_m, std::int64_t cluster_n) {
  Config config{{"swap", swap_ab ? 1 : 0},
                {"bm", block_m},
                {"bn", block_n},
                {"wg", block_m / 64},
                {"pp", 0},
                {"bk", block_k_of(problem.x_type, 1)},
                {"cm", cluster_m},
                {"cn", cluster_n},
                {"csk", split_k},
                {"smem", swap_ab ? small_smem : large_smem},
                {"pdl", 0}};
  if (accumulates_fewer_bits(problem.x_type)) config.set("prom", std::int64_t{2});
  return config;
}

/// For few rows: A and B swapped, enough blocks for every multiprocessor.
Config swap_ab_config(const Problem& problem, const HopperLimits& limits) {
  const bool mn_major = problem.x_order == Order::column_major;
  const std::int64_t block_n = mn_major || problem.m > 32 ? 64 : problem.m > 16 ? 32 : 16;
  const std::int64_t tiles = ceil_div(problem.n, 64) * ceil_div(problem.m, block_n) * problem.batch;
  const std::int64_t k_tiles = ceil_div(bytes_of(problem.x_type, problem.k), atom_bytes);
  const std::int64_t most = std::max<std::int64_t>(1, std::min(block_n / 8, k_tiles / 3));
  return config_of(problem, true, 64, block_n,
                   std::clamp<std::int64_t>(limits.multiprocessors / tiles, 1, most), 1, 1);
}

}  // namespace

Config default_wgmma_config(const Problem& problem, const HopperLimits& limits, const WgmmaCost& cost) {
  const bool few_rows = problem.m <= 64;
  const bool block_scales = quantization(problem) == QuantType::per_1x128;
  const bool promoted = accumulates_fewer_bits(problem.x_type);
  gpu::FastestConfig fastest;
  const auto consider = [&](const Config& config) {
    fastest.consider(config,
                     predicted_wgmma(problem, wgmma_launch_config(problem, config, limits), limits, cost));
  };
  const auto try_config = [&](const Config& config) {
    const WgmmaLaunchConfig launch = wgmma_launch_config(problem, config, limits);
    if (!refuse_wgmma_order(launch).empty() || !refuse_wgmma_tile(launch).empty() ||
        !refuse_wgmma_cluster(launch).empty() || !refuse_wgmma(launch, limits).empty() ||
        !refuse_wgmma_tile_waste(problem, launch).empty() ||
        (launch.split_k > 1 &&
         launch.tiles() > limits.clusters_at_once(launch.cluster_size()) * launch.blocks_per_sm))
      return;
    consider(config);
  };
  // Narrow tiles without clusters. `block_m` is of x, or of the weight if A and B are swapped.
  const auto try_narrow = [&](bool swap_ab, std::int64_t block_m, std::int64_t max_columns) {
    for (std::int64_t block_n = 16; block_n <= max_columns; block_n += 16) {
      for (std::int64_t split_k = 1; split_k <= max_cluster; ++split_k) {
        Config config = config_of(problem, swap_ab, block_m, block_n, split_k, 1, 1);
        for (const std::int64_t smem : {small_smem, large_smem}) {
          if (!few_rows && smem != large_smem) continue;
          config.set("smem", smem);
          for (const std::int64_t promotion : {1, 2}) {
            if (promoted) config.set("prom", promotion);
            if (promoted || promotion == 1) try_config(config);
          }
        }
      }
    }
  };
  if (few_rows) {
    consider(swap_ab_config(problem, limits));
    try_narrow(true, 64, 64);
    if (problem.m >= 48) try_narrow(false, 64, 128);  // with fewer rows such tiles are mostly empty
    return fastest.config();
  }
  // The best tile of 128 rows by the cost model; promoted ones may have 256.
  consider(config_of(problem, false, 128, 128, 1, 1, 1));
  // With scales of blocks the fastest kernels of so many rows divide k, or have tiles of 64 rows.
  if (block_scales && problem.m <= 256) {
    try_narrow(false, 64, 128);
    try_narrow(false, 128, 128);
  }
  for (std::int64_t block_n = 64; block_n <= 256; block_n += 16) {
    for (const std::int64_t split_k : {1, 2, 4}) {
      for (const auto& [cluster_m, cluster_n] : {std::pair{1, 1}, {2, 1}, {1, 2}, {2, 2}}) {
        Config config = config_of(problem, false, 128, block_n, split_k, cluster_m, cluster_n);
        try_config(config);
        if (!promoted) continue;
        config.set("prom", std::int64_t{1});
        try_config(config);
        config.set("bm", std::int64_t{256});
        try_config(config);
      }
    }
  }
  return fastest.config();
}

namespace {

/// Of `count` accumulators, between commas: their places in an instruction's text, and the operands d[0] … themselves.
std::string accumulator_places(std::int64_t count) {
  std::string text;
  for (std::int64_t i = 0; i < count; ++i) text += fmt::format("{}%{}", i == 0 ? "" : ", ", i);
  return text;
}
std::string accumulator_operands(std::int64_t count, char access, bool integers) {
  std::string text;
  for (std::int64_t i = 0; i < count; ++i)
    text += fmt::format("{}\"{}{}[{}])", i == 0 ? "" : ", ", access, integers ? "r\"((int&)d" : "f\"(d", i);
  return text;
}

}  // namespace

std::string wgmma_macros(DataType element, std::int64_t rows, MnMajor operands_major) {
  const std::int64_t count = rows / 2;
  const bool integers = element == DataType::i8;
  const std::string registers_text = accumulator_places(count);
  const std::string operands = accumulator_operands(count, '+', integers);
  const std::string outputs = accumulator_operands(count, '=', integers);
  const std::string_view types = element == DataType::f8_e4m3fn ? "32.f32.e4m3.e4m3"
                                 : integers                     ? "32.s32.s8.s8"
                                 : element == DataType::bf16    ? "16.f32.bf16.bf16"
                                                                : "16.f32.f16.f16";
  // What follows scale_d: factors of a and b, which integers do not have, and the orders of elements of two bytes.
  const std::string last = integers             ? std::string()
                           : bits(element) == 8 ? std::string(", 1, 1")
                                                : fmt::format(", 1, 1, {}, {}", operands_major.a ? 1 : 0,
                                                              operands_major.b ? 1 : 0);
  return fmt::format(
      "#define WGMMA(d, a, b, scale_d) asm volatile(\"{{.reg .pred accumulate; setp.ne.s32 accumulate, %{}, "
      "0; \" "
      "\"wgmma.mma_async.sync.aligned.m64n{}k{} {{{}}}, %{}, %{}, accumulate{};}}\" "
      ": {} : \"l\"(a), \"l\"(b), \"r\"(scale_d))\n"
      "#define WGMMA_FIRST(d, a, b) asm volatile(\"wgmma.mma_async.sync.aligned.m64n{}k{} {{{}}}, %{}, %{}, "
      "0{};\" : {} : \"l\"(a), \"l\"(b))\n"
      "#define FENCE_ACCUMULATORS(d) asm volatile(\"\" : {} : : \"memory\")\n",
      count + 2, rows, types, registers_text, count, count + 1, last, operands, rows, types, registers_text,
      count, count + 1, last, outputs, operands);
}

std::string wgmma_of_registers_macros(std::int64_t rows, DataType element) {
  const std::string_view type = element == DataType::f16 ? "f16" : "bf16";
  const std::int64_t count = rows / 2;
  const std::string registers = accumulator_places(count);
  // Sums that begin are outputs alone, but must stay where they are: in other registers they would be there twice.
  const std::string operands = accumulator_operands(count, '+', false);
  const auto instruction = [&](std::string_view name, bool adds) {
    return fmt::format(
        "#define {}(d, a, b) asm volatile(\"wgmma.mma_async.sync.aligned.m64n{}k16.f32.{}.{} {{{}}}, "
        "{{%{}, %{}, %{}, %{}}}, %{}, {}, 1, 1, 0;\" : {} : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), "
        "\"r\"(a[3]), \"l\"(b))\n",
        name, rows, type, type, registers, count, count + 1, count + 2, count + 3, count + 4, adds ? 1 : 0,
        operands);
  };
  return instruction("WGMMA", true) + instruction("WGMMA_FIRST", false) +
         fmt::format("#define FENCE_ACCUMULATORS(d) asm volatile(\"\" : {} : : \"memory\")\n", operands);
}

}  // namespace gemmtune::cuda
