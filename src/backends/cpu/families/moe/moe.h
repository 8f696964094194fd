// moe, inside: settings of a config, token sorting, and the kernel they make.
#pragma once

#include <cstdint>
#include <memory>

#include "backends/cpu/families/blocked/block_gemm.h"
#include "problem/mixture_routes.h"

namespace gemmtune::cpu {

struct MoeSettings {
  BlockTile tile;             // of both multiplications
  std::int64_t block_m = 32;  // most tokens of a block, which is of one expert
  bool one_stage = false;     // a thread takes a block through both multiplications
};

/// The formats of the two multiplications of one expert at a level: x · w1ᵀ, and hidden · w2ᵀ where the
/// hidden layer is bf16, or float32 where the level computes in it.
struct MoeFormats {
  BlockFormat first;
  BlockFormat second;
};
MoeFormats moe_formats(const KernelSet& set, Isa isa, const Problem& problem);

/// Tokens by expert: position p of the sorted order is pair pair_of[p] (token · topk + slot) of token
/// token_of[p]; position_of is the inverse of pair_of. Blocks are runs of at most block_m positions of one
/// expert. Of an empty slot position_of is −1 − p, with a position p of its own behind all others, which is in no block.
struct MoeBlock {
  std::int32_t expert;
  std::int32_t first;  // position
  std::int32_t count;
};
struct MoeOrder {
  std::int32_t* pair_of = nullptr;
  std::int32_t* token_of = nullptr;
  std::int32_t* position_of = nullptr;
  std::int32_t* counts = nullptr;  // experts + 1
  MoeBlock* blocks = nullptr;      // max_blocks()
};
std::int64_t max_blocks(std::int64_t pairs, std::int64_t experts, std::int64_t block_m);
/// Sorts `tokens` · topk pairs; the number of blocks. Stable, so results do not depend on threads.
std::int64_t sort_tokens(const MoeShape& shape, const MixtureRoutes& routes, std::int64_t tokens,
                         std::int64_t block_m, const MoeOrder& order);

/// Requires a level and a tile that both formats have.
std::unique_ptr<Kernel> make_moe_kernel(const KernelSet& set, const Problem& problem,
                                        const MoeSettings& settings, int threads);

}  // namespace gemmtune::cpu
