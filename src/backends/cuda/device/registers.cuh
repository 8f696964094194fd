// How many registers the threads of a warp group have, from a call on: COUNT each, a multiple of 8. All warps of the
// warp group call it.
#pragma once

// Fewer than before. The others are free for warp groups that take them.
template <int COUNT>
static __device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
// More than before. Waits until so many are free.
template <int COUNT>
static __device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}
