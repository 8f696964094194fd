// Named barriers: 1 to 15 of a block; 0 is __syncthreads()'s. Each kernel has an enumeration of those that it uses.
#pragma once

// Waits until THREADS threads have arrived, those that wait among them. THREADS is a multiple of 32.
template <int THREADS>
static __device__ __forceinline__ void sync_named(int barrier) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(THREADS) : "memory");
}
// Arrives without waiting.
template <int THREADS>
static __device__ __forceinline__ void arrive_named(int barrier) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "n"(THREADS) : "memory");
}
