// Sorts few (token, expert) pairs by expert, in the order of pairs: a block for each expert. Every block counts all pairs of each expert (atomic additions of
// integers, whose order does not matter), so that it knows where its expert's pairs begin without waiting for another block; then it numbers its own pairs. Of more pairs moe_count.cu and moe_place.cu are faster.

#include "backends/gpu/moe/moe_dependent.cuh"
#include "backends/gpu/moe/moe_pairs.cuh"
#include "backends/gpu/moe/moe_route_arguments.h"

#define MAX_GROUPS 32
#define SHARE 4  // neighbouring pairs that a thread reads at once

// Sum of a group's value over the groups of its wave: the lanes of a wave stay together.
static __device__ inline int sum_of_wave(int value_of_group) {
#if defined(__HIP__) || defined(__HIPCC_RTC__)
  return value_of_group + __builtin_amdgcn_ds_bpermute(((int)threadIdx.x ^ GROUP) * 4, value_of_group);
#else
  return value_of_group;
#endif
}

// Experts of SHARE pairs, as expert_of() has them; -1 from `end` on. All loads are under way before the first is used.
struct Ids {
  int of[SHARE];
};
static __device__ inline Ids read_ids(const MoeRouteArguments& a, int begin, int end) {
  Ids ids;
#pragma unroll
  for (int i = 0; i < SHARE; ++i) ids.of[i] = expert_of(a, begin + i < a.pairs ? begin + i : a.pairs - 1);
#pragma unroll
  for (int i = 0; i < SHARE; ++i) ids.of[i] = begin + i < end ? ids.of[i] : -1;
  return ids;
}

extern "C" __global__ void __launch_bounds__(1024) moe_route(const MoeRouteArguments a) {
  extern __shared__ int counts[];  // [experts]
  __shared__ int groups[MAX_GROUPS];
  const int thread = threadIdx.x;
  const int threads = blockDim.x;
  const int expert = blockIdx.x;
  wait_for_the_kernel_in_front();
  if (expert == 0) reset_counters(a, thread);
  for (int i = thread; i < a.experts; i += threads) counts[i] = 0;
  __syncthreads();
  // A group of threads has neighbouring pairs, GROUP * SHARE at a time.
  const int lane = thread % GROUP;
  const int groups_of_block = threads / GROUP;
  const int rounds = (a.pairs + groups_of_block * GROUP * SHARE - 1) / (groups_of_block * GROUP * SHARE);
  const int begin = thread / GROUP * rounds * GROUP * SHARE + lane * SHARE;
  int own = 0;
  for (int round = 0; round < rounds; ++round) {
    const int at = begin + round * GROUP * SHARE;
    const Ids ids = read_ids(a, at, a.pairs);
#pragma unroll
    for (int i = 0; i < SHARE; ++i) {
      own += ids.of[i] == expert ? 1 : 0;
      if (ids.of[i] >= 0) {
        atomicAdd(&counts[ids.of[i]], 1);
      } else if (expert == 0 && at + i < a.pairs) {
        a.position_of[at + i] = ids.of[i];
      }
    }
  }
  __syncthreads();
  int before = 0;
  int tiles_before = 0;
  int tiles = 0;
  for (int i = thread; i < a.experts; i += threads) {
    const int of_expert = tiles_of_expert(a, counts[i]);
    tiles += of_expert;
    if (i < expert) {
      before += counts[i];
      tiles_before += of_expert;
    }
  }
  int first, first_tile, all_tiles;
  exclusive_sum(before, groups, &first);
  exclusive_sum(tiles_before, groups, &first_tile);
  exclusive_sum(tiles, groups, &all_tiles);
  int count;
  // Of the group's first pair; positions follow the order of pairs.
  int position = first + value_of_lane(exclusive_sum(own, groups, &count), 0);
  const int own_of_wave = sum_of_wave(value_of_lane(inclusive_sum(own), GROUP - 1));
  for (int round = 0; round < rounds && own_of_wave > 0; ++round) {
    const int at = begin + round * GROUP * SHARE;
    const Ids ids = read_ids(a, at, a.pairs);
    int here = 0;
#pragma unroll
    for (int i = 0; i < SHARE; ++i) here += ids.of[i] == expert ? 1 : 0;
    const int inclusive = inclusive_sum(here);
    int to = position + inclusive - here;
    position += value_of_lane(inclusive, GROUP - 1);
#pragma unroll
    for (int i = 0; i < SHARE; ++i) {
      if (ids.of[i] != expert) continue;
      const int pair = at + i;
      if (a.shared > 0) {
        const int from = given_at(a, pair);
        a.weights[pair] = from < 0 ? 1.0f : a.given_weights[from];
      }
      a.pair_of[to] = pair;
      a.position_of[pair] = to++;
    }
  }
  store_tiles(a, expert, first, count, first_tile, thread, threads);
  if (thread == 0 && expert == 0) *a.tile_count = all_tiles;
}
