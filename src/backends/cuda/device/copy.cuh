// Asynchronous copies of few bytes from global to shared memory by the threads themselves (cp.async), sm_80 and up.
#pragma once

#ifndef GEMMTUNE_EMULATION  // tests/support/emulation/ptx.h has these for the host

// Copies the first `bytes` of the 16 bytes at `from`, and writes zeros for the others.
static __device__ __forceinline__ void copy_unit(unsigned to, const unsigned char* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
// The thread's copies since the last call are a group.
static __device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits for all groups but the last PENDING.
template <int PENDING>
static __device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

#endif

static __device__ __forceinline__ void copy_unit(unsigned to, const unsigned char* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
// `policy`: an L2 eviction policy.
static __device__ __forceinline__ void copy_unit(unsigned to, const unsigned char* from, unsigned long long policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "l"(policy)
               : "memory");
}
static __device__ __forceinline__ void copy_float(unsigned to, const float* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}
// Arrives on the barrier when the thread's copies have been written; counts as one of the barrier's arrivals.
static __device__ __forceinline__ void arrive_after_copies(unsigned barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}
static __device__ __forceinline__ void wait_for_all_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }
