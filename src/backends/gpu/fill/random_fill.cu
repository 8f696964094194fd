// Random elements as verify/random_fill.h defines them: four for each number of a SplitMix64, each an entry of a table of 4096. The host
// defines element, an unsigned integer.

#include "backends/gpu/fill/random_fill_arguments.h"

#define ENTRIES 4096
#define STATE_INCREMENT 0x9e3779b97f4a7c15ull

using gemmtune::gpu::RandomFillArguments;

extern "C" __global__ void __launch_bounds__(256, 1) fill_random(const RandomFillArguments a) {
  __shared__ element table[ENTRIES];
  for (int i = threadIdx.x; i < ENTRIES; i += 256) table[i] = a.table[i];
  __syncthreads();
  for (long long first = 4 * (blockIdx.x * 256LL + threadIdx.x); first < a.count; first += 4 * gridDim.x * 256LL) {
    unsigned long long z = a.state + (unsigned long long)(first / 4 + 1) * STATE_INCREMENT;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    z ^= z >> 31;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (first + i < a.count) a.to[first + i] = table[(z >> (16 * i)) & (ENTRIES - 1)];
  }
}
