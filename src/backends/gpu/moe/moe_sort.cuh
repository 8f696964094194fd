// The sort by expert of few pairs, by each block itself: no kernel before the stages.
#pragma once

#include "backends/gpu/moe/moe_route_arguments.h"

using gemmtune::gpu::MoeTile;

#define MAX_SORTED 256  // pairs; a thread each

struct Sorted {
  int ids[MAX_SORTED];
  int pair_of[MAX_SORTED];
  MoeTile tiles[MAX_SORTED];
  int tiles_of[MAX_SORTED];  // by tile
  unsigned char begins_tile[MAX_SORTED];
};

// Returns the number of tiles, of at most BLOCK positions. A pair's position is the number of pairs before it: of experts of smaller number, or of its own expert and
// smaller number. `position_of`: where the first block stores the positions for the sum over a token's experts; or null.
template <int BLOCK>
static __device__ __forceinline__ int sort_pairs(const int* ids, int pairs, int experts, int* position_of,
                                                 Sorted& sorted) {
  const int pair = (int)threadIdx.x;
  const int id = pair < pairs ? __ldcg(ids + pair) : -1;
  const bool there = id >= 0 && id < experts;
  if (pair < MAX_SORTED) sorted.ids[pair] = there ? id : 0x7fffffff;
  __syncthreads();
  int position = 0;
  int index = 0;
  int count = 0;
  if (there) {
    for (int i = 0; i < pairs; ++i) {
      const int other = sorted.ids[i];
      const bool same = other == id;
      position += other < id || (same && i < pair);
      index += same && i < pair;
      count += same;
    }
    sorted.pair_of[position] = pair;
  }
  if (position_of && blockIdx.x == 0 && pair < pairs) position_of[pair] = there ? position : id == -1 ? -1 : -2;
  const bool begins = there && index % BLOCK == 0;
  if (pair < MAX_SORTED) sorted.begins_tile[pair] = begins;
  const int tiles = __syncthreads_count(begins);
  if (begins) {
    int number = 0;
    for (int i = 0; i < pairs; ++i) {
      const int other = sorted.ids[i];
      number += sorted.begins_tile[i] && (other < id || (other == id && i < pair));
    }
    sorted.tiles[number] = {id, position, count - index < BLOCK ? count - index : BLOCK, index / BLOCK};
    sorted.tiles_of[number] = (count + BLOCK - 1) / BLOCK;
  }
  __syncthreads();
  return tiles;
}
