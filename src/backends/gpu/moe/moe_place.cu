// The second kernel of the sort of (token, expert) pairs by expert, in the order of pairs. moe_count.cu counted the pairs of each expert in each chunk of
// them: every block sums these counts, so that it knows where its chunk's pairs of each expert begin without waiting for another block, and moves the chunk's pairs.
// The blocks' groups of threads share the experts' tiles.

#include "backends/gpu/moe/moe_dependent.cuh"
#include "backends/gpu/moe/moe_pairs.cuh"
#include "backends/gpu/moe/moe_route_arguments.h"

#define THREADS 256
#define GROUPS (THREADS / GROUP)

// Sum of `value` over the lanes of this thread's group.
static __device__ inline int sum_of_group(int value) { return value_of_lane(inclusive_sum(value), GROUP - 1); }

// By one group of threads. `counts`: of all experts. Past the last expert nothing is stored: the groups of a wave stay together.
static __device__ inline void place_tiles(const MoeRouteArguments& a, const int* counts, int expert) {
  const int lane = threadIdx.x % GROUP;
  int first = 0;
  int first_tile = 0;
  int all_tiles = 0;
  for (int i = lane; i < a.experts; i += GROUP) {
    const int tiles = tiles_of_expert(a, counts[i]);
    all_tiles += tiles;
    if (i >= expert) continue;
    first += counts[i];
    first_tile += tiles;
  }
  first = sum_of_group(first);
  first_tile = sum_of_group(first_tile);
  all_tiles = sum_of_group(all_tiles);
  if (expert >= a.experts) return;
  store_tiles(a, expert, first, counts[expert], first_tile, lane, GROUP);
  if (lane == 0 && expert == 0) *a.tile_count = all_tiles;
}

extern "C" __global__ void __launch_bounds__(THREADS) moe_place(const MoeRouteArguments a) {
  extern __shared__ int counts[];  // [experts], then where the chunk's pairs of each expert begin
  int* const begins = counts + a.experts;
  __shared__ int groups[GROUPS];
  const int thread = threadIdx.x;
  wait_for_the_kernel_in_front();
  if (blockIdx.x == 0) reset_counters(a, thread);
  for (int i = thread; i < a.experts; i += THREADS) {
    int count = 0;
    int before = 0;
#pragma unroll 32
    for (int chunk = 0; chunk < a.chunks; ++chunk) {
      const int some = a.chunk_counts[(long long)chunk * a.experts + i];
      count += some;
      before += chunk < (int)blockIdx.x ? some : 0;
    }
    counts[i] = count;
    begins[i] = before;
  }
  __syncthreads();
  const int each = (a.experts + THREADS - 1) / THREADS;
  const int from = thread * each;
  const int to = from + each < a.experts ? from + each : a.experts;
  int own = 0;
  for (int i = from; i < to; ++i) own += counts[i];
  int total = 0;
  int first = exclusive_sum(own, groups, &total);
  for (int i = from; i < to; ++i) {
    begins[i] += first;
    first += counts[i];
  }
  __syncthreads();
  const int begin = blockIdx.x * a.chunk;
  const int end = begin + a.chunk < a.pairs ? begin + a.chunk : a.pairs;
  for (int pair = begin + thread; pair < end; pair += THREADS) {
    const int id = expert_of(a, pair);
    if (id < 0) continue;
    const int position = begins[id] + a.position_of[pair];
    if (a.shared > 0) {
      const int at = given_at(a, pair);
      a.weights[pair] = at < 0 ? 1.0f : a.given_weights[at];
    }
    a.pair_of[position] = pair;
    a.position_of[pair] = position;
  }
  for (int expert = blockIdx.x * GROUPS; expert < a.experts; expert += gridDim.x * GROUPS)
    place_tiles(a, counts, expert + thread / GROUP);
}
