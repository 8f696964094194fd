// Arguments of the kernel that sorts tokens by expert, and what it writes. The host includes this file too.
#pragma once

#include "backends/gpu/jit/layout_arguments.h"

namespace gemmtune::gpu {

/// Pairs that blocks sort themselves at most, without a kernel before the stages; each thread has so many.
constexpr int max_sorted_pairs = 512;
constexpr int sorted_pairs_of_thread = 2;
constexpr int sorted_bytes = 6400;  // of shared memory where blocks sort

/// At most block_m consecutive positions of one expert.
struct MoeTile {
  int expert;
  int first;  // position
  int count;
  int index;  // among the expert's tiles
};

/// A pair is a token's number times topk plus the slot; the last `shared` slots are those of the shared experts, the last of all. Positions are the numbers of pairs sorted by expert, within an
/// expert by pair.
struct MoeRouteArguments {
  const int* ids;    // [tokens, topk - shared]
  int* pair_of;      // [pairs], by position
  int* position_of;  // [pairs]; −1: the slot is empty (its id is −1), −2: its id is no expert
  MoeTile* tiles;
  int* tile_count;             // [3], see reset_counters()
  int* tiles_of;               // [experts], tiles of each expert
  const float* given_weights;  // [tokens, topk - shared]; read with shared experts only
  float* weights;              // [pairs]; written with shared experts only, whose pairs have the weight 1
  int* chunk_counts;  // [chunks, experts]: pairs of each expert; of many pairs only, as `chunk` and `chunks`
  int pairs;
  int experts;
  int block_m;
  int topk;
  int shared;
  int chunk;  // pairs of a chunk
  int chunks;
};

static_assert(sizeof(MoeTile) == 16 && GEMMTUNE_OFFSET(MoeTile, index) == 12,
              "host and device layouts differ");
static_assert(GEMMTUNE_OFFSET(MoeRouteArguments, pairs) == 72 && sizeof(MoeRouteArguments) == 104,
              "host and device layouts differ");

}  // namespace gemmtune::gpu
