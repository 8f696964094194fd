// The launch config of the wgmma kernel for a problem: tiles, shared memory, grid; what is refused before it
// is compiled.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backends/cuda/hopper_launch.h"
#include "backends/gpu/runtime.h"
#include "base/rounding.h"
#include "candidates/space.h"
#include "problem/problem.h"

namespace gemmtune::cuda {

inline constexpr std::int64_t registers_per_multiprocessor = 65536;

/// D = A · Bᵀ with A = x, B = w, or, with swap_ab, A = w, B = x. block_m and cluster_m belong to A's rows,
/// block_n and cluster_n to B's. Shared memory in bytes.
struct WgmmaLaunchConfig {
  bool swap_ab = false;
  bool a_mn_major = false;  // the operand is column-major
  bool b_mn_major = false;
  std::int64_t block_m = 128;
  std::int64_t block_n = 128;
  std::int64_t consumer_warpgroups = 2;
  bool ping_pong = false;      // the warp groups compute alternate tiles; else they cooperate on each
  std::int64_t k_atoms = 1;    // block_k in units of 128 bytes
  std::int64_t cluster_m = 1;  // blocks along A's rows, which share B by multicast
  std::int64_t cluster_n = 1;  // blocks along B's rows, which share A
  std::int64_t split_k = 1;    // blocks of the cluster that divide k
  bool dependent_launch = false;
  std::int64_t promotion = 0;  // sets of partial sums (promotion_parameter())
  bool row_scales = false;     // the epilogue scales rows and columns
  bool block_scales = false;   // partial sums are scaled before they are added
  bool bias = false;
  std::int64_t n_slices = 1;  // instructions along block_n; a set of partial sums is of one
  /// Of a thread of the producer warp group, which leaves the others to the consumers; 0: no reallocation.
  std::int64_t producer_registers = 0;

  std::int64_t k_tiles = 1;
  std::int64_t num_stages = 0;
  std::int64_t staging_buffers_at_once = 2;  // of a warp, unless the pipeline's memory serves
  bool whole_staging = false;                // they hold all of a tile
  std::int64_t scale_groups = 0;             // places for groups of scales of blocks
  std::int64_t stage_bytes = 0;
  std::int64_t x_tiles = 1;     // of x's rows that are not past its end
  std::int64_t x_box_rows = 0;  // of x that a block loads for a tile; with multicast a part of the tile's
  std::int64_t last_x_box_rows = 0;  // for the last one
  std::int64_t storage_bytes = 0;    // the pipeline, and the staging buffers or the partial sums of others
  std::int64_t shared_bytes = 0;     // dynamic shared memory of a block
  std::int64_t batches = 1;
  bool batched = false;      // tiles are of batches, be it one
  std::int64_t tiles_m = 1;  // output tiles of a cluster in a batch, along A's rows
  std::int64_t tiles_n = 1;
  std::int64_t group_m = 1;        // tiles along A's rows in a rasterization group
  std::int64_t blocks_per_sm = 1;  // by shared memory and registers
  std::int64_t num_blocks = 1;     // of the grid
  bool weight_read_once = false;   // by one tile only
  bool single_tile = false;        // a block computes one tile; its epilogue reuses the pipeline's memory

  /// What block_n is a multiple of: the rows of an MN-major swizzle atom, or of an instruction.
  std::int64_t block_n_step() const { return b_mn_major ? 64 : 16; }
  std::int64_t cluster_size() const { return cluster_m * cluster_n * split_k; }
  /// Rows of the weight that a block loads for a tile; with multicast a part of the tile's.
  std::int64_t weight_box_rows() const { return (swap_ab ? block_m : block_n) / weight_sharers(); }
  /// Of x in a tile.
  std::int64_t x_rows() const { return swap_ab ? block_n : block_m; }
  /// The last of several tiles of x has fewer rows than the others.
  bool has_last_x() const { return last_x_box_rows != x_box_rows; }
  /// That arrive for a stage if each block that shares x loads `box_rows` of it.
  std::int64_t loaded_bytes(std::int64_t box_rows) const;
  /// Blocks that load a part each of the same rows.
  std::int64_t x_sharers() const { return swap_ab ? cluster_m : cluster_n; }
  std::int64_t weight_sharers() const { return swap_ab ? cluster_n : cluster_m; }
  /// Of all batches.
  std::int64_t tiles() const { return tiles_m * tiles_n * batches; }
  std::int64_t threads() const {
    return 128 * consumer_warpgroups + (producer_registers > 0 ? 128 : block_scales ? 64 : 32);
  }
  /// Registers that a block has when it starts; a reallocation that needs more never ends.
  std::int64_t registers_at_start() const {
    return registers_per_multiprocessor / threads() / 8 * 8 * threads();
  }
  /// Of a thread after the reallocation, in units of eight; 0: no reallocation.
  std::int64_t consumer_registers() const {
    if (producer_registers == 0) return 0;
    return (registers_at_start() - 128 * producer_registers) / (128 * consumer_warpgroups) / 8 * 8;
  }
  /// Rows of A for each warp group.
  std::int64_t warpgroup_m() const { return ping_pong ? block_m : block_m / consumer_warpgroups; }
  /// Arrivals that complete a phase of a stage's empty barrier: one for each consumer warp, or, with
  /// multicast, one for each warp group of each block that the stage's producers write to.
  std::int64_t empty_arrivals() const {
    const std::int64_t readers = ping_pong ? 1 : consumer_warpgroups;
    return cluster_m * cluster_n == 1 ? 4 * readers : readers * (cluster_m + cluster_n - 1);
  }
  /// Rows of y in a staging buffer.
  std::int64_t staged_rows() const { return !swap_ab ? 16 : block_n % 32 == 0 ? 32 : 16; }
  /// Columns of a tile past the last multiple of 128 bytes. y's elements have `bytes`.
  std::int64_t tail_columns(std::int64_t bytes) const { return swap_ab ? 0 : block_n % (128 / bytes); }
  /// Staging buffers that hold a tile's rows of a warp (swap_ab: of a warp group). y's elements have `bytes`.
  std::int64_t staging_buffers(std::int64_t bytes) const {
    return warpgroup_m() / 64 * ceil_div(block_n, swap_ab ? staged_rows() : 128 / bytes);
  }
  /// Blocks of the scales that `rows` rows of the weight, from a multiple of them on, may be of.
  static std::int64_t weight_blocks(std::int64_t rows) {
    const std::int64_t step = rows & -rows;
    return ceil_div((step < scale_block ? scale_block - step : 0) + rows, scale_block);
  }
  /// Scales of blocks that a thread has of one k atom (wgmma_block_scales.cuh).
  std::int64_t scales_of_thread() const {
    if (!block_scales) return 0;
    return warpgroup_m() / 64 * (swap_ab ? 1 : 2) + (swap_ab ? block_n / 4 : weight_blocks(block_n));
  }
  /// Stages whose scales of blocks are loaded together (wgmma_block_scales.cuh): of four k atoms, 16 bytes a row.
  std::int64_t group_stages() const { return 4 / k_atoms; }
  std::int64_t group_scales_bytes() const {
    if (!block_scales) return 0;
    return round_up(16 * ((swap_ab ? block_n : block_m) + weight_blocks(swap_ab ? block_m : block_n)), 128);
  }
  /// Registers of a thread that accumulate: sums and partial sums, and the scales of blocks of these.
  std::int64_t accumulators() const {
    return warpgroup_m() / 64 * block_n / 2 + promotion * (block_n / n_slices / 2) + scales_of_thread();
  }
};

WgmmaLaunchConfig wgmma_launch_config(const Problem& problem, const Config& config,
                                      const HopperLimits& limits);

std::vector<Parameter> wgmma_parameters(DataType element);
// Each returns why such a kernel cannot be built or run, or an empty text: by the operands' orders (swap, bn), by
// the tile (swap, bm, bn, wg, pp), by the cluster (cm, cn, csk), by all else.
std::string refuse_wgmma_order(const WgmmaLaunchConfig& launch);
std::string refuse_wgmma_tile(const WgmmaLaunchConfig& launch);
std::string refuse_wgmma_cluster(const WgmmaLaunchConfig& launch);
std::string refuse_wgmma(const WgmmaLaunchConfig& launch, const HopperLimits& limits);
// Each returns why the kernel is not worth a trial, or an empty text: by swap, bm and bn, by the whole
// config, by smem (`launch` is of `config`).
std::string refuse_wgmma_tile_waste(const Problem& problem, const WgmmaLaunchConfig& launch);
std::string refuse_wgmma_waste(const Problem& problem, const WgmmaLaunchConfig& launch,
                               const HopperLimits& limits);
std::string refuse_wgmma_smem(const Problem& problem, const Config& config, const WgmmaLaunchConfig& launch,
                              const HopperLimits& limits);
struct WgmmaCost;
Config default_wgmma_config(const Problem& problem, const HopperLimits& limits, const WgmmaCost& cost);

/// The definitions of WGMMA for `rows` rows of B (one instruction and its operands) and of FENCE_ACCUMULATORS. Only
/// elements of two bytes may be MN-major.
struct MnMajor {
  bool a = false;
  bool b = false;
};
std::string wgmma_macros(DataType element, std::int64_t rows, MnMajor operands = {});
/// The same of bf16 or fp16 whose first operand is in registers (four words): WGMMA is added to the sums, with WGMMA_FIRST they begin.
std::string wgmma_of_registers_macros(std::int64_t rows, DataType element = DataType::bf16);

}  // namespace gemmtune::cuda
