// The first kernel of the sort by expert: a block for each chunk of pairs counts those of each expert, and numbers them: a pair's rank among its expert's pairs of the
// chunk, in the order of pairs, goes to position_of until moe_place knows positions.

#include "backends/gpu/moe/moe_dependent.cuh"
#include "backends/gpu/moe/moe_pairs.cuh"
#include "backends/gpu/moe/moe_route_arguments.h"

#define THREADS 256

extern "C" __global__ void __launch_bounds__(THREADS) moe_count(const MoeRouteArguments a) {
  extern __shared__ int counts[];  // [experts]
  __shared__ uint4 ids[THREADS / 4];
  const int thread = threadIdx.x;
  wait_for_the_kernel_in_front();
  for (int i = thread; i < a.experts; i += THREADS) counts[i] = 0;
  const int begin = blockIdx.x * a.chunk;
  const int end = begin + a.chunk < a.pairs ? begin + a.chunk : a.pairs;
  for (int first = begin; first < end; first += THREADS) {
    const int pair = first + thread;
    const int id = pair < end ? expert_of(a, pair) : -1;
    __syncthreads();  // the ids before were read, the counts are zero or of all pairs before
    ((int*)ids)[thread] = id;
    __syncthreads();
    int before = 0;
    int same = 0;
#pragma unroll 8
    for (int i = 0; i < THREADS / 4; ++i) {
      const uint4 others = ids[i];
      const int equal[4] = {(int)others.x == id, (int)others.y == id, (int)others.z == id, (int)others.w == id};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        same += equal[j];
        before += i * 4 + j < thread ? equal[j] : 0;
      }
    }
    const int counted = id >= 0 ? counts[id] : 0;
    if (pair < end) a.position_of[pair] = id >= 0 ? counted + before : id;
    __syncthreads();
    if (id >= 0 && before == same - 1) counts[id] = counted + same;
  }
  __syncthreads();
  for (int i = thread; i < a.experts; i += THREADS) a.chunk_counts[(long long)blockIdx.x * a.experts + i] = counts[i];
}
