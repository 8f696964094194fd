// Elements as verify/random_fill.h has them: four of each number of a SplitMix64, each an entry of a table of 4096. `entry` is an
// unsigned integer of ENTRY_BYTES.
#if ENTRY_BYTES == 4
typedef unsigned entry;
#elif ENTRY_BYTES == 2
typedef unsigned short entry;
#else
typedef unsigned char entry;
#endif
#define ENTRIES 4096
#define STEP 0x9e3779b97f4a7c15ull  // of the generator's state

struct Arguments {
  entry* to;
  const entry* table;
  unsigned long long state;  // before the first number
  long long count;
};

extern "C" __global__ void __launch_bounds__(256, 1) fill_random(const Arguments a) {
  __shared__ entry table[ENTRIES];
  for (int i = threadIdx.x; i < ENTRIES; i += 256) table[i] = a.table[i];
  __syncthreads();
  for (long long first = 4 * (blockIdx.x * 256LL + threadIdx.x); first < a.count; first += 4 * gridDim.x * 256LL) {
    unsigned long long z = a.state + (unsigned long long)(first / 4 + 1) * STEP;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    z ^= z >> 31;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (first + i < a.count) a.to[first + i] = table[(z >> (16 * i)) & (ENTRIES - 1)];
  }
}
