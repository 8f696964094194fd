// Tiles, shared memory and grids of the two stages of wgmma_moe.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "backends/cuda/families/hopper.h"
#include "backends/cuda/families/weight_format.h"
#include "backends/cuda/families/wgmma/wgmma_launch_config.h"
#include "candidates/space.h"

namespace gemmtune::cuda {

inline constexpr std::int64_t width_step = 16;

/// One stage: `tokens` of a tile of one expert times `rows` rows of its weight.
struct WgmmaMoeStage {
  int stage = 1;
  std::int64_t tokens = 0;
  std::int64_t rows = 0;
  std::int64_t warpgroups = 1;  // consumers
  std::int64_t k_atoms = 1;
  std::int64_t blocks_per_multiprocessor = 1;
  std::int64_t cluster = 1;  // blocks that share a tile's rows, each with its own tokens
  bool interleaved = false;  // rows of gate and up alternate, 8 of each
  bool promoted = false;     // fp8
  bool fp4 = false;          // a weight of 4 bits
  WeightTraits weight;       // of fp4
  bool scaled = false;       // elements of int4 are multiplied by their scales, not sums of groups
  bool sorts = false;        // each block sorts all pairs
  bool quantizes = false;  // the stage quantizes the hidden layer, of which a tile has a group of 128 columns
  std::int64_t weight_row_bytes = 0;
  std::int64_t k_bytes = 0;  // of a token's row; with fp4 k is a multiple of 128
  std::int64_t k_tiles = 0;
  std::int64_t weight_rows = 0;   // of an expert
  std::int64_t column_tiles = 0;  // tiles of them
  std::int64_t columns = 0;       // of the result
  std::int64_t stage_bytes = 0;
  std::int64_t num_stages = 0;
  std::int64_t storage_bytes = 0;  // of stages, staging buffers and scales
  std::int64_t shared_bytes = 0;

  /// Of a tile of the sort: those of a cluster's blocks.
  std::int64_t sorted_tokens() const { return tokens * cluster; }
  std::int64_t threads() const { return 128 * (warpgroups + 1); }
  std::int64_t mma_tiles() const { return rows / 64 / warpgroups; }
  /// Tokens of the narrowest instructions: a tile with fewer tokens than `tokens` runs narrower ones, in steps of 16.
  std::int64_t min_width() const;
  /// Tokens that the epilogue rounds and stores at once.
  std::int64_t staged_tokens() const;
  /// Tokens of a box of the hidden layer.
  std::int64_t box_tokens() const { return min_width() < tokens ? width_step : tokens; }
  /// Whether consumers take registers from the producer.
  bool reallocates_registers() const;
  /// Of a thread that has a block of a multiprocessor's registers to itself; a reallocation that needs more in all never ends.
  std::int64_t registers_at_start() const {
    return registers_per_multiprocessor / threads() / 8 * 8 * threads();
  }
  /// Of a thread from the reallocation on; 0 without one.
  std::int64_t producer_registers() const;
  std::int64_t consumer_registers() const;
};

/// Of weights of 4 bits elements of k are permuted within units of so many, to which rows of tokens are padded.
inline constexpr std::int64_t fp4_unit = 128;

/// Whether scales of x and w change along k.
bool scales_by_block(const Problem& problem);

std::array<WgmmaMoeStage, 2> wgmma_moe_stages(const Problem& problem, const Config& config,
                                              const HopperLimits& limits);
std::vector<Parameter> wgmma_moe_parameters(const Problem& problem);
struct WgmmaMoeCost;
Config default_wgmma_moe_config(const Problem& problem, const HopperLimits& limits, const WgmmaMoeCost& cost);

/// Empty, or why the stage cannot be built.
std::string refuse_wgmma_moe(const WgmmaMoeStage& stage);

}  // namespace gemmtune::cuda
