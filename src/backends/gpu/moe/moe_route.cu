// Sorts (token, expert) pairs by expert, in the order of pairs: a block for each expert. Every block counts all pairs of each expert (atomic additions of
// integers, whose order does not matter), so that it knows where its expert's pairs begin without waiting for another block; then it numbers its own pairs.
using gemmtune::gpu::MoeRouteArguments;
using gemmtune::gpu::MoeTile;

#define MAX_WARPS 32


// Sum of `value` over the threads before this one; `total` gets that over all.
static __device__ inline int exclusive_sum(int value, int* warps, int* total) {
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  int inclusive = value;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(0xffffffffu, inclusive, step);
    if (lane >= step) inclusive += other;
  }
  __syncthreads();
  if (lane == 31) warps[warp] = inclusive;
  __syncthreads();
  int before = 0;
  int all = 0;
  for (int i = 0; i < (int)blockDim.x / 32; ++i) {
    if (i < warp) before += warps[i];
    all += warps[i];
  }
  *total = all;
  return before + inclusive - value;
}

extern "C" __global__ void __launch_bounds__(1024) moe_route(const MoeRouteArguments a) {
  extern __shared__ int counts[];  // [experts]
  __shared__ int warps[MAX_WARPS];
  const int thread = threadIdx.x;
  const int threads = blockDim.x;
  const int expert = blockIdx.x;
  wait_for_the_kernel_in_front();
  for (int i = thread; i < a.experts; i += threads) counts[i] = 0;
  __syncthreads();
  const int share = (a.pairs + threads - 1) / threads;
  const int begin = thread * share < a.pairs ? thread * share : a.pairs;
  const int end = begin + share < a.pairs ? begin + share : a.pairs;
  int own = 0;
  for (int pair = begin; pair < end; ++pair) {
    const int id = a.ids[pair];
    if (id >= 0 && id < a.experts) {
      atomicAdd(&counts[id], 1);
      own += id == expert;
    } else if (expert == 0) {
      a.position_of[pair] = -1;
    }
  }
  __syncthreads();
  int before = 0;
  int tiles_before = 0;
  int tiles = 0;
  for (int i = thread; i < a.experts; i += threads) {
    const int of_expert = (counts[i] + a.block_m - 1) / a.block_m;
    tiles += of_expert;
    if (i < expert) {
      before += counts[i];
      tiles_before += of_expert;
    }
  }
  int first, first_tile, all_tiles, count;
  exclusive_sum(before, warps, &first);
  exclusive_sum(tiles_before, warps, &first_tile);
  exclusive_sum(tiles, warps, &all_tiles);
  int position = first + exclusive_sum(own, warps, &count);
  for (int pair = begin; own > 0 && pair < end; ++pair) {
    if (a.ids[pair] != expert) continue;
    a.pair_of[position] = pair;
    a.position_of[pair] = position++;
  }
  for (int i = thread; i * a.block_m < count; i += threads) {
    const int left = count - i * a.block_m;
    a.tiles[first_tile + i] = {expert, first + i * a.block_m, left < a.block_m ? left : a.block_m, i};
  }
  if (thread == 0) a.tiles_of[expert] = (count + a.block_m - 1) / a.block_m;
  if (thread == 0 && expert == 0) *a.tile_count = all_tiles;
}
