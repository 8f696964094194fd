// The sort by expert of few pairs, by each block itself: no kernel before the stages.
#pragma once

#include "backends/cuda/device/mbarrier.cuh"
#include "backends/gpu/moe/moe_route_arguments.h"

using gemmtune::gpu::max_sorted_pairs;
using gemmtune::gpu::MoeTile;
using gemmtune::gpu::sorted_pairs_of_thread;

struct SortedTile {
  unsigned short expert;
  unsigned short first;
  unsigned short count;
  unsigned char index;
  unsigned char tiles;  // of the expert
};
static __device__ __forceinline__ MoeTile tile_of(const SortedTile& tile) {
  return {tile.expert, tile.first, tile.count, tile.index};
}

struct Sorted {
  SortedTile tiles[max_sorted_pairs];
  int pair_of[max_sorted_pairs];
  int totals[32];  // of the warps' experts, pairs and 65536 * tiles
};
static_assert(sizeof(Sorted) <= gemmtune::gpu::sorted_bytes, "what the host leaves for it");

// Returns the number of tiles, of at most BLOCK positions. A pair's position is the number of pairs before it: of experts of smaller number, or of its own expert and
// smaller number. `position_of`: where the first block stores the positions for the sum over a token's experts; or null. `scratch`: (pairs / 32, rounded up, + 1) *
// experts words of shared memory, which bulk copies may write afterwards. All threads of the block.
template <int BLOCK>
static __device__ __forceinline__ int sort_pairs(const int* ids, int pairs, int experts, int* position_of,
                                                 Sorted& sorted, unsigned* scratch) {
  const int thread = (int)threadIdx.x;
  const int threads = (int)blockDim.x;
  const int lane = thread % 32;
  const int groups = (pairs + 31) / 32;
  if (blockIdx.x != 0) position_of = 0;
  // Bit i of masks[g * experts + e]: pair 32 g + i is of expert e.
  unsigned* const masks = scratch;
  unsigned* const firsts = scratch + groups * experts;  // by expert: pairs, then positions
  int id[sorted_pairs_of_thread];
#pragma unroll
  for (int i = 0; i < sorted_pairs_of_thread; ++i) {
    const int pair = thread + i * threads;
    id[i] = pair < pairs ? __ldcg(ids + pair) : -1;
  }
  for (int i = thread; i < groups * experts; i += threads) masks[i] = 0;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < sorted_pairs_of_thread; ++i) {
    const int pair = thread + i * threads;
    const bool there = id[i] >= 0 && id[i] < experts;
    if (there) atomicOr(masks + pair / 32 * experts + id[i], 1u << lane);
    if (!there && position_of && pair < pairs) position_of[pair] = id[i] == -1 ? -1 : -2;
  }
  __syncthreads();
  // Each thread has experts that follow each other.
  const int share = (experts + threads - 1) / threads;
  const int first = thread * share;
  const int end = first + share < experts ? first + share : experts;
  int own = 0;
  for (int expert = first; expert < end; ++expert) {
    int count = 0;
#pragma unroll 4
    for (int group = 0; group < groups; ++group) count += __popc(masks[group * experts + expert]);
    firsts[expert] = (unsigned)count;
    own += count + (count + BLOCK - 1) / BLOCK * 65536;
  }
  int sum = own;  // of the lanes up to this one
#pragma unroll
  for (int apart = 1; apart < 32; apart *= 2) {
    const int other = __shfl_up_sync(0xffffffffu, sum, (unsigned)apart);
    if (lane >= apart) sum += other;
  }
  if (lane == 31) sorted.totals[thread / 32] = sum;
  __syncthreads();
  const int total = lane < threads / 32 ? sorted.totals[lane] : 0;
  sum += __reduce_add_sync(0xffffffffu, lane < thread / 32 ? total : 0) - own;
  const int tiles = __reduce_add_sync(0xffffffffu, total) / 65536;
  int position = sum % 65536;
  SortedTile* tile = sorted.tiles + sum / 65536;
  for (int expert = first; expert < end; ++expert) {
    const int count = (int)firsts[expert];
    firsts[expert] = (unsigned)position;
    for (int i = 0; i * BLOCK < count; ++i) {
      const int left = count - i * BLOCK;
      *tile++ = {(unsigned short)expert, (unsigned short)(position + i * BLOCK),
                 (unsigned short)(left < BLOCK ? left : BLOCK), (unsigned char)i,
                 (unsigned char)((count + BLOCK - 1) / BLOCK)};
    }
    position += count;
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < sorted_pairs_of_thread; ++i) {
    const int pair = thread + i * threads;
    if (id[i] < 0 || id[i] >= experts) continue;
    const unsigned* const of_expert = masks + id[i];
    const int group = pair / 32;
    int to = (int)firsts[id[i]] + __popc(of_expert[group * experts] & ((1u << lane) - 1u));
#pragma unroll 4
    for (int before = 0; before < group; ++before) to += __popc(of_expert[before * experts]);
    sorted.pair_of[to] = pair;
    if (position_of) position_of[pair] = to;
  }
  fence_async_proxy();
  __syncthreads();
  return tiles;
}
