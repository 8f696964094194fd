// The part of a space that all families around BlockGemm share: instruction set, weight layout, register
// tile, depth.
#pragma once

#include "backends/cpu/families/blocked/block_gemm.h"

namespace gemmtune::cpu {

/// What a tile is chosen for: the format and how many rows of x meet one pass over the weights.
struct BlockWork {
  BlockFormat format;
  std::int64_t rows = 1;
  Isa level = Isa::scalar;  // the most that the core can do
};

/// isa, w, mr, nr, kc. `with_rows`: of the tiles for rows as they lie too.
void add_tile_parameters(const KernelSet& set, const BlockFormat& format, Space& space,
                         bool with_rows = false);
/// rows: 1 reads the weight's rows as they lie. Before add_tile_constraints().
void add_rows_parameter(const KernelSet& set, const BlockFormat& format, Space& space);
void add_tile_constraints(const KernelSet& set, const BlockWork& work, Space& space);
BlockTile tile_of(const Config& config);
Config tile_config(const BlockTile& tile, const BlockFormat& format);
/// The tile that the cost model ranks first. Requires a level with kernels for the format.
BlockTile default_tile(const KernelSet& set, const BlockWork& work);
/// The same of tiles for rows as they lie; nullopt where there is none.
std::optional<BlockTile> default_rows_tile(const KernelSet& set, const BlockWork& work);
/// A rough time on one thread: it only has to rank.
double block_microseconds(const KernelSet& set, const BlockWork& work, const BlockTile& tile);

}  // namespace gemmtune::cpu
