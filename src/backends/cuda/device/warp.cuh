// What the lanes of a warp, and the warps of a warp group, agree on.
#pragma once

// True in one lane of a converged warp. The compiler then knows that one thread executes the branch and emits no loop
// over lanes for uniform operands.
static __device__ inline bool elect_one() {
  unsigned elected;
  asm volatile("{\n.reg .pred one;\nelect.sync _|one, 0xffffffff;\nselp.u32 %0, 1, 0, one;\n}" : "=r"(elected));
  return elected != 0;
}
// True if `own` is true of any thread of the warp group, whose threads wait for each other at the named barrier
// `barrier`.
static __device__ __forceinline__ bool any_of_warpgroup(bool own, int barrier) {
  unsigned some;
  asm volatile(
      "{\n"
      ".reg .pred own, any;\n"
      "setp.ne.u32 own, %1, 0;\n"
      "barrier.cta.red.or.aligned.pred any, %2, 128, own;\n"
      "selp.u32 %0, 1, 0, any;\n"
      "}"
      : "=r"(some)
      : "r"((unsigned)own), "r"(barrier)
      : "memory");
  return some != 0u;
}
