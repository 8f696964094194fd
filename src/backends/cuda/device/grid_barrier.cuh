// A barrier of all blocks of a cooperative launch, by a warp of each, in words that may hold anything before.
#pragma once

static __device__ __forceinline__ unsigned load_relaxed(const unsigned* from) {
  unsigned value;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}
static __device__ __forceinline__ unsigned load_acquire(const unsigned* from) {
  unsigned value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}
static __device__ __forceinline__ void store_relaxed(unsigned* to, unsigned value) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
static __device__ __forceinline__ void store_release(unsigned* to, unsigned value) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
static __device__ __forceinline__ void add_release(unsigned* to) {
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(to) : "memory");
}

// Waits until the warps of all blocks are here; what lane 0 of each wrote before is visible then. `words`: grid_barrier_words(BLOCKS), on the host: arrivals, a line of their own, then a challenge and an echo for each block. The first block clears the count
// of arrivals, and the others add to it when they know that it did. For that a block stores a challenge that differs from what was there and from its echo, and the first block
// echoes what it reads.
template <int BLOCKS>
static __device__ __forceinline__ void synchronize_grid(unsigned* words) {
  constexpr int lines = (BLOCKS + 31) / 32;
  const int lane = (int)threadIdx.x % 32;
  unsigned* const challenges = words + 32;
  unsigned* const echoes = challenges + lines * 32;
  if (blockIdx.x == 0) {
    unsigned echo[lines];
#pragma unroll
    for (int i = 0; i < lines; ++i) echo[i] = load_relaxed(echoes + i * 32 + lane);
    if (lane == 0) store_relaxed(words, 1u);
    __syncwarp();
    __threadfence();
    unsigned arrived = 0;
#pragma unroll 1
    while (arrived < (unsigned)BLOCKS) {
      unsigned challenge[lines];
      arrived = load_relaxed(words);
#pragma unroll
      for (int i = 0; i < lines; ++i) challenge[i] = load_relaxed(challenges + i * 32 + lane);
#pragma unroll
      for (int i = 0; i < lines; ++i) {
        if (challenge[i] != echo[i]) store_relaxed(echoes + i * 32 + lane, challenge[i]);
        echo[i] = challenge[i];
      }
      arrived = __shfl_sync(0xffffffffu, arrived, 0);
    }
    __threadfence();
  } else if (lane == 0) {
    const unsigned was = load_relaxed(challenges + blockIdx.x);
    const unsigned echo = load_relaxed(echoes + blockIdx.x);
    unsigned own = 0;
    while (own == was || own == echo) ++own;
    store_relaxed(challenges + blockIdx.x, own);
    while (load_acquire(echoes + blockIdx.x) != own) {
    }
    add_release(words);
    while (load_acquire(words) != (unsigned)BLOCKS) {
    }
  }
  __syncwarp();
}
